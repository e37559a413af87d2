"""Patterns that need an engine which backtracks: look-around and back-references (spec: sdk-wire 3.6).

RE2 knows neither. Backtracking can take exponential time, so a search is given up after a while; that is no match.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import regex

from hoglab.fairness.token_bucket import TokenBucket
from hoglab.filters.pattern_grammar import PatternRefusedError, check_grammar
from hoglab.patterns import searched

SEARCH_TIMEOUT_S: Final = 0.02
"""Time limit of one search; a sound pattern takes microseconds."""

QUICK_SEARCH_S: Final = 0.002
"""Duration of a search beyond which it is charged to the bucket of its account."""
BURST_S: Final = 0.2
"""Capacity of the bucket of one account in seconds of searches, which delay the flags of all projects."""
REFILL: Final = 0.02
"""Time of searches by which a bucket refills in a second, in seconds."""
MAX_ACCOUNTS: Final = 10_000
"""Accounts whose buckets are remembered; beyond that all count as full."""

MAX_TEXT_LENGTH: Final = 10_000
"""Longest text that is searched this way; longer ones do not match."""

_NEEDS_BACKTRACKING = searched(r"\(\?(?:=|!|<=|<!|>|P=)|\\[1-9]|\\k<")


_now = time.monotonic
_account: ContextVar[int | None] = ContextVar("account", default=None)
_buckets: dict[int, TokenBucket] = {}


def search_on_account(project_id: int) -> None:
    """Charge later searches in this context to a project; before the first call, they are charged to nobody."""
    _account.set(project_id)


def _spend(account: int, used_s: float, now: float) -> None:
    if len(_buckets) > MAX_ACCOUNTS:
        _buckets.clear()
    bucket = _buckets.get(account) or TokenBucket(BURST_S, now, REFILL, BURST_S)
    _buckets[account] = bucket.filled(now).without(used_s)


def compile_backtracking(pattern: str) -> Callable[[str], bool] | None:
    """Return an unanchored, case-sensitive search for a pattern that RE2 cannot take.

    None for a pattern that is invalid, and for one that fails in RE2 for another reason than what RE2 lacks. Nothing is
    found where searches on the same account took too long before. Raises `PatternRefusedError` for a pattern that is
    outside of the grammar of `pattern_grammar`, or too large.
    """
    if not _NEEDS_BACKTRACKING.search(pattern):
        return None
    check_grammar(pattern)
    try:
        compiled = regex.compile(pattern, regex.VERSION0)
    except (MemoryError, RecursionError):
        raise PatternRefusedError("the regular expression needs too much memory") from None
    except (regex.error, OverflowError):
        return None

    def search(text: str) -> bool:
        if len(text) > MAX_TEXT_LENGTH:
            return False
        account, started = _account.get(), time.thread_time()
        bucket = None if account is None else _buckets.get(account)
        if bucket is not None and bucket.left(_now()) <= 0:
            return False
        try:
            return compiled.search(text, timeout=SEARCH_TIMEOUT_S) is not None
        except (TimeoutError, MemoryError, RecursionError):
            return False
        finally:
            used_s = time.thread_time() - started
            if account is not None and used_s > QUICK_SEARCH_S:
                _spend(account, used_s, _now())

    return search
