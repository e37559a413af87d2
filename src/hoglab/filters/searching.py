"""The patterns of users, as searches that cannot hold up the server (spec: sdk-wire 3.6)."""

from __future__ import annotations

from collections.abc import Callable

import re2

from hoglab.filters.backtracking import compile_backtracking

MAX_REGEX_MEMORY_BYTES = 4 * 1024 * 1024
"""Maximum memory of one compiled pattern; larger patterns count as invalid."""


def compile_regex(pattern: str) -> Callable[[str], bool] | None:
    """Return an unanchored, case-sensitive search that takes linear time (RE2), or None for an invalid pattern."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_REGEX_MEMORY_BYTES
    try:
        compiled = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError):
        return None
    return lambda text: compiled.search(text.encode("utf-8", "replace")) is not None


def compile_search(pattern: str) -> Callable[[str], bool] | None:
    """Return an unanchored, case-sensitive search of the pattern of a flag, or None for an invalid pattern.

    RE2 searches for what it knows. Look-around and back-references, which it lacks, are searched by an engine that
    backtracks, for a limited time. Raises `PatternRefusedError` for those of them that are not run here.
    """
    return compile_regex(pattern) or compile_backtracking(pattern)
