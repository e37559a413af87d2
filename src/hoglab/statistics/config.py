"""Options of a comparison, and how the experiment's JSON and the project's defaults decide it.

Source: spec experiment-results 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite

from hoglab.statistics.multiple_testing import Correction

DEFAULT_CI_LEVEL = 0.95
DEFAULT_ALPHA = 0.05
DEFAULT_TUNING_PARAMETER = 5000.0
MIN_TUNING_PARAMETER = 1.0
MAX_TUNING_PARAMETER = 1e9
DEFAULT_ANALYSES = 4
MIN_ANALYSES, MAX_ANALYSES = 2, 20
DEFAULT_LOOKBACK_DAYS = 14
MIN_LOOKBACK_DAYS = 1
MAX_LOOKBACK_DAYS = 30


class Method(StrEnum):
    """The two schools, as the wire names them."""

    BAYESIAN = "bayesian"
    FREQUENTIST = "frequentist"


class DifferenceType(StrEnum):
    """Relative: (test - baseline)/baseline, 0.05 = +5 %. Absolute: test - baseline."""

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


class RelativeVariance(StrEnum):
    """Variance of a CUPED-adjusted relative effect under PostHog's numbers (spec experiment-results 4.7)."""

    DELTA = "delta"
    """The delta-method variance; intervals keep their nominal coverage in large groups."""
    POSTHOG = "posthog"
    """Bit-compatible with PostHog; too narrow unless the covariate's mean is near zero."""


class SignificanceRule(StrEnum):
    """Rule by which a Bayesian result is called significant."""

    CHANCE_TO_WIN = "chance-to-win"
    """Chance to win above ci_level or below 1 - ci_level: one-sided, as PostHog's wire has it."""
    INTERVAL = "interval"
    """The credible interval excludes zero: two-sided."""


class Design(StrEnum):
    """Designs of frequentist experiments that stop early, and keep the error rate of a single look."""

    GROUP_SEQUENTIAL = "group_sequential"
    """A few analyses, planned in advance (`hoglab.statistics.inference.group_sequential`)."""
    HYBRID = "hybrid"
    """A sequential test until the planned end, and the test of a single look at it: they share the error rate."""


class Spending(StrEnum):
    """Error-spending functions, by the classical bounds that they resemble."""

    OBRIEN_FLEMING = "obrien_fleming"
    """Spends little at first: early stops need a large effect, and the last bound is close to that of a single look."""
    POCOCK = "pocock"
    """Spends evenly: earlier stops, and a lower power at the end."""


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The design of an experiment that may stop early. The last planned analysis is the planned end."""

    design: Design
    spending: Spending = Spending.OBRIEN_FLEMING
    analyses: int = DEFAULT_ANALYSES
    """Number of analyses, the last one included, at equal parts of the plan."""
    days: tuple[int, ...] = ()
    """Days after the start on which analyses before the last one are made, in place of equal parts."""

    @property
    def planned_analyses(self) -> int:
        """Number of analyses, the last one included."""
        return len(self.days) + 1 if self.days else self.analyses


@dataclass(frozen=True, slots=True)
class Analysis:
    """Analyses of a monitored experiment up to the one that is made."""

    counts: tuple[int, ...]
    """People at each of them."""
    fractions: tuple[float, ...]
    """Shares of the planned people at each of them, at most 1."""

    def __post_init__(self) -> None:
        if not self.counts or len(self.counts) != len(self.fractions):
            raise ValueError("an analysis needs its people and their share of the planned ones")

    @property
    def is_last(self) -> bool:
        """Whether it is the analysis at the planned end."""
        return self.fractions[-1] >= 1


@dataclass(frozen=True, slots=True)
class Prior:
    """A Normal prior on the effect, in the effect's own unit (a fraction when relative)."""

    mean: float
    variance: float

    def __post_init__(self) -> None:
        if not (isfinite(self.mean) and isfinite(self.variance) and self.variance > 0):
            raise ValueError("a prior needs a finite mean and a positive, finite variance")


@dataclass(frozen=True, slots=True)
class BayesianConfig:
    """Bayesian comparison. `prior` None is the flat prior.

    `inverse` (an extension) turns `chance_to_win` into P(test < baseline). The goal of a metric must not set
    it: on the wire chance_to_win is P(test > baseline) for any goal (spec experiment-results 1.7).
    """

    ci_level: float = DEFAULT_CI_LEVEL
    difference_type: DifferenceType = DifferenceType.RELATIVE
    prior: Prior | None = None
    significance_rule: SignificanceRule = SignificanceRule.CHANCE_TO_WIN
    inverse: bool = False

    def __post_init__(self) -> None:
        _require_probability("ci_level", self.ci_level)

    @property
    def method(self) -> Method:
        """Always bayesian."""
        return Method.BAYESIAN


@dataclass(frozen=True, slots=True)
class FrequentistConfig:
    """Frequentist comparison at a fixed horizon or, when sequential, valid at every look.

    `sequential_tuning_parameter` is the total sample size at which the sequential interval is tightest.
    """

    alpha: float = DEFAULT_ALPHA
    difference_type: DifferenceType = DifferenceType.RELATIVE
    sequential_testing_enabled: bool = False
    sequential_tuning_parameter: float = DEFAULT_TUNING_PARAMETER
    monitoring: Monitoring | None = None
    analysis: Analysis | None = None
    """The analysis of a monitored experiment that is made; without one the test is that of a single look."""

    def __post_init__(self) -> None:
        _require_probability("alpha", self.alpha)
        if not MIN_TUNING_PARAMETER <= self.sequential_tuning_parameter <= MAX_TUNING_PARAMETER:
            raise ValueError(
                f"sequential_tuning_parameter must lie in {MIN_TUNING_PARAMETER:g}..{MAX_TUNING_PARAMETER:g}"
            )

    @property
    def method(self) -> Method:
        """Always frequentist."""
        return Method.FREQUENTIST


@dataclass(frozen=True, slots=True)
class CupedConfig:
    """Variance reduction with pre-exposure data. `lookback_days` is for the code that computes the covariate."""

    enabled: bool = False
    lookback_days: int = DEFAULT_LOOKBACK_DAYS
    relative_variance: RelativeVariance = RelativeVariance.DELTA
    """Variance of relative effects. `DELTA` is only needed under PostHog's numbers; `POSTHOG` asks for its variance."""


@dataclass(frozen=True, slots=True)
class StatisticsConfig:
    """Everything that decides an experiment's numbers once its sufficient statistics are known."""

    inference_config: BayesianConfig | FrequentistConfig = field(default_factory=BayesianConfig)
    cuped: CupedConfig = field(default_factory=CupedConfig)
    baseline_variant_key: str | None = None
    correction: Correction = Correction.NONE
    """The correction for several p-values shown together; a single comparison is not corrected."""
    posthog_numbers: bool = False
    """Whether effects are judged as PostHog does: relative ones by the delta method, and unequal groups by Welch's
    variance alone."""

    @property
    def method(self) -> Method:
        """The method of `test`."""
        return self.inference_config.method

    @property
    def cuped_relative_variance(self) -> RelativeVariance | None:
        """The variance of relative effects with CUPED, where it is not that of the difference."""
        form = self.cuped.relative_variance
        return form if self.posthog_numbers or form is RelativeVariance.POSTHOG else None

    @property
    def is_sequential(self) -> bool:
        """Whether results may be read at any time; else they are for one look at the planned end."""
        return (
            isinstance(self.inference_config, FrequentistConfig)
            and self.inference_config.sequential_testing_enabled
        )

    @property
    def monitoring(self) -> Monitoring | None:
        """The design by which the experiment may stop early; None for a Bayesian one, and for every other method."""
        test = self.inference_config
        return test.monitoring if isinstance(test, FrequentistConfig) else None

    @property
    def is_group_sequential(self) -> bool:
        """Whether the experiment is read at analyses that were planned in advance."""
        return self.monitoring is not None and self.monitoring.design is Design.GROUP_SEQUENTIAL

    @property
    def is_hybrid(self) -> bool:
        """Whether the experiment may be read at any time until its planned end, and once there."""
        return self.monitoring is not None and self.monitoring.design is Design.HYBRID

    @property
    def analysis(self) -> Analysis | None:
        """The analysis of a monitored experiment that is made."""
        test = self.inference_config
        return test.analysis if isinstance(test, FrequentistConfig) else None

    def at(self, analysis: Analysis) -> StatisticsConfig:
        """Return the configuration by which a monitored experiment is judged at an analysis."""
        test = self.inference_config
        if not isinstance(test, FrequentistConfig):
            raise TypeError("only frequentist experiments are monitored")
        return replace(self, inference_config=replace(test, analysis=analysis))

    @property
    def level(self) -> float:
        """Confidence level of the intervals, e.g. 0.95."""
        return (
            self.inference_config.ci_level
            if isinstance(self.inference_config, BayesianConfig)
            else 1 - self.inference_config.alpha
        )

    def baseline_key(self, variants: Sequence[str]) -> str:
        """Return the key of the baseline: the configured one, else `control`, else the first variant.

        A configured key is returned even when no variant has it; the caller then finds no baseline row.
        Raises ValueError without variants. Source: spec experiment-results 0.
        """
        if self.baseline_variant_key is not None:
            return self.baseline_variant_key
        if not variants:
            raise ValueError("an experiment without variants has no baseline")
        return "control" if "control" in variants else variants[0]


def resolve_config(
    stats_config: object,
    project_defaults: Mapping[str, object] | None = None,
    *,
    planned_size: float | None = None,
) -> StatisticsConfig:
    """Read an experiment's `stats_config` JSON with the project's defaults behind it.

    Nothing is raised: a value that is missing, of the wrong type or out of range falls back as spec experiment-results
    4.1 says. `project_defaults` has the keys of the project's experiment settings (`default_cuped_enabled`,
    `default_cuped_lookback_days`, `default_posthog_numbers`, `default_sequential_testing_enabled`,
    `default_sequential_tuning_parameter`); method and confidence level are not among them, because those are
    copied when an experiment is created.

    ``planned_size`` is the planned number of people in two compared variants, where it is known: a sequential test is
    sharpest near it, unless a tuning parameter or `posthog_numbers` is set.
    """
    stored, defaults = _mapping(stats_config), project_defaults or {}
    key = stored.get("baseline_variant_key")
    posthog_numbers = _switch(stored, "posthog_numbers", defaults.get("default_posthog_numbers"))
    return StatisticsConfig(
        inference_config=_frequentist(
            _mapping(stored.get("frequentist")), defaults, None if posthog_numbers else planned_size
        )
        if stored.get("method") == Method.FREQUENTIST
        else _bayesian(_mapping(stored.get("bayesian"))),
        cuped=_cuped(_mapping(stored.get("cuped")), defaults, posthog_numbers=posthog_numbers),
        baseline_variant_key=key if isinstance(key, str) and key else None,
        correction=_correction(stored.get("multiple_testing_correction")),
        posthog_numbers=posthog_numbers,
    )


def _bayesian(stored: Mapping[str, object]) -> BayesianConfig:
    return BayesianConfig(
        ci_level=_probability(stored.get("ci_level"), DEFAULT_CI_LEVEL),
        difference_type=_difference_type(stored.get("difference_type")),
        prior=_prior(_mapping(stored.get("prior"))),
    )


def _frequentist(
    stored: Mapping[str, object], defaults: Mapping[str, object], planned_size: float | None
) -> FrequentistConfig:
    parameter = _tuning_parameter(stored.get("sequential_tuning_parameter"))
    if parameter is None:
        parameter = _tuning_parameter(defaults.get("default_sequential_tuning_parameter"))
    if parameter is None:
        parameter = _tuning_parameter(planned_size)
    monitoring = _monitoring(stored)
    return FrequentistConfig(
        alpha=_probability(stored.get("alpha"), DEFAULT_ALPHA),
        difference_type=_difference_type(stored.get("difference_type")),
        sequential_testing_enabled=monitoring is None
        and _switch(stored, "sequential_testing_enabled", defaults.get("default_sequential_testing_enabled")),
        sequential_tuning_parameter=DEFAULT_TUNING_PARAMETER if parameter is None else parameter,
        monitoring=monitoring,
    )


def _monitoring(stored: Mapping[str, object]) -> Monitoring | None:
    """Read the design of an experiment that may stop early; None without one, and of an unknown name."""
    design = stored.get("design")
    if not isinstance(design, str) or design not in tuple(Design):
        return None
    if design == Design.HYBRID:
        return Monitoring(Design.HYBRID)
    spending, analyses, days = stored.get("spending"), stored.get("analyses"), stored.get("analysis_days")
    planned = sorted({day for day in days if _is_day(day)}) if isinstance(days, list) else []
    return Monitoring(
        Design.GROUP_SEQUENTIAL,
        Spending.POCOCK if spending == Spending.POCOCK else Spending.OBRIEN_FLEMING,
        min(max(analyses, MIN_ANALYSES), MAX_ANALYSES)
        if isinstance(analyses, int) and not isinstance(analyses, bool)
        else DEFAULT_ANALYSES,
        tuple(planned[: MAX_ANALYSES - 1]),
    )


def _is_day(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _cuped(
    stored: Mapping[str, object], defaults: Mapping[str, object], *, posthog_numbers: bool
) -> CupedConfig:
    days = _lookback_days(stored.get("lookback_days"))
    if days is None:
        days = _lookback_days(defaults.get("default_cuped_lookback_days"))
    form = stored.get("relative_variance", "posthog" if posthog_numbers else "delta")
    return CupedConfig(
        enabled=_switch(stored, "enabled", defaults.get("default_cuped_enabled")),
        lookback_days=DEFAULT_LOOKBACK_DAYS if days is None else days,
        relative_variance=RelativeVariance.POSTHOG
        if form == RelativeVariance.POSTHOG
        else RelativeVariance.DELTA,
    )


def _prior(stored: Mapping[str, object]) -> Prior | None:
    mean, variance = _number(stored.get("mean")), _number(stored.get("variance"))
    if stored.get("proper") is not True or mean is None or variance is None or variance <= 0:
        return None
    return Prior(mean, variance)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    """Return `value` as a finite float; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _probability(value: object, default: float) -> float:
    number = _number(value)
    return number if number is not None and 0 < number < 1 else default


def _difference_type(value: object) -> DifferenceType:
    """Read a type of difference by its upper-case name; no other case matches (spec experiment-results 4.1, 12.9)."""
    return DifferenceType.ABSOLUTE if value == "ABSOLUTE" else DifferenceType.RELATIVE


def _correction(value: object) -> Correction:
    return Correction(value) if isinstance(value, str) and value in tuple(Correction) else Correction.NONE


def _switch(stored: Mapping[str, object], key: str, default: object) -> bool:
    """Return whether the settings switch a key on; the default decides only where they lack it."""
    return stored.get(key, default) is True


def _tuning_parameter(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and MIN_TUNING_PARAMETER <= number <= MAX_TUNING_PARAMETER else None


def _lookback_days(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return min(max(value, MIN_LOOKBACK_DAYS), MAX_LOOKBACK_DAYS)


def _require_probability(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1")
