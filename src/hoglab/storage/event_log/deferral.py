"""Records that wait beside the log until there is room in it, so that one owner's flood does not delay the others.

The log is read in the order of its offsets. Of each owner (a project) only a share may wait in it; what an owner sends
beyond that is as durable, but waits in a table of its own, and gets its offset when earlier records of the same owner
were ingested. The share follows the dynamic threshold rule of shared buffers: an owner may have as much in the
log as is left free of `WINDOW_BYTES`. So one flood takes half of it, two take a third each, and an owner that sends
little always finds room. An owner's records keep their order.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hoglab.storage.event_log import Offset
    from hoglab.storage.event_log.backlog import Backlog

MIB = 1024 * 1024

WINDOW_BYTES = 8 * MIB
"""Size of the records that may wait in the log where there are several owners: about a second of ingestion."""

STEP_BYTES = MIB
STEP_RECORDS = 256
"""Size and number of the records that go into the log in one transaction, at least one record."""


class Record(Protocol):
    """A record that is to be stored. ``alone``: its owner is the only one."""

    @property
    def owner(self) -> int | None: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def alone(self) -> bool: ...


RecordT = TypeVar("RecordT", bound=Record)


class Admitted(NamedTuple):
    """Records of an owner that went into the log.

    ``last_offset``: of the last of them. ``sizes`` in bytes; ``oldest_left``: when the first one that still waits was
    accepted, in microseconds, None when none does.
    """

    owner: int
    last_offset: Offset
    sizes: list[int]
    newest_at: int
    oldest_left: int | None


@dataclass(slots=True)
class _Waiting:
    records: int
    size: int
    oldest_at: int  # microseconds since the epoch


class Deferral:
    """Records and bytes that wait beside the log, by owner, and the owners' turns. Not thread-safe."""

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self.step_bytes = min(STEP_BYTES, window_bytes // 16)
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()  # the next one in turn first
        self.bytes = 0
        self.records = 0

    def load(self, totals: Iterable[tuple[int, int, int, int]]) -> None:
        """Take over what is stored: owner, records, bytes, time of the oldest; the next owner in turn first."""
        for owner, records, size, oldest_at in totals:
            self._add(owner, records, size, oldest_at)

    def divide(
        self, records: Sequence[RecordT], backlog: Backlog
    ) -> tuple[list[RecordT], list[tuple[int, RecordT]]]:
        """Return records that go into the log at once, and those that have to wait, with their owners."""
        ready: list[RecordT] = []
        deferred: list[tuple[int, RecordT]] = []
        behind = set(self._waiting)  # an owner's records stay in order
        ahead: Counter[int] = Counter()
        ahead_of_all = 0
        for record in records:
            owner, size = record.owner, len(record.payload)
            if owner is None:
                ready.append(record)
                continue
            pending, of_all = backlog.pending_of(owner) + ahead[owner], backlog.pending_bytes + ahead_of_all
            if owner in behind or not (record.alone or self._has_capacity(size, pending, of_all)):
                behind.add(owner)
                deferred.append((owner, record))
            else:
                ahead[owner] += size
                ahead_of_all += size
                ready.append(record)
        return ready, deferred

    def _has_capacity(self, size: int, pending: int, pending_of_all: int) -> bool:
        return pending == 0 or pending + size <= self._window_bytes - pending_of_all

    def add(self, owner: int, size: int, at: int) -> None:
        """Add a record that was stored and waits for its offset."""
        self._add(owner, 1, size, at)

    def _add(self, owner: int, records: int, size: int, at: int) -> None:
        waiting = self._waiting.setdefault(owner, _Waiting(0, 0, at))
        waiting.records += records
        waiting.size += size
        self.records += records
        self.bytes += size

    def next_owner(self, backlog: Backlog) -> int | None:
        """Return the owner whose records may go into the log next; None when there is room for none's."""
        for owner in self._waiting:
            if self._has_capacity(self.step_bytes, backlog.pending_of(owner), backlog.pending_bytes):
                return owner
        return None

    def note(self, admitted: Admitted) -> None:
        """Count records as moved into the log, so that they wait no longer."""
        waiting = self._waiting[admitted.owner]
        size = sum(admitted.sizes)
        waiting.records -= len(admitted.sizes)
        waiting.size -= size
        self.records -= len(admitted.sizes)
        self.bytes -= size
        if admitted.oldest_left is None:
            del self._waiting[admitted.owner]
        else:
            waiting.oldest_at = admitted.oldest_left
            self._waiting.move_to_end(admitted.owner)

    def bytes_of(self, owner: int) -> int:
        waiting = self._waiting.get(owner)
        return 0 if waiting is None else waiting.size

    def oldest_of(self, owner: int) -> int | None:
        """Return acceptance time of an owner's oldest waiting record, in microseconds; None when none waits."""
        waiting = self._waiting.get(owner)
        return None if waiting is None else waiting.oldest_at

    def oldest(self) -> int | None:
        """Return the acceptance time of the oldest waiting record of all owners, in microseconds; None without any."""
        return min((waiting.oldest_at for waiting in self._waiting.values()), default=None)


def step(
    rows: Sequence[tuple[int, int, int]], step_bytes: int
) -> tuple[Sequence[tuple[int, int, int]], int | None]:
    """Return the deferred records that one transaction moves into the log, and the moment of the first remaining one.

    ``rows``: id, size and moment of the next `STEP_RECORDS` + 1 records, or of all if there are fewer.
    """
    total = 0
    for number, (_, size, at) in enumerate(rows):
        total += size
        if number == STEP_RECORDS or (number and total > step_bytes):
            return rows[:number], at
    return rows, None
