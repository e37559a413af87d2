"""Events that did not become invocations: what is kept of them.

An event whose filter fails, or that no invocation can be made of, is put aside with the reason, so that nothing
behind it waits (spec: hog-runtime 4.10); `reviving` tries it again. Inputs that fail leave a result, which `reruns`
runs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid5

import msgspec
import orjson
import sqlalchemy as sa

from hoglab.delivery.runs.state import INVOCATIONS
from hoglab.storage.database.tables import dead_event
from hoglab.storage.event_store import EventRow
from hoglab.storage.invocations import DeadEvent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from hoglab.storage.database import Database
    from hoglab.storage.event_store.ingested import IngestedEvent

EVENTS, INTERNAL = "events", "internal"
"""Where a dead event came from: the project's own events, or those of the server."""

STEPS = ("parse", "filter", "order", "process")
"""What failed: reading the event, one function's filter, its order key, or anything else on the way to an
invocation."""

_column = dead_event.c
_ROW = msgspec.json.Decoder(EventRow)


def dead_id(source: str, event_uuid: str, function_id: str | None) -> str:
    """The same for the same event and function, so that failing again is no second entry."""
    return str(uuid5(INVOCATIONS, f"dead/{source}/{event_uuid}/{function_id or ''}"))


def put_aside(
    event: IngestedEvent, source: str, function_id: str | None, step: str, reason: str, now: datetime
) -> DeadEvent:
    """What is kept of an event that can be read."""
    row = event.row
    uuid = str(row.uuid)
    return DeadEvent(
        id=dead_id(source, uuid, function_id),
        project_id=row.project_id,
        function_id=function_id,
        source=source,
        step=step,
        reason=reason,
        event_uuid=uuid,
        event=row.event,
        distinct_id=row.distinct_id,
        payload=msgspec.json.encode(row),
        failed_at=now,
    )


def stored_row(payload: bytes) -> EventRow:
    """The row of an event that was put aside. Raises `msgspec.DecodeError`."""
    row: EventRow = _ROW.decode(payload)
    return row


def reason_of(error: BaseException) -> str:
    """What is kept of an error nobody foresaw."""
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """Which dead events are wanted; None leaves a column alone. ``until`` is exclusive.

    ``function_id``: those of one function, without those that failed before any function was asked.
    """

    function_id: str | None = None
    ids: Sequence[str] | None = None
    steps: Sequence[str] | None = None
    reason_part: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def clauses(self, project_id: int) -> list[ColumnElement[bool]]:
        clauses: list[ColumnElement[bool]] = [_column.project_id == project_id]
        if self.function_id is not None:
            clauses.append(_column.function_id == self.function_id)
        if self.ids is not None:
            clauses.append(_column.id.in_(self.ids))
        if self.steps is not None:
            clauses.append(_column.step.in_(self.steps))
        if self.reason_part:
            clauses.append(_column.reason.icontains(self.reason_part, autoescape=True))
        if self.since is not None:
            clauses.append(_column.failed_at >= self.since)
        if self.until is not None:
            clauses.append(_column.failed_at < self.until)
        return clauses


def known(connection: Connection, ids: Sequence[str]) -> frozenset[str]:
    """Those of some ids that are kept."""
    wanted = sa.select(_column.id).where(_column.id.in_(ids))
    return frozenset(connection.execute(wanted).scalars())


def count(connection: Connection, project_id: int, wanted: DeadLetterSelection) -> int:
    query = sa.select(sa.func.count()).select_from(dead_event).where(*wanted.clauses(project_id))
    return int(connection.execute(query).scalar_one())


def listed(
    connection: Connection, project_id: int, wanted: DeadLetterSelection, limit: int, offset: int
) -> list[dict[str, Any]]:
    """The newest failures first, as the API shows them."""
    rows = connection.execute(
        sa.select(dead_event)
        .where(*wanted.clauses(project_id))
        .order_by(_column.failed_at.desc(), _column.id)
        .limit(limit)
        .offset(offset)
    ).mappings()
    return [_shown(dict(row)) for row in rows]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    payload = row.pop("payload")
    row.pop("project_id")
    properties = {}
    if row["step"] != "parse":
        properties = orjson.loads(stored_row(payload).properties)
    return {**row, "function_id": row["function_id"] or None, "properties": properties}


def discard(database: Database, project_id: int, wanted: DeadLetterSelection) -> int:
    """Forget dead events; returns how many."""
    with database.write() as tx:
        deleted: int = tx.connection.execute(
            sa.delete(dead_event).where(*wanted.clauses(project_id))
        ).rowcount
        return deleted
