"""Running a function once for every person (spec: hog-functions-api 15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import sqlalchemy as sa

from hoglab.delivery.runs.globals import milliseconds
from hoglab.delivery.runs.state import RunState, encode_state, raw_json
from hoglab.filters.hog import FilterFailure
from hoglab.functions.runtime import compile_filter, filter_globals
from hoglab.http.errors import BareError
from hoglab.people.reading import next_persons
from hoglab.storage.database.tables import person, person_distinct_id
from hoglab.storage.invocations import AppMetric, InvocationBatch, NewInvocation

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.filters.hog import CompiledFilter, FilterContext
    from hoglab.functions.store import Row as FunctionRow
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database

BROADCAST = "$broadcast"
TYPES = frozenset({None, "destination", "internal_destination"})

PAGE = 500
"""Number of persons read, and invocations enqueued, at a time."""


def broadcast(
    delivery: Delivery, database: Database, project: Project, function: FunctionRow, context: FilterContext
) -> int:
    """Enqueue a run for each person that the function's property filters match. Return the number of persons.

    Raises 400 for functions that are disabled or of another type.
    """
    if function["type"] not in TYPES:
        raise BareError(400, {"error": "Broadcast is not supported for this function type"})
    if not function["enabled"]:
        raise BareError(400, {"error": "Cannot broadcast: function is disabled"})
    properties = (function["filters"] or {}).get("properties") or []
    wanted = compile_filter({"properties": properties}, context)
    enqueued = 0
    for page in _pages(database, project.id):
        everyone = [_globals(delivery, project, row) for row in page]
        chosen = [globals_ for globals_ in everyone if _matches(wanted, globals_)]
        if chosen:
            triggered = AppMetric(
                project.id, function["id"], "other", "triggered", len(chosen), delivery.now()
            )
            invocations = [_invocation(project.id, function["id"], globals_) for globals_ in chosen]
            enqueued += delivery.queue.enqueue(InvocationBatch(invocations, metrics=[triggered]))
    return enqueued


def _pages(database: Database, project_id: int) -> Iterator[list[Any]]:
    """Yield all persons with one distinct id of each, in pages that hold no database open in between."""
    ids = person_distinct_id
    one_id = (
        sa.select(sa.func.min(ids.c.distinct_id))
        .where(ids.c.project_id == project_id, ids.c.person_id == person.c.id)
        .scalar_subquery()
        .label("distinct_id")
    )
    last = 0
    while True:
        columns = (person.c.id, person.c.uuid, person.c.properties, person.c.created_at, one_id)
        query = next_persons(*columns, project_id=project_id, after=last, limit=PAGE)
        with database.read() as connection:
            rows = list(connection.execute(query))
        if not rows:
            return
        last = rows[-1].id
        yield [row for row in rows if row.distinct_id is not None]


def _globals(delivery: Delivery, project: Project, row: Any) -> dict[str, Any]:
    created_at = milliseconds(row.created_at)
    shown = delivery.site.person(project, str(row.uuid), row.distinct_id, row.properties)
    return {
        "project": delivery.site.project(project),
        "event": {
            "uuid": str(uuid4()),
            "event": BROADCAST,
            "distinct_id": row.distinct_id,
            "properties": {},
            "elements_chain": "",
            "timestamp": created_at,
            "captured_at": None,
            "url": "",
        },
        "person": {**shown, "distinct_id": row.distinct_id, "created_at": created_at},
        "groups": {},
    }


def _matches(wanted: CompiledFilter, globals_: dict[str, Any]) -> bool:
    try:
        return wanted.matches(filter_globals(globals_))
    except FilterFailure:
        return False


def _invocation(project_id: int, function_id: str, globals_: dict[str, Any]) -> NewInvocation:
    state = RunState(
        globals=raw_json(globals_),
        event_uuid=globals_["event"]["uuid"],
        distinct_id=globals_["event"]["distinct_id"],
        person_id=globals_["person"]["id"],
    )
    return NewInvocation(str(uuid4()), project_id, function_id, encode_state(state))
