"""Percentile bounds of per-entity values. Source: spec experiment-results 3.2.

The reference for what an engine computes in SQL: the quantile is the element at rank floor(level·N), without
interpolation, of the values of all variants pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True)
class WinsorBounds:
    """Values below `lower` become `lower`, values above `upper` become `upper`; None does not clamp."""

    lower: float | None
    upper: float | None

    def clamp(self, value: float) -> float:
        """Return min(max(lower, value), upper): where the bounds cross, the upper one wins."""
        if self.lower is not None:
            value = max(self.lower, value)
        return value if self.upper is None else min(value, self.upper)


def quantile_rank(level: float, size: int) -> int:
    """Return the 0-based rank of the quantile among `size` ascending values: floor(level·size), at most size - 1.

    Raises ValueError for a level outside 0..1 or no values.
    """
    if not 0 <= level <= 1:
        raise ValueError("a quantile level must lie between 0 and 1")
    if size < 1:
        raise ValueError("there is no quantile of nothing")
    return min(floor(level * size), size - 1)


def winsor_bounds(
    pool: Sequence[float],
    lower_bound_percentile: float | None = None,
    upper_bound_percentile: float | None = None,
    *,
    ignore_zeros: bool = False,
) -> WinsorBounds:
    """Compute the bounds from the pooled values of all variants; percentiles are fractions (0.99, not 99).

    `ignore_zeros` leaves zeros out of the upper percentile only. Without values to take a quantile of, nothing
    is clamped. Raises ValueError for a level outside 0..1.
    """
    ordered = sorted(pool)
    upper_pool = [value for value in ordered if value != 0] if ignore_zeros else ordered
    return WinsorBounds(
        lower=_quantile(ordered, lower_bound_percentile), upper=_quantile(upper_pool, upper_bound_percentile)
    )


def _quantile(ordered: Sequence[float], level: float | None) -> float | None:
    if level is None or not ordered:
        return None
    return ordered[quantile_rank(level, len(ordered))]
