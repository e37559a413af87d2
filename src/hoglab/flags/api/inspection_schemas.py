"""Answers about what flags do: their status, their history, and values with their reasons."""

from typing import Annotated

from pydantic import Field

from hoglab.accounts.schemas import ActivityOut
from hoglab.flags.api.schemas import FlagOut
from hoglab.flags.evaluation.request import MAX_DISTINCT_ID_LENGTH
from hoglab.http.fields.fields import Choice, Int, Text, WireModel

MAX_ACTIVITY_PAGE = 100
"""Maximum number of entries on a page of a flag's history."""
MAX_GROUPS_LENGTH = 4_000
"""Maximum number of characters of the groups in a query."""


class FlagStatusOut(WireModel):
    """Whether a flag still decides anything, and why."""

    status: Annotated[str, Choice("active", "inactive", "stale", "deleted")] = Field(
        description="`inactive`: switched off; `stale`: not called, or the same for everybody, for 30 days."
    )
    reason: str = Field(description="The reason in a sentence.")


class FlagActivityQuery(WireModel):
    """Choice of a page of a history."""

    page: Annotated[int, Int(min=1, max=1_000_000)] = Field(1, description="Number of the page, from 1.")
    limit: Annotated[int, Int(min=1, max=MAX_ACTIVITY_PAGE)] = Field(10, description="Entries on a page.")


class FlagActivityPage(WireModel):
    """A page of a history, newest first."""

    results: list[ActivityOut]
    next: str | None
    previous: str | None
    total_count: int = Field(description="Number of entries on all pages.")


class MyFlagsQuery(WireModel):
    """The groups that the caller acts for."""

    groups: Annotated[str, Text(blank=True, max_length=MAX_GROUPS_LENGTH)] = Field(
        "",
        description="Keys of groups by group type, as the text of a JSON object.",
        examples=['{"company": "acme"}'],
    )


class FlagReasonsQuery(MyFlagsQuery):
    """A person, and the groups that the person acts for."""

    distinct_id: Annotated[str, Text(max_length=MAX_DISTINCT_ID_LENGTH)]


class FlagEvaluationOut(WireModel):
    """The reason for a value."""

    reason: str = Field(
        description="Reason code, as `/flags/` answers it; `disabled` for a flag that is off."
    )
    condition_index: int | None = Field(description="Place of the condition that decided, from 0.")


class FlagReasonOut(WireModel):
    """The value of one flag, with its reason."""

    value: bool | str = Field(description="The variant; true or false for a flag without variants.")
    evaluation: FlagEvaluationOut = Field(description="The reason for the value.")


class MyFlagOut(WireModel):
    """A flag with its value for the caller."""

    feature_flag: FlagOut = Field(description="The flag in full.")
    value: bool | str = Field(description="What the caller gets: the variant, or true or false.")
