"""Feature flags on the wire of the management API (spec: experiments-api 7.3)."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, field_validator

from hoglab.flags.api.reference import FLAG
from hoglab.flags.filter_schemas import FlagFilters
from hoglab.flags.validation import MAX_KEY_LENGTH
from hoglab.http.fields.fields import Bool, Choice, Int, JsonList, JsonObject, Text, WireModel
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut

Runtime = Choice("server", "client", "all")
Bucketing = Choice("distinct_id", "device_id")
CreationContext = Choice(
    "feature_flags", "experiments", "surveys", "early_access_features", "web_experiments", "product_tours"
)
Tag = Text(max_length=255)


class FlagPatch(WireModel):
    """Changes to a flag; all fields are optional."""

    notes = FLAG

    key: Annotated[str, Text(max_length=MAX_KEY_LENGTH, pattern="^[a-zA-Z0-9_-]+$")] = ""
    name: Annotated[str, Text(blank=True, max_length=100_000)] = ""
    filters: Annotated[dict[str, Any], JsonObject(), Keys(FlagFilters)] = Field(default_factory=dict)
    deleted: Annotated[bool, Bool()] = False
    active: Annotated[bool, Bool()] = True
    archived: Annotated[bool, Bool()] = False
    ensure_experience_continuity: Annotated[bool, Bool()] | None = False
    tags: Annotated[list[str], JsonList(of=Tag, max_length=1_000)] = Field(default_factory=list)
    evaluation_contexts: Annotated[list[str], JsonList(of=Tag, max_length=1_000)] = Field(
        default_factory=list
    )
    is_remote_configuration: Annotated[bool, Bool()] | None = False
    has_encrypted_payloads: Annotated[bool, Bool()] | None = False
    evaluation_runtime: Annotated[str, Runtime] | None = "all"
    bucketing_identifier: Annotated[str, Bucketing] | None = None
    version: Annotated[int, Int()] | None = None
    """Accepted and ignored: the last write wins."""
    creation_context: Annotated[str, CreationContext] | None = None
    create_in_folder: Annotated[str, Text(blank=True)] | None = Field(None, alias="_create_in_folder")

    @field_validator("tags", "evaluation_contexts")
    @classmethod
    def _without_repeats(cls, values: list[str]) -> list[str]:
        return list(dict.fromkeys(values))


class FlagIn(FlagPatch):
    """A whole flag: creating one, and PUT."""

    key: Annotated[str, Text(max_length=MAX_KEY_LENGTH, pattern="^[a-zA-Z0-9_-]+$")]


class FlagListQuery(WireModel):
    """Filters of the list of flags. Invalid values are ignored."""

    notes = FLAG

    search: str | None = None
    active: str | None = Field(None, description="true, false or STALE")
    archived: str | None = None
    type: str | None = Field(None, description="boolean, multivariant, experiment or remote_config")
    created_by_id: str | None = None
    evaluation_runtime: str | None = None
    tags: str | None = Field(None, description="JSON list of tags, of which a flag must have one")
    excluded_properties: str | None = Field(None, description="JSON list of keys of flags to leave out")
    eligible_for_experiment: str | None = None
    has_evaluation_contexts: str | None = None
    order: str | None = Field(
        None, description="created_at, updated_at, key, name or version, with - for descending"
    )
    limit: str | None = None
    offset: str | None = None


class LinkedExperimentOut(WireModel):
    """An experiment that uses the flag."""

    notes = FLAG

    id: int
    name: str
    is_running: bool


class FlagOut(WireModel):
    """A flag in full."""

    notes = FLAG

    id: int
    name: str
    key: str
    filters: dict[str, Any]
    deleted: bool
    active: bool
    archived: bool
    created_by: UserOut | None
    created_at: datetime
    updated_at: datetime
    version: int
    last_modified_by: UserOut | None
    ensure_experience_continuity: bool | None
    experiment_set: list[int]
    experiment_set_metadata: list[LinkedExperimentOut]
    surveys: list[Any]
    features: list[Any]
    can_edit: bool
    tags: list[str]
    evaluation_contexts: list[str]
    evaluation_tags: list[str]
    usage_dashboard: None
    analytics_dashboards: list[Any]
    has_enriched_analytics: bool
    user_access_level: str
    is_remote_configuration: bool | None
    has_encrypted_payloads: bool | None
    status: str
    evaluation_runtime: str | None
    bucketing_identifier: str | None
    last_called_at: datetime | None
    is_used_in_replay_settings: bool
    is_eligible_for_experiment: bool
    is_simple_flag: bool
    rollout_percentage: float | None
    warnings: list[FieldWarning] = Field(default_factory=list)
