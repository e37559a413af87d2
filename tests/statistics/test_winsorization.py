"""Percentile bounds of pooled values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import WinsorBounds, quantile_rank, winsor_bounds

VALUES = st.lists(st.integers(-50, 50), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("level", "size", "rank"),
    [(0, 10, 0), (0.1, 10, 1), (0.99, 10, 9), (1, 10, 9), (0.5, 1, 0), (0.95, 100, 95)],
)
def test_the_rank_is_rounded_down_and_never_interpolated(level: float, size: int, rank: int) -> None:
    assert quantile_rank(level, size) == rank


@pytest.mark.parametrize(("level", "size"), [(-0.1, 5), (1.1, 5), (float("nan"), 5), (0.5, 0)])
def test_a_rank_of_nonsense_is_an_error(level: float, size: int) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile_rank(level, size)


def test_bounds_are_values_of_the_pool() -> None:
    pool = [7, 1, 100, 3, 5, 2, 4, 6, 8, 9]
    assert winsor_bounds(pool, 0.1, 0.8) == WinsorBounds(2, 9)
    assert winsor_bounds(pool, None, 0.9) == WinsorBounds(None, 100)
    assert winsor_bounds(pool, 0.2) == WinsorBounds(3, None)


def test_zeros_can_be_left_out_of_the_upper_bound_only() -> None:
    pool = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4]
    assert winsor_bounds(pool, 0.5, 0.5, ignore_zeros=True) == WinsorBounds(0, 3)
    assert winsor_bounds(pool, 0.5, 0.5) == WinsorBounds(0, 0)


def test_nothing_is_clamped_where_there_is_no_quantile() -> None:
    assert winsor_bounds([], 0.1, 0.9) == WinsorBounds(None, None)
    assert winsor_bounds([0, 0], 0.1, 0.9, ignore_zeros=True) == WinsorBounds(0, None)
    assert WinsorBounds(None, None).clamp(5) == 5


def test_where_the_bounds_cross_the_upper_one_wins() -> None:
    assert WinsorBounds(10, 3).clamp(0) == 3
    assert WinsorBounds(10, 3).clamp(99) == 3


@given(VALUES, st.floats(0, 1), st.floats(0, 1))
def test_clamped_values_lie_between_the_bounds(values: list[int], one: float, other: float) -> None:
    lower, upper = sorted((one, other))
    bounds = winsor_bounds(values, lower, upper)
    assert bounds.lower is not None
    assert bounds.upper is not None
    clamped = [bounds.clamp(value) for value in values]
    assert all(bounds.lower <= value <= bounds.upper for value in clamped)
    assert all(
        new == old for new, old in zip(clamped, values, strict=True) if bounds.lower <= old <= bounds.upper
    )
    assert winsor_bounds(values, 0, 1) == WinsorBounds(min(values), max(values))
