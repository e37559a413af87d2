"""Several regular expressions searched for in one pass over a text."""

from __future__ import annotations

from collections.abc import Sequence

import re2

from hoglab.hog.values import LONG, charge

MAX_PATTERN_LENGTH = 200
"""Longest pattern that may run together with others."""

MEMORY_BYTES = 16 << 20


class PatternSet:
    """Patterns of RE2 that run as one automaton.

    An automaton that outgrew its memory would silently find nothing, and a single pattern has a way out of that
    which a set has not. Hence only short patterns without counted repetition are let in (`fits`).
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        options = re2.Options()
        options.max_mem = MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        together = re2.Set.SearchSet(options)
        for pattern in patterns:
            together.Add(pattern.encode("utf-8", "surrogatepass"))
        together.Compile()
        # The wrapper spends more time than the search; what it wraps answers the same question.
        self._match = getattr(together, "_set", together).Match

    @staticmethod
    def fits(pattern: str) -> bool:
        """Return whether a pattern may run together with others."""
        return len(pattern) <= MAX_PATTERN_LENGTH and "{" not in pattern

    def search(self, text: str) -> list[int]:
        """Return the numbers of the patterns that the text holds; none for the empty text, as everywhere in Hog."""
        if not text:
            return []
        if len(text) > LONG:
            charge(len(text) >> 6)
        return self._match(text.encode("utf-8", "surrogatepass")) or []
