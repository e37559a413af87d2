"""Events that did not become invocations, over the API: list, retry, discard.

``/hog_functions/dead_letters/`` is ours; the upstream API has no such thing.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from hoglab.delivery.dispatch import MAX_RETRIED
from hoglab.delivery.runs.dead_letters import STEPS, shown
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.fields import Bool, Choice, JsonList, Moment, Text, Uuid, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import ResourceRouter
from hoglab.storage.invocations import DeadLetterSelection

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.http.management.call import Call
    from hoglab.storage.invocations import StoredDeadLetter

DEFAULT_LIMIT, MAX_LIMIT = 50, 500

_ID = "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"
NOTES: Notes = {
    "id": Note("Identifies the entry; the same when the event fails again.", _ID),
    "ids": "Only these.",
    "function_id": Note("The function that missed the event; null when it failed before any was asked.", _ID),
    "source": Note("`events`, or `internal` for events of the server itself.", "events"),
    "step": Note("Step that failed: `parse`, `filter`, `order` or `process`.", "filter"),
    "reason": Note("The error.", "Global variable not found: sesion"),
    "reason_contains": "Only those whose reason contains this text.",
    "event_uuid": Note("The event.", _ID),
    "event": Note("The name of the event.", "signup"),
    "distinct_id": Note("Distinct id of the event.", "u1"),
    "properties": Note("The properties of the event; empty where it cannot be read.", {"plan": "pro"}),
    "attempts": Note("Number of failures.", 1),
    "first_failed_at": Note("Time of the first failure.", "2026-01-02T03:04:05.678901Z"),
    "failed_at": Note("Time of the last failure.", "2026-01-02T03:04:05.678901Z"),
    "after": "Only what failed then or later.",
    "before": "Only what failed before.",
    "dry_run": "Only say what would happen.",
    "queued_count": "Number of runs that were enqueued.",
    "tried_count": "Number of events that were tried.",
    "failed_count": "Number of events that failed again; they stay.",
    "skipped_count": "Number of events that stay because their function is disabled or deleted.",
    "discarded_count": "Number of entries that were discarded.",
}


class DeadLetterQuery(WireModel):
    """Filter for dead letters."""

    notes = NOTES

    function_id: Annotated[str, Uuid()] | None = None
    step: Annotated[str, Choice(*STEPS)] | None = None
    reason_contains: Annotated[str, Text(max_length=200, blank=True)] | None = None
    after: Annotated[datetime, Moment()] | None = None
    before: Annotated[datetime, Moment()] | None = None
    limit: int | None = None
    offset: int | None = None


class DeadLetterOut(WireModel):
    """An event that did not become an invocation."""

    notes = NOTES

    id: str
    function_id: str | None
    source: str
    step: str
    reason: str
    event_uuid: str
    event: str
    distinct_id: str
    properties: dict[str, Any]
    attempts: int
    first_failed_at: str
    failed_at: str


class DeadLetterBody(WireModel):
    """Selection of dead letters: all of the project by default."""

    notes = NOTES

    ids: Annotated[list[str], JsonList(of=Uuid(), max_length=MAX_RETRIED)] | None = None
    function_id: Annotated[str, Uuid()] | None = None
    step: Annotated[str, Choice(*STEPS)] | None = None
    reason_contains: Annotated[str, Text(max_length=200, blank=True)] | None = None
    after: Annotated[datetime, Moment()] | None = None
    before: Annotated[datetime, Moment()] | None = None


class RetryDeadLettersBody(DeadLetterBody):
    """Selection of dead letters to retry: all of the project by default."""

    dry_run: Annotated[bool, Bool()] = False


class RetriedOut(WireModel):
    """Result of retrying dead letters."""

    notes = NOTES

    queued_count: int
    tried_count: int
    failed_count: int
    skipped_count: int


class DiscardedOut(WireModel):
    """Number of discarded dead letters."""

    notes = NOTES

    discarded_count: int


def dead_letter_router(delivery: Delivery) -> ResourceRouter:
    """Return the routes of ``/hog_functions/dead_letters``: list, ``retry``, ``discard``."""
    routes = ResourceRouter(
        "/hog_functions/dead_letters", tag="hog_functions", scopes=("hog_function:read", "hog_function:write")
    )
    letters = delivery.stores.dead_letters

    @routes.get("/", query=DeadLetterQuery, response=Paged[DeadLetterOut], heavy=True)
    def list_dead_letters(call: Call) -> dict[str, Any]:
        """List the events that did not become runs of functions, those that failed last first."""
        wanted = _selection(call.validate_query(DeadLetterQuery))
        page = call.page(DEFAULT_LIMIT, MAX_LIMIT)
        listed, count = letters.page(call.project.id, wanted, page.limit, page.offset)
        return envelope(call, [_shown(letter) for letter in listed], count, page)

    @routes.post(
        "/retry/",
        scope=("hog_function:write", "person:read", "group:read"),
        body=RetryDeadLettersBody,
        response=RetriedOut,
        heavy=True,
    )
    def retry_dead_letters(call: Call) -> dict[str, int]:
        """Retry events for the functions that missed them; no other function gets them a second time.

        Up to 10 000 at a time, those that failed longest ago first. An event that fails again stays, with the new
        reason.
        """
        body = call.validate(RetryDeadLettersBody)
        done = delivery.dead_letter_retry.retry(call.project.id, _selection(body), dry_run=body.dry_run)
        return {
            "queued_count": done.queued,
            "tried_count": done.tried,
            "failed_count": done.failed,
            "skipped_count": done.skipped,
        }

    @routes.post("/discard/", body=DeadLetterBody, response=DiscardedOut, heavy=True)
    def discard_dead_letters(call: Call) -> dict[str, int]:
        """Delete these events: they will not be delivered."""
        wanted = _selection(call.validate(DeadLetterBody))
        return {"discarded_count": letters.discard(call.project.id, wanted)}

    return routes


def _selection(wanted: DeadLetterQuery | DeadLetterBody) -> DeadLetterSelection:
    if wanted.after is not None and wanted.before is not None and wanted.before <= wanted.after:
        raise validation_error("'before' must be later than 'after'.", "before")
    return DeadLetterSelection(
        function_id=wanted.function_id,
        ids=wanted.ids if isinstance(wanted, DeadLetterBody) else None,
        steps=None if wanted.step is None else (wanted.step,),
        reason_part=wanted.reason_contains or None,
        since=wanted.after,
        until=wanted.before,
    )


def _shown(letter: StoredDeadLetter) -> dict[str, Any]:
    moments = {
        "first_failed_at": format_moment(letter.first_failed_at),
        "failed_at": format_moment(letter.failed_at),
    }
    return {**shown(letter), **moments}
