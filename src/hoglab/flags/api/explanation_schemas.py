"""The question what a person gets of a flag, and its answer, on the wire."""

from typing import Annotated, Any

from pydantic import Field

from hoglab.flags.api.schemas import FlagPatch
from hoglab.flags.evaluation.request import MAX_DISTINCT_ID_LENGTH
from hoglab.flags.validation import MAX_KEY_LENGTH
from hoglab.http.fields.fields import Int, JsonObject, Text, WireModel


class UnsavedFlag(FlagPatch):
    """Fields of a flag that is not saved yet."""

    id: Annotated[int, Int(min=1)] | None = Field(
        None, description="The flag that the fields change; null for a new one."
    )


class ExplanationIn(WireModel):
    """A flag and a person."""

    key: Annotated[str, Text(blank=True, max_length=MAX_KEY_LENGTH)] = Field(
        "", description="Key of a saved flag.", examples=["button-colour"]
    )
    flag: UnsavedFlag | None = Field(None, description="A flag that is not saved yet, in place of `key`.")
    distinct_id: Annotated[str, Text(max_length=MAX_DISTINCT_ID_LENGTH)] = Field(
        description="Distinct id of the person.", examples=["user-1"]
    )
    person_properties: Annotated[dict[str, Any], JsonObject()] = Field(
        default_factory=dict,
        description="Properties that count before stored ones.",
        examples=[{"plan": "pro"}],
    )
    groups: Annotated[dict[str, Any], JsonObject()] = Field(
        default_factory=dict, description="Keys of groups by group type.", examples=[{"company": "acme"}]
    )
    group_properties: Annotated[dict[str, Any], JsonObject()] = Field(
        default_factory=dict, description="Properties of groups by group type that count before stored ones."
    )
    device_id: Annotated[str, Text(blank=True, max_length=MAX_DISTINCT_ID_LENGTH)] | None = Field(
        None, description="Device id, for flags that are decided by device."
    )


class ExplainedProperty(WireModel):
    """One property filter of a condition, and the value that it looked at."""

    key: str
    type: str
    operator: str
    value: Any
    negation: bool
    actual: Any = Field(description="The value of the property; null when it is not there, and for cohorts.")
    matches: bool
    problem: str | None = Field(description="Why the filter has no answer; null when it has one.")


class ExplainedRollout(WireModel):
    """The rollout of a condition, and the place of the person in it."""

    percentage: float = Field(description="The share in percent.")
    bucket: float | None = Field(description="The place from 0 to 100; null without the group or device.")
    matches: bool


class ExplainedCondition(WireModel):
    """What one condition says of a person."""

    index: int
    matches: bool = Field(
        description="Whether all properties match, and the person is inside of the rollout."
    )
    skipped: str | None = Field(description="Reason code of a condition that lacks a group or a device id.")
    properties: list[ExplainedProperty]
    rollout: ExplainedRollout


class ExplainedReason(WireModel):
    """The reason for a value, as `/flags/` answers it."""

    code: str
    condition_index: int | None
    description: str


class ExplainedPerson(WireModel):
    """What is stored of the person."""

    known: bool = Field(description="Whether a person with this distinct id is stored.")


class ExplainedHoldout(WireModel):
    """The holdout of a flag, and the place of the person in it."""

    variant: str
    percentage: float
    bucket: float | None
    matches: bool


class ExplainedDependency(WireModel):
    """The value of a flag that the flag depends on."""

    key: str
    value: bool | str | None = Field(description="Null for a flag that could not be evaluated.")


class ExplanationOut(WireModel):
    """What a person gets of a flag, and why."""

    key: str
    active: bool
    enabled: bool
    variant: str | None
    payload: str | None
    reason: ExplainedReason
    person: ExplainedPerson
    conditions: list[ExplainedCondition]
    variant_bucket: float | None = Field(description="The place among the variants, from 0 to 100.")
    holdout: ExplainedHoldout | None
    depends_on: list[ExplainedDependency]
