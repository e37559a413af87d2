"""The relay from a log of several partitions to the one that ingestion reads, for each record once and in order.

Records and how far each partition was read are stored in one transaction, under the leases of the partitions. Whatever
ends it, the next reader goes on where it left off. The log behind is kept short: what waits, waits in the partitions,
where requests are still accepted while the database is away.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import structlog

from hoglab.background import RETRY_S, STOP_TIMEOUT_S, BackgroundService
from hoglab.capture.records import RecordError, read_header
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_log import Acknowledged, EventLogFullError
from hoglab.storage.event_log.partitions import RENEW_EVERY_S, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hoglab.storage.event_log.partitions import LogPartition, PartitionLease, Relayed

MAX_RECORDS = 1024
MAX_BYTES = 8 * 1024 * 1024
"""Maximum size of the records taken over in one transaction; of each partition at least one record."""

IDLE_S = 0.02
"""Pause before the next look where nothing had come."""

FULL_S = 0.2
"""The same where the log takes no more for now."""

KNOWN_MOMENTS = 256
"""Number of moments for which it is remembered when everything from before was taken over."""

_log = structlog.get_logger(__name__)


class RelayedRecord(NamedTuple):
    """A record as `hoglab.storage.event_log.deferral` sees it."""

    payload: bytes
    owner: int | None
    alone: bool


@dataclass(slots=True)
class _Reading:
    """A partition that this process reads, and up to where it is taken over."""

    lease: PartitionLease
    partition: LogPartition
    position: int


class LogRelay(BackgroundService):
    """The service that takes records over. One process has it, others may stand by: partitions are leased."""

    NAME: ClassVar[str] = "event-log-relay"

    def __init__(self, relayed: Relayed, *, has_several_projects: Callable[[], bool]) -> None:
        super().__init__()
        self._source, self._leases, self._target = relayed.source, relayed.leases, relayed.target
        self._has_several_projects = has_several_projects
        self._readings: dict[int, _Reading] = {}
        self._first = 0  # whose turn it is
        self._renew_at = 0.0
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Reason for which nothing is taken over; None while records are, or only wait for room."""
        return self._fault

    def round(self) -> float | None:
        """Take over what has come."""
        try:
            wait_s = self._take_over()
        except (DatabaseError, LeaseLostError) as error:
            # What was read and not stored is read again, from wherever the database says.
            self._close_all()
            if self._fault is None:
                _log.warning("event_log_relay_stands_still", reason=str(error))
            self._fault = str(error)
            return RETRY_S
        self._fault = None
        return wait_s

    def _take_over(self) -> float:
        if time.monotonic() >= self._renew_at:
            self._renew()
        try:
            self._target.check()
        except EventLogFullError:
            return FULL_S
        moved: dict[PartitionLease, int] = {}
        records: list[RelayedRecord] = []
        size, alone = 0, not self._has_several_projects()
        for number in self._in_turn():
            reading = self._readings[number]
            left = MAX_RECORDS - len(records)
            if left <= 0 or size >= MAX_BYTES:
                self._first = number
                break
            if reading.partition.wait(reading.position, 0):
                for record in reading.partition.read(
                    reading.position, max_records=left, max_bytes=MAX_BYTES - size
                ):
                    size += len(record.payload)
                    records.append(RelayedRecord(record.payload, _owner_of(record.payload), alone))
            if reading.partition.reached > reading.position:
                moved[reading.lease] = reading.partition.reached
        if not moved:
            return IDLE_S
        with self._leases.moving(moved) as connection:
            if records:
                self._target.append_within(connection, records)
        for lease, position in moved.items():
            self._readings[lease.partition].position = position
        return 0.0 if records else IDLE_S

    def _in_turn(self) -> list[int]:
        """The partitions, each of which is the first once."""
        numbers = sorted(self._readings)
        start = bisect_left(numbers, self._first)
        return numbers[start:] + numbers[:start]

    def _renew(self) -> None:
        """Keep what this process has, open what it is given, and let go of what is others'."""
        held, surplus = self._leases.renew()
        if surplus:
            self._leases.give_up(surplus)
        mine = {number: lease for number, lease in held.items() if number not in surplus}
        for number, reading in list(self._readings.items()):
            if mine.get(number) != reading.lease:
                self._readings.pop(number).partition.close()
        if new := mine.keys() - self._readings.keys():
            positions = self._leases.positions()  # nobody else moves them any more
            for number in new:
                partition = self._source.partition(number)
                self._readings[number] = _Reading(mine[number], partition, positions[number])
        self._renew_at = time.monotonic() + RENEW_EVERY_S

    def _close_all(self) -> None:
        for reading in self._readings.values():
            reading.partition.close()
        self._readings = {}
        self._renew_at = 0.0

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End, and let others read at once."""
        super().stop(timeout_s)
        if not self._thread.is_alive():
            self._close_all()
            with suppress(DatabaseError):
                self._leases.leave()


def _owner_of(payload: bytes) -> int | None:
    """The project of a record; None for one that cannot be read, which ingestion puts into quarantine."""
    try:
        return read_header(payload)[0].project_id
    except RecordError:
        return None


class RelayedLog:
    """The log that ingestion reads, for those who wait for what was accepted into the partitions before it."""

    def __init__(self, relayed: Relayed) -> None:
        self._ends = relayed.source.ends
        self._positions = relayed.leases.positions
        self._log = relayed.target
        self._lock = threading.Lock()
        self._asked: tuple[int, Mapping[int, int]] | None = (
            None  # a moment, and where the partitions ended then
        )
        # Moments, and when everything that was accepted before each had been taken over.
        self._known: deque[tuple[int, int]] = deque(maxlen=KNOWN_MOMENTS)

    def acknowledged(self, owner: int) -> Acknowledged:
        """See `Acknowledging`: whatever is accepted may have to be taken over first."""
        return Acknowledged(owner, self._log.last_offset(), self._log.now_us())

    def offset_of(self, acknowledged: Acknowledged) -> int | None:
        """See `Acknowledging`; None also while the partitions do not answer."""
        until = acknowledged.deferred_until
        if until is None:
            return acknowledged.offset
        try:
            with self._lock:
                at = self._taken_over_at(until)
        except DatabaseError as error:
            _log.warning("event_log_relay_is_not_known", reason=str(error))
            return None
        return None if at is None else self._log.offset_of(replace(acknowledged, deferred_until=at))

    def trim(self, up_to: int) -> int:
        """See `EventLog`."""
        return self._log.trim(up_to)

    def _taken_over_at(self, until: int) -> int | None:
        """Time when everything that was accepted by a moment had been taken over; None if it was not yet."""
        if self._asked is not None:
            moment, ends = self._asked
            positions = self._positions()
            if all(positions.get(number, 0) >= end for number, end in ends.items()):
                self._known.append((moment, self._log.now_us()))
                self._asked = None
        place = bisect_left(self._known, until, key=itemgetter(0))
        if place < len(self._known):
            return self._known[place][1]
        if self._asked is None:
            moment = self._log.now_us()
            self._asked = (moment, self._ends())
        return None
