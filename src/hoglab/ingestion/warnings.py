"""Reading over the API what ingestion ignored or dropped, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import envelope
from hoglab.http.management.routing import ResourceRouter
from hoglab.storage.database.tables import ingestion_warning

if TYPE_CHECKING:
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database


_NOTES: Notes = {
    "type": Note("Kind of the problem.", "cannot_merge_already_identified"),
    "event_uuid": Note("The event it is about.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
    "timestamp": Note("Time when it was noticed.", "2026-01-02T03:04:05.678901Z"),
    "details": Note("More about it, by its type.", {}),
}


class WarningQuery(WireModel):
    """Filters of the list of warnings."""

    notes = _NOTES

    type: str | None = None
    event_uuid: str | None = None
    limit: int | None = None
    offset: int | None = None


class WarningOut(WireModel):
    """One warning. ``details`` depend on its type."""

    notes = _NOTES

    id: int
    type: str
    event_uuid: str
    timestamp: str
    details: dict[str, Any]


class WarningList(WireModel):
    """A page of warnings."""

    notes = _NOTES

    count: int
    next: str | None
    previous: str | None
    results: list[WarningOut]


def warnings_router(database: Database) -> ResourceRouter:
    """Return the routes of ``/ingestion_warnings``: list."""
    router = ResourceRouter(
        "/ingestion_warnings", tag="ingestion warnings", scopes=("query:read", "query:write")
    )

    @router.get(
        "/", query=WarningQuery, response=WarningList, summary="List warnings about events, newest first"
    )
    def list_warnings(call: Call) -> dict[str, Any]:
        table, page = ingestion_warning, call.page()
        matching = sa.select(table).where(table.c.project_id == call.project.id)
        for column in (table.c.type, table.c.event_uuid):
            wanted = call.query(column.name)
            if wanted:
                matching = matching.where(column == wanted)
        newest = matching.order_by(table.c.timestamp.desc(), table.c.id.desc())
        with database.read() as connection:
            count = connection.execute(
                sa.select(sa.func.count()).select_from(matching.subquery())
            ).scalar_one()
            rows = connection.execute(newest.limit(page.limit).offset(page.offset)).all()
        return envelope(call, [warning_object(row) for row in rows], count)

    return router


def warning_object(row: Any) -> dict[str, Any]:
    """Return a warning as the wire shows it."""
    return {
        "id": row.id,
        "type": row.type,
        "event_uuid": row.event_uuid,
        "timestamp": format_moment(row.timestamp),
        "details": row.details,
    }
