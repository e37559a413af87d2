"""Suggestions of the name that a misspelt name was probably meant to be."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SIMILARITY = 0.75
"""Minimum similarity of two names, from 0 to 1."""

LONGEST_NAME = 64
"""Maximum length of a name that gets a suggestion: comparing takes the square of the length."""
MAX_COMPARISONS = 5_000
"""Maximum number of pairs of names compared for one text: unknown names times known names."""

FOREIGN_FUNCTIONS = {
    "len": "length", "size": "length", "count": "length", "str": "toString", "String": "toString",
    "int": "toInt", "parseInt": "toInt", "float": "toFloat", "parseFloat": "toFloat", "Number": "toFloat",
    "toNumber": "toFloat", "toUpperCase": "upper", "toLowerCase": "lower", "uppercase": "upper",
    "lowercase": "lower", "split": "splitByString", "join": "arrayStringConcat", "map": "arrayMap",
    "filter": "arrayFilter", "reduce": "arrayReduce", "sort": "arraySort", "push": "arrayPushBack",
    "append": "arrayPushBack", "includes": "has", "contains": "has", "indexOf": "position",
    "substr": "substring", "replace": "replaceAll", "encodeURIComponent": "encodeURLComponent",
    "decodeURIComponent": "decodeURLComponent", "btoa": "base64Encode", "atob": "base64Decode",
    "log": "print", "console": "print", "echo": "print", "uuid": "generateUUIDv4",
}  # fmt: skip
"""Names that other languages have for functions of the library."""


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to a name, if any is close enough."""
    if len(name) > LONGEST_NAME:
        return None
    others = sorted(set(candidates) - {name})
    for candidate in others:
        if candidate.lower() == name.lower():
            return candidate
    matches = get_close_matches(name, others, n=1, cutoff=SIMILARITY)
    return matches[0] if matches else None


class Guesses:
    """Suggestions for all unknown names of one text, up to `MAX_COMPARISONS` comparisons."""

    def __init__(self, candidates: Collection[str]) -> None:
        self._candidates = candidates
        self._left = MAX_COMPARISONS

    def closest(self, name: str) -> str | None:
        """Return the result of the function `closest`, or None after too many comparisons."""
        if self._left < len(self._candidates):
            return None
        self._left -= len(self._candidates)
        return closest(name, self._candidates)


def closest_function(name: str, functions: Iterable[str]) -> str | None:
    """Return the name most similar to another, like `closest`, including names from other languages."""
    known = set(functions)
    foreign = FOREIGN_FUNCTIONS.get(name)
    return foreign if foreign in known else closest(name, known)
