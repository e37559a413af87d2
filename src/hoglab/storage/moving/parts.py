"""The parts of a move beside the tables: events and event log, where these go to another place.

Who has the events afterwards is of a new generation, so that a server is not started with those that stay behind.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hoglab.storage.database import tables
from hoglab.storage.event_store.maintenance import FAILURES
from hoglab.storage.identity import PEOPLE_STAGE
from hoglab.storage.invocations.holding import DISPATCHING
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.events import MovedEvents, compare_events, copy_corrections, copy_events
from hoglab.storage.moving.location import LEFT_OUT
from hoglab.storage.moving.log import OF_A_LOG, into_tables, into_topic, rest_in_tables, rest_in_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sqlalchemy import Table

    from hoglab.storage.event_log import Offset
    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.moving.events import MovingEvents
    from hoglab.storage.moving.location import Location, Opened
    from hoglab.storage.moving.log import RecordFormat

_POSITION = tables.consumer_position.c


@contextmanager
def parts(
    old: Opened, home: Mapping[str, Any], source: Location, target: Location, format_: RecordFormat | None
) -> Iterator[Parts]:
    """Open the parts of a move during the block. Raises `MoveError` when they cannot be moved."""
    with ExitStack() as stack:
        events = new_events = None
        if source.events is not None:
            events = stack.enter_context(source.events.opened())
            _check_same(events, home, source.name)
            if target.events is not None and target.events != source.events:
                new_events = stack.enter_context(target.events.opened())
        topic = None if source.topic is None else stack.enter_context(source.topic.opened())
        new_topic = None if target.topic is None else stack.enter_context(target.topic.opened())
        _check_log(old, topic)
        if events is None or new_events is None:
            if (topic is None) != (new_topic is None):
                raise MoveError("an event log in Kafka goes with events in ClickHouse: name both")
            yield Parts(old, dict(home), None, None)
            return
        moved_log = None
        if (topic is None) != (new_topic is None):
            if format_ is None:
                raise ValueError("a log moves, of whose records nothing is known")
            is_whole = bool((home["move"] or {}).get("is_whole"))
            moved_log = MovedLog.between(old, events, topic, new_topic, format_, is_whole=is_whole)
        yield Parts(old, dict(home), (events, new_events), moved_log)


def _check_same(events: MovingEvents, home: Mapping[str, Any], name: str) -> None:
    known = events.identity()
    if known is None or known[:2] != (home["installation_id"], home["generation"]):
        raise MoveError(
            f"the events in {events.name} are not those of {name}: where these are is named with --event-store "
            "(HOGLAB_EVENT_STORE_URL), or with --data if in a file"
        )


def _check_log(old: Opened, topic: KafkaEventLog | None) -> None:
    """Make sure that the log is where it is looked for."""
    with old.queue.read() as connection:
        in_topic = connection.scalar(sa.select(sa.func.count()).select_from(tables.log_lease))
    if in_topic and topic is None:
        raise MoveError(f"the event log of {old.name} is in Kafka: name it with --event-log")
    if topic is not None and in_topic != topic.partitions:
        raise MoveError(f"the event log of {old.name} is not in this topic of Kafka")


@dataclass(frozen=True, slots=True)
class MovedLog:
    """Event log that goes from tables into a topic, or back.

    ``finished``: the offset up to which everything is ingested, of a log of one order or of each partition.
    """

    old: Opened
    topic: KafkaEventLog
    is_left: bool
    """Whether the topic is what is left."""
    finished: int | Mapping[int, Offset]
    end: int
    """A number above all that are known; everything up to it is done in the other place."""
    format: RecordFormat

    @classmethod
    def between(
        cls,
        old: Opened,
        events: MovingEvents,
        topic: KafkaEventLog | None,
        new_topic: KafkaEventLog | None,
        format_: RecordFormat,
        *,
        is_whole: bool,
    ) -> MovedLog:
        """Prepare a log's move; ``is_whole``: it was moved before. Raises `MoveError` if records must not wait."""
        if topic is not None:
            end = max(old.log_end(), events.position())
            moved = cls(old, topic, True, _finished_partitions(old), end, format_)
        elif new_topic is not None:
            end = max(
                old.log_end(), events.next_seq() - 1
            )  # places and records are counted together from now on
            finished = events.position() if is_whole else _finished_records(old, events)
            moved = cls(old, new_topic, False, finished, end, format_)
        else:
            raise ValueError("neither side has a topic")
        moved.check_erasures()
        return moved

    def check_erasures(self) -> None:
        """Refuse what waits while persons do who are to be erased with it: which that is, its offset tells.

        Raises `MoveError`.
        """
        with self.old.database.read() as connection:
            waiting = connection.scalar(
                sa.select(sa.func.count())
                .select_from(tables.person_erasure)
                .where(tables.person_erasure.c.finished_at.is_(None))
            )
        if waiting and any(True for _ in self._rest()):
            raise MoveError(
                f"{waiting} persons wait to be erased, behind events that wait to be ingested: start the server of "
                f"{self.old.name} until that is done"
            )

    def _rest(self) -> Iterator[bytes]:
        """Yield records that wait."""
        if isinstance(self.finished, int):
            with self.old.queue.read() as connection:
                yield from rest_in_tables(connection, self.finished)
        else:
            for _, record in rest_in_topic(self.topic, self.finished):
                yield record.payload

    def move(self, new: Opened) -> int:
        """Copy the waiting records into the other log, and return how many it has then. Raises `MoveError`."""
        if isinstance(self.finished, int):
            return into_topic(self._rest(), self.topic, self.format)
        return into_tables(self.topic, self.finished, new.queue, self.end, self.format)

    def settle(self, new: Opened, records: int) -> int:
        """Mark all earlier records as done there, and return the last number that was given out."""
        progress = tables.ingestion_progress
        with new.database.write() as tx:
            tx.execute(sa.delete(progress))
            done = self.end if self.is_left else self.finished
            tx.execute(sa.insert(progress).values(stage=PEOPLE_STAGE, log_offset=done))
        with new.queue.write() as tx:
            tx.execute(sa.delete(tables.consumer_position))
            if self.is_left:
                values = {"consumer": DISPATCHING, "offset": self.end, "updated_at": datetime.now(UTC)}
                tx.execute(sa.insert(tables.consumer_position).values(values))
                return self.end + records
            tx.execute(sa.delete(tables.event_log_record))
            tx.execute(sa.delete(tables.deferred_record))
        return self.end


def _finished_records(old: Opened, events: MovingEvents) -> int:
    """Return the offset up to which everything is done in a log of one order.

    Raises `MoveError` in the middle of a batch.
    """
    with old.database.read() as connection:
        people = connection.scalar(sa.select(sa.func.max(tables.ingestion_progress.c.log_offset))) or 0
    with old.queue.read() as connection:
        dispatched = connection.scalar(sa.select(_POSITION.offset).where(_POSITION.consumer == DISPATCHING))
    stored = events.position()
    if {people, dispatched or 0} != {stored}:
        raise MoveError(
            f"the server of {old.name} ended in the middle of a batch (persons are known up to record {people} of the "
            f"event log, events up to {stored}, runs up to {dispatched or 0}): start it once more, and stop it"
        )
    return stored


def _finished_partitions(old: Opened) -> Mapping[int, Offset]:
    """Return the offset up to which everything is done in each partition.

    Raises `MoveError` in the middle of a batch.
    """
    lease = tables.log_lease.c
    with old.queue.read() as connection:
        rows = connection.execute(sa.select(lease.partition, lease.position, lease.begun_last)).all()
    if any(begun is not None for _, _, begun in rows):
        raise MoveError(
            f"a process of the server of {old.name} ended in the middle of a batch: start them once more, and stop them"
        )
    return {partition: position for partition, position, _ in rows}


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that move. ``events``: here and there; ``log``: None where it stays in the database that it is in."""

    old: Opened
    home: dict[str, Any]
    events: tuple[MovingEvents, MovingEvents] | None
    log: MovedLog | None

    @property
    def left_out(self) -> Collection[Table]:
        """Tables that are not copied."""
        left_out_tables = LEFT_OUT | (frozenset() if self.log is None else OF_A_LOG)
        return left_out_tables | (frozenset() if self.events is None else {tables.queue_installation})

    @property
    def generation(self) -> int:
        """Generation of the installation after the move."""
        return int(self.home["generation"]) + (self.events is not None)

    def begin(self) -> None:
        """Mark the other place for events as the target of this move. Raises `MoveError` when it has other events."""
        if self.events is None:
            return
        new = self.events[1]
        known, ours = new.identity(), (self.home["installation_id"], self.generation, self.home["starts"])
        is_begun = self.home["move"] is not None
        if (known is None and new.count()) or (known is not None and not (is_begun and known == ours)):
            raise MoveError(f"{new.name} has events already: name an empty place, or remove them")
        if known is None:
            new.set_identity(*ours)

    def move_events(self, on_progress: Callable[[str, int, int], object]) -> MovedEvents | None:
        """Write the events, and compare them with those here. Raises `MoveError`; None where they do not move."""
        if self.events is None:
            return None
        old, new = self.events
        try:
            written = copy_events(old, new, on_progress)
            position = old.position() if self.log is None or not self.log.is_left else self.log.end
            merges = sorted(old.merges())
            new.settle(position, old.next_seq(), merges)
            if sorted(new.merges()) != merges:
                raise MoveError(f"merges of persons are not the same in {new.name}")
            copy_corrections(old, new)
            return compare_events(old, new, written, on_progress)
        except FAILURES as error:
            raise MoveError(str(error)) from error

    def settle(self, new: Opened, records: int) -> int | None:
        """Fill the tables that were not copied, and return the last number of a log that moved."""
        if self.events is not None:
            with self.old.queue.read() as connection:
                rows = connection.execute(sa.select(tables.queue_installation)).mappings().all()
            with new.queue.write() as tx:
                tx.execute(sa.delete(tables.queue_installation))
                for row in rows:
                    values = {**row, "generation": self.generation}
                    tx.execute(sa.insert(tables.queue_installation).values(values))
        return None if self.log is None else self.log.settle(new, records)
