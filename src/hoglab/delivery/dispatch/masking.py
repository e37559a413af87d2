"""Suppressing repeats: of events that look the same to a function, only some start it (spec: hog-runtime 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.hog import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.values import is_truthy, to_string
from hoglab.storage.invocations import MaskingCount

if TYPE_CHECKING:
    from hoglab.functions.runtime import CompiledMasking

MIN_TTL_S = 1
MAX_TTL_S = 86_400

Key = tuple[str, str]
"""Function id and the hash of its masking expression's value."""


@dataclass(frozen=True, slots=True)
class Masked:
    """The count that one candidate belongs to; None is never masked."""

    key: Key
    ttl_s: int
    threshold: int | None


def mask_of(function_id: str, masking: CompiledMasking, globals_: dict[str, Any]) -> Masked | None:
    """Return the key of a candidate; None when the expression fails or has no value, which lets it run."""
    try:
        value = masking.key(globals_)
    except (HogRuntimeError, HogThrow, HogLimit):
        return None
    if not is_truthy(value):
        return None
    text = to_string(value).encode("utf-8", "surrogatepass")
    digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
    ttl_s = max(MIN_TTL_S, min(masking.ttl_s, MAX_TTL_S))
    return Masked((function_id, digest), ttl_s, masking.threshold)


def allowed(before: int, after: int, threshold: int | None) -> int:
    """Return the number of candidates that may run, of those that raised a count from ``before`` to ``after``."""
    if not threshold or threshold < 0:
        return 1 if before == 0 else 0
    return (after - 1) // threshold - (before - 1) // threshold


def decide(
    candidates: Sequence[Masked | None], known: Mapping[Key, MaskingCount], now: datetime
) -> tuple[list[bool], list[MaskingCount]]:
    """Return for each candidate, in order, whether it may run; and the counts after that.

    A window begins with its first candidate and does not move. ``known`` holds open windows only.
    """
    wanted: dict[Key, tuple[int, Masked]] = {}
    for candidate in candidates:
        if candidate is not None:
            wanted[candidate.key] = (wanted.get(candidate.key, (0, candidate))[0] + 1, candidate)
    room: dict[Key, int] = {}
    counts: list[MaskingCount] = []
    for key, (number, candidate) in wanted.items():
        open_window = known.get(key)
        before = 0 if open_window is None else open_window.count
        expires_at = (
            now + timedelta(seconds=candidate.ttl_s) if open_window is None else open_window.expires_at
        )
        room[key] = allowed(before, before + number, candidate.threshold)
        counts.append(MaskingCount(*key, before + number, expires_at, before))
    passed = []
    for candidate in candidates:
        if candidate is None:
            passed.append(True)
            continue
        passed.append(room[candidate.key] > 0)
        room[candidate.key] -= 1
    return passed, counts
