"""Reading persons and groups over the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from hoglab.http.errors import not_found, validation_error
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import Bool, JsonList, Text, Uuid, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import envelope
from hoglab.http.management.routing import ResourceRouter
from hoglab.people import reading
from hoglab.people.reading import SHOWN_DISTINCT_IDS, GroupView, PersonView, display_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.http.identity import Project
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import UuidId
    from hoglab.people.erasing import PersonErasing
    from hoglab.storage.database import Database


_TRUE = ("true", "True", "1")

_NOTES: Notes = {
    "type": Note("Always `person`.", "person"),
    "name": Note("Display name.", "ada@example.com"),
    "distinct_ids": Note("Every id by which SDKs know the person.", ["user-17"]),
    "last_seen_at": "Time when an event of the person last arrived; null when it is not known.",
    "group_type": Note("Name of the group type.", "company"),
    "group_type_index": "The number of the group type, from 0 to 4.",
    "group_key": Note("Identifies the group.", "acme"),
    "group_properties": Note("Properties of the group.", {"seats": 12}),
    "name_singular": "Display name of one group.",
    "name_plural": "Display name of several groups.",
}

_FILTER_NOTES: Notes = {
    **_NOTES,
    "email": Note("The whole of the property `email`, ignoring case.", "ada@example.com"),
    "search": "A part of the email, the name or a distinct id.",
    "properties": Note(
        "JSON list of filters that persons must pass, as cohorts have them; for what people did, filter by a cohort.",
        '[{"key": "plan", "value": ["pro"], "operator": "exact", "type": "person"}]',
    ),
}

PersonTest = Callable[["Connection", "Project", str, "datetime"], Callable[[PersonView], bool]]
"""Function that returns the test of persons by filters in JSON: `hoglab.people.cohorts.person_test`. Raises 400."""


class PersonQuery(WireModel):
    """Filters of the list of persons."""

    notes = _FILTER_NOTES

    distinct_id: str | None = None
    email: str | None = None
    search: str | None = None
    properties: str | None = None
    limit: int | None = None
    offset: int | None = None


class PersonOut(WireModel):
    """A person. ``id`` and ``uuid`` are the same."""

    notes = _NOTES

    id: str
    uuid: str
    type: str
    name: str
    distinct_ids: list[str]
    properties: dict[str, Any]
    is_identified: bool
    created_at: str
    last_seen_at: str | None
    distinct_ids_truncated: bool = False
    """Present, and true, when only the first hundred distinct ids are listed; reading the person gives all."""
    distinct_ids_count: int = 0
    """Number of distinct ids of the person; present when they are not all listed."""


class PersonList(WireModel):
    """A page of persons."""

    notes = _NOTES

    count: int
    next: str | None
    previous: str | None
    results: list[PersonOut]


class GroupQuery(WireModel):
    """Filters of the list of groups."""

    notes = _NOTES

    group_type_index: int
    search: str | None = None
    limit: int | None = None
    offset: int | None = None


class GroupOut(WireModel):
    """A group."""

    notes = _NOTES

    group_type_index: int
    group_key: str
    group_properties: dict[str, Any]
    created_at: str


class GroupList(WireModel):
    """A page of groups."""

    notes = _NOTES

    count: int
    next: str | None
    previous: str | None
    results: list[GroupOut]


class GroupTypeOut(WireModel):
    """A group type."""

    notes = _NOTES

    group_type: str
    group_type_index: int
    name_singular: str | None
    name_plural: str | None
    created_at: str


MAX_DELETED = 1_000
"""Maximum number of persons of one request to delete several."""


class DeletionQuery(WireModel):
    """Options for deleting a person."""

    notes = {"delete_events": "Whether the person's events are deleted, too."}  # noqa: RUF012

    delete_events: bool | None = None


class BulkDeletion(WireModel):
    """Persons to delete: by id, or by any of their distinct ids."""

    notes = {  # noqa: RUF012
        "ids": "Ids of persons.",
        "distinct_ids": "Distinct ids of persons.",
        "delete_events": "Whether their events are deleted, too.",
    }

    ids: Annotated[list[str], JsonList(of=Uuid(), max_length=MAX_DELETED)] = field(default_factory=list)
    distinct_ids: Annotated[list[str], JsonList(of=Text(trim=False), max_length=MAX_DELETED)] = field(
        default_factory=list
    )
    delete_events: Annotated[bool, Bool()] = False


class BulkDeletionOut(WireModel):
    """Result of a request to delete several persons."""

    notes = {  # noqa: RUF012
        "persons_found": "Number of persons found.",
        "persons_deleted": "Number of persons deleted.",
        "events_queued_for_deletion": "Whether their events are being deleted.",
        "recordings_queued_for_deletion": "Always false: there are no recordings.",
        "deletion_errors": Note("Always empty: all are deleted or none.", []),
    }

    persons_found: int
    persons_deleted: int
    events_queued_for_deletion: bool
    recordings_queued_for_deletion: bool
    deletion_errors: list[Any]


def persons_router(database: Database, erasing: PersonErasing, person_test: PersonTest) -> ResourceRouter:
    """Return the routes of ``/persons``: list, read and delete. ``person_test`` reads filters of the list."""
    router = ResourceRouter("/persons", tag="persons", scopes=("person:read", "person:write"))

    @router.get("/", query=PersonQuery, response=PersonList, summary="List persons, youngest first")
    def list_persons(call: Call) -> dict[str, Any]:
        page, filters = call.page(), call.query("properties")
        with database.read() as connection:
            try:
                persons, count = reading.list_persons(
                    connection,
                    call.project.id,
                    reading.PersonFilter(
                        distinct_id=call.query("distinct_id"),
                        email=call.query("email"),
                        search=call.query("search"),
                        test=person_test(connection, call.project, filters, call.now) if filters else None,
                    ),
                    limit=page.limit,
                    offset=page.offset,
                )
            except reading.TooManyPersonsError:
                raise validation_error(
                    f"The filters would have to be compared with more than {reading.MAX_TESTED:,} persons: "
                    "make a cohort with them, or search for a part of a name, too.",
                    "properties",
                ) from None
            shown = person_objects(call, connection, persons)
        return envelope(call, shown, count)

    @router.get("/{person_id}", response=PersonOut, summary="Read a person")
    def read_person(call: Call, person_id: UuidId) -> dict[str, Any]:
        with database.read() as connection:
            person = reading.person_by_uuid(connection, call.project.id, person_id)
            if person is None:
                raise not_found()
            ids = reading.distinct_ids_of(connection, [person.row_id], per_person=None)
        return person_object(call, person, ids[person.row_id])

    @router.delete("/{person_id}", query=DeletionQuery, response=None, status=202, summary="Delete a person")
    def delete_person(call: Call, person_id: UuidId) -> None:
        """Delete a person.

        The person is gone at once. Files, and events where ``delete_events`` is true, follow in the background.
        """
        with database.read() as connection:
            person = reading.person_by_uuid(connection, call.project.id, person_id)
        if person is None:
            raise not_found()
        wanted = call.query("delete_events") in _TRUE
        erasing.delete(call.project.id, [person], delete_events=wanted, user_id=call.principal.user.id)

    @router.post(
        "/bulk_delete", body=BulkDeletion, response=BulkDeletionOut, status=202, summary="Delete persons"
    )
    def bulk_delete(call: Call) -> dict[str, Any]:
        """Delete several persons.

        The persons are gone at once. Files, and events where ``delete_events`` is true, follow in the background.
        """
        body = call.validate(BulkDeletion)
        if not body.ids and not body.distinct_ids:
            raise validation_error("You need to specify either distinct_ids or ids", None, "required")
        with database.read() as connection:
            by_id = [reading.person_by_uuid(connection, call.project.id, uuid) for uuid in body.ids]
            named = reading.persons_for(connection, call.project.id, body.distinct_ids).values()
        persons = {person.row_id: person for person in (*by_id, *named) if person is not None}
        deleted = erasing.delete(
            call.project.id,
            persons.values(),
            delete_events=body.delete_events,
            user_id=call.principal.user.id,
        )
        return {
            "persons_found": len(persons),
            "persons_deleted": deleted,
            "events_queued_for_deletion": body.delete_events and bool(persons),
            "recordings_queued_for_deletion": False,
            "deletion_errors": [],
        }

    return router


def groups_router(database: Database) -> ResourceRouter:
    """Return the routes of ``/groups`` and ``/groups_types``."""
    router = ResourceRouter("", tag="groups", scopes=("group:read", "group:write"))

    @router.get("/groups", query=GroupQuery, response=GroupList, summary="List groups of a type")
    def list_groups(call: Call) -> dict[str, Any]:
        text = call.query("group_type_index")
        if not text:
            raise validation_error("This field is required.", "group_type_index", "required")
        if not (text.isascii() and text.isdigit() and len(text) < 6):
            raise validation_error("A valid integer is required.", "group_type_index")
        page = call.page()
        with database.read() as connection:
            groups, count = reading.list_groups(
                connection,
                call.project.id,
                int(text),
                search=call.query("search"),
                limit=page.limit,
                offset=page.offset,
            )
        return envelope(call, [_group(group) for group in groups], count)

    @router.get("/groups_types", response=list[GroupTypeOut], summary="List group types")
    def list_group_types(call: Call) -> list[dict[str, Any]]:
        with database.read() as connection:
            types = reading.list_group_types(connection, call.project.id)
        return [
            {
                "group_type": group_type.group_type,
                "group_type_index": group_type.group_type_index,
                "name_singular": None,
                "name_plural": None,
                "created_at": format_moment(group_type.created_at),
            }
            for group_type in types
        ]

    return router


def person_objects(call: Call, connection: Connection, persons: Sequence[PersonView]) -> list[dict[str, Any]]:
    """Return persons as list items, each with its first `SHOWN_DISTINCT_IDS` distinct ids and the count of all."""
    ids = reading.distinct_ids_of(connection, [person.row_id for person in persons])
    full = [row_id for row_id, distinct_ids in ids.items() if len(distinct_ids) == SHOWN_DISTINCT_IDS]
    counts = reading.distinct_id_counts(connection, full) if full else {}
    cut = {row_id: count for row_id, count in counts.items() if count > SHOWN_DISTINCT_IDS}
    return [
        person_object(call, person, ids[person.row_id])
        | (
            {"distinct_ids_truncated": True, "distinct_ids_count": cut[person.row_id]}
            if person.row_id in cut
            else {}
        )
        for person in persons
    ]


def person_object(call: Call, person: PersonView, distinct_ids: Sequence[str]) -> dict[str, Any]:
    """Return a person in full."""
    names = call.project.person_display_name_properties
    fallback = distinct_ids[0] if distinct_ids else str(person.uuid)
    return {
        "id": str(person.uuid),
        "uuid": str(person.uuid),
        "type": "person",
        "name": display_name(person.properties, fallback, names),
        "distinct_ids": list(distinct_ids),
        "properties": person.properties,
        "is_identified": person.is_identified,
        "created_at": format_moment(person.created_at),
        "last_seen_at": None if person.last_seen_at is None else format_moment(person.last_seen_at),
    }


def _group(group: GroupView) -> dict[str, Any]:
    return {
        "group_type_index": group.group_type_index,
        "group_key": group.group_key,
        "group_properties": group.properties,
        "created_at": format_moment(group.created_at),
    }
