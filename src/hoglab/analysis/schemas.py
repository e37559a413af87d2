"""What the endpoints of results take and give, for the reference."""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hoglab.experiments.metrics import StoredMetric
from hoglab.experiments.setting_schemas import ExposureCriteria
from hoglab.http.fields import Choice, WireModel
from hoglab.http.notes import Note, Notes
from hoglab.http.unknown_keys import Keys
from hoglab.http.wire import FieldWarning

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
        "What to compute: `kind` is `ExperimentQuery` or `ExperimentExposureQuery`.",
        {"kind": "ExperimentQuery", "experiment_id": 1, "metric": {"kind": "ExperimentMetric"}},
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


RESULTS: Notes = {
    "key": Note("The variant.", "test"),
    "variant": Note("The variant.", "test"),
    "baseline": "The variant that others are compared with.",
    "variant_results": "The others, each compared with it.",
    "breakdown_results": "The same for each value of the breakdowns; null without any.",
    "breakdown_value": Note("A value of each property.", ["Chrome"]),
    "variants": "The others, each compared with the baseline.",
    "number_of_samples": Note("How many people (or groups) count.", 1471),
    "sum": Note("The sum of their values; of funnels and retention how many came through.", 62),
    "sum_squares": Note("The sum of the squares of their values.", 62),
    "step_counts": Note("Of funnels: how many reached each step.", [395, 62]),
    "step_sessions": "Always null here; there for clients that read it.",
    "denominator_sum": "Of ratios and retention: the sum of the denominators.",
    "denominator_sum_squares": "Of ratios: the sum of their squares.",
    "numerator_denominator_sum_product": "Of ratios: the sum of the products of both.",
    "covariate_sum": "With CUPED: the sum of what people did before.",
    "covariate_sum_squares": "With CUPED: the sum of the squares of that.",
    "covariate_sum_product": "With CUPED: the sum of the products of before and after.",
    "quantile_level": "Of quantile metrics: which quantile, 0.9 for the p90.",
    "quantile": "Of quantile metrics: the quantile.",
    "quantile_lower": "Of quantile metrics: where its confidence interval begins.",
    "quantile_upper": "Of quantile metrics: where its confidence interval ends.",
    "cluster_factor": "Of quantiles over events: how much the events of one person belong together.",
    "validation_failures": Note("Why there is no comparison.", []),
    "method": "How they are compared.",
    "significant": "Whether the difference is more than chance; null where there is no comparison.",
    "chance_to_win": Note("Bayesian: the probability that the variant has more than the baseline.", 0.93),
    "credible_interval": Note("Bayesian: where the effect lies, relative or absolute.", [-0.04, 0.52]),
    "p_value": Note("Frequentist: the p-value.", 0.03),
    "confidence_interval": Note("Frequentist: where the effect lies, relative or absolute.", [0.01, 0.4]),
    "days": Note("The days, oldest first.", ["2026-01-02"]),
    "exposure_counts": Note("How many had been exposed by the end of each.", [12]),
    "timeseries": "Of exposures: by variant and day.",
    "total_exposures": Note("Of exposures: how many people were exposed, by variant.", {"test": 12}),
}
"""Notes on the fields of results."""

QUESTIONS: Notes = {
    "kind": "What is asked.",
    "experiment_id": Note("The id of the experiment.", 1),
    "metric": "The metric.",
    "feature_flag": "The flag of the experiment, with its key.",
    "exposure_criteria": "Who counts as exposed; as the experiment says without it.",
    "start_date": "From when on; from the start of the experiment without it.",
    "end_date": "Until when; until the end of the experiment without it.",
    "history_days": Note("How many days of the past are looked at.", 28),
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


class RowOut(WireModel):
    """The sums of one variant. Its mean is `sum` over `number_of_samples`, or over `denominator_sum` for ratios."""

    notes = RESULTS

    key: str
    number_of_samples: int
    sum: float | None
    sum_squares: float | None
    step_counts: list[int] | None = None
    step_sessions: Any = None
    denominator_sum: float | None = None
    denominator_sum_squares: float | None = None
    numerator_denominator_sum_product: float | None = None
    covariate_sum: float | None = None
    covariate_sum_squares: float | None = None
    covariate_sum_product: float | None = None
    quantile_level: float | None = None
    quantile: float | None = None
    quantile_lower: float | None = None
    quantile_upper: float | None = None
    cluster_factor: float | None = None
    validation_failures: list[str] | None = None


class VariantOut(RowOut):
    """A variant compared with the baseline: Bayesian rows have a chance and a credible interval, frequentist ones a
    p-value and a confidence interval."""

    method: Literal["bayesian", "frequentist"]
    significant: bool | None = None
    chance_to_win: float | None = None
    credible_interval: list[float | None] | None = None
    p_value: float | None = None
    confidence_interval: list[float | None] | None = None


class BreakdownOut(WireModel):
    """The rows of those with one value of each property."""

    notes = RESULTS

    breakdown_value: list[str]
    baseline: RowOut | None
    variants: list[VariantOut]


class ResultOut(WireModel):
    """The result of a metric."""

    notes = RESULTS
    model_config = ConfigDict(extra="allow")

    baseline: RowOut | None = None
    variant_results: list[VariantOut] | None = None
    breakdown_results: list[BreakdownOut] | None = None


class ExposureDaysOut(WireModel):
    """How many people had been exposed to one variant by the end of each day."""

    notes = RESULTS

    variant: str
    days: list[str]
    exposure_counts: list[int]


class TimeseriesOut(WireModel):
    """Daily results of one metric."""

    notes = NOTES

    experiment_id: int
    metric_uuid: str
    status: str
    timeseries: dict[str, ResultOut | None]
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
    result: ResultOut | None
    error_message: str | None


class MetricsRecalculationResultsOut(MetricsRecalculationOut):
    """A job with the results of its metrics."""

    results: list[MetricResultOut]


class FindingOut(WireModel):
    """One thing to look at."""

    notes = NOTES

    code: str
    severity: Literal["critical", "warning", "info"]
    message: str
    advice: str
    details: dict[str, Any]


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


class QueryOut(ResultOut):
    """What was computed, in the form of the query's kind: an ``ExperimentQuery`` has rows, an
    ``ExperimentExposureQuery`` counts. The others are there beside it.

    Nothing else is there when there is no answer yet.
    """

    notes = {**NOTES, **RESULTS}  # noqa: RUF012
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
    timeseries: list[ExposureDaysOut] | None = None
    total_exposures: dict[str, int] | None = None
    warnings: list[FieldWarning] = Field(default_factory=list)


class _Question(WireModel):
    """What every query has."""

    notes = QUESTIONS
    unused = frozenset({"modifiers", "name", "response", "tags", "version"})

    experiment_id: Any = None


class ExperimentQuestion(_Question):
    """The results of a metric."""

    kind: Literal["ExperimentQuery"]
    metric: StoredMetric | None = None


class ExposureQuestion(_Question):
    """How many people were exposed, and when."""

    kind: Literal["ExperimentExposureQuery"]
    unused = _Question.unused | {"experiment_name", "holdout"}

    feature_flag: Any = None
    exposure_criteria: ExposureCriteria | None = None
    start_date: Any = None
    end_date: Any = None


class _FromHistory(_Question):
    """What queries about the past of a project's people have in common."""

    metric: StoredMetric | None = None
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


Question = ExperimentQuestion | ExposureQuestion | PlanQuestion | SimulationQuestion


class QueryBody(WireModel):
    """``query.kind`` is ``ExperimentQuery`` or ``ExperimentExposureQuery``; for experiments of the former engine
    also ``ExperimentTrendsQuery`` and ``ExperimentFunnelsQuery``.

    hoglab's own kinds answer from what the project's people did before. ``ExperimentPlanQuery`` says how many people
    and days an effect takes (``effects``, ``power``), ``ExperimentSimulationQuery`` how often each method is fooled
    and what it finds (``effect``, ``experiments``, ``looks``, ``people``, ``seed``); both take ``metric``,
    ``history_days`` and ``exposure``, the event by which the experiment will meet people.
    """

    notes = NOTES

    query: Annotated[dict[str, Any], Keys(Question)]
    refresh: bool | str | None = None
    client_query_id: Annotated[str, Field(max_length=200)] | None = None
    async_: Annotated[bool, Field(alias="async")] = False
