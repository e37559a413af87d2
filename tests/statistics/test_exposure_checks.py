"""Sample ratio mismatch and bias through multiple exposure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from hoglab.statistics import (
    SRM_ALARM_P_VALUE,
    bias_risk,
    counted_share_p_value,
    mismatch_of_phases,
    multinomial_evidence,
    sample_ratio_mismatch,
)

EVEN = {"control": 50, "test": 50}
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


@given(SPLITS)
def test_the_evidence_is_the_one_of_a_dirichlet_multinomial(split: list[tuple[int, int]]) -> None:
    """With scipy: the likelihood of the counts under both priors, over that of the flag's shares."""
    counts = [count for count, _ in split]
    shares = np.array([share for _, share in split]) / sum(share for _, share in split)
    assume(sum(counts) > 0)
    total = sum(counts)
    null = stats.multinomial.logpmf(counts, total, shares)
    others = [stats.dirichlet_multinomial.logpmf(counts, weight * shares, total) for weight in (100, 3000)]
    expected = float(np.logaddexp(*others) - np.log(2) - null)
    assert multinomial_evidence(counts, shares.tolist()) == pytest.approx(expected, rel=1e-7, abs=1e-6)


WATCHED = [
    # People a day (or hour), looks, shares.
    (2000, 60, (0.5, 0.5)),
    (83, 1440, (0.5, 0.5)),
    (2000, 60, (0.25, 0.25, 0.25, 0.25)),
    (1000, 60, (0.99, 0.01)),
    (60, 60, (0.4, 0.3, 0.2, 0.1)),
]


def alarms(
    people: float, looks: int, shares: tuple[float, ...], kept: tuple[float, ...], runs: int
) -> list[int | None]:
    """First look at which each of the experiments is called a mismatch; ``kept`` is the share of people not lost."""
    arrive = np.array(shares) * np.array(kept) * people
    counts = np.random.default_rng(looks).poisson(arrive, (runs, looks, len(shares))).cumsum(axis=1)
    names = [f"v{place}" for place in range(len(shares))]
    rollout = dict(zip(names, shares, strict=True))
    first: list[int | None] = []
    for run in counts.tolist():
        looked = (sample_ratio_mismatch(dict(zip(names, seen, strict=True)), rollout) for seen in run)
        first.append(
            next(
                (
                    look
                    for look, found in enumerate(looked, 1)
                    if found is not None and found.is_alarming(ended=False)
                ),
                None,
            )
        )
    return first


@pytest.mark.parametrize(("people", "looks", "shares"), WATCHED)
def test_looking_often_raises_hardly_any_false_alarm(
    people: float, looks: int, shares: tuple[float, ...]
) -> None:
    """At most one of a thousand, ever. Of 120,000 looks at once there are hundreds by Pearson's test."""
    runs = 12_000 // looks
    stopped = [look for look in alarms(people, looks, shares, (1.0,) * len(shares), runs) if look is not None]
    assert len(stopped) <= 1 + 3 * (0.001 * runs) ** 0.5


def test_a_loss_of_five_percent_is_found_in_sixteen_days() -> None:
    first = [look or 99 for look in alarms(2000, 40, (0.5, 0.5), (1.0, 0.95), 120)]
    assert np.median(first) <= 16
    assert max(first) <= 40


def test_phases_of_the_split_are_judged_by_their_own_shares() -> None:
    """Half of the people come at 90:10, the others at 50:50: nobody is lost, though no single split has these sums."""
    phases = [
        ({"control": 9000, "test": 1000}, {"control": 90, "test": 10}),
        ({"control": 5000, "test": 5000}, EVEN),
    ]
    both = mismatch_of_phases([sample_ratio_mismatch(*phase) for phase in phases])
    assert both is not None
    assert both.expected == {"control": pytest.approx(14_000), "test": pytest.approx(6000)}
    assert (both.chi2, both.degrees_of_freedom, both.p_value, both.anytime_p_value) == (0, 2, 1, 1)
    together = sample_ratio_mismatch({"control": 14_000, "test": 6000}, EVEN)
    assert together is not None
    assert together.is_alarming(ended=False)


@pytest.mark.parametrize("ended", [False, True])
def test_a_mismatch_of_one_phase_stays_however_well_later_ones_go(ended: bool) -> None:
    broken = next(
        found
        for lost in range(1000)
        if (found := sample_ratio_mismatch({"control": 1000, "test": 1000 - lost}, EVEN)) is not None
        and found.is_alarming(ended=ended)
    )
    well = sample_ratio_mismatch({"control": 5000, "test": 5000}, EVEN)
    for later in range(1, 6):
        together = mismatch_of_phases([broken, *[well] * later])
        assert together is not None
        assert together.is_alarming(ended=ended)


def test_what_is_lost_in_every_phase_adds_up() -> None:
    lossy = sample_ratio_mismatch({"control": 1000, "test": 900}, EVEN)
    too_few = sample_ratio_mismatch({"control": 40, "test": 40}, EVEN)
    assert lossy is not None
    assert not lossy.is_alarming(ended=False)
    assert not lossy.is_alarming(ended=True)
    many = mismatch_of_phases([*[lossy] * 12, too_few])
    assert many is not None
    assert many.is_alarming(ended=False)
    assert many.is_alarming(ended=True)
    assert many.p_value == pytest.approx(stats.chi2.sf(12 * stats.chisquare([1000, 900]).statistic, 12))
    assert mismatch_of_phases([lossy, too_few]) == lossy
    assert mismatch_of_phases([too_few]) is None


@given(st.lists(st.tuples(st.integers(50, 5000), st.floats(0.2, 0.8)), min_size=2, max_size=5))
def test_shares_of_counted_people_are_compared_as_scipy_does(groups: list[tuple[int, float]]) -> None:
    exposed = {f"v{place}": size for place, (size, _) in enumerate(groups)}
    counted = {f"v{place}": round(size * share) for place, (size, share) in enumerate(groups)}
    found = counted_share_p_value(counted, {**exposed, "empty": 0}, ended=True)
    table = [[counted[key], size - counted[key]] for key, size in exposed.items()]
    assert found == pytest.approx(
        stats.chi2_contingency(table, correction=False).pvalue, rel=1e-8, abs=1e-300
    )
    anytime = counted_share_p_value(counted, exposed, ended=False)
    assert anytime is not None
    assert anytime >= found


def test_shares_of_few_people_are_not_compared() -> None:
    sizes = {"control": 1000, "test": 100}
    assert counted_share_p_value({"control": 40, "test": 14}, sizes, ended=True) is None, (
        "fewer than five expected"
    )
    assert counted_share_p_value({"control": 1000, "test": 100}, sizes, ended=True) is None, (
        "everybody is counted"
    )
    assert counted_share_p_value({"control": 1001, "test": 101}, sizes, ended=True) is None, (
        "and some came since"
    )
    assert counted_share_p_value({}, {"control": 500, "test": 0}, ended=True) is None
    assert counted_share_p_value({}, {}, ended=False) is None


@pytest.mark.parametrize("share", [0.02, 0.3, 0.97])
@pytest.mark.parametrize("split", [(100, 100), (180, 20), (60, 60, 60, 60)])
def test_the_share_of_counted_people_may_be_looked_at_daily(share: float, split: tuple[int, ...]) -> None:
    """At most one of a thousand without a difference, ever; a tenth more starters are found."""
    runs, days = 100, 60
    rng = np.random.default_rng(3)
    names = [f"v{place}" for place in range(len(split))]
    exposed = rng.poisson(split, (runs, days, len(split)))
    counted = rng.binomial(exposed, share)
    sums = exposed.cumsum(axis=1).tolist(), counted.cumsum(axis=1).tolist()

    def named(numbers: list[int]) -> dict[str, int]:
        return dict(zip(names, numbers, strict=True))

    stopped = sum(
        any(
            (counted_share_p_value(named(kept), named(people), ended=False) or 1.0) < SRM_ALARM_P_VALUE
            for people, kept in zip(*run, strict=True)
        )
        for run in zip(*sums, strict=True)
    )
    assert stopped <= 1


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
