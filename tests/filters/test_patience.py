"""When slow programs are given up for the rest of a batch."""

from __future__ import annotations

import pytest

from hoglab.filters.hog.compute_quota import (
    BATCH_S,
    BATCH_SLOW_S,
    HURRIED_SLOW_S,
    QUICK_RUN_S,
    QUOTA_EXCEEDED,
    SHARE_SPENT,
    SLOW_RUN_S,
    ComputeQuota,
)


def runs_until_over(patience: ComputeQuota, used_s: float) -> int:
    for number in range(100_000):
        if patience.is_over("f"):
            return number
        patience.note("f", used_s)
    raise AssertionError("never given up")


@pytest.mark.parametrize(("hurried", "most_s"), [(False, BATCH_SLOW_S), (True, HURRIED_SLOW_S)])
def test_slow_runs_are_given_up_and_counted(hurried: bool, most_s: float) -> None:
    patience = ComputeQuota()
    if hurried:
        patience.hurry("f")
    excess_s = 1.0 - SLOW_RUN_S
    number = runs_until_over(patience, 1.0)
    assert (number - 1) * excess_s <= most_s < number * excess_s
    assert patience.excess_s("f") == pytest.approx(number * excess_s)
    assert patience.was_tried()
    assert not patience.is_over("g")
    assert patience.excess_s("g") == 0.0


def test_many_runs_that_are_not_slow_are_given_up_when_they_come_to_too_much() -> None:
    patience = ComputeQuota()
    number = runs_until_over(patience, SLOW_RUN_S)
    assert number * SLOW_RUN_S == pytest.approx(BATCH_S, abs=SLOW_RUN_S * 1.01)
    assert patience.excess_s("f") > BATCH_S, "all of it counts"


def test_what_is_quick_leaves_no_trace() -> None:
    patience = ComputeQuota()
    for _ in range(1_000):
        patience.note("f", 0.001)
    assert patience.run("f", lambda: 7) == 7
    assert not patience.was_tried()
    assert patience.excess_s("f") == 0.0


def test_what_fails_counts_too_and_what_is_refused_is_over_at_once() -> None:
    patience = ComputeQuota()
    with pytest.raises(ZeroDivisionError):
        patience.run("f", lambda: 1 / 0)
    assert not patience.is_over("f")
    patience.refuse("f")
    assert patience.is_over("f")
    assert patience.was_tried()


def test_all_together_have_a_share_that_quick_runs_do_not_use_up() -> None:
    patience = ComputeQuota(most_s=1.0)
    for number in range(10_000):
        patience.note(number, QUICK_RUN_S)
    assert patience.shared_s == 0.0
    patience.note("f", 0.6)
    assert patience.refusal("g") is None
    patience.note("g", 0.6)
    assert patience.refusal("h") == SHARE_SPENT
    assert patience.shared_s == pytest.approx(1.2 - 2 * QUICK_RUN_S)
    patience.refuse("f")
    assert patience.refusal("f") == QUOTA_EXCEEDED, "its own fault comes first"
    assert list(patience.slow_runs("g")) == [0.6]
    assert list(patience.slow_runs(1)) == []
