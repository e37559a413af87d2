"""Finding functions by text and by the content of their filters (spec: hog-functions-api 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hoglab.patterns import searched

MAX_SEARCH_LENGTH = 200
NAME_SIMILARITY = 0.3
DESCRIPTION_SIMILARITY = 0.4
DESCRIPTION_WEIGHT = 0.5

_WORD = searched(r"\w+")

Match = Literal["exact", "similar"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A function that was found, and how well it fits."""

    id: str
    match: Match
    score: float
    name: str


def find(rows: Iterable[Mapping[str, Any]], search: str) -> list[Hit]:
    """Return the rows that fit a text, best first; rows that only resemble it count if none contains it."""
    wanted = search.replace("\0", "").strip().lower()
    hits = [hit for row in rows if (hit := _hit(row, wanted)) is not None]
    exact = [hit for hit in hits if hit.match == "exact"]
    return sorted(exact or hits, key=lambda hit: (-hit.score, hit.name.lower(), hit.id))


def _hit(row: Mapping[str, Any], wanted: str) -> Hit | None:
    name, description = row["name"] or "", row["description"] or ""
    in_name, in_description = wanted in name.lower(), wanted in description.lower()
    near_name, near_description = similarity(wanted, name), similarity(wanted, description)
    if in_name or in_description:
        score = 3.0 * (name.strip().lower() == wanted) + 2.0 * in_name + 1.0 * in_description
        return Hit(row["id"], "exact", score + near_name, name)
    score = near_name if near_name >= NAME_SIMILARITY else 0.0
    if near_description >= DESCRIPTION_SIMILARITY:
        score = max(score, near_description * DESCRIPTION_WEIGHT)
    return Hit(row["id"], "similar", score, name) if score else None


def similarity(wanted: str, text: str) -> float:
    """Return the share of the wanted text's trigrams that occur in the other text, from 0 to 1."""
    grams = _trigrams(wanted)
    return len(grams & _trigrams(text)) / len(grams) if grams else 0.0


def _trigrams(text: str) -> set[str]:
    """Return runs of three letters of each word; two blanks stand before a word and one behind it."""
    trigrams = set()
    for word in _WORD.findall(text.lower()):
        padded = f"  {word} "
        trigrams |= {padded[at : at + 3] for at in range(len(padded) - 2)}
    return trigrams


def contains(whole: Any, part: Any) -> bool:
    """Return whether a JSON value contains another: objects by a subset of keys, lists by each element."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(
            any(contains(element, value) for element in whole) for value in part
        )
    return isinstance(whole, bool) is isinstance(part, bool) and bool(whole == part)


def holds_any(filters: Any, groups: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether stored filters contain one of several partial ones."""
    return any(contains(filters, group) for group in groups)
