"""Hostile texts: long runs that a careless reader looks at again from each of their places."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

PREFIXES = (
    "",
    "-",
    "+1",
    "1.",
    "1e",
    "v1.2.",
    "1.0.0-",
    "2026-01-01T",
    '"',
    "'",
    "[",
    "a[b='",
    ':href="',
    "/*",
)
PUMPS = (
    "9",
    "1.",
    ".9",
    "e1",
    "0",
    " ",
    "\t",
    "a",
    "-",
    "a-",
    ".a",
    ";",
    "[",
    "(",
    "'",
    '"',
    "\\",
    "é",
    "[a=b]",
    "\n",
)
SUFFIXES = ("", "x", "\0", "]'\"", "\n!")


def hostile_texts(length: int) -> Iterator[str]:
    """Yield texts of about ``length`` characters: a beginning, a run, and an end that breaks the run's rule."""
    for prefix in PREFIXES:
        for pump in PUMPS:
            run = pump * (length // len(pump))
            yield from (prefix + run + suffix for suffix in SUFFIXES)


def processor_time(work: Callable[[], object]) -> float:
    """Return the seconds of this thread's processor time that a call takes; waiting does not count."""
    started = time.thread_time()
    work()
    return time.thread_time() - started
