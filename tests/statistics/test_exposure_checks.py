"""Sample ratio mismatch and bias through multiple exposure."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from hoglab.statistics import SRM_ALARM_P_VALUE, bias_risk, sample_ratio_mismatch

SPLITS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 100)), min_size=2, max_size=6)


@given(SPLITS)
def test_the_mismatch_agrees_with_scipy(split: list[tuple[int, int]]) -> None:
    observed = {f"v{place}": count for place, (count, _) in enumerate(split)}
    rollout = {f"v{place}": share for place, (_, share) in enumerate(split)}
    total, whole = sum(observed.values()), sum(rollout.values())
    assume(total >= 100)
    found = sample_ratio_mismatch(observed, rollout)
    assert found is not None
    reference = stats.chisquare(
        list(observed.values()), [total * share / whole for share in rollout.values()], sum_check=False
    )
    assert found.chi2 == pytest.approx(reference.statistic, rel=1e-9)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-8, abs=1e-300)
    assert sum(found.expected.values()) == pytest.approx(total)


def test_only_variants_of_the_rollout_take_part() -> None:
    plain = sample_ratio_mismatch({"control": 500, "test": 560}, {"control": 50, "test": 50})
    noisy = sample_ratio_mismatch(
        {"control": 500, "test": 560, "$multiple": 70, "holdout-3": 200, "off": 9},
        {"control": 40, "test": 40, "off": 0, "gone": 20},
        excluded_variants=["gone"],
    )
    assert noisy == plain


def test_a_variant_that_nobody_saw_takes_part() -> None:
    found = sample_ratio_mismatch({"control": 200}, {"control": 50, "test": 50})
    assert found is not None
    assert found.expected == {"control": 100.0, "test": 100.0}
    assert found.p_value < SRM_ALARM_P_VALUE


@pytest.mark.parametrize(
    ("observed", "rollout"),
    [
        ({"control": 50, "test": 49}, {"control": 50, "test": 50}),
        ({"control": 500}, {"control": 100}),
        ({"control": 500, "test": 500}, {"control": 100, "test": 0}),
        ({"control": 500, "test": 500}, {}),
        ({}, {"control": 50, "test": 50}),
    ],
)
def test_there_is_no_answer_from_too_little(observed: dict[str, int], rollout: dict[str, float]) -> None:
    assert sample_ratio_mismatch(observed, rollout) is None


def test_one_hundred_exposures_are_enough() -> None:
    assert sample_ratio_mismatch({"control": 50, "test": 50}, {"control": 50, "test": 50}) is not None


def test_negative_counts_are_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        sample_ratio_mismatch({"control": -1, "test": 200}, {"control": 50, "test": 50})


EXPOSURES = {"control": 900, "test": 95, "$multiple": 5}


def test_bias_needs_a_running_experiment_that_excludes_and_an_uneven_split() -> None:
    found = bias_risk(EXPOSURES, [90, 10], excludes_multiple=True)
    assert found is not None
    assert found.multiple_variant_percentage == pytest.approx(0.5)
    assert bias_risk(EXPOSURES, [90, 10], excludes_multiple=True, ended=True) is None
    assert bias_risk(EXPOSURES, [90, 10], excludes_multiple=False) is None
    assert bias_risk(EXPOSURES, [], excludes_multiple=True) is None
    assert bias_risk({}, [90, 10], excludes_multiple=True) is None


@pytest.mark.parametrize(("rollout", "even"), [([34, 33, 33], True), ([51, 49], False), ([50.5, 49.5], True)])
def test_a_spread_of_one_point_is_still_even(rollout: list[float], even: bool) -> None:
    assert (bias_risk(EXPOSURES, rollout, excludes_multiple=True) is None) is even


@pytest.mark.parametrize(("multiple", "risky"), [(1, False), (2, True)])
def test_a_tenth_of_a_percent_is_not_yet_a_risk(multiple: int, risky: bool) -> None:
    exposures = {"control": 900, "test": 100 - multiple, "$multiple": multiple}
    assert (bias_risk(exposures, [90, 10], excludes_multiple=True) is not None) is risky
