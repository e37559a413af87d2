"""Status of the server for its administrators: one look at values that are measured already."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.identity import Level
from hoglab.http.management import access
from hoglab.http.management.routing import ResourceRouter

if TYPE_CHECKING:
    from hoglab.http.management.call import Call

NOTES: Notes = {
    "version": Note("Version of hoglab.", "0.1.0"),
    "started_at": Note("Start time of the server, in UTC.", "2026-01-02T03:04:05.678901Z"),
    "ready": Note("Whether events can be taken.", True),
    "reasons": "Reasons for which events cannot be accepted; empty when they can.",
    "waiting_records": "Requests whose events wait to be stored.",
    "waiting_bytes": "Size of the waiting events.",
    "limit_bytes": "Size beyond which further events are refused.",
    "oldest_s": "Age of the oldest waiting event in seconds; null when none waits.",
    "events_per_s": Note("Events stored a second, since somebody looked last.", 12.5),
    "lag_s": "Seconds for which the oldest accepted event has waited to be stored.",
    "waiting": "Runs that wait: for their turn, an attempt or to wake up.",
    "dead": "Events put aside that nobody tried again or discarded yet.",
    "oldest_due_s": "Seconds for which the oldest due run has waited; null when none is due.",
    "last_error": "Error of the last metric that failed; null when none did.",
    "processes": Note("Processes that run functions, with that of transformations.", 2),
    "busy": "Number of processes at work.",
    "name": Note("The file, in the data directory.", "hoglab.db"),
    "bytes": Note("Size of the file, with what its engine keeps beside it.", 1_048_576),
    "disk_free_bytes": Note("Free space on the disk of the data directory.", 50_000_000_000),
    "memory_bytes": Note("Memory that the server uses.", 300_000_000),
    "streams": "Answers without an end that are open: live logs and live events.",
    "code": Note("The part of the server that it is about.", "event_log"),
    "message": Note("Description of the problem.", "events wait 80 s to be stored; the limit is 60 s"),
    "hint": "Advice on fixing it; null when the message has it.",
}


class EventLogStatus(WireModel):
    """Events that are accepted and not stored yet."""

    notes = NOTES

    waiting_records: int
    waiting_bytes: int
    limit_bytes: int
    oldest_s: float | None


class IngestionStatus(WireModel):
    """From the event log to the event store."""

    notes = NOTES

    events_per_s: float
    lag_s: float


class DeliveryStatus(WireModel):
    """The runs of functions."""

    notes = {**NOTES, "running": "Runs that are being worked on."}  # noqa: RUF012

    waiting: int
    running: int
    dead: int
    oldest_due_s: float | None


class ResultsStatus(WireModel):
    """State of the computation of experiments' results."""

    notes = {**NOTES, "running": "Recalculations that wait or are being worked on."}  # noqa: RUF012

    running: int
    last_error: str | None


class FunctionsStatus(WireModel):
    """The processes of functions."""

    notes = NOTES

    processes: int
    busy: int


class StoredFile(WireModel):
    """One of the files of the data directory."""

    notes = NOTES

    name: str
    bytes: int


class StatusWarning(WireModel):
    """Something that does not work as it should."""

    notes = NOTES

    code: str
    message: str
    hint: str | None


class SystemStatusOut(WireModel):
    """Status of the server."""

    notes = {  # noqa: RUF012
        **NOTES,
        "event_log": "Events that are accepted and not stored yet.",
        "ingestion": "From the event log to the event store.",
        "delivery": "The runs of functions.",
        "results": "State of the computation of experiments' results.",
        "functions": "The processes of functions.",
        "storage": "The files of the data directory, the largest first.",
        "warnings": "Problems, also those in spite of which events are accepted, and figures beyond their limits.",
    }

    version: str
    started_at: datetime
    ready: bool
    reasons: list[str]
    event_log: EventLogStatus
    ingestion: IngestionStatus
    delivery: DeliveryStatus
    results: ResultsStatus
    functions: FunctionsStatus
    storage: list[StoredFile]
    disk_free_bytes: int
    memory_bytes: int
    streams: int
    warnings: list[StatusWarning]


def system_status_router(look: Callable[[], dict[str, Any]]) -> ResourceRouter:
    """Return the routes of ``/api/system_status``. ``look`` returns the status; it is called in a thread."""
    router = ResourceRouter("/api/system_status", tag="system", project_scoped=False)

    @router.get("/", scope="organization:read", response=SystemStatusOut)
    def read_system_status(call: Call) -> dict[str, Any]:
        """Read the status of the server. Needs an admin."""
        access.check_level(call.principal, Level.ADMIN)
        return look()

    return router
