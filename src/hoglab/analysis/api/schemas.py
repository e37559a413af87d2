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
    VariantRowOut,
)
from hoglab.experiments.definitions.metrics import ExperimentMetric
from hoglab.experiments.wire.setting_schemas import ExposureCriteria
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
    "status": Note("How far it is.", "partial"),
    "timeseries": Note("The results up to each day; null for a day without.", {"2026-01-02": None}),
    "errors": "Why a day has no result, or only one of before its newest try.",
    "computed_at": "When the newest was computed.",
    "recalculation_status": "How far a recalculation is; null when none runs.",
    "recalculation_created_at": "When that was begun.",
    "checked_at": Note("When the experiment was looked at.", "2026-01-02T03:04:05.678901Z"),
    "findings": "What to look at, the worst first.",
    "code": Note("What it is, for programs.", "no_exposures"),
    "severity": "How bad it is.",
    "message": Note("What it is, for people.", "Nobody has been exposed yet."),
    "advice": Note("What to do about it.", "Check that the code asks for the flag."),
    "details": Note("Numbers behind it.", {}),
    "query": Note(
        "What to compute; `kind` says what is asked.",
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
    "async_": "As `refresh: async`.",
    "async": "As `refresh: async`.",
    "id": "By what the status is asked for and the query cancelled.",
    "team_id": "The project.",
    "query_async": "True: it was computed apart from its request.",
    "complete": "Whether it has ended.",
    "error": "Whether it ended without results.",
    "results": "The answer; null before it is there.",
    "start_time": "When it was asked for.",
    "end_time": "When it ended; null before.",
    "query_status": "The computation; null when none runs.",
    "cache_key": Note("The same for queries that ask the same.", "5f3a…"),
    "is_cached": "Whether it was computed before this request.",
    "last_refresh": Note(
        "When it was computed; without an answer when it was asked for.", "2026-01-02T03:04:05+00:00"
    ),
    "timezone": Note("The time zone of the project's days.", "UTC"),
    "total_metrics": "How many metrics there are to compute.",
    "completed_metrics": "How many of them are done.",
    "failed_metrics": "How many of them could not be computed.",
    "metric_errors": Note("Why, by the uuid of the metric.", {}),
    "trigger": "What asked for it.",
    "started_at": "When computing began; null before.",
    "completed_at": "When it was done; null before.",
    "query_to": "The moment that every metric is computed up to.",
    "is_existing": "Whether it ran already when it was asked for.",
    "result_source": "Where the results are from.",
    "result": "What came out; null when nothing did.",
    "error_message": "Why nothing came out; null when something did.",
}


QUESTIONS: Notes = {
    "kind": "What is asked.",
    "experiment_id": Note("The id of the experiment.", 1),
    "metric": "The metric; of results the experiment's first primary one without it.",
    "metric_uuid": "A metric of the experiment, in place of `metric`.",
    "holdout": "Whose people are counted beside the variants; that of the experiment without it.",
    "feature_flag": "The flag of the experiment, with its key.",
    "exposure_criteria": "Who counts as exposed; as the experiment says without it.",
    "start_date": "From when on; from the start of the experiment without it.",
    "end_date": "Until when; until the end of the experiment without it.",
    "history_days": Note("How many days of the past are looked at.", 28),
    "series": "What is counted, a series each; at most 5.",
    "dateRange": "Of what time; the last seven days without it.",
    "interval": Note("How far apart points are.", "day"),
    "breakdownFilter": "A property whose values have a series each.",
    "filterTestAccounts": "Whether the project's own people are left out.",
    "properties": "Filters of properties that events must pass.",
    "event": Note("The name of the events; null for all.", "signed up"),
    "name": "What answers call the series.",
    "custom_name": "As `name`, which it goes before.",
    "math": "What is counted: events, or (`dau`) people who have one.",
    "date_from": Note("From when on.", "-7d"),
    "date_to": "Until when; null for now.",
    "breakdown": Note("The name of the property.", "plan"),
    "breakdown_type": "Whose property it is.",
    "count_query": "What is counted, as the former engine has it.",
    "exposure_query": "What counts as an exposure, as the former engine has it.",
    "funnels_query": "The funnel, as the former engine has it.",
    "exposure": "The event by which the experiment will meet people.",
    "effects": Note("Relative effects to plan for.", [0.05]),
    "power": Note("The probability of finding an effect.", 0.8),
    "effect": Note("The relative effect that is simulated.", 0.05),
    "experiments": "How many experiments are simulated.",
    "looks": "How often each is looked at.",
    "people": "How many people each has.",
    "seed": "What the draws begin with.",
}


class TimeseriesQuery(WireModel):
    """Both are needed; take them from the metric object of the experiment."""

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
    """The metric to compute anew."""

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
    """What asked for the recalculation."""

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
    """``status`` is that of the worst finding; what is only worth knowing leaves an experiment healthy."""

    notes = NOTES

    experiment_id: int
    status: Literal["healthy", "warning", "critical"]
    checked_at: str
    findings: list[FindingOut]


class QueryStatusOut(WireModel):
    """An asynchronous query. ``results`` are there when it is complete and ``error`` is false."""

    notes = NOTES
    model_config = ConfigDict(extra="allow")

    id: str
    """By what the status is asked for and the query cancelled."""
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
    "days": Note("When each interval begins, in the project's zone.", ["2026-01-02"]),
    "data": Note("How many in each interval.", [3]),
    "count": Note("Their sum.", 3),
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
    """What was computed, in the form of the query's kind; these are there beside it.

    Nothing else is there when there is no answer yet.
    """

    notes = _QUERY_NOTES
    model_config = ConfigDict(extra="allow")

    cache_key: str
    """The same for queries that ask the same."""
    is_cached: bool
    """Whether it was computed before this request."""
    last_refresh: str
    """When it was computed; without an answer when it was asked for."""
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
    """`ExperimentQuery`: by the values of breakdowns; null without any."""
    timeseries: list[ExposureCurveOut] | None = None
    """`ExperimentExposureQuery`: by variant and day, cumulative."""
    total_exposures: dict[str, int] | None = None
    """`ExperimentExposureQuery`: by variant."""
    holdout: HeldOutOut | None = None
    """`ExperimentExposureQuery`: who is held out; null without a holdout."""
    sample_ratio_mismatch: MismatchOut | None = None
    """`ExperimentExposureQuery`: null below 100 people."""
    bias_risk: BiasOut | None = None
    """`ExperimentExposureQuery`: null where there is none."""
    date_range: DateRangeOut | None = None
    """`ExperimentExposureQuery`: of what time it is."""
    interval: Literal["minute", "hour", "day"] | None = None
    """`TrendsQuery`: how far apart points are."""
    results: list[TrendOut] | None = None
    """`TrendsQuery`: a series each, for each value of a breakdown."""


class _Question(WireModel):
    """What every query has."""

    notes = QUESTIONS
    unused = frozenset({"modifiers", "name", "response", "tags", "version"})

    experiment_id: int | None = None


class ExperimentQuestion(_Question):
    """The results of a metric."""

    kind: Literal["ExperimentQuery"]
    metric: ExperimentMetric | None = None
    metric_uuid: str | None = None


class ExposureQuestion(_Question):
    """How many people were exposed, and when."""

    kind: Literal["ExperimentExposureQuery"]
    unused = _Question.unused | {"experiment_name"}

    feature_flag: Any = None
    holdout: Any = None
    exposure_criteria: ExposureCriteria | None = None
    start_date: Any = None
    end_date: Any = None


class _FromHistory(_Question):
    """What queries about the past of a project's people have in common."""

    metric: ExperimentMetric | None = None
    history_days: Any = None
    exposure: Any = None


class PlanQuestion(_FromHistory):
    """How many people and days an effect takes."""

    kind: Literal["ExperimentPlanQuery"]
    effects: Any = None
    power: Any = None


class SimulationQuestion(_FromHistory):
    """How often each method is fooled, and what it finds."""

    kind: Literal["ExperimentSimulationQuery"]
    effect: Any = None
    experiments: Any = None
    looks: Any = None
    people: Any = None
    power: Any = None
    seed: Any = None


class TrendsSeries(WireModel):
    """Which events are counted. ``event``: null for all."""

    notes = QUESTIONS
    unused = frozenset({"id", "limit", "order", "orderBy", "optionalInFunnel", "version"})

    kind: Literal["EventsNode"]
    event: str | None = None
    name: str | None = None
    custom_name: str | None = None
    math: Literal["total", "dau"] = "total"
    properties: Any = None


class TrendsRange(WireModel):
    """From when to when: dates, date-times, or times back from now as ``-7d``; ``date_to`` null for now."""

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
    """How many events, or people with such an event, by minute, hour or day; at most 5 series of 750 points."""

    kind: Literal["TrendsQuery"]
    unused = _Question.unused | {"trendsFilter", "samplingFactor", "aggregation_group_type_index"}

    series: list[TrendsSeries]
    dateRange: TrendsRange | None = None  # noqa: N815 - PostHog's name
    interval: Literal["minute", "hour", "day"] = "day"
    breakdownFilter: TrendsBreakdown | None = None  # noqa: N815
    filterTestAccounts: bool = False  # noqa: N815
    properties: Any = None


class _FormerQuestion(_Question):
    """What queries of the former engine have in common."""

    unused = _Question.unused | {"fingerprint", "uuid"}


class FormerTrendsQuestion(_FormerQuestion):
    """The results of a metric of the former engine that counts events."""

    kind: Literal["ExperimentTrendsQuery"]
    count_query: dict[str, Any] | None = None
    exposure_query: dict[str, Any] | None = None


class FormerFunnelsQuestion(_FormerQuestion):
    """The results of a metric of the former engine that is a funnel."""

    kind: Literal["ExperimentFunnelsQuery"]
    funnels_query: dict[str, Any] | None = None


_QUESTIONS = (
    ExperimentQuestion
    | ExposureQuestion
    | PlanQuestion
    | SimulationQuestion
    | TrendsQuestion
    | FormerTrendsQuestion
    | FormerFunnelsQuestion
)
Question = Annotated[
    _QUESTIONS, Field(discriminator="kind", description="A query; `kind` says what is asked.")
]
KINDS: tuple[str, ...] = tuple(
    get_args(each.model_fields["kind"].annotation)[0] for each in get_args(_QUESTIONS)
)
"""The kinds of queries."""


class QueryBody(WireModel):
    """``query.kind`` is ``ExperimentQuery`` or ``ExperimentExposureQuery``.

    For experiments of the former engine also ``ExperimentTrendsQuery`` and ``ExperimentFunnelsQuery``.

    Of the first two ``experiment_id`` alone is enough: what is not said is taken from the experiment. A metric may be
    given whole (``metric``) or named by its ``metric_uuid``; else it is the first primary one.

    hoglab's own kinds answer from what the project's people did before. ``ExperimentPlanQuery`` says how many people
    and days an effect takes (``effects``, ``power``), ``ExperimentSimulationQuery`` how often each method is fooled
    and what it finds (``effect``, ``experiments``, ``looks``, ``people``, ``seed``); both take ``metric``,
    ``history_days`` and ``exposure``, the event by which the experiment will meet people.

    ``TrendsQuery`` needs no experiment: it counts events (``series``, ``dateRange``, ``interval``,
    ``breakdownFilter``).
    """

    notes = NOTES

    query: Annotated[dict[str, Any], Keys(Question, "Question")]
    refresh: bool | str | None = None
    client_query_id: Annotated[str, Field(max_length=200)] | None = None
    async_: Annotated[bool, Field(alias="async")] = False
