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

    key: str = Field(description="Name of the property, or id of the cohort.", examples=["plan"])
    type: str = Field(
        description="Where the property is: `person`, `group`, `cohort` or `flag`.", examples=["person"]
    )
    operator: str = Field(description="Operator that compares the two values.", examples=["exact"])
    value: Any = Field(description="The value of the filter.", examples=["pro"])
    negation: bool = Field(description="Whether the filter matches where the comparison does not.")
    actual: Any = Field(description="The value of the property; null when it is not there, and for cohorts.")
    matches: bool = Field(description="Whether the person passes the filter.")
    problem: str | None = Field(description="Why the filter has no answer; null when it has one.")


class ExplainedRollout(WireModel):
    """The rollout of a condition, and the place of the person in it."""

    percentage: float = Field(description="The share in percent.")
    bucket: float | None = Field(description="The place from 0 to 100; null without the group or device.")
    matches: bool = Field(description="Whether the person is inside of the rollout.")


class ExplainedCondition(WireModel):
    """What one condition says of a person."""

    index: int = Field(description="Number of the condition, from 0.")
    matches: bool = Field(
        description="Whether all properties match, and the person is inside of the rollout."
    )
    skipped: str | None = Field(description="Reason code of a condition that lacks a group or a device id.")
    properties: list[ExplainedProperty] = Field(
        description="The filters of the condition, in their order.",
        examples=[
            [
                {
                    "key": "plan",
                    "type": "person",
                    "operator": "exact",
                    "value": "pro",
                    "negation": False,
                    "actual": "pro",
                    "matches": True,
                    "problem": None,
                }
            ]
        ],
    )
    rollout: ExplainedRollout = Field(
        description="The rollout of the condition.",
        examples=[{"percentage": 50.0, "bucket": 12.5, "matches": True}],
    )


class ExplainedReason(WireModel):
    """The reason for a value, as `/flags/` answers it."""

    code: str = Field(description="Code of the reason.", examples=["condition_match"])
    condition_index: int | None = Field(description="Number of the condition that decided, from 0.")
    description: str = Field(description="The reason in words.", examples=["Matched condition set 1"])


class ExplainedPerson(WireModel):
    """What is stored of the person."""

    known: bool = Field(description="Whether a person with this distinct id is stored.")


class ExplainedHoldout(WireModel):
    """The holdout of a flag, and the place of the person in it."""

    variant: str = Field(description="Value of the flag for people of the holdout.", examples=["holdout-1"])
    percentage: float = Field(description="Share of people in the holdout, in percent.")
    bucket: float | None = Field(
        description="Place of the person from 0 to 100; null without the group or device."
    )
    matches: bool = Field(description="Whether the person is in the holdout.")


class ExplainedDependency(WireModel):
    """The value of a flag that the flag depends on."""

    key: str = Field(description="Key of that flag.", examples=["new-checkout"])
    value: bool | str | None = Field(description="Null for a flag that could not be evaluated.")


class ExplanationOut(WireModel):
    """What a person gets of a flag, and why."""

    key: str = Field(description="Key of the flag.", examples=["button-colour"])
    active: bool = Field(description="Whether the flag is on.")
    enabled: bool = Field(description="Whether the person gets the flag.")
    variant: str | None = Field(description="Variant that the person gets; null for none.")
    payload: str | None = Field(description="Payload that the person gets, as text; null for none.")
    reason: ExplainedReason = Field(description="Reason for the value.")
    person: ExplainedPerson = Field(description="What is stored of the person.")
    conditions: list[ExplainedCondition] = Field(description="What each condition says, in their order.")
    variant_bucket: float | None = Field(description="The place among the variants, from 0 to 100.")
    holdout: ExplainedHoldout | None = Field(description="Holdout of the flag; null for none.")
    depends_on: list[ExplainedDependency] = Field(description="Values of the flags that the flag depends on.")
