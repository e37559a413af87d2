"""The patterns of users, as searches that cannot hold up the server (spec: sdk-wire 3.6)."""

from __future__ import annotations

from collections.abc import Callable

import re2

from hoglab.filters.allowance import on_account
from hoglab.filters.backtracking import compile_backtracking

MAX_REGEX_MEMORY_BYTES = 4 * 1024 * 1024
"""Maximum memory of one compiled pattern; larger patterns count as invalid."""

MAX_WORK = 10_000_000
"""Largest product of a text's length and a pattern's size in RE2's steps; nothing is found beyond it.

An awkward pattern makes RE2 take all of its steps for each byte, at some 3 ns each, and nothing can interrupt it."""
FREE_WORK = 200_000
"""Product of lengths that is charged to nobody: less than a millisecond at worst."""


def compile_regex(pattern: str) -> Callable[[str], bool] | None:
    """Return an unanchored, case-sensitive search that takes linear time (RE2), or None for an invalid pattern.

    Texts that are too long for the pattern are not found (see `MAX_WORK`).
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_REGEX_MEMORY_BYTES
    try:
        compiled = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError):
        return None
    size = compiled.programsize

    def search(text: str) -> bool:
        return compiled.search(text.encode("utf-8", "replace")) is not None

    long_search = on_account(search)

    def bounded(text: str) -> bool:
        work = len(text) * size
        if work <= FREE_WORK:
            return search(text)
        return work <= MAX_WORK and long_search(text)

    return bounded


def compile_search(pattern: str) -> Callable[[str], bool] | None:
    """Return an unanchored, case-sensitive search of the pattern of a flag, or None for an invalid pattern.

    RE2 searches for what it knows. Look-around and back-references, which it lacks, are searched by an engine that
    backtracks, for a limited time. Raises `PatternRefusedError` for those of them that are not run here.
    """
    return compile_regex(pattern) or compile_backtracking(pattern)
