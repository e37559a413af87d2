"""Patterns that need an engine which backtracks: look-around and back-references (spec: sdk-wire 3.6).

RE2 knows neither. Backtracking can take exponential time, so a search is given up after a while; that is no match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import regex

from hoglab.filters.allowance import on_account
from hoglab.filters.pattern_grammar import PatternRefusedError, check_grammar
from hoglab.patterns import searched

SEARCH_TIMEOUT_S: Final = 0.02
"""Time limit of one search; a sound pattern takes microseconds."""

MAX_TEXT_LENGTH: Final = 10_000
"""Longest text that is searched this way; longer ones do not match."""

_NEEDS_BACKTRACKING = searched(r"\(\?(?:=|!|<=|<!|>|P=)|\\[1-9]|\\k<")


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
        try:
            return compiled.search(text, timeout=SEARCH_TIMEOUT_S) is not None
        except (TimeoutError, MemoryError, RecursionError):
            return False

    return on_account(search)
