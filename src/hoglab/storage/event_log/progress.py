"""The progress of ingestion through a log of partitions, in the one count that numbers its records."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import structlog

from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.event_log import LogStats, Offset, ReadToken, SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.event_log.leases import LogLeases

KNOWN_MOMENTS = 256
"""Number of moments for which it is remembered up to where everything from before was ingested."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeasedLog:
    """The log in Kafka, with the leases of those who read its partitions."""

    source: KafkaEventLog
    leases: LogLeases


class IngestionProgress:
    """Progress of ingestion. An accepted record has no sequence number before its batch is begun."""

    def __init__(self, log: LeasedLog) -> None:
        self.source, self._leases = log.source, log.leases
        self._lock = threading.Lock()
        # A moment, and where the partitions ended then.
        self._asked: tuple[int, Mapping[int, Offset]] | None = None
        # Moments, and up to which number everything was ingested when all that was accepted before was.
        self._known: deque[tuple[int, SequenceNumber]] = deque(maxlen=KNOWN_MOMENTS)

    def position(self) -> SequenceNumber:
        """Return the number up to which everything is stored and dispatched. Raises `DatabaseError`."""
        return self._leases.stored()

    def last_offset(self) -> Offset:
        """Return the newest number that was given out, 0 at first. Raises `DatabaseError`."""
        return Offset(self._leases.last_sequence())

    def stats(self) -> LogStats:
        """Return numbers from the first on: the partitions still have the records of every begun batch."""
        last = self._leases.last_sequence()
        return LogStats(Offset(1 if last else 0), Offset(last), 0, 0)

    def read_token(self, owner: int) -> ReadToken:
        """See `ReadTokens`; the token holds the time, because the number of the record is not known yet."""
        return ReadToken(owner, SequenceNumber(0), _now_us())

    def resolve(self, token: ReadToken) -> SequenceNumber | None:
        """See `ReadTokens`; None while any of it is not ingested, and while the partitions do not answer."""
        until = token.deferred_until
        if until is None:
            return token.offset
        try:
            with self._lock:
                return self._ingested_by(until)
        except DatabaseError as error:
            _log.warning("event_log_progress_is_not_known", reason=str(error))
            return None

    def trim(self, up_to: SequenceNumber) -> int:
        """See `EventLog`: the topic has a retention of its own."""
        del up_to
        return 0

    def _ingested_by(self, until: int) -> SequenceNumber | None:
        """Return a number up to which all is, and everything that was accepted by a moment.

        The result is None if that is not ingested.
        """
        if self._asked is not None:
            moment, ends = self._asked
            positions = self._leases.positions()
            if all(positions.get(number, 0) >= end for number, end in ends.items()):
                self._known.append((moment, self._leases.last_sequence()))
                self._asked = None
        place = bisect_left(self._known, until, key=itemgetter(0))
        if place < len(self._known):
            return self._known[place][1]
        if self._asked is None:
            moment = _now_us()
            self._asked = (moment, self.source.ends())
        return None


def _now_us() -> int:
    return time.time_ns() // 1000
