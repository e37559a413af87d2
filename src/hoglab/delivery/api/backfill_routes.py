"""Running functions on stored events, and past invocations again, over the API (spec: hog-runtime 11). Ours alone."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from hoglab.functions import store
from hoglab.http.errors import conflict, not_found, validation_error
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import Bool, Int, Moment, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import ResourceRouter, UuidId
from hoglab.storage.invocations import JobKind, JobRunsError

if TYPE_CHECKING:
    from hoglab.delivery.replay import Backfills
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database
    from hoglab.storage.invocations import ReplayJob

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_EVENTS = 2**31 - 1

_MOMENT = "2026-01-02T03:04:05.678901Z"
NOTES: Notes = {
    "id": Note("Identifies the backfill.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
    "from": Note("The first moment of the range; events are picked by their `timestamp`.", _MOMENT),
    "to": Note("The end of the range, which is not in it.", _MOMENT),
    "limit": Note("Maximum number of events, in the order in which they were stored; null for all.", 1000),
    "dry_run": "Only count what would be queued.",
    "status": Note("`running`, `completed`, `cancelled` or `failed`.", "running"),
    "total": Note("Number of events to look at.", 1000),
    "seen": Note("Number of those looked at so far.", 500),
    "queued": Note("Number of runs that were enqueued, or would be.", 20),
    "already_run": Note("Number of runs left out because they were begun before.", 0),
    "dead_letters": Note("Number of events that failed and became dead letters.", 0),
    "error": "Error that ended the job; null without one.",
    "created_at": Note("Start time.", _MOMENT),
    "finished_at": Note("End time; null while it runs.", _MOMENT),
}


class BackfillBody(WireModel):
    """Selection of stored events to run a function on."""

    notes = NOTES

    since: Annotated[datetime, Moment()] = Field(alias="from")
    until: Annotated[datetime, Moment()] | None = Field(None, alias="to")
    limit: Annotated[int, Int(1, MAX_EVENTS)] | None = None
    dry_run: Annotated[bool, Bool()] = False


class BackfillOut(WireModel):
    """A backfill and its progress."""

    notes = NOTES

    id: str
    status: str
    dry_run: bool
    since: str = Field(alias="from")
    until: str = Field(alias="to")
    limit: int | None
    total: int
    seen: int
    queued: int
    already_run: int
    dead_letters: int
    error: str | None
    created_at: str
    finished_at: str | None


class RerunJobOut(WireModel):
    """A rerun of past invocations and its progress."""

    notes: ClassVar[Notes] = {
        **NOTES,
        "id": Note("The `rerun_job_id`.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
        "total": Note("Number of past runs to look at.", 20_000),
        "seen": Note("Number of those looked at so far.", 12_500),
        "queued": Note("Number of runs that were enqueued again.", 12_490),
        "skipped": Note("Number of runs left out: they are running, or their event is gone.", 10),
    }

    id: str
    status: str
    total: int
    seen: int
    queued: int
    skipped: int
    error: str | None
    created_at: str
    finished_at: str | None


def backfill_router(backfills: Backfills, database: Database) -> ResourceRouter:
    """Return the routes of ``/hog_functions/{id}/backfill``, ``backfills`` and ``reruns``.

    ``database``: the metadata.
    """
    routes = ResourceRouter(
        "/hog_functions", tag="hog_functions", scopes=("hog_function:read", "hog_function:write")
    )

    def known(call: Call, function_id: str) -> store.Row:
        with database.read() as connection:
            row = store.get(connection, call.project.id, function_id)
        if row is None or row["deleted"]:
            raise not_found()
        return row

    @routes.post(
        "/{function_id}/backfill/",
        scope=("hog_function:write", "person:read", "group:read"),
        body=BackfillBody,
        response=BackfillOut,
        status=201,
        errors=(409, 503),
        heavy=True,
    )
    def begin_backfill(call: Call, function_id: UuidId) -> dict[str, Any]:
        """Run a function on stored events, in the background.

        Filters, masking and all other rules apply as for new events. What was delivered in the last 30 days is not
        delivered again.
        """
        row = known(call, function_id)
        body = call.validate(BackfillBody)
        if (row["type"] or "destination") != "destination":
            raise validation_error("Backfills are only supported for destinations.")
        if not row["enabled"]:
            raise validation_error("This function is disabled. Enable it to run it on stored events.")
        until = body.until or backfills.now()
        if until <= body.since:
            raise validation_error("'to' must be later than 'from'.", "to")
        try:
            job = backfills.begin(
                call.project.id, function_id, body.since, until, max_events=body.limit, dry_run=body.dry_run
            )
        except JobRunsError:
            raise conflict("A backfill of this function is running.", "backfill_running") from None
        return _shown(job)

    @routes.get("/{function_id}/backfills/", response=Paged[BackfillOut])
    def list_backfills(call: Call, function_id: UuidId) -> dict[str, Any]:
        """List the backfills of a function, newest first."""
        known(call, function_id)
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        jobs, count = backfills.page(call.project.id, function_id, page.limit, page.offset)
        return envelope(call, [_shown(job) for job in jobs], count, page)

    @routes.get("/{function_id}/backfills/{backfill_id}/", response=BackfillOut)
    def read_backfill(call: Call, function_id: UuidId, backfill_id: UuidId) -> dict[str, Any]:
        """Read the progress of a backfill."""
        known(call, function_id)
        return _shown_or_404(backfills.get(call.project.id, function_id, backfill_id))

    @routes.post("/{function_id}/backfills/{backfill_id}/cancel/", response=BackfillOut)
    def cancel_backfill(call: Call, function_id: UuidId, backfill_id: UuidId) -> dict[str, Any]:
        """Stop a backfill; what it has put into the queue still runs."""
        known(call, function_id)
        return _shown_or_404(backfills.cancel(call.project.id, function_id, backfill_id))

    @routes.get("/{function_id}/reruns/", response=Paged[RerunJobOut])
    def list_reruns(call: Call, function_id: UuidId) -> dict[str, Any]:
        """List the reruns of a function's past invocations, newest first."""
        known(call, function_id)
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        jobs, count = backfills.page(call.project.id, function_id, page.limit, page.offset, JobKind.RERUN)
        return envelope(call, [_shown_rerun(job) for job in jobs], count, page)

    @routes.get("/{function_id}/reruns/{rerun_id}/", response=RerunJobOut)
    def read_rerun(call: Call, function_id: UuidId, rerun_id: UuidId) -> dict[str, Any]:
        """Read the progress of a rerun of past invocations."""
        known(call, function_id)
        return _shown_rerun(backfills.get(call.project.id, function_id, rerun_id, JobKind.RERUN))

    @routes.post("/{function_id}/reruns/{rerun_id}/cancel/", response=RerunJobOut)
    def cancel_rerun(call: Call, function_id: UuidId, rerun_id: UuidId) -> dict[str, Any]:
        """Stop running past invocations again; what was put into the queue still runs."""
        known(call, function_id)
        return _shown_rerun(backfills.cancel(call.project.id, function_id, rerun_id, JobKind.RERUN))

    return routes


def _shown_rerun(job: ReplayJob | None) -> dict[str, Any]:
    if job is None:
        raise not_found()
    shown = {name: getattr(job, name) for name in ("id", "status", "total", "seen", "queued", "error")}
    finished_at = job.finished_at
    return {
        **shown,
        "skipped": job.seen - job.queued,
        "created_at": format_moment(job.created_at),
        "finished_at": None if finished_at is None else format_moment(finished_at),
    }


def _shown_or_404(job: ReplayJob | None) -> dict[str, Any]:
    if job is None:
        raise not_found()
    return _shown(job)


def _shown(job: ReplayJob) -> dict[str, Any]:
    finished_at = job.finished_at
    return {
        "id": job.id,
        "status": job.status,
        "dry_run": job.dry_run,
        "from": format_moment(job.since),
        "to": format_moment(job.until),
        "limit": job.max_events,
        "total": job.total,
        "seen": job.seen,
        "queued": job.queued,
        "already_run": job.already_run,
        "dead_letters": job.dead_letters,
        "error": job.error,
        "created_at": format_moment(job.created_at),
        "finished_at": None if finished_at is None else format_moment(finished_at),
    }
