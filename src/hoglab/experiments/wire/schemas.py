"""Wire formats of experiments (spec experiments-api 3, 6, 7). Bodies are read in the order of spec 3.1."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from hoglab.experiments.definitions import criteria, flag_config, metrics, reference
from hoglab.experiments.definitions.metrics import ExperimentMetric, LegacyMetric, StoredMetric
from hoglab.experiments.wire.setting_schemas import (
    ExperimentParameters,
    ExposureCriteria,
    HoldoutGroup,
    StatsConfig,
)
from hoglab.flags.api.schemas import FlagOut
from hoglab.http.errors import ApiError, validation_error
from hoglab.http.fields.fields import (
    Bool,
    Choice,
    Int,
    JsonAny,
    JsonList,
    JsonObject,
    Moment,
    Number,
    PrimaryKey,
    Text,
    WireModel,
    fail,
)
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut
from hoglab.people.cohorts.schemas import CohortOut
from hoglab.statistics.config import (
    MAX_LOOKBACK_DAYS,
    MAX_TUNING_PARAMETER,
    MIN_LOOKBACK_DAYS,
    MIN_TUNING_PARAMETER,
)

MAX_NAME = 400
MAX_DESCRIPTION = 3000
MAX_CONCLUSION_COMMENT = 4000
MAX_HOLDOUT_TEXT = 400
TYPES = ("web", "product")
CONCLUSIONS = ("won", "lost", "inconclusive", "stopped_early", "invalid")

Name = Annotated[str, Text(max_length=MAX_NAME)]
KnownMetric = Annotated[
    ExperimentMetric | LegacyMetric,
    Field(description="A metric, or one of the former engine that is only kept."),
]
SHOWN_METRICS = Keys(list[KnownMetric], "KnownMetric")


@dataclass(frozen=True, slots=True)
class Checked(JsonAny):
    """A JSON value that a rule of this room reads; what it refuses is an error of the field."""

    rule: Callable[[Any], Any] = lambda value: value
    schema: JsonSchemaValue | None = field(default=None, compare=False)

    def read(self, value: Any) -> Any:
        if value is None:
            raise fail("null", "This field may not be null.")
        try:
            return self.rule(value)
        except ApiError as error:
            raise fail(error.code, error.detail) from None

    def document(self) -> JsonSchemaValue:
        return self.schema or {}


CONFIDENCE = Checked(
    criteria.validate_confidence_level, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
)
RECALCULATION_TIMES = Checked(
    criteria.validate_recalculation_times,
    {
        "type": "array",
        "items": {"type": "string", "pattern": r"^([01]\d|2[0-3]):00(:00)?$"},
        "minItems": 1,
        "maxItems": criteria.MAX_RECALCULATION_TIMES,
    },
)


def _parameters(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise validation_error("parameters must be an object", "parameters")
    flag_config.from_parameters(value)
    if value.get(criteria.PAUSES_ON_HARM) not in (None, True, False):
        raise validation_error(f"parameters.{criteria.PAUSES_ON_HARM} must be true or false", "parameters")
    return value


def _ordering(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise validation_error("Expected a list of metric uuids.")
    return value


def _link_list(value: Any) -> list[dict[str, Any]]:
    """Check the shape of ``saved_metrics_ids`` (spec experiments-api 3.9)."""
    if not isinstance(value, list):
        name = type(value).__name__
        raise validation_error(f'Expected a list of items but got type "{name}".', code="not_a_list")
    for item in value:
        if not isinstance(item, dict):
            raise validation_error("Saved metric must be an object")
        if not isinstance(item.get("id"), int) or isinstance(item["id"], bool):
            raise validation_error("Saved metric must have an id")
        metadata = item.get("metadata", {"type": "primary"})
        if not isinstance(metadata, dict):
            raise validation_error("Metadata must be an object")
        if item.get("metadata") is not None and "type" not in metadata:
            raise validation_error("Metadata must have a type key")
    return value


_OBJECT: JsonSchemaValue = {"type": "object", "additionalProperties": True}
_METRIC_LIST: JsonSchemaValue = {"type": "array", "items": _OBJECT}
_Primary, _Secondary = (
    Checked(rule=partial(metrics.validate_metrics, attr=name), schema=_METRIC_LIST)
    for name in ("metrics", "metrics_secondary")
)
_Ordering = Checked(rule=_ordering, schema={"type": "array", "items": {"type": "string"}})


class ExperimentPatch(WireModel):
    """Body of PATCH: only the fields that are sent change."""

    notes = reference.EXPERIMENT

    name: Name = ""
    description: Annotated[str, Text(max_length=MAX_DESCRIPTION, blank=True)] | None = ""
    start_date: Annotated[datetime, Moment()] | None = None
    end_date: Annotated[datetime, Moment()] | None = None
    feature_flag_key: Annotated[str, Text()] = ""
    feature_flag: Annotated[Any, JsonAny()] = None
    holdout_id: Annotated[int, PrimaryKey()] | None = None
    parameters: (
        Annotated[dict[str, Any], Checked(rule=_parameters, schema=_OBJECT), Keys(ExperimentParameters)]
        | None
    ) = None
    running_time_calculation: Annotated[
        dict[str, Any], Checked(rule=criteria.validate_running_time, schema=_OBJECT)
    ] = Field(default_factory=dict)
    excluded_variants: Annotated[Any, JsonAny()] = None
    secondary_metrics: Annotated[Any, JsonAny()] = None
    saved_metrics_ids: Annotated[list[Any], Checked(rule=_link_list, schema=_METRIC_LIST)] | None = None
    filters: Annotated[Any, Checked(schema=_OBJECT)] = Field(default_factory=dict)
    archived: Annotated[bool, Bool()] = False
    deleted: Annotated[bool, Bool()] | None = False
    type: Annotated[str, Choice(*TYPES)] | None = "product"
    exposure_criteria: (
        Annotated[
            dict[str, Any],
            Checked(rule=criteria.validate_exposure_criteria, schema=_OBJECT),
            Keys(ExposureCriteria),
        ]
        | None
    ) = None
    metrics: Annotated[list[Any], _Primary, Keys(list[ExperimentMetric], "Metric")] | None = None
    metrics_secondary: Annotated[list[Any], _Secondary, Keys(list[ExperimentMetric], "Metric")] | None = None
    stats_config: Annotated[Any, JsonAny(), Keys(StatsConfig)] = None
    scheduling_config: Annotated[dict[str, Any], JsonObject()] | None = None
    create_in_folder: Annotated[str, Text(blank=True)] | None = Field(None, alias="_create_in_folder")
    conclusion: Annotated[str, Choice(*CONCLUSIONS)] | None = None
    conclusion_comment: Annotated[str, Text(max_length=MAX_CONCLUSION_COMMENT, blank=True)] | None = None
    primary_metrics_ordered_uuids: Annotated[list[str], _Ordering] | None = None
    secondary_metrics_ordered_uuids: Annotated[list[str], _Ordering] | None = None
    only_count_matured_users: Annotated[bool, Bool()] = False
    allow_unknown_events: Annotated[bool, Bool()] = False
    update_feature_flag_params: Annotated[bool, Bool()] = False


class ExperimentCreate(ExperimentPatch):
    """Body of POST and PUT."""

    name: Name
    feature_flag_key: Annotated[str, Text()]


class EndBody(WireModel):
    """Conclusion of an experiment."""

    notes = reference.ACTIONS

    conclusion: Annotated[str, Choice(*CONCLUSIONS)] | None = None
    conclusion_comment: Annotated[str, Text(max_length=MAX_CONCLUSION_COMMENT, blank=True)] | None = None


class ShipVariantBody(EndBody):
    """Variant to ship, and the conclusion of the experiment."""

    variant_key: Annotated[str, Text()]
    release_to_everyone: Annotated[bool, Bool()] = False


class ArchiveBody(WireModel):
    """Options for archiving an experiment."""

    notes = reference.ACTIONS

    disable_feature_flag: Annotated[bool, Bool()] = False


class DuplicateBody(WireModel):
    """Name and flag key of the copy; both are optional."""

    notes = reference.ACTIONS

    feature_flag_key: Annotated[str, Text(blank=True)] | None = None
    name: Annotated[str, Text(max_length=MAX_NAME, blank=True)] | None = None


class CopyBody(DuplicateBody):
    """Project to copy to, and name and flag key of the copy."""

    target_team_id: Annotated[int, Int(min=0)]


class ProjectConfigPatch(WireModel):
    """Changes to a project's settings for experiments; null restores the default."""

    notes = reference.PROJECT_CONFIG

    default_experiment_stats_method: Annotated[str, Choice(*criteria.METHODS)] | None = None
    default_experiment_confidence_level: Annotated[float, CONFIDENCE] | None = None
    default_only_count_matured_users: Annotated[bool, Bool()] = False
    default_cuped_enabled: Annotated[bool, Bool()] = False
    default_cuped_lookback_days: Annotated[int, Int(min=MIN_LOOKBACK_DAYS, max=MAX_LOOKBACK_DAYS)] | None = (
        None
    )
    default_sequential_testing_enabled: Annotated[bool, Bool()] = False
    default_sequential_tuning_parameter: (
        Annotated[float, Number(min=MIN_TUNING_PARAMETER, max=MAX_TUNING_PARAMETER)] | None
    ) = None
    default_posthog_numbers: Annotated[bool, Bool()] = False
    default_minimum_detectable_effect: Annotated[float, Number(min=0)] | None = None
    default_flag_persistence_enabled: Annotated[bool, Bool()] = False
    experiment_recalculation_times: Annotated[list[str], RECALCULATION_TIMES] | None = None
    experiment_precomputation_enabled: Annotated[bool, Bool()] = False


class ProjectConfigOut(WireModel):
    """A project's settings for experiments; null stands for the default."""

    notes = reference.PROJECT_CONFIG

    default_experiment_stats_method: Literal["bayesian", "frequentist"] | None
    default_experiment_confidence_level: float | None
    default_only_count_matured_users: bool
    default_cuped_enabled: bool
    default_cuped_lookback_days: int | None
    default_sequential_testing_enabled: bool
    default_sequential_tuning_parameter: float | None
    default_posthog_numbers: bool
    default_minimum_detectable_effect: float | None
    default_flag_persistence_enabled: bool
    experiment_recalculation_times: list[str] | None
    experiment_precomputation_enabled: bool


class HoldoutPatch(WireModel):
    """Changes to a holdout; all fields are optional."""

    notes = reference.HOLDOUT

    name: Name = ""
    description: Annotated[str, Text(max_length=MAX_HOLDOUT_TEXT, blank=True)] | None = None
    filters: Annotated[Any, JsonAny(), Keys(list[HoldoutGroup])] = None


class HoldoutCreate(HoldoutPatch):
    """A new holdout."""

    name: Name


class SavedMetricPatch(WireModel):
    """Changes to a shared metric; all fields are optional."""

    notes = reference.SAVED_METRIC

    name: Name = ""
    description: Annotated[str, Text(max_length=MAX_HOLDOUT_TEXT, blank=True)] | None = None
    query: Annotated[Any, JsonAny(), Keys(StoredMetric)] = None
    tags: Annotated[list[str], JsonList(Text())] = Field(default_factory=list)


class SavedMetricCreate(SavedMetricPatch):
    """A new shared metric."""

    name: Name


class RunningTimeBody(WireModel):
    """Assumptions for estimating the running time."""

    notes = reference.RUNNING_TIME

    metric_type: Annotated[str, Choice("funnel", "mean_count", "mean_sum_or_avg", "ratio", "retention")]
    minimum_detectable_effect: Annotated[float, Number()]
    number_of_variants: Annotated[int, Int(min=2, max=1000)] = 2
    baseline_value: Annotated[float, Number()] | None = None
    variance: Annotated[float, Number(min=0)] | None = None
    exposure_rate_per_day: Annotated[float, Number(min=0)] | None = None
    baseline_stats: Annotated[dict[str, Any], JsonObject()] | None = None


# -- what comes back ---------------------------------------------------------------------------------------------------


class ExperimentFlagOut(WireModel):
    """The linked feature flag."""

    notes = reference.FLAG

    id: int
    team_id: int
    name: str
    key: str
    filters: dict[str, Any]
    deleted: bool
    active: bool
    ensure_experience_continuity: bool | None
    has_encrypted_payloads: bool | None
    version: int
    evaluation_runtime: str | None
    evaluation_tags: list[str]
    bucketing_identifier: str | None
    evaluation_contexts: list[str]


class HoldoutOut(WireModel):
    """A holdout."""

    notes = reference.HOLDOUT

    id: int
    name: str
    description: str | None
    filters: list[dict[str, Any]]
    created_by: UserOut | None
    created_at: datetime
    updated_at: datetime
    warnings: list[FieldWarning] = Field(default_factory=list)


class SavedMetricLinkOut(WireModel):
    """A shared metric as one experiment uses it."""

    notes = reference.SAVED_METRIC

    id: int
    experiment: int
    saved_metric: int
    metadata: dict[str, Any]
    created_at: datetime
    query: dict[str, Any]
    name: str


class ExperimentOut(WireModel):
    """An experiment in full."""

    notes = reference.EXPERIMENT

    id: int
    name: str
    description: str | None
    start_date: datetime | None
    end_date: datetime | None
    feature_flag_key: str | None
    feature_flag: ExperimentFlagOut | None
    holdout: HoldoutOut | None
    holdout_id: int | None
    exposure_cohort: int | None
    parameters: dict[str, Any] | None
    running_time_calculation: dict[str, Any]
    excluded_variants: list[str]
    secondary_metrics: Any
    saved_metrics: list[SavedMetricLinkOut]
    saved_metrics_ids: None
    filters: Any
    archived: bool
    deleted: bool
    created_by: UserOut | None
    created_at: datetime
    updated_at: datetime
    type: Literal["web", "product"] | None
    exposure_criteria: dict[str, Any] | None
    metrics: Annotated[list[dict[str, Any]], SHOWN_METRICS] | None
    metrics_secondary: Annotated[list[dict[str, Any]], SHOWN_METRICS] | None
    stats_config: dict[str, Any] | None
    scheduling_config: dict[str, Any] | None
    create_in_folder: str | None = Field(alias="_create_in_folder")
    conclusion: Literal["won", "lost", "inconclusive", "stopped_early", "invalid"] | None
    conclusion_comment: str | None
    primary_metrics_ordered_uuids: list[str] | None
    secondary_metrics_ordered_uuids: list[str] | None
    only_count_matured_users: bool
    status: Literal["draft", "running", "paused", "exposure_frozen", "stopped"]
    is_legacy: bool
    user_access_level: str
    warnings: list[FieldWarning] = Field(default_factory=list)


class SavedMetricOut(WireModel):
    """A shared metric."""

    notes = reference.SAVED_METRIC

    id: int
    name: str
    description: str | None
    query: dict[str, Any]
    created_by: UserOut | None
    created_at: datetime
    updated_at: datetime
    tags: list[str]
    user_access_level: str
    warnings: list[FieldWarning] = Field(default_factory=list)


class EligibleQuery(WireModel):
    """Filters of the list of flags that can carry an experiment."""

    notes = reference.LISTING

    limit: Annotated[int, Int()] = 20
    offset: Annotated[int, Int()] = 0
    search: str = ""
    active: str = ""
    created_by_id: str = ""
    evaluation_runtime: str = ""
    has_evaluation_contexts: str = ""
    order: str = ""


class EligibleFlagsOut(WireModel):
    """A page of flags that can carry an experiment."""

    results: list[FlagOut]
    count: int


class ExposureCohortOut(WireModel):
    """The cohort of everybody who was exposed."""

    notes = reference.STATS

    cohort: CohortOut


class RecordOut(WireModel):
    """Record of an experiment: a plan, an amendment, an alarm or a decision. Records are never changed."""

    notes = reference.RECORD

    id: int
    kind: Literal["launched", "known", "amended", "harm", "ended", "shipped"]
    created_at: datetime
    created_by: UserOut | None
    detail: dict[str, Any]


class StatsOut(WireModel):
    """Numbers of recent experiments."""

    notes = reference.STATS

    launched_last_30d: int
    launched_previous_30d: int
    percent_change: float
    active_experiments: int
    completed_last_30d: int


class RunningTimeOut(WireModel):
    """Recommended sample size and running time; null for what cannot be estimated."""

    notes = reference.RUNNING_TIME

    baseline_value: float | None
    variance: float | None
    recommended_sample_size: int | None
    recommended_running_time_days: int | None


class ExperimentListQuery(WireModel):
    """Query of the list of experiments (spec experiments-api 5.6)."""

    notes = reference.LISTING

    limit: int = 100
    offset: int = 0
    status: Annotated[
        str, Choice("draft", "running", "paused", "exposure_frozen", "stopped", "complete", "all")
    ] = "all"
    archived: bool = False
    created_by_id: str = ""
    feature_flag_id: int | None = None
    search: str = ""
    event: str = ""
    order: str = "-created_at"


class ImplementationQuery(WireModel):
    """The events and actions of a metric."""

    notes = reference.LISTING

    events: str = ""
    actions: str = ""
    limit: int = 20


class ImplementationOut(WireModel):
    """Answer whether the events still lack flag values."""

    notes = reference.STATS

    result: bool
