"""The two legacy metric kinds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hoglab.statistics import FunnelVariant, SignificanceCode, TrendsVariant, VariantCountError, legacy_result
from hoglab.statistics.legacy.posteriors import BetaPosterior, chance_to_beat, expected_shortfall

DRAWS = 400_000
TOLERANCE = 0.004


def test_probabilities_and_loss_agree_with_draws() -> None:
    variants = [
        FunnelVariant("control", 100, 900),
        FunnelVariant("a", 135, 900),
        FunnelVariant("b", 120, 800),
    ]
    result = legacy_result(variants[0], variants[1:])
    rng = np.random.default_rng(1)
    draws = [rng.beta(1 + v.success_count, 1 + v.failure_count, DRAWS) for v in variants]
    assert result.probability == {
        "control": pytest.approx(np.mean(draws[0] > np.maximum(draws[1], draws[2])), abs=TOLERANCE),
        "a": pytest.approx(np.mean(draws[1] > draws[0]), abs=TOLERANCE),
        "b": pytest.approx(np.mean(draws[2] > draws[0]), abs=TOLERANCE),
    }
    # The two test variants have about the same rate; a little ahead is `a` at 13.04 % against 13.04 %.
    loss = np.mean(np.maximum(0, np.maximum(draws[0], draws[2]) - draws[1]))
    assert variants[1].rate >= variants[2].rate
    assert result.p_value == pytest.approx(loss, rel=0.02)
    assert result.significance_code is SignificanceCode.SIGNIFICANT
    assert result.significant


def test_counts_agree_with_draws() -> None:
    variants = [TrendsVariant("control", 40, 900), TrendsVariant("a", 60, 800), TrendsVariant("b", 10, 300)]
    result = legacy_result(variants[0], variants[1:])
    rng = np.random.default_rng(2)
    draws = [rng.gamma(1 + v.count, 1 / (1 + v.absolute_exposure), DRAWS) for v in variants]
    assert result.probability["control"] == pytest.approx(
        np.mean(draws[0] > np.maximum(draws[1], draws[2])), abs=TOLERANCE
    )
    assert result.probability["a"] == pytest.approx(np.mean(draws[1] > draws[0]), abs=TOLERANCE)
    assert result.probability["b"] == pytest.approx(np.mean(draws[2] > draws[0]), abs=TOLERANCE)


def test_sums_are_judged_by_a_normal_approximation() -> None:
    variants = (
        TrendsVariant("control", 5000.0, 1000, summed=True),
        TrendsVariant("test", 5600.0, 1000, summed=True),
    )
    result = legacy_result(variants[0], [variants[1]])
    control, test = (stats.norm(v.rate, v.rate * np.sqrt(0.75 / 1000)) for v in variants)
    assert result.credible_intervals["test"] == pytest.approx(test.interval(0.95), rel=1e-9)
    difference = stats.norm(0.6, np.hypot(control.std(), test.std()))
    assert result.probability["test"] == pytest.approx(difference.sf(0), rel=1e-9)
    assert result.probability["control"] == pytest.approx(difference.cdf(0), rel=1e-9)


def test_a_sum_of_nothing_is_judged_too() -> None:
    result = legacy_result(TrendsVariant("control", 0, 200, True), [TrendsVariant("test", 300.0, 200, True)])
    assert result.probability == {"control": pytest.approx(0, abs=1e-12), "test": pytest.approx(1)}


@pytest.mark.parametrize(
    ("ours", "theirs"), [((3, 5), (2_000_000, 3_000_000)), ((1, 1), (1, 1)), ((1, 500), (400, 1))]
)
def test_narrow_posteriors_are_resolved_beside_wide_ones(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    one, other = BetaPosterior(*ours), BetaPosterior(*theirs)
    win, lose = chance_to_beat(one, [other]), chance_to_beat(other, [one])
    assert win + lose == pytest.approx(1, abs=1e-9)
    gain, loss = expected_shortfall(other, [one]), expected_shortfall(one, [other])
    means = ours[0] / sum(ours), theirs[0] / sum(theirs)
    assert gain - loss == pytest.approx(means[0] - means[1], abs=1e-9)


def test_a_posterior_far_above_the_others_loses_nothing_and_always_wins() -> None:
    best, rest = BetaPosterior(900_000, 100), [BetaPosterior(100, 900_000), BetaPosterior(10, 90)]
    assert expected_shortfall(best, rest) == 0
    assert chance_to_beat(best, rest) == pytest.approx(1, abs=1e-12)
    assert chance_to_beat(rest[0], [best]) == 0


def test_millions_of_people_against_a_normal_approximation() -> None:
    control, test = (
        FunnelVariant("control", 1_000_000, 9_000_000),
        FunnelVariant("test", 1_000_900, 9_000_000),
    )
    result = legacy_result(control, [test])
    error = np.sqrt(sum(v.rate * (1 - v.rate) / v.absolute_exposure for v in (control, test)))
    assert result.probability["test"] == pytest.approx(
        stats.norm.cdf((test.rate - control.rate) / error), abs=1e-5
    )


@pytest.mark.parametrize(
    ("control", "test", "code"),
    [
        ((50, 49), (90, 10), SignificanceCode.NOT_ENOUGH_EXPOSURE),
        ((50, 50), (51, 49), SignificanceCode.LOW_WIN_PROBABILITY),
        ((50, 50), (61, 50), SignificanceCode.LOW_WIN_PROBABILITY),
        ((450, 550), (600, 400), SignificanceCode.SIGNIFICANT),
        ((600, 400), (450, 550), SignificanceCode.SIGNIFICANT),
    ],
)
def test_the_verdict_of_funnels(
    control: tuple[int, int], test: tuple[int, int], code: SignificanceCode
) -> None:
    result = legacy_result(FunnelVariant("control", *control), [FunnelVariant("test", *test)])
    assert result.significance_code is code
    assert result.significant is (code is SignificanceCode.SIGNIFICANT)
    assert result.p_value < 0.01 if result.significant else result.p_value == 1.0


def test_a_leader_that_may_lose_much_is_not_significant() -> None:
    """Nine chances in ten, but among several contenders the loss of choosing the leader is a whole point."""
    contenders = [FunnelVariant(key, 70, 50) for key in "abc"]
    result = legacy_result(FunnelVariant("control", 50, 60), contenders)
    assert max(result.probability.values()) >= 0.9
    assert result.significance_code is SignificanceCode.HIGH_LOSS
    assert result.p_value >= 0.01


@pytest.mark.parametrize(("count", "code"), [(0, "no_data"), (10, "too_much_data")])
def test_the_number_of_test_variants_is_limited(count: int, code: str) -> None:
    tests = [FunnelVariant(f"t{place}", 100, 100) for place in range(count)]
    with pytest.raises(VariantCountError) as refused:
        legacy_result(FunnelVariant("control", 100, 100), tests)
    assert refused.value.code == code


def test_nine_test_variants_are_allowed() -> None:
    tests = [FunnelVariant(f"t{place}", 100 + place, 100) for place in range(9)]
    result = legacy_result(FunnelVariant("control", 100, 100), tests)
    assert len(result.probability) == len(result.credible_intervals) == 10


def test_variants_without_exposure_are_not_enough() -> None:
    for control, test in (
        (FunnelVariant("control", 0, 0), FunnelVariant("test", 0, 0)),
        (TrendsVariant("control", 0, 0), TrendsVariant("test", 0, 0)),
        (TrendsVariant("control", 0, 0, True), TrendsVariant("test", 0, 0, True)),
    ):
        result = legacy_result(control, [test])
        assert result.significance_code is SignificanceCode.NOT_ENOUGH_EXPOSURE
        assert result.probability["test"] == pytest.approx(0.5)
        assert control.rate == 0


@pytest.mark.parametrize(
    ("successes", "code"),
    [(117, SignificanceCode.LOW_WIN_PROBABILITY), (118, SignificanceCode.SIGNIFICANT)],
)
def test_nine_of_ten_chances_are_enough(successes: int, code: SignificanceCode) -> None:
    test = FunnelVariant("test", successes, 1000 - successes)
    result = legacy_result(FunnelVariant("control", 100, 900), [test])
    assert max(result.probability.values()) == pytest.approx(0.9, abs=0.012)
    assert result.significance_code is code
