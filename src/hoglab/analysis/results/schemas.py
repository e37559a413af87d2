"""Shapes of results, exposures, health and verdicts on the wire, for the reference."""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hoglab.http.fields.fields import Bool, Text, WireModel
from hoglab.statistics import Design
from hoglab.statistics.verdict import Action, Decision, PlanSource, State

Interval = Annotated[list[float | None], Field(min_length=2, max_length=2)]


class BaselineRowOut(WireModel):
    """The sums of one variant, from which all its statistics can be computed again."""

    model_config = ConfigDict(extra="allow")

    key: str
    """The variant."""
    number_of_samples: int
    """Number of people (or groups); for retention those who began, for quantiles over events the events."""
    sum: float | None
    """Sum of the values; for funnels and retention the number of conversions."""
    sum_squares: float | None
    """Sum of the squared values."""
    step_counts: list[int] | None
    """Number of people who reached each step of a funnel; null for other metrics."""
    denominator_sum: float | None
    """Sum of the denominators of ratios and retention; null for other metrics."""
    denominator_sum_squares: float | None
    """Sum of the squared denominators of ratios and retention; null for other metrics."""
    numerator_denominator_sum_product: float | None
    """Sum of the products of numerator and denominator for ratios and retention; null for other metrics."""
    covariate_sum: float | None
    """Sum of the values before exposure, with CUPED; else null."""
    covariate_sum_squares: float | None
    """Sum of the squared values before exposure, with CUPED; else null."""
    covariate_sum_product: float | None
    """Sum of the products of values before and after exposure, with CUPED; else null."""
    people_counted: int | None = None
    """Number of people (or groups) whose values count: with a denominator, or with any value of a quantile; for ratios
    and quantiles only."""
    quantile_level: float = 0.5
    """Level of the quantile; for quantile metrics only."""
    quantile: float | None = None
    """Value of the quantile; for quantile metrics only."""
    quantile_lower: float | None = None
    """Lower bound of its interval; for quantile metrics only."""
    quantile_upper: float | None = None
    """Upper bound of its interval; for quantile metrics only."""
    cluster_factor: float | None = None
    """Factor by which similar values of one person widen the interval, squared; for quantile metrics only."""
    largest_tie: int | None = None
    """Number of equal values, of the commonest one between both bounds; for quantile metrics only. Where it is above 2
    and a fifth of these values there are no statistics (`tied-values`)."""
    validation_failures: list[str]
    """Reasons for missing statistics: `not-enough-exposures`, `not-enough-metric-data`, `baseline-mean-is-zero`."""


class VariantRowOut(BaselineRowOut):
    """A variant compared with the baseline. Statistics that cannot be computed are null."""

    method: Literal["bayesian", "frequentist"]
    """Method of the comparison, which decides the fields below."""
    significant: bool | None
    """Significance by the method alone, without corrections and regardless of the health: see the verdict."""
    chance_to_win: float | None = None
    """Bayesian: probability of a higher value than the baseline, whatever the goal."""
    credible_interval: Interval | None = None
    """Bayesian: credible interval of the effect; a side without a bound is null."""
    p_value: float | None = None
    """Frequentist: two-sided p-value."""
    adjusted_p_value: float | None = None
    """Frequentist: p-value corrected over all primary metrics and variants, where a correction is set."""
    confidence_interval: Interval | None = None
    """Frequentist: confidence interval of the effect; a side without a bound is null."""
    refusal: str | None = None
    """Code of the reason for missing statistics, such as `no-variance`; null where there are some."""
    problem: str | None = None
    """The reason in words."""
    point_estimate: float | None = None
    """The effect; with a prior the mean of its posterior."""
    unbounded_reason: Literal["baseline-near-zero"] | None = None
    """Reason for a side without a bound: the baseline's value is not told from zero, so a relative effect has none."""


class BreakdownOut(WireModel):
    """The result of one combination of breakdown values."""

    breakdown_value: list[str]
    """The values, in the order of the breakdowns."""
    baseline: BaselineRowOut
    """The baseline."""
    variants: list[VariantRowOut]
    """Variants other than the baseline."""


class ExperimentResultOut(WireModel):
    """The result of one metric."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["ExperimentQuery"]
    """The kind of the query."""
    baseline: BaselineRowOut
    """The variant that others are compared with."""
    variant_results: list[VariantRowOut]
    """Variants other than the baseline: those with people first, in the order of the flag."""
    breakdown_results: list[BreakdownOut] | None
    """Results by the values of breakdowns; null without breakdowns."""


class ExposureCurveOut(WireModel):
    """The exposed of one variant."""

    variant: str
    """The variant; `$multiple` are those who saw several."""
    days: list[str]
    """The days, in the project's time zone."""
    exposure_counts: list[int]
    """Number of exposed people up to the end of each day."""


class HeldOutOut(WireModel):
    """The people of a holdout: no variant, and compared with nobody."""

    id: int
    """The id of the holdout."""
    key: str
    """Value of the flag for them: `holdout-` and the id."""
    total: int
    """Number of people."""
    days: list[str]
    """The days, in the project's time zone."""
    exposure_counts: list[int]
    """Number of people up to the end of each day."""


class MismatchOut(WireModel):
    """Test for a sample ratio mismatch: whether people arrived in the shares that the flag gives them."""

    expected: dict[str, float]
    """Expected number of people by variant."""
    p_value: float
    """P-value of Pearson's chi-squared test, for a single look: it decides at the end."""
    anytime_p_value: float
    """P-value that may be read at any time: it decides while the experiment runs."""
    is_mismatch: bool
    """Whether the deciding p-value is below 0.001: something is wrong then.

    Of several phases each p-value is the smallest of each phase's and of all together.
    """


class PhaseOut(WireModel):
    """Phase of an experiment: a time in which the flag gave the variants the same shares of people."""

    date_from: str
    """The beginning."""
    shares: dict[str, float]
    """Shares of people by variant, in percent."""
    exposures: dict[str, int]
    """Number of people first exposed in this phase, by variant; those of the first 5 minutes count for no phase."""
    mismatch: MismatchOut | None
    """Test of these numbers against the shares; null below 100 people, and for a single variant."""


class BiasOut(WireModel):
    """Risk that leaving out people who saw several variants biases the results."""

    multiple_variant_percentage: float
    """Percentage of the exposed who saw several variants."""


class DateRangeOut(WireModel):
    """Time range of the exposures."""

    date_from: str | None
    """The start; null for a draft."""
    date_to: str | None
    """The end; null while the experiment runs."""
    explicitDate: bool  # noqa: N815 - wire name
    """Always true."""


class ExposureResultOut(WireModel):
    """Numbers of exposed people."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["ExperimentExposureQuery"]
    """The kind of the query."""
    timeseries: list[ExposureCurveOut]
    """Cumulative exposures by variant and day."""
    total_exposures: dict[str, int]
    """Number of exposed people by variant, without those held out."""
    holdout: HeldOutOut | None
    """People held out; null without a holdout."""
    sample_ratio_mismatch: MismatchOut | None
    """Test for a sample ratio mismatch; null below 100 people, and with fewer than two variants that get any."""
    phases: list[PhaseOut]
    """Phases of the experiment: a change of shares begins a new one."""
    bias_risk: BiasOut | None
    """Risk of bias; null without one."""
    date_range: DateRangeOut
    """Time range of the exposures."""


class FindingOut(WireModel):
    """Finding about an experiment that needs attention."""

    code: str
    """Code of the finding, for programs."""
    severity: Literal["critical", "warning", "info"]
    """Severity of the finding."""
    message: str
    """Description of the finding."""
    advice: str
    """Advice on fixing it."""
    details: dict[str, Any]
    """Numbers behind the finding."""


class ReasonOut(WireModel):
    """Reason for a verdict."""

    code: str
    """Code of the reason, for programs; docs/statistics.md lists them."""
    text: str
    """Text of the reason."""
    metric_uuid: str | None
    """The metric concerned; null for the whole experiment."""
    variant: str | None
    """The variant concerned; null for all of them."""


class NextActionOut(WireModel):
    """Recommended next action."""

    code: Action
    """Code of the action, for programs."""
    text: str
    """Text of the action."""
    variant: str | None
    """The variant to ship or keep; null where there is none."""


class VerdictNumbersOut(WireModel):
    """Progress of the experiment, and effects still possible. Null: not known."""

    people: int
    """People whom the plan counts: those in the compared variants whom every primary metric counts already."""
    people_needed: int | None
    """Number of people planned in total."""
    people_remaining: int | None
    """Number of people still missing."""
    days: int
    """Whole days since the start."""
    days_needed: int | None
    """Days needed in total, at the present number of people per day."""
    days_remaining: int | None
    """Days still needed, at the same rate."""
    analyses_done: int | None
    """Number of planned analyses that were made; null for a method without any."""
    analyses_planned: int | None
    """Number of planned analyses, the one at the planned end included; null for a method without any."""
    plan_source: PlanSource
    """Source of the plan: stored with the experiment, or computed from its own variance."""
    largest_difference: float | None
    """The largest effect on a primary metric, up or down, that is still possible; in the unit of the effect."""


class VariantDecisionOut(WireModel):
    """Decision of one metric about one variant."""

    variant: str
    """The variant."""
    decision: Decision
    """`safe`, `not_shown_safe`: whether a guardrail loses less than its margin. `early`: the method decides at the
    planned end. `missing`: no statistics. `withheld`: something critical is
    wrong, with the experiment or with this metric."""
    effect: float | None
    """The estimate that decided; null without statistics."""
    interval: Interval | None
    """Interval of the effect."""
    largest_difference: float | None
    """The largest effect, up or down, that is still possible."""
    problem: str | None
    """Reason for missing statistics; null where there are some."""


class MetricDecisionOut(WireModel):
    """Decisions of one metric."""

    metric_uuid: str
    """The `uuid` of the metric."""
    name: str
    """Display name of the metric."""
    is_primary: bool
    """Whether the metric is primary, and so decides."""
    margin: float | None
    """Loss that a guardrail allows, as a share of the baseline; null for other metrics."""
    variants: list[VariantDecisionOut]
    """Decisions by variant, without the baseline."""


class VariantVerdictOut(WireModel):
    """State of one variant by all metrics together."""

    variant: str
    """The variant."""
    state: State
    """State of the variant."""


class VerdictOut(WireModel):
    """Verdict on an experiment: state, reasons and recommended action; docs/statistics.md has the rules."""

    state: State
    """State of the experiment."""
    headline: str
    """State in a sentence."""
    next_action: NextActionOut
    """Recommended next action."""
    reasons: list[ReasonOut]
    """Reasons for the verdict, with notes of caution."""
    numbers: VerdictNumbersOut
    """Progress of the experiment."""
    variants: list[VariantVerdictOut]
    """States by variant, without the baseline."""
    metrics: list[MetricDecisionOut]
    """Decisions by metric."""
    reads_at_any_time: bool
    """Whether one may look often and stop early. Else the method is for a single look at the planned end."""
    as_of: str | None
    """The day at whose end it was decided, where later numbers do not count; null: by the newest ones."""
    withholds_decisions: bool
    """Whether nothing may be marked as significant or winning anywhere: something critical is wrong with the
    experiment or a primary metric."""


class StatisticsOut(WireModel):
    """Methods and settings of the statistics."""

    method: Literal["bayesian", "frequentist"]
    """Statistical method."""
    is_sequential: bool
    """Whether p-values and intervals hold at any time."""
    design: Design | None
    """Design by which the experiment may stop early: `group_sequential` at its planned analyses, `hybrid` at any time
    until its planned end. P-values and intervals of rows are those of a single look; the verdict has those of the
    design. Null for other methods."""
    level: float
    """Level of the intervals."""
    difference_type: Literal["relative", "absolute"]
    """Whether effects are shares of the baseline."""
    correction: Literal["none", "bonferroni", "holm", "benjamini-hochberg"]
    """Correction of the p-values of primary metrics."""
    cuped: bool
    """Whether effects are adjusted by values before exposure, where that is possible."""
    posthog_numbers: bool
    """Whether p-values and intervals are PostHog's, to the digit."""
    baseline: str | None
    """The variant that others are compared with; null without variants."""


class MetricOut(WireModel):
    """Metric with its newest result."""

    uuid: str | None
    """Id of the metric; null for some of the former engine."""
    name: str
    """Display name of the metric."""
    is_primary: bool
    """Whether the metric is primary, and so decides."""
    role: Literal["primary", "guardrail", "secondary"]
    """`guardrail`: it can hold back a better variant. `secondary`: it decides nothing."""
    margin: float | None
    """Loss that a guardrail allows, as a share of the baseline; null for other metrics."""
    saved_metric_id: int | None
    """Id of the shared metric; null for one of the experiment's own."""
    metric_type: str | None
    """`mean`, `funnel`, `ratio`, `retention` or `quantile`; null for one of the former engine."""
    goal: Literal["increase", "decrease"]
    """Desired direction."""
    value_label: str
    """Label of a variant's number: `rate`, `mean sum`, `p90`."""
    fingerprint: str | None
    """Fingerprint of the metric now, for its daily results."""
    status: Literal["completed", "pending", "failed", "unsupported", "not_started"]
    """`pending`: it is being computed, and an older result is shown where there is one. `unsupported`: it is of the
    former engine."""
    computed_at: str | None
    """Time of the computation."""
    error: str | None
    """Reason for a missing or outdated result."""
    result: ExperimentResultOut | None
    """The result; null when there is none."""


class ResultsHealthOut(WireModel):
    """Health of an experiment."""

    status: Literal["healthy", "warning", "critical"]
    """Severity of the worst finding."""
    findings: list[FindingOut]
    """Findings, the worst first."""


class ExperimentResultsOut(WireModel):
    """Results, exposures, health and verdict of an experiment."""

    experiment_id: int
    """The id of the experiment."""
    status: Literal["complete", "partial", "not_started"]
    """`partial`: what `pending` names is still being computed; ask again."""
    pending: list[str]
    """Uuids of metrics, `exposures` and `health`, as far as they are not computed yet."""
    statistics: StatisticsOut
    """Methods and settings of the statistics."""
    metrics: list[MetricOut]
    """Metrics with their results, the primary ones first."""
    exposures: ExposureResultOut | None
    """Exposures; null before the start, and while they are not known."""
    exposures_error: str | None
    """Reason for which exposures could not be counted; null when they could."""
    health: ResultsHealthOut | None
    """Health of the experiment; null while it is not known."""
    verdict: VerdictOut | None
    """Verdict; null before the start, while anything is pending, and without a metric of the present engine."""


class ResultsQuery(WireModel):
    """Freshness of the results."""

    refresh: Annotated[bool, Bool()] = False
    """Whether to compute what came since the stored results; without, they may be a minute old."""


class VerdictSummaryOut(WireModel):
    """Verdict on an experiment, in brief."""

    state: State
    """State of the experiment."""
    headline: str
    """State in a sentence."""
    next_action: NextActionOut
    """Recommended next action."""
    numbers: VerdictNumbersOut
    """Progress of the experiment."""
    withholds_decisions: bool
    """Whether something critical is wrong with the experiment or a primary metric."""


class ResultSummaryOut(WireModel):
    """Verdict on an experiment, and the result of its first primary metric."""

    experiment_id: int
    """The id of the experiment."""
    statistics: StatisticsOut
    """Methods and settings of the statistics."""
    people: int | None
    """Number of exposed people at the last count; null while it is not known."""
    metric: MetricOut | None
    """The first primary metric with its newest stored result; null without one."""
    as_of: str | None
    """Time of the count of people and of the verdict; null where nothing is known."""
    is_fresh: bool
    """Whether that is recent. Else it is being computed: ask again in a few seconds."""
    verdict: VerdictSummaryOut | None
    """Verdict; null before the start, without a metric, and while it is not known."""
    withholds_decisions: bool
    """Whether nothing may be marked: the groups have the wrong sizes, or too many people saw several variants."""


class SummariesQuery(WireModel):
    """Selection of experiments."""

    ids: Annotated[str, Text()]
    """Ids of experiments, joined by commas; at most 100. Unknown ones are left out."""
