"""Cohorts on the wire (spec: experiments-api 7.4)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from hoglab.http.fields.fields import Bool, JsonAny, JsonList, Text, Uuid, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import Properties, WirePropertyFilter
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut
from hoglab.people.cohorts.upload import MAX_PERSONS


class CohortRule(WirePropertyFilter):
    """One condition on a person: a property, another cohort, or what the person did."""

    unused = WirePropertyFilter.unused | {"bytecode", "conditionHash"}

    event_type: Any = None
    event_filters: Properties | None = None
    explicit_datetime: Any = None
    time_value: Any = None
    time_interval: Any = None


class CohortRules(WireModel):
    """Conditions of which all (`AND`) or any (`OR`) must hold."""

    closed = True

    type: Literal["AND", "OR"]
    values: list["CohortRules | CohortRule"] = Field(default_factory=list)


class CohortFilters(WireModel):
    """Conditions of membership in a dynamic cohort."""

    closed = True

    properties: list[CohortRules | CohortRule] | CohortRules | None = None


PersonIds = Annotated[list[str], JsonList(of=Uuid(), max_length=MAX_PERSONS)]
DistinctIds = Annotated[list[str], JsonList(of=Text(trim=False), max_length=MAX_PERSONS)]


NOTES: Notes = {
    "name": Note("Display name.", "Customers"),
    "description": "Description of the members.",
    "groups": Note("The old form of rules; always empty.", []),
    "filters": Note(
        "Rules of who is in it; of a static cohort, who became members when it was created, or null.",
        {
            "properties": {
                "type": "OR",
                "values": [{"type": "person", "key": "plan", "operator": "exact", "value": ["pro"]}],
            }
        },
    ),
    "query": "Cohorts by query are not supported; always null.",
    "is_static": "Whether its members are a list, which changes by hand only, instead of following from rules.",
    "_create_static_person_ids": "Persons to begin with, by their uuids.",
    "_create_static_distinct_ids": "Persons to begin with, by their distinct ids.",
    "person_ids": Note("Persons by their uuids; unknown ones are left out.", []),
    "distinct_ids": Note("Persons by their distinct ids; unknown ones are left out.", ["user-17"]),
    "is_calculating": "Whether its members are being calculated now.",
    "last_calculation": "Time of the last calculation of the members.",
    "errors_calculating": Note("Number of failed calculations in a row.", 0),
    "last_error_message": "Error of the last failed calculation.",
    "count": "Number of members; null before the first calculation.",
    "cohort_type": "Always null here; there for clients that read it.",
    "experiment_set": Note("The ids of the experiments that it was made for.", []),
    "version": (
        "Version of the rules that the members are from; of a static cohort the number of "
        "changes of its members."
    ),
    "pending_version": "Version that is being calculated, or was calculated last.",
    "persons": Note("Number of persons to check; null unless they are being checked.", 120_000),
    "checked": Note("Number of persons checked so far; null unless they are being checked.", 46_000),
}


class CohortPatch(WireModel):
    """Changes to a cohort; all fields are optional."""

    notes = NOTES

    name: Annotated[str, Text(max_length=400)] = ""
    description: Annotated[str, Text(blank=True, max_length=1_000)] = ""
    filters: Annotated[Any, JsonAny(), Keys(CohortFilters)] = None
    groups: Annotated[list[Any], JsonList()] | None = None
    query: Annotated[Any, JsonAny()] = None
    is_static: Annotated[bool, Bool()] = False
    deleted: Annotated[bool, Bool()] = False

    @field_validator("groups")
    @classmethod
    def _none_are_none(cls, groups: list[Any] | None) -> list[Any]:
        return groups or []


class CohortIn(CohortPatch):
    """A new cohort.

    A file of members comes as the part ``csv`` of a multipart form, with a column ``person_id``, ``distinct_id`` or
    ``email``.
    """

    name: Annotated[str, Text(max_length=400)]
    create_static_person_ids: PersonIds | None = Field(None, alias="_create_static_person_ids")
    create_static_distinct_ids: DistinctIds | None = Field(None, alias="_create_static_distinct_ids")


class MembersIn(WireModel):
    """Persons to add to a static cohort, or to remove from it."""

    notes = NOTES

    person_ids: PersonIds = Field(default_factory=list)
    distinct_ids: DistinctIds = Field(default_factory=list)


class CohortListQuery(WireModel):
    """Filters of the list of cohorts. Invalid values are ignored."""

    notes = NOTES

    search: str | None = Field(None, description="A part of the name")
    is_static: str | None = None
    created_by_id: str | None = None
    limit: str | None = None
    offset: str | None = None


class CohortOut(WireModel):
    """A cohort in full."""

    notes = NOTES

    id: int
    name: str | None
    description: str
    groups: list[Any]
    deleted: bool
    filters: dict[str, Any] | None
    query: dict[str, Any] | None
    is_calculating: bool
    created_by: UserOut | None
    created_at: datetime
    last_calculation: datetime | None
    errors_calculating: int
    last_error_message: str | None
    count: int | None
    is_static: bool
    cohort_type: None
    experiment_set: list[int]
    version: int | None
    pending_version: int | None
    warnings: list[FieldWarning] = Field(default_factory=list)


class CalculationOut(WireModel):
    """Progress of the calculation of a cohort's members.

    Cohorts are calculated one after the other: a cohort that waits for its turn counts as calculating, though no
    person is being checked yet.
    """

    notes = NOTES

    is_calculating: bool
    checked: int | None
    persons: int | None
    last_calculation: datetime | None
    errors_calculating: int
    last_error_message: str | None
    count: int | None
