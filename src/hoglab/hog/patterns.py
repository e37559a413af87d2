"""Regular expressions of the standard library's engine, each compiled by the function that says how it is used.

That engine holds the interpreter while it searches, so a pattern that takes more than linear time lets one text of a
stranger stop the process. A test reads all patterns, tells from their form whether they stay linear in that use, and
attacks them. Patterns of users run in RE2 (`hoglab.hog.rt.regex`).
"""

from __future__ import annotations

import re
from re import ASCII, DOTALL, IGNORECASE, MULTILINE, VERBOSE, Match, escape
from typing import AnyStr, Protocol

__all__ = [
    "ASCII",
    "DOTALL",
    "IGNORECASE",
    "MULTILINE",
    "VERBOSE",
    "Anchored",
    "Match",
    "Searched",
    "anchored",
    "escape",
    "searched",
    "trusted",
]

Searched = re.Pattern
"""A pattern that may be looked for anywhere in a text."""


class Anchored(Protocol[AnyStr]):
    """A pattern that is tried at one place of a text; to search for it could take quadratic time."""

    @property
    def pattern(self) -> AnyStr: ...

    def match(self, string: AnyStr, pos: int = 0, endpos: int = ...) -> Match[AnyStr] | None:
        """Return the match that begins at a place."""

    def fullmatch(self, string: AnyStr, pos: int = 0, endpos: int = ...) -> Match[AnyStr] | None:
        """Return the match that is the whole text."""


def anchored(pattern: AnyStr, flags: int = 0) -> Anchored[AnyStr]:
    """Compile a pattern that takes linear time at one place of a text, whatever the text is."""
    return re.compile(pattern, flags)


def searched(pattern: AnyStr, flags: int = 0) -> Searched[AnyStr]:
    """Compile a pattern that takes linear time to search for, whatever the text is."""
    return re.compile(pattern, flags)


def trusted(pattern: str, flags: int = 0) -> Searched[str]:
    """Compile a pattern that meets nothing but texts which are part of the product. It is not attacked by tests."""
    return re.compile(pattern, flags)
