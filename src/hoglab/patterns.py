"""Regular expressions of the server: the functions of the language's library, and two more.

The rule that patterns of the standard library's engine obey is in `hoglab.hog.patterns`. Patterns of users run in other
engines: in RE2, or in one with a time limit (`hoglab.filters.backtracking`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import re2

from hoglab.hog.patterns import (
    ASCII,
    DOTALL,
    IGNORECASE,
    MULTILINE,
    Match,
    Searched,
    anchored,
    escape,
    searched,
)

__all__ = [
    "ASCII",
    "DOTALL",
    "IGNORECASE",
    "MULTILINE",
    "Match",
    "Searched",
    "alternatives",
    "anchored",
    "escape",
    "linear",
    "searched",
]


def alternatives(forms: Iterable[str]) -> Searched[str]:
    """Compile patterns without repeats into one that finds the first of them, in the order given."""
    return re.compile("|".join(forms))


def linear(pattern: str) -> Any:
    """Compile a pattern for RE2, which takes linear time for each match, whatever the pattern is."""
    return re2.compile(pattern)
