"""Shapes of results, exposures, health and verdicts on the wire, for the reference."""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hoglab.http.fields.fields import Bool, Text, WireModel
from hoglab.statistics.verdict import Action, Decision, PlanSource, State

Interval = Annotated[list[float | None], Field(min_length=2, max_length=2)]


class BaselineRowOut(WireModel):
    """The sums of one variant, from which everything can be computed again."""

    model_config = ConfigDict(extra="allow")

    key: str
    """The variant."""
    number_of_samples: int
    """How many people (or groups) it is about; of retention those who began, of quantiles over events the events."""
    sum: float | None
    """Of their values; of a funnel or retention how many of them converted."""
    sum_squares: float | None
    """Of the squares of their values."""
    step_counts: list[int] | None
    """How many reached each step of a funnel; null for other metrics."""
    denominator_sum: float | None
    """Of ratios and retention; null for other metrics."""
    denominator_sum_squares: float | None
    """Of ratios and retention; null for other metrics."""
    numerator_denominator_sum_product: float | None
    """Of ratios and retention; null for other metrics."""
    covariate_sum: float | None
    """With CUPED: of what people did before; else null."""
    covariate_sum_squares: float | None
    """With CUPED, of its squares; else null."""
    covariate_sum_product: float | None
    """With CUPED, of the products with the values; else null."""
    quantile_level: float = 0.5
    """Of quantile metrics alone: which quantile it is."""
    quantile: float | None = None
    """Of quantile metrics alone: the quantile."""
    quantile_lower: float | None = None
    """Of quantile metrics alone: the lower bound of its interval."""
    quantile_upper: float | None = None
    """Of quantile metrics alone: the upper bound of its interval."""
    cluster_factor: float | None = None
    """Of quantile metrics alone: how much wider the values of one person being alike makes the interval, squared."""
    validation_failures: list[str]
    """Why there are no statistics: `not-enough-exposures`, `not-enough-metric-data`, `baseline-mean-is-zero`."""


class VariantRowOut(BaselineRowOut):
    """A variant compared with the baseline. Statistics that cannot be computed are null."""

    method: Literal["bayesian", "frequentist"]
    """Which of the fields below are there."""
    significant: bool | None
    """By the method alone, without corrections and whatever the health of the experiment: see the verdict."""
    chance_to_win: float | None = None
    """Bayesian: the probability to be above the baseline, whatever the goal."""
    credible_interval: Interval | None = None
    """Bayesian: of the effect."""
    p_value: float | None = None
    """Frequentist: two-sided."""
    adjusted_p_value: float | None = None
    """Frequentist, where a correction is asked for: corrected over all primary metrics and variants."""
    confidence_interval: Interval | None = None
    """Frequentist: of the effect, which is in its middle."""


class BreakdownOut(WireModel):
    """The result of one combination of breakdown values."""

    breakdown_value: list[str]
    """The values, in the order of the breakdowns."""
    baseline: BaselineRowOut
    """The baseline."""
    variants: list[VariantRowOut]
    """The other variants."""


class ExperimentResultOut(WireModel):
    """The result of one metric."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["ExperimentQuery"]
    """The kind of the query."""
    baseline: BaselineRowOut
    """The variant that others are compared with."""
    variant_results: list[VariantRowOut]
    """The other variants: those with people first, in the order of the flag."""
    breakdown_results: list[BreakdownOut] | None
    """By the values of breakdowns; null without any."""


class ExposureCurveOut(WireModel):
    """The exposed of one variant."""

    variant: str
    """The variant; `$multiple` are those who saw several."""
    days: list[str]
    """The days, in the project's time zone."""
    exposure_counts: list[int]
    """How many were exposed up to the end of each day."""


class HeldOutOut(WireModel):
    """The people of a holdout: no variant, and compared with nobody."""

    id: int
    """The id of the holdout."""
    key: str
    """What the flag gives them: `holdout-` and the id."""
    total: int
    """How many there are."""
    days: list[str]
    """The days, in the project's time zone."""
    exposure_counts: list[int]
    """How many there were up to the end of each day."""


class MismatchOut(WireModel):
    """Whether people arrived in the shares that the flag gives them."""

    expected: dict[str, float]
    """How many people each variant should have."""
    p_value: float
    """Of Pearson's test of that; below 0.001 something is wrong."""


class BiasOut(WireModel):
    """Whether leaving out those who saw several variants may bias results."""

    multiple_variant_percentage: float
    """How many of the exposed they are, in percent."""


class DateRangeOut(WireModel):
    """Of what time it is."""

    date_from: str | None
    """The start; null for a draft."""
    date_to: str | None
    """The end; null while the experiment runs."""
    explicitDate: bool  # noqa: N815 - wire name
    """Always true."""


class ExposureResultOut(WireModel):
    """Who is exposed."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["ExperimentExposureQuery"]
    """The kind of the query."""
    timeseries: list[ExposureCurveOut]
    """By variant and day, cumulative."""
    total_exposures: dict[str, int]
    """By variant. Who is held out is not among them."""
    holdout: HeldOutOut | None
    """Who is held out; null without a holdout."""
    sample_ratio_mismatch: MismatchOut | None
    """Null below 100 people, and with fewer than two variants that get any."""
    bias_risk: BiasOut | None
    """Null where there is none."""
    date_range: DateRangeOut
    """From when to when it counts."""


class FindingOut(WireModel):
    """One thing to look at."""

    code: str
    """What it is, for programs."""
    severity: Literal["critical", "warning", "info"]
    """How bad it is."""
    message: str
    """What it is, for people."""
    advice: str
    """What to do about it."""
    details: dict[str, Any]
    """Numbers behind it."""


class ReasonOut(WireModel):
    """One thing that a verdict rests on."""

    code: str
    """What it is, for programs; docs/statistics.md lists them."""
    text: str
    """What it is, for people."""
    metric_uuid: str | None
    """The metric that it is about; null for the whole experiment."""
    variant: str | None
    """The variant that it is about; null for all of them."""


class NextActionOut(WireModel):
    """What to do."""

    code: Action
    """What it is, for programs."""
    text: str
    """What it is, for people."""
    variant: str | None
    """The variant to ship or keep; null where there is none."""


class VerdictNumbersOut(WireModel):
    """How far the experiment is, and what is still possible. Null: that cannot be said."""

    people: int
    """Exposed in the compared variants."""
    people_needed: int | None
    """Planned in all."""
    people_remaining: int | None
    """Still missing."""
    days: int
    """Since the start, whole ones."""
    days_needed: int | None
    """In all, if as many people come in a day as so far."""
    days_remaining: int | None
    """Still needed, likewise."""
    plan_source: PlanSource
    """Where the plan is from: written down with the experiment, or made from its own variance."""
    largest_difference: float | None
    """The largest effect on a primary metric, up or down, that is still possible; in the unit of the effect."""


class VariantDecisionOut(WireModel):
    """What one metric says of one variant."""

    variant: str
    """The variant."""
    decision: Decision
    """`early`: the method decides at the planned end. `missing`: no statistics. `withheld`: something critical is
    wrong, with the experiment or with this metric."""
    effect: float | None
    """The estimate that decided; null without statistics."""
    interval: Interval | None
    """Of the effect."""
    largest_difference: float | None
    """The largest effect, up or down, that is still possible."""
    problem: str | None
    """Why there are no statistics; null where there are."""


class MetricDecisionOut(WireModel):
    """What one metric says."""

    metric_uuid: str
    """The `uuid` of the metric."""
    name: str
    """What to call it."""
    is_primary: bool
    """Whether it decides."""
    variants: list[VariantDecisionOut]
    """By variant, without the baseline."""


class VariantVerdictOut(WireModel):
    """What all metrics together say of one variant."""

    variant: str
    """The variant."""
    state: State
    """What is known of it."""


class VerdictOut(WireModel):
    """What is known of an experiment, why, and what to do; docs/statistics.md has the rules."""

    state: State
    """What is known."""
    headline: str
    """The same in a sentence."""
    next_action: NextActionOut
    """The next step."""
    reasons: list[ReasonOut]
    """What it rests on, and what to be careful with."""
    numbers: VerdictNumbersOut
    """How far the experiment is."""
    variants: list[VariantVerdictOut]
    """By variant, without the baseline."""
    metrics: list[MetricDecisionOut]
    """By metric."""
    reads_at_any_time: bool
    """Whether one may look often and stop early. Else the method is for a single look at the planned end."""
    as_of: str | None
    """The day at whose end it was decided, where later numbers do not count; null: by the newest ones."""
    withholds_decisions: bool
    """Whether nothing may be marked as significant or winning anywhere: something critical is wrong with the
    experiment or a primary metric."""


class StatisticsOut(WireModel):
    """How the numbers are made."""

    method: Literal["bayesian", "frequentist"]
    """The method."""
    is_sequential: bool
    """Whether p-values and intervals hold at any time."""
    level: float
    """Of the intervals."""
    difference_type: Literal["relative", "absolute"]
    """Whether effects are shares of the baseline."""
    correction: Literal["none", "bonferroni", "holm", "benjamini-hochberg"]
    """Of the p-values of primary metrics."""
    cuped: bool
    """Whether effects are adjusted by what people did before, where that is possible."""
    baseline: str | None
    """The variant that others are compared with; null without variants."""


class MetricOut(WireModel):
    """One metric with its newest result."""

    uuid: str | None
    """Identifies it; null for some of the former engine."""
    name: str
    """What to call it."""
    is_primary: bool
    """Whether it decides."""
    saved_metric_id: int | None
    """The shared metric that it is; null for one of the experiment's own."""
    metric_type: str | None
    """`mean`, `funnel`, `ratio`, `retention` or `quantile`; null for one of the former engine."""
    goal: Literal["increase", "decrease"]
    """Which direction is better."""
    value_label: str
    """What the number of a variant is: `rate`, `mean sum`, `p90`."""
    fingerprint: str | None
    """Of the metric now, for its daily results."""
    status: Literal["completed", "pending", "failed", "unsupported", "not_started"]
    """`pending`: it is being computed, and an older result is shown where there is one. `unsupported`: it is of the
    former engine."""
    computed_at: str | None
    """When the result was computed."""
    error: str | None
    """Why there is no result, or only an older one."""
    result: ExperimentResultOut | None
    """The result; null when there is none."""


class ResultsHealthOut(WireModel):
    """What endangers the experiment."""

    status: Literal["healthy", "warning", "critical"]
    """That of the worst finding."""
    findings: list[FindingOut]
    """What to look at, the worst first."""


class ExperimentResultsOut(WireModel):
    """All that is known of an experiment."""

    experiment_id: int
    """The id of the experiment."""
    status: Literal["complete", "partial", "not_started"]
    """`partial`: what `pending` names is still being computed; ask again."""
    pending: list[str]
    """The uuids of metrics, `exposures` and `health`, as far as they are not there yet."""
    statistics: StatisticsOut
    """By which method and settings the numbers are made."""
    metrics: list[MetricOut]
    """The primary ones first."""
    exposures: ExposureResultOut | None
    """Who is exposed; null before the start, and while that is not known."""
    exposures_error: str | None
    """Why the exposed could not be counted; null when they could."""
    health: ResultsHealthOut | None
    """What endangers it; null while that is not known."""
    verdict: VerdictOut | None
    """What to do; null before the start, while anything is pending, and without a metric of the present engine."""


class ResultsQuery(WireModel):
    """How fresh it has to be."""

    refresh: Annotated[bool, Bool()] = False
    """Whether to compute what came since the stored results; without, they may be a minute old."""


class ResultSummaryOut(WireModel):
    """What is known of the first primary metric of an experiment."""

    experiment_id: int
    """The id of the experiment."""
    statistics: StatisticsOut
    """By which method and settings the numbers are made."""
    people: int | None
    """How many are exposed, as they were last counted; null while that is not known."""
    metric: MetricOut | None
    """The first primary metric with its newest stored result; null without one."""
    withholds_decisions: bool
    """Whether nothing may be marked: the groups have the wrong sizes."""


class SummariesQuery(WireModel):
    """Of which experiments."""

    ids: Annotated[str, Text()]
    """Their ids, joined by commas; at most 100. Unknown ones are left out."""
