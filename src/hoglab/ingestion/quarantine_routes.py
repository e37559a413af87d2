"""The quarantine of ingestion over the API: look, replay, discard.

``/ingestion_quarantine/`` is ours; the upstream API has no such thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hoglab.http import errors
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import Int, JsonList, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import IntId, ResourceRouter
from hoglab.ingestion.quarantine import events_in

if TYPE_CHECKING:
    from hoglab.http.management.call import Call
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.storage.event_log.quarantine import QuarantinedRecord

MAX_NAMED = 1_000
"""Records that one request may name; without names it is about all."""
SHOWN_EVENTS = 100
"""Events that are shown of a record."""

_NOTES: Notes = {
    "id": Note("Position of the record in the event log, which identifies it.", 42),
    "reason": Note("Reason for which it could not be processed.", "ValueError: year 0 is out of range"),
    "size": Note("Bytes of the record.", 512),
    "quarantined_at": Note("Time when it was put into quarantine.", "2026-01-02T03:04:05.678901Z"),
    "is_replaying": "Whether it is about to be ingested again.",
    "events": f"Events of the record as they were sent, the first {SHOWN_EVENTS}; null when they cannot be read.",
    "ids": "Only these; all of the project when it is missing.",
    "replayed_count": "Number of records that are ingested again; those that fail again come back.",
    "discarded_count": "Number of records that were deleted.",
}


class QuarantineQuery(WireModel):
    """The page that is wanted."""

    notes = _NOTES

    limit: int | None = None
    offset: int | None = None


class QuarantinedRecordOut(WireModel):
    """A request's events that could not be processed."""

    notes = _NOTES

    id: int
    reason: str
    size: int
    quarantined_at: str
    is_replaying: bool


class QuarantinedEventsOut(QuarantinedRecordOut):
    """A quarantined record with its events."""

    events: list[dict[str, Any]] | None


class QuarantineBody(WireModel):
    """Selection of quarantined records: all of the project by default."""

    notes = _NOTES

    ids: Annotated[list[int], JsonList(of=Int(), max_length=MAX_NAMED)] | None = None


class ReplayedOut(WireModel):
    """Number of records that are ingested again."""

    notes = _NOTES

    replayed_count: int


class DiscardedRecordsOut(WireModel):
    """Number of discarded records."""

    notes = _NOTES

    discarded_count: int


def quarantine_router(quarantine: Quarantine) -> ResourceRouter:
    """Return the routes of ``/ingestion_quarantine``: list, read, ``replay``, ``discard``."""
    router = ResourceRouter(
        "/ingestion_quarantine", tag="ingestion quarantine", scopes=("project:read", "project:write")
    )

    @router.get(
        "/",
        query=QuarantineQuery,
        response=Paged[QuarantinedRecordOut],
        summary="List records that could not be processed, oldest first",
    )
    def list_records(call: Call) -> dict[str, Any]:
        page = call.page()
        records = quarantine.records(call.project.id, limit=page.limit, offset=page.offset)
        return envelope(call, [_shown(record) for record in records], quarantine.count(call.project.id), page)

    @router.get("/{record_id}", response=QuarantinedEventsOut, summary="Read a record with its events")
    def read_record(call: Call, record_id: IntId) -> dict[str, Any]:
        record_and_payload = quarantine.get(record_id, call.project.id)
        if record_and_payload is None:
            raise errors.not_found()
        record, payload = record_and_payload
        events = events_in(payload)
        return {**_shown(record), "events": None if events is None else events[:SHOWN_EVENTS]}

    @router.post("/replay", body=QuarantineBody, response=ReplayedOut, summary="Ingest records again")
    def replay_records(call: Call) -> dict[str, int]:
        ids = call.validate(QuarantineBody).ids
        return {"replayed_count": quarantine.replay(ids, call.project.id)}

    @router.post("/discard", body=QuarantineBody, response=DiscardedRecordsOut, summary="Delete records")
    def discard_records(call: Call) -> dict[str, int]:
        ids = call.validate(QuarantineBody).ids
        return {"discarded_count": quarantine.discard(ids, call.project.id)}

    return router


def _shown(record: QuarantinedRecord) -> dict[str, Any]:
    return {
        "id": record.offset,
        "reason": record.reason,
        "size": record.size,
        "quarantined_at": format_moment(record.quarantined_at),
        "is_replaying": record.is_replaying,
    }
