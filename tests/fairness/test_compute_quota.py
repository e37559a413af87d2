"""When slow programs are given up for the rest of a batch."""

from __future__ import annotations

import pytest

from hoglab.fairness.compute_quota import (
    BATCH_S,
    BATCH_SLOW_S,
    HURRIED_SLOW_S,
    QUICK_RUN_S,
    QUOTA_EXCEEDED,
    SHARE_SPENT,
    SLOW_RUN_S,
    ComputeQuota,
)


def runs_until_over(quota: ComputeQuota, used_s: float) -> int:
    for number in range(100_000):
        if quota.is_over("f"):
            return number
        quota.note("f", used_s)
    raise AssertionError("never given up")


@pytest.mark.parametrize(("hurried", "most_s"), [(False, BATCH_SLOW_S), (True, HURRIED_SLOW_S)])
def test_slow_runs_are_given_up_and_counted(hurried: bool, most_s: float) -> None:
    quota = ComputeQuota()
    if hurried:
        quota.hurry("f")
    excess_s = 1.0 - SLOW_RUN_S
    number = runs_until_over(quota, 1.0)
    assert (number - 1) * excess_s <= most_s < number * excess_s
    assert quota.excess_s("f") == pytest.approx(number * excess_s)
    assert quota.was_tried()
    assert not quota.is_over("g")
    assert quota.excess_s("g") == 0.0


def test_many_runs_that_are_not_slow_are_given_up_when_they_come_to_too_much() -> None:
    quota = ComputeQuota()
    number = runs_until_over(quota, SLOW_RUN_S)
    assert number * SLOW_RUN_S == pytest.approx(BATCH_S, abs=SLOW_RUN_S * 1.01)
    assert quota.excess_s("f") > BATCH_S, "all of it counts"


def test_what_is_quick_leaves_no_trace() -> None:
    quota = ComputeQuota()
    for _ in range(1_000):
        quota.note("f", 0.001)
    assert quota.run("f", lambda: 7) == 7
    assert not quota.was_tried()
    assert quota.excess_s("f") == 0.0


def test_what_fails_counts_too_and_what_is_refused_is_over_at_once() -> None:
    quota = ComputeQuota()
    with pytest.raises(ZeroDivisionError):
        quota.run("f", lambda: 1 / 0)
    assert not quota.is_over("f")
    quota.refuse("f")
    assert quota.is_over("f")
    assert quota.was_tried()


def test_all_together_have_a_share_that_quick_runs_do_not_use_up() -> None:
    quota = ComputeQuota(most_s=1.0)
    for number in range(10_000):
        quota.note(number, QUICK_RUN_S)
    assert quota.shared_s == 0.0
    quota.note("f", 0.6)
    assert quota.refusal("g") is None
    quota.note("g", 0.6)
    assert quota.refusal("h") == SHARE_SPENT
    assert quota.shared_s == pytest.approx(1.2 - 2 * QUICK_RUN_S)
    quota.refuse("f")
    assert quota.refusal("f") == QUOTA_EXCEEDED, "its own fault comes first"
    assert list(quota.slow_runs("g")) == [0.6]
    assert list(quota.slow_runs(1)) == []
