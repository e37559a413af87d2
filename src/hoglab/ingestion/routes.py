"""Reading stored events back over the API, newest first."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.analysis.query.days import zone_of
from hoglab.analysis.query.event_relation import RelationRow
from hoglab.filters.model import FilterError, parse_filters
from hoglab.filters.sql import FilterScope, group_condition
from hoglab.http import errors
from hoglab.http.fields.dates import format_moment, parse_moment
from hoglab.http.fields.fields import WireModel, parse_integer, parse_uuid
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import Page
from hoglab.http.management.routing import ResourceRouter
from hoglab.http.streams import EVENT_STREAM, Streams
from hoglab.ingestion.live_events import LiveEvents, LiveQuery
from hoglab.people.reading import (
    PersonView,
    display_name,
    distinct_ids_of,
    person_by_uuid,
    persons_for,
)
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
    Wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from starlette.responses import Response

    from hoglab.http.identity import Project
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import UuidId
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import EventReader
    from hoglab.storage.event_store.dialects import Dialect

MAX_EVENTS = 1_000
"""Most events of one page."""
MAX_FOLLOWED_NAMES = 20
"""Most names of events that one may follow at a time."""
TIMEOUT_S = 15.0
RETRY_S = 5

_COLUMNS = ("uuid", "event", "distinct_id", "timestamp", "captured_at", "whole_properties", "elements_chain")


_NOTES: Notes = {
    "event": Note("The name of the event.", "purchase"),
    "timestamp": Note("Time of the event.", "2026-01-02T03:04:05.678901Z"),
    "after": "Only events after this moment.",
    "before": "Only events before this moment.",
    "name": Note("Display name of the person.", "ada@example.com"),
    "distinct_ids": Note("Every id that SDKs know the person by.", ["user-17"]),
    "elements": Note("Always empty: `elements_chain` has them.", []),
    "elements_chain": Note("The elements clicked, the innermost first, as text.", ""),
}

_FILTER_NOTES: Notes = {
    **_NOTES,
    "person_id": Note(
        "Only events of this person, with any of its distinct ids.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"
    ),
    "properties": Note(
        "Only events that these filters let through: JSON, a list of filters on properties of the event (`type` "
        "`event`) or of its person (`person`).",
        '[{"key": "plan", "value": ["pro"], "operator": "exact", "type": "person"}]',
    ),
}


class EventQuery(WireModel):
    """Filters of the list of events. ``after`` and ``before`` are exclusive."""

    notes = _FILTER_NOTES

    event: str | None = None
    distinct_id: str | None = None
    after: str | None = None
    before: str | None = None
    person_id: str | None = None
    properties: str | None = None
    limit: int | None = None
    offset: int | None = None


class LiveEventQuery(WireModel):
    """Filter for live events."""

    notes = {**_FILTER_NOTES, "event": Note("Only events of these names, joined by commas.", "purchase")}  # noqa: RUF012

    event: str | None = None
    distinct_id: str | None = None
    properties: str | None = None


class EventPerson(WireModel):
    """The person of an event as the person is now."""

    notes = _NOTES

    id: str
    uuid: str
    name: str
    distinct_ids: list[str]
    properties: dict[str, Any]
    is_identified: bool
    created_at: str


class EventOut(WireModel):
    """One event. ``person`` is null when there is no person behind the distinct id."""

    notes = _NOTES

    id: str
    uuid: str
    event: str
    distinct_id: str
    timestamp: str
    created_at: str
    properties: dict[str, Any]
    person: EventPerson | None
    elements: list[Any]
    elements_chain: str


class EventList(WireModel):
    """A page of events."""

    notes = _NOTES

    next: str | None
    previous: str | None
    results: list[EventOut]


def events_router(
    store: EventReader,
    database: Database,
    streams: Streams | None = None,
    *,
    newest: Callable[[], int] | None = None,
) -> ResourceRouter:
    """Return the routes of ``/events``: list, read and follow. ``newest``: see `LiveEvents`."""
    router = ResourceRouter("/events", tag="events", scopes=("query:read", "query:write"))
    live = LiveEvents(store, database, _COLUMNS, partial(_shown, database), newest=newest)
    streams = streams or Streams()

    @router.get(
        "/",
        query=EventQuery,
        response=EventList,
        summary="List events, newest first",
        errors=(503,),
        reads_events=True,
    )
    def list_events(call: Call) -> dict[str, Any]:
        page = call.page(maximum=MAX_EVENTS)
        wanted = _wanted(call, database, store.dialect)
        with _explained():
            # One more than asked for tells whether there is a next page, without counting all.
            rows = store.newest_events(
                wanted, _COLUMNS, limit=page.limit + 1, offset=page.offset, timeout_s=TIMEOUT_S
            )
        events = _shown(database, call.project, rows[: page.limit])
        return {**_links(call, page, has_more=len(rows) > page.limit), "results": events}

    @router.get("/{event_id}", response=EventOut, summary="Read an event", errors=(503,), reads_events=True)
    def read_event(call: Call, event_id: UuidId) -> dict[str, Any]:
        """Return the event with the uuid; where several have it, the one with the latest timestamp."""
        condition = f"uuid = {store.dialect.uuid('$uuid')}"
        wanted = Wanted(call.project.id, condition, {"uuid": event_id})
        with _explained():
            rows = store.newest_events(wanted, _COLUMNS, limit=1, timeout_s=TIMEOUT_S)
        if not rows:
            raise errors.not_found()
        return _shown(database, call.project, rows)[0]

    @router.get(
        "/live",
        query=LiveEventQuery,
        response={"type": "string"},
        media_type=EVENT_STREAM,
        errors=(429,),
        summary="Follow events as they are stored",
    )
    async def follow_events(call: Call) -> Response:
        """Return events as they are stored, as server-sent events, until you hang up.

        An event `event` holds one as `GET events/` shows it, at most 50 a second; `skipped` the `count` of those that
        came faster; `rate`, every second, `received_per_s`, `shown_per_s` and `last_event_at`; `warning` what was
        ignored or dropped, as `GET ingestion_warnings/` shows it. With the header `Last-Event-ID`, those of the last
        60 seconds after that one come first.
        """
        wanted = _live_query(call, store.dialect)
        after = parse_integer(call.request.headers.get("last-event-id"))
        return streams.response(live.follow(wanted, after), call.holder)

    return router


def _live_query(call: Call, dialect: Dialect) -> LiveQuery:
    """Return the events that a request wants to follow. Raises 400."""
    clauses, parameters = ["TRUE"], dict[str, Any]()
    if names := [name for name in (call.query("event") or "").split(",") if name]:
        if len(names) > MAX_FOLLOWED_NAMES:
            raise errors.validation_error(f"At most {MAX_FOLLOWED_NAMES} names.", "event")
        parameters |= {f"event_{number}": name for number, name in enumerate(names)}
        clauses.append(f"event IN ({', '.join(f'$event_{number}' for number in range(len(names)))})")
    if distinct_id := call.query("distinct_id"):
        clauses.append("distinct_id = $distinct_id")
        parameters["distinct_id"] = distinct_id
    if properties := call.query("properties"):
        condition, values = _condition(call, dialect, properties)
        clauses.append(f"({condition})")
        parameters |= values
    return LiveQuery(call.project, " AND ".join(clauses), parameters)


def _wanted(call: Call, database: Database, dialect: Dialect) -> Wanted:
    """Return the events that a request asks for. Raises 400."""
    clauses: list[str] = []
    parameters: dict[str, Any] = {}
    distinct_ids = None
    for name in ("event", "distinct_id"):
        value = call.query(name)
        if value:
            clauses.append(f"{name} = ${name}")
            parameters[name] = value
    if "distinct_id" in parameters:
        distinct_ids = [parameters["distinct_id"]]
    bounds = {name: _moment(value, name) for name in ("after", "before") if (value := call.query(name))}
    person_id = call.query("person_id")
    if person_id:
        clauses.append(_of_person(dialect))
        parameters |= {"person_id": _uuid(person_id, "person_id"), "project_id": call.project.id}
        distinct_ids = distinct_ids or _distinct_ids(database, call.project.id, parameters["person_id"])
    properties = call.query("properties")
    if properties:
        condition, values = _condition(call, dialect, properties)
        clauses.append(condition)
        parameters |= values
    return Wanted(
        call.project.id, " AND ".join(clauses) or "TRUE", parameters, distinct_ids=distinct_ids, **bounds
    )


def _distinct_ids(database: Database, project_id: int, person_id: str) -> list[str] | None:
    """Return the distinct ids of a person; None where the person was deleted."""
    with database.read() as connection:
        person = person_by_uuid(connection, project_id, person_id)
        if person is None:
            return None
        return distinct_ids_of(connection, [person.row_id], per_person=None)[person.row_id]


def _of_person(dialect: Dialect) -> str:
    """Return the condition for events of a person, by which the engine reads only rows of that person."""
    person = dialect.uuid("$person_id")
    return (
        f"(person_id = {person} AND NOT EXISTS (SELECT 1 FROM person_override AS gone "  # noqa: S608 - our own words
        f"WHERE gone.project_id = $project_id AND gone.old_person_id = {person}) "
        "OR person_id IN (SELECT old_person_id FROM person_override "
        f"WHERE project_id = $project_id AND person_id = {person}))"
    )


def _condition(call: Call, dialect: Dialect, text: str) -> tuple[str, dict[str, Any]]:
    """Return the filters of a query as SQL with its parameters. Raises 400."""
    scope = FilterScope(RelationRow(dialect, dialect.parameters()), call.now, zone_of(call.project.timezone))
    try:
        condition = group_condition(parse_filters(orjson.loads(text)), scope)
    except orjson.JSONDecodeError:
        raise errors.validation_error("Enter a JSON list of filters.", "properties") from None
    except FilterError as error:
        raise errors.validation_error(str(error), "properties") from None
    return condition, scope.parameters.values


def _uuid(text: str, name: str) -> str:
    known = parse_uuid(text)
    if known is None:
        raise errors.validation_error("Enter a valid UUID.", name)
    return known


def _moment(text: str, name: str) -> datetime:
    try:
        # In a query a plus sign that was not percent-encoded arrives as a space.
        return parse_moment(text.replace(" ", "+") if text[-6:-5] == " " else text)
    except ValueError:
        raise errors.validation_error("Enter a valid date and time.", name) from None


@contextmanager
def _explained() -> Iterator[None]:
    """Provide the translation of the event store's errors into responses."""
    try:
        yield
    except (QueryTimeoutError, QueryMemoryError) as error:
        raise errors.validation_error(f"The events could not be read: {error}. Ask for fewer.") from error
    except (EventStoreUnavailableError, QueryError) as error:
        raise errors.unavailable("The event store cannot be read.", RETRY_S) from error


def _links(call: Call, page: Page, *, has_more: bool) -> dict[str, str | None]:
    before = max(0, page.offset - page.limit)
    return {
        "next": call.link(limit=page.limit, offset=page.offset + page.limit) if has_more else None,
        "previous": call.link(limit=page.limit, offset=before or None) if page.offset else None,
    }


def _shown(database: Database, project: Project, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    with database.read() as connection:
        persons = persons_for(connection, project.id, {row[2] for row in rows})
    names = project.person_display_name_properties
    return [
        {
            "id": str(uuid),
            "uuid": str(uuid),
            "event": event,
            "distinct_id": distinct_id,
            "timestamp": format_moment(timestamp.replace(tzinfo=UTC)),
            "created_at": format_moment(captured_at.replace(tzinfo=UTC)),
            "properties": orjson.loads(properties),
            "person": _person(persons.get(distinct_id), distinct_id, names),
            "elements": [],
            "elements_chain": elements_chain,
        }
        for uuid, event, distinct_id, timestamp, captured_at, properties, elements_chain in rows
    ]


def _person(person: PersonView | None, distinct_id: str, names: list[str] | None) -> dict[str, Any] | None:
    if person is None:
        return None
    return {
        "id": str(person.uuid),
        "uuid": str(person.uuid),
        "name": display_name(person.properties, distinct_id, names),
        "distinct_ids": [distinct_id],
        "properties": person.properties,
        "is_identified": person.is_identified,
        "created_at": format_moment(person.created_at),
    }
