"""The events of a move: written in the order of their ingestion, in batches, and compared when all are there.

What a batch has depends on the first event alone, so a store that was given one before, when the process was killed,
takes it for the same. Memory is bounded by `BATCH_BYTES` of texts, some times over, and by what an engine may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.rows import COLUMNS, GROUP_TYPES
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.rows import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

BATCH_ROWS = 50_000
BATCH_BYTES = 32 * 1024 * 1024
"""Number of events, and size of their texts, that are written at once; at least one event."""
READ_ROWS = 1_000
"""Number of events that are taken from an engine at once."""

SELECTED = ", ".join("whole_properties" if name == "properties" else name for name in COLUMNS)
"""The columns of ``stored_events`` that `placed` makes an event of."""

_ENCODER = msgspec.msgpack.Encoder()
_SUM = 1 << 128

PlacedEvent = tuple[int, EventRow]
"""An event with its ``seq``."""
Merge = tuple[int, UUID, UUID, int]
"""Project, the person that was merged, the one it became, and the position from which on that is so."""
Correction = tuple[int, datetime, int, int, int, int]
"""Project, the time that the event had, its place then, its place now, its first place, and the position from which on
that is so: the columns of `event_correction`."""
Day = tuple[int, date]
"""A project and a day in UTC."""
Digest = tuple[int, int]
"""The number of some events, and the sum of digests of all that they are, modulo 2^128."""


class MovingEvents(Protocol):
    """The events of a place that no server uses. Raises `EventStoreUnavailableError` and the errors of `Reader`."""

    @property
    def name(self) -> str:
        """Name in messages; without a password."""
        ...

    def identity(self) -> tuple[str, int, int] | None:
        """Return installation id, generation and number of starts; None where there is none yet."""
        ...

    def set_identity(self, installation_id: str, generation: int, starts: int) -> None:
        """Write them, durably."""
        ...

    def position(self) -> int:
        """Return the offset of the log up to which events are stored."""
        ...

    def next_seq(self) -> int:
        """Return the first place that is free; 1 at first."""
        ...

    def count(self) -> int:
        """Return the number of the events."""
        ...

    def in_order(self, first: int) -> Generator[list[tuple[Any, ...]]]:
        """Return rows of `SELECTED`, from a place on, in the order of their places."""
        ...

    def in_any_order(self) -> Generator[list[tuple[Any, ...]]]:
        """Return rows of `SELECTED`."""
        ...

    def merges(self) -> list[Merge]:
        """Return all of them, as they count now."""
        ...

    def corrections(self) -> Generator[Correction]:
        """Return what is known of rows that others took the place of, in the order of project and former place."""
        ...

    def write_corrections(self, corrections: Iterable[Correction]) -> None:
        """Replace all that is known of corrections; cut off, it is to be called again."""
        ...

    def kept_moment(self, moment: datetime) -> datetime:
        """Return a moment as it comes out again."""
        ...

    def kept(self, event: EventRow) -> tuple[EventRow, Sequence[str]]:
        """Return the event as it comes out again, and what is different about it, in words."""
        ...

    def add(self, events: Sequence[PlacedEvent]) -> None:
        """Store events behind those that are there, durably; the same once more changes nothing."""
        ...

    def settle(self, position: int, next_seq: int, merges: Sequence[Merge]) -> None:
        """Replace all merges and positions by these."""
        ...


@dataclass(frozen=True, slots=True)
class EventsPlace:
    """Place for events, open during the block of ``opened``. ``name``: without a password."""

    name: str
    opened: Callable[[], AbstractContextManager[MovingEvents]]


@dataclass(frozen=True, slots=True)
class MovedEvents:
    """Number of events that are the same on both sides, of the days of projects, and of those written by this run.

    ``different``: how many are kept otherwise, by what is different.
    """

    events: int
    days: int
    written: int
    different: Mapping[str, int]


def copy_events(old: MovingEvents, new: MovingEvents, on_progress: Callable[[str, int, int], object]) -> int:
    """Write the events that are not there yet, and return how many."""
    every, there = old.count(), new.count()
    written = 0
    with closing(_placed_rows(old.in_order(new.next_seq()))) as rows:
        for batch in batches(rows, size_of, most=BATCH_ROWS, most_bytes=BATCH_BYTES):
            new.add(batch)
            written += len(batch)
            on_progress("events", min(there + written, every), every)
    return written


def compare_events(
    old: MovingEvents, new: MovingEvents, written: int, on_progress: Callable[[str, int, int], object]
) -> MovedEvents:
    """Make sure that events are the same on both sides, but for what cannot be kept. Raises `MoveError`."""
    every = old.count()
    different: Counter[str] = Counter()
    expected: dict[Day, Digest] = {}
    with closing(_placed_rows(old.in_any_order())) as rows:
        for seq, event in rows:
            kept, how = new.kept(event)
            different.update(how)
            _note(expected, seq, kept)
    actual: dict[Day, Digest] = {}
    with closing(_placed_rows(new.in_any_order())) as rows:
        for seq, event in rows:
            _note(actual, seq, event)
    on_progress("events compared", every, every)
    wrong = sorted(day for day in expected.keys() | actual.keys() if expected.get(day) != actual.get(day))
    if wrong:
        here, there = (digests.get(wrong[0], (0, 0))[0] for digests in (expected, actual))
        raise MoveError(
            f"events differ, on {len(wrong)} days of projects: first of project {wrong[0][0]} on {wrong[0][1]} ({here} "
            f"here, {there} there). Give this move up (--cancel), empty the target and start again"
        )
    return MovedEvents(every, len(expected), written, different)


def copy_corrections(old: MovingEvents, new: MovingEvents) -> None:
    """Write what is known of corrections, and make sure that it is the same on both sides. Raises `MoveError`."""
    with closing(old.corrections()) as leaving:
        new.write_corrections(leaving)
    with closing(old.corrections()) as leaving, closing(new.corrections()) as arrived:
        for number, (here, there) in enumerate(zip_longest(leaving, arrived), 1):
            if here is not None:
                here = (here[0], new.kept_moment(here[1]), *here[2:])
            if here != there:
                raise MoveError(
                    f"corrections of events are not the same in {new.name}: number {number} differs"
                )


def placed(row: Sequence[Any]) -> PlacedEvent:
    """Return an event of a row of `SELECTED`, the same from every engine."""
    cells = dict(zip(COLUMNS, row, strict=True))
    groups = {index: key for index in range(GROUP_TYPES) if (key := cells.pop(f"group_{index}")) is not None}
    for name in ("properties", "person_properties"):
        cells[name] = cells[name].encode()
    for name in ("timestamp", "captured_at", "person_created_at"):
        cells[name] = None if cells[name] is None else in_utc(cells[name])
    if isinstance(cells["uuid"], str):
        cells["uuid"] = UUID(cells["uuid"])
    return cells.pop("seq"), EventRow(groups=groups, **cells)


def in_utc(moment: datetime) -> datetime:
    """Return a moment of an engine, which may leave out that it is UTC, as one that says so."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _placed_rows(parts: Generator[list[tuple[Any, ...]]]) -> Generator[PlacedEvent]:
    with closing(parts):
        for rows in parts:
            yield from map(placed, rows)


def size_of(placed_event: PlacedEvent) -> int:
    """Return the size of an event in bytes: its long texts."""
    event = placed_event[1]
    return len(event.properties) + len(event.person_properties) + len(event.elements_chain)


def _note(digests: dict[Day, Digest], seq: int, event: EventRow) -> None:
    day = (event.project_id, event.timestamp.date())
    rows, total = digests.get(day, (0, 0))
    digest = int.from_bytes(blake2b(_ENCODER.encode((seq, event)), digest_size=16).digest())
    digests[day] = (rows + 1, (total + digest) % _SUM)
