"""Patterns that need an engine which backtracks: look-around and back-references (spec: sdk-wire 3.6).

RE2 knows neither. Backtracking can take exponential time, so a search is given up after a while; that is no match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import regex

SEARCH_TIMEOUT_S: Final = 0.02
"""How long one search may take; a sound pattern takes microseconds."""

MAX_PATTERN_LENGTH: Final = 1_000
"""Longest pattern that backtracks; longer ones count as invalid."""

MAX_TEXT_LENGTH: Final = 10_000
"""Longest text that is searched this way; longer ones do not match."""

_NEEDS_BACKTRACKING = re.compile(r"\(\?(?:=|!|<=|<!|>|P=)|\\[1-9]|\\k<")


def compile_backtracking(pattern: str) -> Callable[[str], bool] | None:
    """An unanchored, case-sensitive search for a pattern that RE2 cannot take.

    None for a pattern that is invalid, and for one that fails in RE2 for another reason than what RE2 lacks.
    """
    if len(pattern) > MAX_PATTERN_LENGTH or not _NEEDS_BACKTRACKING.search(pattern):
        return None
    try:
        compiled = regex.compile(pattern, regex.VERSION0)
    except (regex.error, OverflowError, RecursionError):
        return None

    def search(text: str) -> bool:
        if len(text) > MAX_TEXT_LENGTH:
            return False
        try:
            return compiled.search(text, timeout=SEARCH_TIMEOUT_S) is not None
        except (TimeoutError, MemoryError):
            return False

    return search
