"""Corrections of p-values for having made several tests.

Each function takes the p-values of one family and returns the adjusted ones in the same order. A test that
gave no p-value (None) stays None and does not count towards the size of the family. Corrections are opt-in:
PostHog's wire has none, so `Correction.NONE` is the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

PValues = Sequence[float | None]


class Correction(StrEnum):
    """Correction of the p-values of one experiment's metrics and variants for multiple testing."""

    NONE = "none"
    BONFERRONI = "bonferroni"
    HOLM = "holm"
    BENJAMINI_HOCHBERG = "benjamini-hochberg"

    def adjust(self, p_values: PValues) -> list[float | None]:
        """Return the p-values adjusted by a correction, in their own order. Raises ValueError for one outside 0..1."""
        match self:
            case Correction.NONE:
                return _adjust(p_values, list)
            case Correction.BONFERRONI:
                return bonferroni(p_values)
            case Correction.HOLM:
                return holm(p_values)
            case Correction.BENJAMINI_HOCHBERG:
                return benjamini_hochberg(p_values)


def bonferroni(p_values: PValues) -> list[float | None]:
    """Multiply each p-value by their number, at most 1: controls the chance of any false positive under any dependence.

    Source: Dunn 1961.
    """
    return _adjust(p_values, lambda ordered: [min(1.0, len(ordered) * p) for p in ordered])


def holm(p_values: PValues) -> list[float | None]:
    """Adjust p-values by step-down Bonferroni: the guarantee of `bonferroni`, never less powerful. Source: Holm 1979.

    In ascending order, the running maximum of (m - i)·p_i for i = 0, 1, ...
    """

    def step_down(ordered: Sequence[float]) -> list[float]:
        size = len(ordered)
        return _running(max, ((size - rank) * p for rank, p in enumerate(ordered)))

    return _adjust(p_values, step_down)


def benjamini_hochberg(p_values: PValues) -> list[float | None]:
    """Control the expected share of false positives among the positives. Source: Benjamini, Hochberg 1995.

    In ascending order, the running minimum from the largest down of m·p_i/i for i = 1, 2, ...
    """

    def step_up(ordered: Sequence[float]) -> list[float]:
        size = len(ordered)
        ranked = (p * size / rank for rank, p in zip(range(size, 0, -1), reversed(ordered), strict=True))
        return _running(min, ranked)[::-1]

    return _adjust(p_values, step_up)


def _adjust(p_values: PValues, correct: Callable[[Sequence[float]], list[float]]) -> list[float | None]:
    """Apply `correct` to the p-values in ascending order and put the results back in place."""
    family = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    if any(not 0 <= p <= 1 for p, _ in family):
        raise ValueError("a p-value must lie between 0 and 1")
    adjusted: list[float | None] = [None] * len(p_values)
    for (_, place), p in zip(family, correct([p for p, _ in family]), strict=True):
        adjusted[place] = p
    return adjusted


def _running(choose: Callable[[float, float], float], values: Iterable[float]) -> list[float]:
    """Return the running minimum or maximum of values, never above 1."""
    result: list[float] = []
    for value in values:
        capped = min(1.0, value)
        result.append(choose(result[-1], capped) if result else capped)
    return result
