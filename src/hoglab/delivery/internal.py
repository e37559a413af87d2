"""From events of the server itself to invocations of internal destinations (spec: hog-runtime 7.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import structlog

from hoglab.accounts import internal_events
from hoglab.accounts.internal_events import InternalEvent
from hoglab.delivery.dead_events import INTERNAL, dead_id, reason_of
from hoglab.delivery.dispatch import Audience, EventDispatcher
from hoglab.http.dates import utc_now
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import DeadEvent

if TYPE_CHECKING:
    from hoglab.delivery.globals import EventGlobals, KnownProject
    from hoglab.storage.database import Database

BATCH = 500
"""Events that functions are asked about at a time."""
RETRY_S = 1.0
"""How long to wait when the queue has no room or a database does not answer."""
MAX_RETRY_S = 60.0
"""The wait doubles up to this while errors come that nobody foresaw."""

_logger = structlog.get_logger(__name__)


def internal_audience(event_globals: EventGlobals) -> Audience:
    """The internal destinations, which see no address of an event and no time of its capture."""

    def seen(project: KnownProject, event: IngestedEvent) -> dict[str, Any]:
        made = event_globals.of(project, event)
        made["event"] |= {"captured_at": None, "url": ""}
        return made

    return Audience(attrgetter("internal_destinations"), seen, INTERNAL)


class InternalEventDispatcher:
    """A background service: `start` once, `stop` once. `dispatch_waiting` may also be called by itself.

    An event is removed after its invocations are in the queue. Between the two a crash may happen, and then they are
    enqueued once more, under the same ids.
    """

    def __init__(self, database: Database, dispatcher: EventDispatcher) -> None:
        """``database``: the metadata. ``dispatcher``: one of its own, made with `internal_audience`."""
        self._database = database
        self._dispatcher = dispatcher
        self._wake = threading.Condition()
        self._has_news = True  # what a former process left
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start working, first on what is waiting."""
        self._unsubscribe = self._database.changes.subscribe("internal_events", self._notice)
        self._thread = threading.Thread(target=self._work, name="internal-events", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Finish the events at hand and end."""
        self._unsubscribe()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _notice(self, _project_id: int) -> None:
        with self._wake:
            self._has_news = True
            self._wake.notify()

    def _work(self) -> None:
        wait_s: float | None = None
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._has_news or self._stopping)
                if self._stopping:
                    return
                self._has_news = False
            wait_s = self._round(wait_s or 0.0)
            if wait_s is not None:
                with self._wake:
                    self._has_news = True
                    self._wake.wait_for(lambda: self._stopping, wait_s)

    def _round(self, waited_s: float) -> float | None:
        """Dispatch what waits; how long to wait before the next try, None when nothing is left."""
        try:
            while self._dispatcher.has_room():
                if not self.dispatch_waiting():
                    return None
        except DatabaseError as error:
            _logger.warning("internal_events_wait", reason=str(error))
        except Exception:
            _logger.exception("internal_events_failed")
            return min(max(waited_s * 2, RETRY_S), MAX_RETRY_S)
        return RETRY_S

    def dispatch_waiting(self) -> int:
        """Ask functions about the oldest events that wait; how many these were."""
        with self._database.read() as connection:
            events = internal_events.waiting(connection, BATCH)
        if events:
            readable: list[IngestedEvent] = []
            dead: list[DeadEvent] = []
            for event in events:
                try:
                    readable.append(_as_stored(event))
                except Exception as error:  # nothing behind it shall wait for it
                    _logger.warning("internal_event_put_aside", uuid=event.uuid, exc_info=error)
                    dead.append(_unreadable(event, error))
            self._dispatcher.dispatch(readable, log_offset=None, dead=dead)
            with self._database.write(rebuildable=Rebuildable.HANDED_ON) as tx:
                internal_events.forget(tx, events)
        return len(events)


def _unreadable(event: InternalEvent, error: Exception) -> DeadEvent:
    return DeadEvent(
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
    """The event of a dead one that could not be read when it came. Raises whatever is wrong with it."""
    parts = orjson.loads(payload)
    return _as_stored(InternalEvent(**{**parts, "created_at": datetime.fromisoformat(parts["created_at"])}))


def _as_stored(event: InternalEvent) -> IngestedEvent:
    """The event in the form that functions are asked about; it is stored nowhere."""
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
        log_offset=0,
        feature_flag=None,
        feature_flag_response=None,
        session_id=None,
    )
    return IngestedEvent(row, properties)
