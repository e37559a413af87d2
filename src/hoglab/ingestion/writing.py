"""Writing prepared batches: into the store, to what runs on events, and then the position in the log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from prometheus_client import Counter

from hoglab.ingestion.preparing import RESENT
from hoglab.storage.event_store import EventBatch, PersonOverride
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from uuid import UUID

    from hoglab.ingestion.preparing import Prepared
    from hoglab.storage.event_log import EventLog
    from hoglab.storage.event_store import EventStore

CONSUMER = "ingestion"
"""Name of ingestion's position in the event log."""

_STORED = Counter("hoglab_ingestion_events", "Events stored for the first time.")


class Dispatcher(Protocol):
    """Starts what runs on stored events (spec: hog-runtime 0)."""

    def position(self) -> int:
        """The log offset up to which everything was dispatched, 0 at first."""
        ...

    def dispatch(self, events: Sequence[IngestedEvent], *, log_offset: int) -> None:
        """Enqueue invocations for events that are new, in log order, of any number of projects.

        Must record ``log_offset`` as its position in the transaction of the enqueueing, also when nothing
        is to be run, and must not enqueue an invocation twice when it sees an event twice.
        """
        ...

    def has_room(self) -> bool:
        """Whether more may be enqueued now; ingestion waits while not."""
        ...


class Writer:
    """Takes batches in the order of the log, one at a time, from whichever thread. Each step that a batch has gone
    through is remembered by who took it, so a batch that failed may be given again as it is."""

    def __init__(self, log: EventLog, store: EventStore, dispatcher: Dispatcher | None) -> None:
        self._log = log
        self._store = store
        self._dispatcher = dispatcher
        self._dispatched = 0
        self._dirty = False  # whether something was stored since the last checkpoint
        # Merges that persons know of and the store does not yet, by project and old person id.
        self._owed: dict[tuple[int, UUID], PersonOverride] = {}
        self._lock = threading.Lock()  # of what is owed

    def recover(self) -> int:
        """The log offset up to which both the store and the dispatcher have everything.

        A crash may leave them one batch apart; that batch is then to be written again.
        """
        stored = self._store.position()
        self._dispatched = stored if self._dispatcher is None else self._dispatcher.position()
        return min(stored, self._dispatched)

    def stored(self) -> int:
        """The log offset up to which the store has everything."""
        return self._store.position()

    def has_room(self) -> bool:
        """Whether more may be written now."""
        return self._dispatcher is None or self._dispatcher.has_room()

    def owe(self, overrides: Sequence[PersonOverride]) -> None:
        """Let the store know of merges with the next batch."""
        with self._lock:
            self._owed.update({(each.project_id, each.old_person_id): each for each in overrides})

    def write(self, batch: Prepared) -> None:
        """Store the rows, dispatch what is new, and move the position in the log behind the batch."""
        offset = batch.last.offset
        new = self._append(batch)
        if self._dispatcher is not None and offset > self._dispatched:
            all_new = len(new) == len(batch.rows)
            fresh = [
                IngestedEvent(row, event.properties)
                for row, event in zip(batch.rows, batch.events, strict=True)
                if not event.historical and (all_new or row.uuid in new)
            ]
            self._dispatcher.dispatch(fresh, log_offset=offset)
            self._dispatched = offset
        self._log.commit(CONSUMER, offset)

    def _append(self, batch: Prepared) -> frozenset[UUID]:
        """The uuids that are new to the store."""
        offset = batch.last.offset
        again = offset <= self._store.position()
        with self._lock:
            owed = list(self._owed.values())
        new = self._store.append(EventBatch(batch.rows, owed, is_checked=True), log_offset=offset)
        self._dirty = True
        if not again:
            _STORED.inc(len(new))
            RESENT.inc(len(batch.rows) - len(new))
            with self._lock:  # more may be owed by now
                for each in owed:
                    key = (each.project_id, each.old_person_id)
                    if self._owed[key] is each:
                        del self._owed[key]
        return new

    def check(self) -> None:
        """Raise what keeps the store or the dispatcher from taking anything at all."""
        self._store.check()
        if self._dispatcher is not None:
            self._dispatcher.dispatch((), log_offset=self._dispatched)

    def rest(self) -> bool:
        """There is nothing to do: settle what was written; whether there was something."""
        if not self._dirty:
            return False
        self._store.checkpoint()
        self._dirty = False
        return True
