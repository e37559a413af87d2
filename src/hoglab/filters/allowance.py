"""Limits of the work that a request for flags may cause, whatever flags its project has and whatever texts it brings.

Flags are evaluated between other requests, which wait meanwhile. Searches that took long are charged to a project,
which gets no more of them for a while; comparisons of long texts are counted for each request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from hoglab.fairness.token_bucket import TokenBucket

QUICK_SEARCH_S: Final = 0.002
"""Duration of a search beyond which it is charged to the bucket of its account."""
BURST_S: Final = 0.2
"""Capacity of the bucket of one account in seconds of searches, which delay the flags of all projects."""
REFILL: Final = 0.02
"""Time of searches by which a bucket refills in a second, in seconds."""
MAX_ACCOUNTS: Final = 10_000
"""Accounts whose buckets are remembered; beyond that all count as full."""

MAX_COMPARED: Final = 10_000_000
"""Largest number of characters that the comparisons of one request may read, in texts that are not short."""
SHORT: Final = 1_000
"""Length of texts up to which comparisons are not counted."""

_now = time.monotonic
_account: ContextVar[int | None] = ContextVar("account", default=None)
_buckets: dict[int, TokenBucket] = {}
_compared: ContextVar[list[int] | None] = ContextVar("compared", default=None)


class AllowanceSpentError(Exception):
    """The comparisons of a request have read as many characters as they may."""


def begin_request(project_id: int) -> None:
    """Charge later searches in this context to a project, and count later comparisons from zero.

    Before the first call, searches are charged to nobody, and comparisons are not counted.
    """
    _account.set(project_id)
    _compared.set([0])


def charge_comparison(length: int, times: int = 1) -> None:
    """Count a text, or a list by its members, that is compared a number of times. Raises `AllowanceSpentError`."""
    if length > SHORT and (compared := _compared.get()) is not None:
        compared[0] += length * times
        if compared[0] > MAX_COMPARED:
            raise AllowanceSpentError


def on_account(search: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a search that finds nothing where searches on the same account took too long before."""

    def charged(text: str) -> bool:
        account = _account.get()
        if account is None:
            return search(text)
        bucket = _buckets.get(account)
        if bucket is not None and bucket.left(_now()) <= 0:
            return False
        started = time.thread_time()
        try:
            return search(text)
        finally:
            used_s = time.thread_time() - started
            if used_s > QUICK_SEARCH_S:
                _spend(account, used_s, _now())

    return charged


def _spend(account: int, used_s: float, now: float) -> None:
    if len(_buckets) > MAX_ACCOUNTS:
        _buckets.clear()
    bucket = _buckets.get(account) or TokenBucket(BURST_S, now, REFILL, BURST_S)
    _buckets[account] = bucket.filled(now).without(used_s)
