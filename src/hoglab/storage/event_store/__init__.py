"""The event store: every ingested event, in columns, for analysis and read-back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from hoglab.storage.event_log import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from hoglab.storage.event_store.dialects import Dialect


class EventStoreUnavailableError(Exception):
    """The store can take or answer nothing now (disk full, file in use or damaged, closed).

    The text is one line. The same call may be tried again later: a batch is stored as a whole or not at
    all, and once in any case.
    """


class QueryTimeoutError(Exception):
    """A query ran past its time limit and was cancelled; the store is fine."""


class QueryCancelledError(Exception):
    """Somebody asked the query to end; the store is fine."""


class QueryMemoryError(Exception):
    """A query needed more memory than the store's limit; the store is fine."""


class QueryError(Exception):
    """The engine refused the query (syntax, types, unknown columns)."""


class DamagedCacheError(QueryError):
    """A query met damage in the aggregate cache, which can be rebuilt; the store is fine."""


Identity = tuple[int, int, int, str, str]
"""Identity of an event: project, uuid as a number, day of the timestamp in UTC (since 1970), name and distinct id."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()


def day_of(moment: datetime) -> int:
    """Return the day of a moment in UTC, as the number of days since 1970."""
    return moment.toordinal() - _EPOCH_DAY


def date_of(day: int) -> date:
    """Return the date of a day that `day_of` gave."""
    return date.fromordinal(day + _EPOCH_DAY)


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One event as it is stored. ``properties`` and ``person_properties`` are JSON text (UTF-8 bytes).

    A `msgspec.Struct`, for there are many: made in a tenth of the time, and nothing for the garbage collector.
    """

    project_id: int
    uuid: UUID
    event: str
    distinct_id: str
    timestamp: datetime
    captured_at: datetime  # when the server received it
    properties: bytes
    person_id: UUID | None
    person_properties: bytes
    person_created_at: datetime | None
    person_mode: str  # full, propertyless, force_upgrade
    elements_chain: str
    groups: Mapping[int, str]  # group type index -> group key
    log_offset: SequenceNumber  # the event log record that it came in
    # Copies of properties that nearly every analysis reads; None when missing. Text form of the value.
    feature_flag: str | None
    feature_flag_response: str | None
    session_id: str | None
    log_partition: int = 0  # the part of the event log that the record is in
    # The record that it was new with, where a later one corrected it; else 0.
    first_offset: SequenceNumber = SequenceNumber(0)

    @property
    def identity(self) -> Identity:
        """Identity: two events with the same one are one."""
        day = day_of(self.timestamp)
        return self.project_id, self.uuid.int, day, _storable(self.event), _storable(self.distinct_id)


def _storable(text: str) -> str:
    """Return a text as engines keep it: without halves of surrogate pairs."""
    return text if text.isascii() else text.encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class PersonOverride:
    """After a merge: events stored under ``old_person_id`` belong to ``person_id``.

    Somebody who became another person is not merged again: they change with that person. ``version``: when the database
    of persons learned of it, by the clock that all its writers share, in microseconds; later ones have larger ones.
    """

    project_id: int
    old_person_id: UUID
    person_id: UUID
    version: int = field(default_factory=lambda: time.time_ns() // 1000, compare=False)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Rows that are written together.

    ``is_checked``: an encoder wrote the JSON of all rows, so that it need not be asked again whether every engine can
    read it. ``late``: positions of rows that are in the log behind others that arrived after them.
    """

    rows: Sequence[EventRow]
    overrides: Sequence[PersonOverride] = field(default_factory=tuple)
    is_checked: bool = False
    late: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selection of events: SQL over ``stored_events`` and its parameters. ``after`` and ``before`` are exclusive.

    ``distinct_ids``, where it is known, are all that such events may have; the condition must say so, too.
    """

    project_id: int
    condition: str = "TRUE"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    after: datetime | None = None
    before: datetime | None = None
    distinct_ids: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class EventsBefore:
    """Events of a project that happened before a moment."""

    project_id: int
    moment: datetime


@dataclass(frozen=True, slots=True)
class EventsOfPersons:
    """Events of persons under any of their ids that came in log records up to ``log_offset``."""

    project_id: int
    person_ids: Sequence[UUID]
    distinct_ids: Sequence[str]
    log_offset: SequenceNumber


ErasableEvents = EventsBefore | EventsOfPersons
"""Events that are erased together; each engine says in its own words which they are."""


class Reader(Protocol):
    """A cursor of its own for one thread: runs SQL with named parameters (``$name``).

    Values that a statement does not name are left out.
    Moments in rows are naive datetimes in UTC. Parameters may be aware or naive in UTC.
    """

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises `QueryTimeoutError`, `QueryCancelledError`, `QueryMemoryError`, `QueryError`,
        `EventStoreUnavailableError`.
        """
        ...

    def stream(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, rows: int = 256
    ) -> Generator[list[tuple[Any, ...]]]:
        """Return the rows of a query, ``rows`` at a time, as the engine finds them.

        Memory does not grow with the result, and there is no time limit. All are of one state of the store. To be
        closed when it is left early.

        Raises, also in between, `QueryCancelledError`, `QueryMemoryError`, `QueryError`,
        `EventStoreUnavailableError`.
        """
        ...

    def interrupt(self) -> None:
        """End the query that runs now, from another thread: it raises `QueryCancelledError`."""
        ...

    def columns(self) -> list[str]:
        """Return column names of the last query."""
        ...


class EventReader(Protocol):
    """Reading events. Any number of threads.

    View ``stored_events``: the fields of `EventRow` (groups as columns ``group_0`` … ``group_4``, NULL when
    absent) plus ``seq`` BIGINT, ascending in ingestion order. ``properties`` may lack ``$set`` and ``$set_once`` where
    these follow from the rest; ``whole_properties`` has them. Timestamps are TIMESTAMP (UTC, microseconds). Table
    ``person_override``: ``project_id``, ``old_person_id``,
    ``person_id``, and ``log_offset``, the `EventWriter.position` from which on this is so; 0 where that is not known.
    View ``resolved_events``: ``stored_events`` with ``person_id`` after overrides. Table ``event_correction``, of rows
    that another one took the place of: ``project_id``, ``timestamp`` (what it was), ``old_seq``, ``seq`` (the new one),
    ``first_seq`` (that of the first version) and ``log_offset``, the position from which on this is so.
    """

    @property
    def dialect(self) -> Dialect:
        """SQL dialect of the engine."""
        ...

    def newest_events(
        self, wanted: Wanted, columns: Sequence[str], *, limit: int, offset: int = 0, timeout_s: float
    ) -> list[tuple[Any, ...]]:
        """Return some columns of the newest events in ``stored_events``, newest first. Raises as `Reader.execute`."""
        ...

    def reader(self) -> AbstractContextManager[Reader]:
        """Return a reader for one thread. Raises `EventStoreUnavailableError`."""
        ...


class EventWriter(Protocol):
    """Writing events. One writer, the ingestion thread.

    Where the log has several partitions there is a position in each, and ``log_partition`` says which is meant. Then
    there is a writer for each, and ``log_offset`` is the number of a record, which all partitions share.
    """

    def append(
        self,
        batch: EventBatch,
        *,
        log_offset: SequenceNumber,
        log_partition: int = 0,
        first_seq: SequenceNumber | None = None,
    ) -> Sequence[int]:
        """Write rows, overrides and the log position, all of it once, also when the same is tried again.

        ``first_seq``: what the first row of the batch that was begun has as ``seq``, where that is not for the store to
        say.

        An event whose `EventRow.identity` is stored already is skipped where it says the same (an SDK's resend), and
        else takes the place of the one before, with a ``seq`` of its own (see `hoglab.storage.event_store.once`).
        Returns the positions in the batch of the rows that are new events, ascending. A row whose ``log_offset`` is not
        above `position` is not written again: it is in the answer when it was new with that log record.
        Raises `EventStoreUnavailableError`.
        """
        ...

    def dry_run(self, rows: Sequence[EventRow]) -> None:
        """Go through all steps of storing rows, and take it back. Raises `EventStoreUnavailableError`."""
        ...

    def check(self) -> None:
        """Raise `EventStoreUnavailableError` if a batch could not be written now, for health checks."""
        ...

    def position(self, log_partition: int | None = None) -> SequenceNumber:
        """Return the number of the record up to which everything is stored; 0 for an empty store.

        Without a partition where the log has several: the newest number that anything is stored of.
        """
        ...

    def identity(self) -> tuple[str, int, int] | None:
        """Return installation id, generation and number of starts; None for a store that has none yet."""
        ...

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """Write them, durably."""
        ...


class EventEraser(Protocol):
    """Deleting events."""

    def uuids(self, events: ErasableEvents) -> list[UUID]:
        """Return the uuids of the events that `erase` would delete."""
        ...

    def erase(self, events: ErasableEvents) -> int:
        """Delete events, and return how many. Their bytes are in a `StoreFile` until its `StoreFile.scrub`.

        Raises `EventStoreUnavailableError` and the errors of `Reader`; some may be gone then, and the call goes on.
        """
        ...

    def forget_overrides(self, project_id: int, person_ids: Sequence[UUID]) -> None:
        """Delete what is known of the merges of persons whose events are gone."""
        ...

    def distinct_ids_since(
        self, project_id: int, distinct_ids: Sequence[str], log_offset: SequenceNumber
    ) -> set[str]:
        """Return which of some distinct ids have events in later log records."""
        ...


class EventStore(EventReader, EventWriter, EventEraser, Protocol):
    """Column store of events: everything that any engine can be asked for."""

    def close(self) -> None: ...


class StoreFile(Protocol):
    """The file of an event store: what is asked of nothing but a file, by upkeep, checks and backups.

    An engine that looks after its files by itself has none.
    """

    @property
    def damage(self) -> str | None:
        """Damage found in the file since it was opened: what could not be read; None while none is known."""
        ...

    @property
    def uses(self) -> int:
        """Number of readers that were given out, from which it can be seen whether the store is idle."""
        ...

    def position(self) -> SequenceNumber:
        """See `EventWriter.position`."""
        ...

    def checkpoint(self) -> None:
        """Write to the file what waits in memory; the writer calls it when it is idle."""
        ...

    def scrub(self) -> None:
        """Make the bytes of what was deleted go. Raises `EventStoreUnavailableError`: to be called again."""
        ...

    def pause_writes(self) -> AbstractContextManager[SequenceNumber]:
        """Keep the writer away, so that the file can be copied; gives the position. Queries go on."""
        ...

    def seal(self, *, is_idle: bool) -> int:
        """Seal or merge once, and return the number of rows written; 0 when nothing was to be done."""
        ...

    def interrupt_sealing(self) -> None:
        """End the current sealing, which leaves the events as they were."""
        ...


@dataclass(frozen=True, slots=True)
class ErasableStore:
    """Events that can be deleted, and the files that had them."""

    events: EventEraser
    files: Sequence[StoreFile] = ()

    def scrub(self) -> None:
        """Make the bytes of what was deleted go from the files. Raises `EventStoreUnavailableError`: call it again."""
        for file in self.files:
            file.scrub()


class PartitionedEventStore(EventStore, Protocol):
    """A store that several processes write, each events of some partitions of the log at a time."""

    def forget(self, log_partition: int) -> None:
        """Forget what is known of a partition, because another process may have written to it."""
        ...

    def maintain_columns(self) -> None:
        """Add and drop typed columns by what statements read often. Raises `EventStoreUnavailableError`."""
        ...

    def flush_usage(self) -> None:
        """Write down what statements here read, for `maintain_columns`. Raises `EventStoreUnavailableError`."""
        ...
