"""What the methods promise, counted in simulated experiments.

Each promise knows whether the count keeps it: shares that have a nominal value must lie within three of their
standard errors, those that have only a bound must respect it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from statistics import fmean, pvariance
from zlib import crc32

import numpy as np
from tests.statistics.simulation.kinds import KINDS, Accumulating, Kind, mean_sample

from hoglab.statistics import (
    BayesianConfig,
    BayesianTest,
    CupedConfig,
    DifferenceType,
    FrequentistConfig,
    RelativeVariance,
    StatisticsConfig,
    SufficientStatistics,
    VariantComparison,
    WithCovariate,
    compare,
    power_at,
    sample_size_for,
)

SEED = 20261121
LEVEL = 0.95
ALPHA = 0.05
HISTORY = 200_000
"""Entities of history that a plan is made from."""
STANDARD_ERRORS = 3.0
STANDARD_ERRORS_OF_FEW = 4.0
"""For the short form: of so many lines one would be beyond three by chance."""
POWER_TOLERANCE = 0.02
DAYS = 60
MANY_RUNS = 4_000
"""From here on bounds are strict."""

METHODS: dict[str, BayesianConfig | FrequentistConfig] = {
    "frequentist": FrequentistConfig(ALPHA),
    "bayesian": BayesianConfig(LEVEL),
    "sequential": FrequentistConfig(ALPHA, sequential_testing_enabled=True),
}
FALSE_POSITIVES = {
    "frequentist": ALPHA,
    # The rule is one-sided on the chance to win: at 0.95 it errs on either side in one of twenty.
    "bayesian": 2 * (1 - LEVEL),
    "sequential": ALPHA,
}


def allowed_errors(runs: int) -> float:
    return STANDARD_ERRORS if runs >= MANY_RUNS else STANDARD_ERRORS_OF_FEW


@dataclass(frozen=True)
class Share:
    """How often something happened, and how often it should have.

    `nominal` is what it should be, or with `at_most` or `at_least` its bound.
    """

    count: int
    runs: int
    nominal: float
    at_most: bool = False
    at_least: bool = False

    @property
    def observed(self) -> float:
        return self.count / self.runs

    @property
    def standard_errors(self) -> float:
        """Signed distance from the nominal share."""
        return (self.observed - self.nominal) / sqrt(self.nominal * (1 - self.nominal) / self.runs)

    @property
    def kept(self) -> bool:
        """Bounds are strict on many runs; on few, chance is allowed for."""
        slack = 0.0 if self.runs >= MANY_RUNS else STANDARD_ERRORS_OF_FEW
        if self.at_most:
            return self.standard_errors < slack
        if self.at_least:
            return self.standard_errors > -slack
        return abs(self.standard_errors) <= allowed_errors(self.runs)


@dataclass(frozen=True)
class Power:
    """Share of significant results where there is an effect, and the share that the plan promised."""

    count: int
    runs: int
    promised: float

    @property
    def observed(self) -> float:
        return self.count / self.runs

    @property
    def kept(self) -> bool:
        chance = STANDARD_ERRORS_OF_FEW * sqrt(self.promised * (1 - self.promised) / self.runs)
        tolerance = POWER_TOLERANCE if self.runs >= MANY_RUNS else max(POWER_TOLERANCE, chance)
        return abs(self.observed - self.promised) <= tolerance


@dataclass(frozen=True)
class FixedHorizon:
    """One method on one kind of metric, judged once at the planned size."""

    kind: str
    method: str
    difference: DifferenceType
    size: int
    false_positives: Share
    coverage: Share
    power: Power

    @property
    def kept(self) -> bool:
        return self.false_positives.kept and self.coverage.kept and self.power.kept


@dataclass(frozen=True)
class Peeking:
    """An experiment without an effect, looked at every day and stopped at the first significant result."""

    kind: str
    sequential: Share
    fixed: Share
    """The same with the fixed-horizon test: what peeking does to it."""

    @property
    def kept(self) -> bool:
        return self.sequential.kept


@dataclass(frozen=True)
class VarianceReduction:
    """What CUPED gains: the fall of the variance of the estimates, and what the results claimed."""

    kind: str
    observed: float
    claimed: float
    standard_error: float
    coverage: Share
    posthog_coverage: Share
    """That of PostHog's form of the relative interval, for comparison; nothing is promised for it."""

    @property
    def kept(self) -> bool:
        tolerance = allowed_errors(self.coverage.runs) * self.standard_error
        close = abs(self.observed - self.claimed) <= tolerance
        return close and self.coverage.kept


def config_of(method: str, difference: DifferenceType) -> StatisticsConfig:
    return StatisticsConfig(replace(METHODS[method], difference_type=difference), CupedConfig(enabled=True))


def random(*stream: object) -> np.random.Generator:
    """A generator for each simulation, so that adding one leaves the others as they are."""
    return np.random.default_rng([SEED, crc32(repr(stream).encode())])


def pairs(
    kind: Kind, runs: int, size: int, growth: float
) -> Iterator[tuple[SufficientStatistics, SufficientStatistics]]:
    """`runs` experiments with `size` entities in each of two groups."""
    control = kind.groups(random(kind.name, growth, "control"), runs, size, 1.0)
    test = kind.groups(random(kind.name, growth, "test"), runs, size, growth)
    return zip(control, test, strict=True)


def planned_size(kind: Kind) -> int:
    """Entities in each group for 80 % power of the fixed-horizon relative test."""
    baseline = history(kind)
    size = sample_size_for(config_of("frequentist", DifferenceType.RELATIVE), baseline, kind.lift)
    return round(size / 2 * HISTORY / baseline.number_of_samples)


@cache
def history(kind: Kind) -> SufficientStatistics:
    groups = list(kind.groups(random(kind.name, "history"), kind.histories, HISTORY, 1.0))
    return groups[0] if len(groups) == 1 else mean_sample(groups)


def fixed_horizon(kind: Kind, runs: int) -> list[FixedHorizon]:
    """All methods, relative and absolute, on the same experiments."""
    size, baseline = planned_size(kind), history(kind)
    samples = round(2 * size * baseline.number_of_samples / HISTORY)
    cases = [(method, difference) for method in METHODS for difference in DifferenceType]
    configs = {case: config_of(*case) for case in cases}
    significant, covered, false = (dict.fromkeys(cases, 0) for _ in range(3))
    for pair in pairs(kind, runs, size, 1.0):
        for case in cases:
            false[case] += judged(configs[case], *pair).significant is True
    for pair in pairs(kind, runs, size, 1 + kind.lift):
        for case in cases:
            found = judged(configs[case], *pair)
            significant[case] += found.significant is True
            covered[case] += holds(found, truth_of(kind, case[1]))
    return [
        FixedHorizon(
            kind.name,
            method,
            difference,
            size,
            Share(false[case], runs, FALSE_POSITIVES[method], at_most=method == "sequential"),
            Share(covered[case], runs, LEVEL, at_least=method == "sequential"),
            Power(
                significant[case],
                runs,
                power_at(configs[case], baseline, truth_of(kind, difference), samples),
            ),
        )
        for case in cases
        for method, difference in [case]
    ]


def peeking(kind: Kind, runs: int, days: int = DAYS) -> Peeking:
    """Daily looks at experiments without an effect."""
    always = config_of("sequential", DifferenceType.RELATIVE)
    once = config_of("frequentist", DifferenceType.RELATIVE)
    stopped = fooled = 0
    control = kind.daily(random(kind.name, "daily", "control"), runs, days, 1.0)
    test = kind.daily(random(kind.name, "daily", "test"), runs, days, 1.0)
    for experiment in zip(control, test, strict=True):
        looks = list(zip(*experiment, strict=True))
        stopped += any(compare(always, *look).significant for look in looks)
        fooled += any(compare(once, *look).significant for look in looks)
    return Peeking(kind.name, Share(stopped, runs, ALPHA, at_most=True), Share(fooled, runs, ALPHA))


def variance_reduction(kind: Kind, runs: int) -> VarianceReduction:
    """Relative effects with and without adjustment on the same experiments."""
    adjusted = config_of("frequentist", DifferenceType.RELATIVE)
    plain = replace(adjusted, cuped=CupedConfig())
    posthog = replace(adjusted, cuped=CupedConfig(True, relative_variance=RelativeVariance.POSTHOG))
    estimates: dict[bool, list[float]] = {True: [], False: []}
    claims: list[float] = []
    covered = covered_by_posthog = 0
    for control, test in pairs(kind, runs, planned_size(kind), 1 + kind.lift):
        with_cuped, without = judged(adjusted, control, test), judged(plain, control, test)
        for place, found in ((True, with_cuped), (False, without)):
            assert not isinstance(found.inference, BayesianTest | None)
            estimates[place].append(found.inference.point_estimate)
        assert not isinstance(with_cuped.inference, BayesianTest | None)
        assert not isinstance(without.inference, BayesianTest | None)
        claims.append(1 - (with_cuped.inference.standard_error / without.inference.standard_error) ** 2)
        covered += holds(with_cuped, kind.lift)
        covered_by_posthog += holds(judged(posthog, control, test), kind.lift)
    remaining = pvariance(estimates[True]) / pvariance(estimates[False])
    # Two correlated variances of Normal estimates: log of their ratio has variance 4·(1 - r²)/runs.
    correlation = float(np.corrcoef(estimates[True], estimates[False])[0, 1])
    return VarianceReduction(
        kind.name,
        1 - remaining,
        fmean(claims),
        remaining * 2 * sqrt((1 - correlation**2) / runs),
        Share(covered, runs, LEVEL),
        Share(covered_by_posthog, runs, LEVEL),
    )


def judged(
    config: StatisticsConfig, control: SufficientStatistics, test: SufficientStatistics
) -> VariantComparison:
    found = compare(config, control, test)
    assert found.inference is not None, found
    return found


def holds(found: VariantComparison, truth: float) -> bool:
    interval = found.credible_interval or found.confidence_interval
    assert interval is not None
    return interval[0] <= truth <= interval[1]


def truth_of(kind: Kind, difference: DifferenceType) -> float:
    return kind.lift if difference is DifferenceType.RELATIVE else kind.lift * kind.truth


def adjusted_kinds() -> list[Kind]:
    return [
        kind
        for kind in KINDS
        if isinstance(next(iter(kind.groups(random(kind.name), 1, 20, 1.0))), WithCovariate)
    ]


def daily_kinds() -> list[Kind]:
    return [*(kind for kind in KINDS if kind.per_day is not None), Accumulating()]
