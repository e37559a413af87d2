"""Shapes of the endpoints of results, for the reference."""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from hoglab.analysis.results.schemas import (
    BaselineRowOut,
    BiasOut,
    BreakdownOut,
    DateRangeOut,
    ExperimentResultOut,
    ExposureCurveOut,
    FindingOut,
    HeldOutOut,
    MismatchOut,
    PhaseOut,
    VariantRowOut,
)
from hoglab.experiments.definitions.metrics import ExperimentMetric
from hoglab.experiments.wire.setting_schemas import ExposureCriteria, PlannedExperiment
from hoglab.http.fields.fields import Choice, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning

NOTES: Notes = {
    "experiment_id": "The id of the experiment.",
    "metric_uuid": Note("The `uuid` of the metric.", "6f1f3a52-1d0e-4c58-9a59-0f6f4e6b7a10"),
    "fingerprint": Note("The `fingerprint` of the metric, from the experiment.", "abd4fe65…"),
    "metric": Note(
        "The metric as the experiment shows it.", {"kind": "ExperimentMetric", "metric_type": "mean"}
    ),
    "status": Note("Status of the computation, or of the health.", "partial"),
    "timeseries": Note("The results up to each day; null for a day without.", {"2026-01-02": None}),
    "errors": "Reasons for which days have no result, or only one from before the newest attempt.",
    "computed_at": "Time of the newest computation.",
    "recalculation_status": "Status of a recalculation; null when none runs.",
    "recalculation_created_at": "Creation time of the recalculation.",
    "checked_at": Note("Time of the check.", "2026-01-02T03:04:05.678901Z"),
    "findings": "Findings, the worst first.",
    "code": Note("Code, for programs.", "no_exposures"),
    "severity": "Severity of the finding.",
    "message": Note("Description for people.", "Nobody has been exposed yet."),
    "advice": Note("Advice on fixing it.", "Check that the code asks for the flag."),
    "details": Note("Numbers behind it.", {}),
    "query": Note(
        "Query to compute; `kind` names its kind.",
        {"kind": "ExperimentQuery", "experiment_id": 1},
    ),
    "refresh": Note(
        "`blocking` (also when missing): compute unless a kept answer is fresh. `force_blocking` (or true): compute. "
        "`async`, `async_except_on_cache_miss`, `force_async`: the same without waiting. `lazy_async`: take any kept "
        "answer. `force_cache` (or false): never compute.",
        "blocking",
    ),
    "client_query_id": Note(
        "An id of the caller's own, for asking about the query and cancelling it.", "q-1"
    ),
    "async_": "Whether to answer at once and compute meanwhile, like `refresh: async`.",
    "async": "Whether to answer at once and compute meanwhile, like `refresh: async`.",
    "id": "Id by which the status is read and the query cancelled.",
    "team_id": "The project.",
    "query_async": "True: it was computed apart from its request.",
    "complete": "Whether it has ended.",
    "error": "Whether it ended without results.",
    "results": "The answer; null before it is there.",
    "start_time": "Time of the request.",
    "end_time": "End of the computation; null before.",
    "query_status": "The computation; null when none runs.",
    "cache_key": Note("The same for queries that ask the same.", "5f3a…"),
    "is_cached": "Whether it was computed before this request.",
    "last_refresh": Note(
        "Time of the computation; without a result that of the request.", "2026-01-02T03:04:05+00:00"
    ),
    "timezone": Note("The time zone of the project's days.", "UTC"),
    "total_metrics": "Number of metrics to compute.",
    "completed_metrics": "Number of metrics that are computed.",
    "failed_metrics": "Number of metrics that could not be computed.",
    "metric_errors": Note("Errors by the uuid of the metric.", {}),
    "trigger": "Origin of the recalculation.",
    "started_at": "Start of the computation; null before.",
    "completed_at": "End of the computation; null before.",
    "query_to": "The moment that every metric is computed up to.",
    "is_existing": "Whether it ran already when it was asked for.",
    "result_source": "Source of the results.",
    "result": "Result; null without one.",
    "error_message": "Error message; null without an error.",
}


QUESTIONS: Notes = {
    "kind": "Kind of the query.",
    "experiment_id": Note("The id of the experiment.", 1),
    "metric": "The metric; of results the experiment's first primary one without it.",
    "metric_uuid": "A metric of the experiment, in place of `metric`.",
    "holdout": "Holdout whose people are counted beside the variants; default: that of the experiment.",
    "feature_flag": "The flag of the experiment, with its key.",
    "exposure_criteria": "Exposure criteria; default: those of the experiment.",
    "start_date": "Start of the time range; default: the start of the experiment.",
    "end_date": "End of the time range; default: the end of the experiment.",
    "history_days": Note("Length of the history in days.", 28),
    "series": "Series to count; at most 5.",
    "dateRange": "Time range; default: the last seven days.",
    "interval": Note("Interval between points.", "day"),
    "breakdownFilter": "A property whose values have a series each.",
    "filterTestAccounts": "Whether the project's own people are left out.",
    "properties": "Filters of properties that events must pass.",
    "event": Note("The name of the events; null for all.", "signed up"),
    "name": "Name of the series in answers.",
    "custom_name": "Name of the series in answers, in place of `name`.",
    "math": "Kind of count: events, or (`dau`) people with such an event.",
    "date_from": Note("Start of the time range.", "-7d"),
    "date_to": "End of the time range; null for now.",
    "breakdown": Note("The name of the property.", "plan"),
    "breakdown_type": "Owner of the property: the event or the person.",
    "count_query": "Query for the count, as the former engine has it.",
    "exposure_query": "Query for the exposures, as the former engine has it.",
    "funnels_query": "The funnel, as the former engine has it.",
    "exposure": "The event by which the experiment will meet people.",
    "experiment": "An experiment that is not saved, in place of `experiment_id`.",
    "effects": Note("Relative effects to plan for.", [0.05]),
    "power": Note("The probability of finding an effect.", 0.8),
    "effect": Note("The relative effect that is simulated.", 0.05),
    "experiments": "Number of simulated experiments.",
    "looks": "Number of looks at each experiment.",
    "people": "Number of people in each experiment.",
    "seed": "Seed of the random draws.",
}


class TimeseriesQuery(WireModel):
    """Key of a metric's daily results: take both fields from the metric object of the experiment."""

    notes = NOTES

    metric_uuid: str
    fingerprint: str


class TimeseriesOut(WireModel):
    """Daily results of one metric."""

    notes = NOTES

    experiment_id: int
    metric_uuid: str
    status: str
    timeseries: dict[str, ExperimentResultOut | None]
    errors: dict[str, str] | None
    computed_at: str | None
    created_at: str
    updated_at: str
    recalculation_status: str | None
    recalculation_created_at: str | None


class RecalculateBody(WireModel):
    """The metric to recalculate."""

    notes = NOTES

    metric: dict[str, Any]
    fingerprint: str


class RecalculationOut(WireModel):
    """Work under way."""

    notes = NOTES

    id: str
    experiment_id: int
    metric_uuid: str | None
    fingerprint: str
    status: str
    created_at: str


TRIGGERS = (
    "manual",
    "experiment_launch",
    "experiment_stop",
    "experiment_update",
    "cold_run",
    "stale_refresh",
    "auto_refresh",
    "config_change",
    "timeseries_sync",
)


class MetricsRecalculationBody(WireModel):
    """Origin of the recalculation."""

    notes = NOTES

    trigger: Annotated[str, Choice(*TRIGGERS)] = "manual"


class MetricsRecalculationOut(WireModel):
    """A job that computes all metrics of an experiment. ``id`` is null for results of the daily points."""

    notes = NOTES

    id: str | None
    experiment_id: int
    status: Literal["pending", "in_progress", "completed", "failed"]
    total_metrics: int
    completed_metrics: int
    failed_metrics: int
    metric_errors: dict[str, str]
    trigger: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    query_to: datetime | None
    is_existing: bool
    result_source: Literal["recalculation", "timeseries_fallback"]


class MetricResultOut(WireModel):
    """The result of one metric."""

    notes = NOTES

    metric_uuid: str
    status: Literal["pending", "completed", "failed"]
    result: ExperimentResultOut | None
    error_message: str | None


class MetricsRecalculationResultsOut(MetricsRecalculationOut):
    """A job with the results of its metrics."""

    results: list[MetricResultOut]


class HealthOut(WireModel):
    """Findings about an experiment. ``status`` is the severity of the worst; notes alone leave it healthy."""

    notes = NOTES

    experiment_id: int
    status: Literal["healthy", "warning", "critical"]
    checked_at: str
    findings: list[FindingOut]


class LaunchCheckOut(WireModel):
    """One condition for the launch of an experiment."""

    code: str
    """Code of the condition, for programs: `split`, `flag_unshared`, `has_metric`, `metric_events`, `flag_called`, or
    the code of a finding about a definition."""
    passed: bool
    """Whether the condition is met."""
    is_blocking: bool
    """Whether there are no results, or wrong ones, while it is not met."""
    message: str
    """State of the condition in a sentence."""
    advice: str | None
    """Advice on meeting it; null where it is met."""


class LaunchChecksOut(WireModel):
    """Conditions for the launch of an experiment."""

    experiment_id: int
    """The id of the experiment."""
    is_ready: bool
    """Whether all blocking conditions are met."""
    checks: list[LaunchCheckOut]
    """The conditions, in the order in which an experiment is set up."""


class QueryStatusOut(WireModel):
    """An asynchronous query. ``results`` are there when it is complete and ``error`` is false."""

    notes = NOTES
    model_config = ConfigDict(extra="allow")

    id: str
    """Id by which the status is read and the query cancelled."""
    team_id: int
    """The project."""
    query_async: bool
    complete: bool
    error: bool
    error_message: str | None
    results: dict[str, Any] | None
    start_time: str
    end_time: str | None


class QueryStatusAnswer(WireModel):
    """The status of one query."""

    notes = NOTES

    query_status: QueryStatusOut


_TREND_NOTES: Notes = {
    "label": Note("The name of the series.", "purchase"),
    "breakdown_value": "The value of the breakdown; null without one. `$$_posthog_breakdown_other_$$` for all that are "
    "not among the most frequent, `$$_posthog_breakdown_null_$$` for events without the property.",
    "days": Note("Beginning of each interval, in the project's time zone.", ["2026-01-02"]),
    "data": Note("Counts of the intervals.", [3]),
    "count": Note("Sum of the counts.", 3),
}
_QUERY_NOTES: Notes = {name: note for name, note in NOTES.items() if name != "timeseries"}


class TrendOut(WireModel):
    """One series."""

    notes = _TREND_NOTES

    label: str
    breakdown_value: str | None
    days: list[str]
    data: list[int]
    count: int


class QueryOut(WireModel):
    """Result of a query in the form of its kind, with these fields beside it.

    Nothing else is there when there is no answer yet.
    """

    notes = _QUERY_NOTES
    model_config = ConfigDict(extra="allow")

    cache_key: str
    """Key of the answer, equal for queries that ask the same."""
    is_cached: bool
    """Whether it was computed before this request."""
    last_refresh: str
    """Time of the computation; without a result that of the request."""
    timezone: str
    query_status: QueryStatusOut | None
    """The computation that runs now; null when none does."""
    warnings: list[FieldWarning] = Field(default_factory=list)
    kind: str = "ExperimentQuery"
    """The kind of the query."""
    baseline: BaselineRowOut | None = None
    """`ExperimentQuery`: the variant that others are compared with."""
    variant_results: list[VariantRowOut] | None = None
    """`ExperimentQuery`: the other variants."""
    breakdown_results: list[BreakdownOut] | None = None
    """`ExperimentQuery`: results by the values of breakdowns; null without any."""
    timeseries: list[ExposureCurveOut] | None = None
    """`ExperimentExposureQuery`: cumulative exposures by variant and day."""
    total_exposures: dict[str, int] | None = None
    """`ExperimentExposureQuery`: number of exposed people by variant."""
    holdout: HeldOutOut | None = None
    """`ExperimentExposureQuery`: the people held out; null without a holdout."""
    sample_ratio_mismatch: MismatchOut | None = None
    """`ExperimentExposureQuery`: test for a sample ratio mismatch; null below 100 people."""
    phases: list[PhaseOut] | None = None
    """`ExperimentExposureQuery`: phases of the experiment; a change of shares begins a new one."""
    bias_risk: BiasOut | None = None
    """`ExperimentExposureQuery`: risk of bias; null where there is none."""
    date_range: DateRangeOut | None = None
    """`ExperimentExposureQuery`: time range of the exposures."""
    interval: Literal["minute", "hour", "day"] | None = None
    """`TrendsQuery`: distance between points."""
    results: list[TrendOut] | list[list[Any]] | None = None
    """`TrendsQuery`: series, one for each value of a breakdown; `HogQLQuery`: rows."""
    columns: list[str] | None = None
    """`HogQLQuery`: names of the columns of `results`."""
    types: list[list[str]] | None = None
    """`HogQLQuery`: name and type of each column."""
    hasMore: bool | None = None  # noqa: N815 - PostHog's name
    """`HogQLQuery`: whether there are more rows than `limit`."""
    limit: int | None = None
    """`HogQLQuery`: the limit that was applied."""
    offset: int | None = None
    """`HogQLQuery`: number of rows that were passed over."""
    hogql: str | None = None
    """`HogQLQuery`: its text, as clients of PostHog look for it."""
    error: str | None = None
    """`HogQLQuery`: always null; errors are answers of their own."""


class _Question(WireModel):
    """Common fields of all queries."""

    notes = QUESTIONS
    unused = frozenset({"modifiers", "name", "response", "tags", "version"})

    experiment_id: int | None = None


class ExperimentQuestion(_Question):
    """Query for the results of a metric."""

    kind: Literal["ExperimentQuery"]
    metric: ExperimentMetric | None = None
    metric_uuid: str | None = None


class ExposureQuestion(_Question):
    """Query for the numbers of exposed people over time."""

    kind: Literal["ExperimentExposureQuery"]
    unused = _Question.unused | {"experiment_name"}

    feature_flag: Any = None
    holdout: Any = None
    exposure_criteria: ExposureCriteria | None = None
    start_date: Any = None
    end_date: Any = None


class _FromHistory(_Question):
    """Common fields of queries about the past of a project's people."""

    metric: ExperimentMetric | None = None
    experiment: PlannedExperiment | None = None
    history_days: Any = None
    exposure: Any = None


class PlanQuestion(_FromHistory):
    """Query for the numbers of people and days that effects take."""

    kind: Literal["ExperimentPlanQuery"]
    effects: Any = None
    power: Any = None


class SimulationQuestion(_FromHistory):
    """Query for the error rates and the power of each method."""

    kind: Literal["ExperimentSimulationQuery"]
    effect: Any = None
    experiments: Any = None
    looks: Any = None
    people: Any = None
    power: Any = None
    seed: Any = None


class TrendsSeries(WireModel):
    """Series of events to count. ``event``: null for all."""

    notes = QUESTIONS
    unused = frozenset({"id", "limit", "order", "orderBy", "optionalInFunnel", "version"})

    kind: Literal["EventsNode"]
    event: str | None = None
    name: str | None = None
    custom_name: str | None = None
    math: Literal["total", "dau"] = "total"
    properties: Any = None


class TrendsRange(WireModel):
    """Time range: dates, date-times, or times back from now as ``-7d``; ``date_to`` null for now."""

    notes = QUESTIONS
    unused = frozenset({"explicitDate"})

    date_from: str | None = None
    date_to: str | None = None


class TrendsBreakdown(WireModel):
    """The property whose 25 most frequent values have a series each; all others share one."""

    notes = QUESTIONS
    breakdown: str | None = None
    breakdown_type: Literal["event", "person"] | None = None


class TrendsQuestion(_Question):
    """Query for events, or people with such an event, by minute, hour or day; at most 5 series of 750 points."""

    kind: Literal["TrendsQuery"]
    unused = _Question.unused | {"trendsFilter", "samplingFactor", "aggregation_group_type_index"}

    series: list[TrendsSeries]
    dateRange: TrendsRange | None = None  # noqa: N815 - PostHog's name
    interval: Literal["minute", "hour", "day"] = "day"
    breakdownFilter: TrendsBreakdown | None = None  # noqa: N815
    filterTestAccounts: bool = False  # noqa: N815
    properties: Any = None


class HogqlQuestion(_Question):
    """Query in SQL: one ``SELECT`` over ``events``, of at most 10,000 rows, 100 without ``LIMIT``.

    ``values`` has the values of placeholders such as ``{day}``.
    """

    kind: Literal["HogQLQuery"]
    unused = _Question.unused | {"explain", "filters", "variables", "sendRawQuery", "connectionId"}

    query: str
    """Text of the query."""
    values: dict[str, Any] | None = None
    """Values of placeholders, by name."""


class VisualizationQuestion(_Question):
    """Node that says how its ``source`` is shown: the source is answered."""

    kind: Literal["DataVisualizationNode", "InsightVizNode"]
    unused = _Question.unused | {
        "chartSettings",
        "display",
        "tableSettings",
        "full",
        "showHeader",
        "vizSpecificOptions",
    }

    source: dict[str, Any]
    """Query that is answered."""


class _FormerQuestion(_Question):
    """Common fields of queries of the former engine."""

    unused = _Question.unused | {"fingerprint", "uuid"}


class FormerTrendsQuestion(_FormerQuestion):
    """Query for the results of a metric of the former engine that counts events."""

    kind: Literal["ExperimentTrendsQuery"]
    count_query: dict[str, Any] | None = None
    exposure_query: dict[str, Any] | None = None


class FormerFunnelsQuestion(_FormerQuestion):
    """Query for the results of a metric of the former engine that is a funnel."""

    kind: Literal["ExperimentFunnelsQuery"]
    funnels_query: dict[str, Any] | None = None


_QUESTIONS = (
    ExperimentQuestion
    | ExposureQuestion
    | PlanQuestion
    | SimulationQuestion
    | TrendsQuestion
    | HogqlQuestion
    | VisualizationQuestion
    | FormerTrendsQuestion
    | FormerFunnelsQuestion
)
Question = Annotated[
    _QUESTIONS, Field(discriminator="kind", description="A query; `kind` says what is asked.")
]
KINDS: tuple[str, ...] = tuple(
    kind for question in get_args(_QUESTIONS) for kind in get_args(question.model_fields["kind"].annotation)
)
"""The kinds of queries."""


class QueryBody(WireModel):
    """``query.kind`` is ``ExperimentQuery`` or ``ExperimentExposureQuery``.

    For experiments of the former engine also ``ExperimentTrendsQuery`` and ``ExperimentFunnelsQuery``.

    ``experiment_id`` alone is enough for the first two: everything else is taken from the experiment. A metric may be
    given whole (``metric``) or by its ``metric_uuid``; the default is the first primary one.

    hoglab's own kinds answer from the project's history. ``ExperimentPlanQuery`` gives the number of people and days
    that an effect takes (``effects``, ``power``), ``ExperimentSimulationQuery`` the error rates and the power of each
    method (``effect``, ``experiments``, ``looks``, ``people``, ``seed``); both take ``metric``,
    ``history_days`` and ``exposure``, the event by which the experiment will meet people.

    ``TrendsQuery`` needs no experiment: it counts events (``series``, ``dateRange``, ``interval``,
    ``breakdownFilter``). ``HogQLQuery`` answers a ``SELECT`` over events.
    """

    notes = NOTES

    query: Annotated[dict[str, Any], Keys(Question, "Question")]
    refresh: bool | str | None = None
    client_query_id: Annotated[str, Field(max_length=200)] | None = None
    async_: Annotated[bool, Field(alias="async")] = False
