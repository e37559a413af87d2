"""From events of the server itself to invocations of internal destinations (spec: hog-runtime 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import structlog

from hoglab.accounts import internal_events
from hoglab.accounts.internal_events import InternalEvent
from hoglab.background import RETRY_S, STOP_TIMEOUT_S, BackgroundService
from hoglab.delivery.dispatch.dispatcher import EventDispatcher, Subscribers
from hoglab.delivery.runs.dead_letters import INTERNAL, dead_id, reason_of
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import DeadLetter
from hoglab.storage.job_leases import JobName

if TYPE_CHECKING:
    from hoglab.delivery.runs.globals import EventGlobals
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.job_leases import JobLeases

BATCH = 500
"""Maximum number of events that are evaluated at a time."""
JOB = JobName("internal events", "")

_logger = structlog.get_logger(__name__)


def internal_subscribers(event_globals: EventGlobals) -> Subscribers:
    """Return the internal destinations, whose events have no address and no capture time."""

    def seen(project: Project, event: IngestedEvent) -> dict[str, Any]:
        globals_ = event_globals.of(project, event)
        globals_["event"] |= {"captured_at": None, "url": ""}
        return globals_

    return Subscribers(attrgetter("internal_destinations"), seen, event_globals.groups, INTERNAL)


class InternalEventDispatcher(BackgroundService):
    """Background service that dispatches the server's own events. `dispatch_waiting` may also be called by itself.

    An event is removed after its invocations are in the queue. After a crash between the two they are enqueued once
    more, under the same ids. One process at a time does so.
    """

    NAME = "internal-events"

    def __init__(self, database: Database, dispatcher: EventDispatcher, jobs: JobLeases) -> None:
        """Create the service.

        ``database`` is the metadata; ``dispatcher`` is one of its own, made with the internal subscribers; ``jobs``
        are the jobs of this process.
        """
        super().__init__()
        self._database = database
        self._jobs = jobs
        self._dispatcher = dispatcher
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start working, beginning with the waiting events."""
        self._unsubscribe = self._database.changes.subscribe(
            "internal_events", lambda _project_id: self.wake()
        )
        super().start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop after the current events."""
        self._unsubscribe()
        super().stop(timeout_s)

    def round(self) -> float | None:
        """Dispatch waiting events until none is left, the queue is full, or a database does not answer."""
        try:
            while self._dispatcher.has_capacity() and not self.is_stopping:
                if not self._waiting():
                    return None
                with self._jobs.claimed(JOB) as lease:
                    if lease is None:
                        return RETRY_S
                    self.dispatch_waiting()
        except DatabaseError as error:
            _logger.warning("internal_events_wait", reason=str(error))
        return RETRY_S

    def _waiting(self) -> list[InternalEvent]:
        with self._database.read() as connection:
            return internal_events.waiting(connection, BATCH)

    def dispatch_waiting(self) -> int:
        """Evaluate functions on the oldest waiting events. Return how many events there were."""
        events = self._waiting()
        if events:
            readable: list[IngestedEvent] = []
            dead: list[DeadLetter] = []
            for event in events:
                try:
                    readable.append(_as_stored(event))
                except Exception as error:  # later events must not wait for it
                    _logger.warning("internal_event_became_dead_letter", uuid=event.uuid, exc_info=error)
                    dead.append(_unreadable(event, error))
            self._dispatcher.dispatch(readable, log_offset=None, dead=dead)
            with self._database.write(rebuildable=Rebuildable.HANDED_ON) as tx:
                internal_events.forget(tx, events)
        return len(events)


def _unreadable(event: InternalEvent, error: Exception) -> DeadLetter:
    return DeadLetter(
        id=dead_id(INTERNAL, event.uuid, None),
        project_id=event.project_id,
        function_id=None,
        source=INTERNAL,
        step="parse",
        reason=reason_of(error),
        event_uuid=event.uuid,
        event=event.event,
        distinct_id=event.distinct_id,
        payload=orjson.dumps(event, default=str),
        failed_at=utc_now(),
    )


def read_unreadable(payload: bytes) -> IngestedEvent:
    """Return the event of a dead letter that could not be read when it arrived. Raises the error of reading it."""
    parts = orjson.loads(payload)
    return _as_stored(InternalEvent(**{**parts, "created_at": datetime.fromisoformat(parts["created_at"])}))


def _as_stored(event: InternalEvent) -> IngestedEvent:
    """Return the event in the form in which functions are evaluated on it; it is stored nowhere."""
    person = event.person
    properties = dict(event.properties)
    row = EventRow(
        project_id=event.project_id,
        uuid=UUID(event.uuid),
        event=event.event,
        distinct_id=event.distinct_id,
        timestamp=event.created_at,
        captured_at=event.created_at,
        properties=orjson.dumps(properties),
        person_id=None if person is None else UUID(person["id"]),
        person_properties=orjson.dumps({} if person is None else person["properties"]),
        person_created_at=None,
        person_mode="propertyless" if person is None else "full",
        elements_chain="",
        groups={},
        log_offset=SequenceNumber(0),
        feature_flag=None,
        feature_flag_response=None,
        session_id=None,
    )
    return IngestedEvent(row, properties)
