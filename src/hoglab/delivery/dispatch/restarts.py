"""Events that end the server: found by how often it started without getting past them.

Nothing in the language should end the server, and computing is bounded. Should it happen nevertheless (the system
is out of memory, a fault in a library), the same events are dispatched again after every start. So starts are
counted by the position in the event log that dispatch begins at. After enough starts at the same position, the
events behind it are dispatched one by one, each stored as a dead letter meanwhile: the one that ends the server
stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from hoglab.storage.invocations import ConsumerPosition, InvocationBatch

if TYPE_CHECKING:
    from hoglab.storage.invocations import InvocationQueue

MOST_STARTS = 2
"""Number of starts at one position, without getting beyond it, after which its events are dispatched one by one."""
REASON = "The server ended while functions were asked about this event."

_CONSUMER = "dispatch-starts"
_MARK = 1 << 62
"""Bit above every offset: the log is kept for the lowest of all positions, and this one is none."""
_COUNTED = 7

_logger = structlog.get_logger(__name__)


class Restarts:
    """Count of the times dispatch has begun at the same position. Used by one thread.

    The count is stored beside the positions, as the position with the number of starts in its lowest three bits.
    """

    def __init__(self, queue: InvocationQueue, partition: int | None = None) -> None:
        """Create the count.

        ``partition`` is a partition of the event log, where it has several, each of which begins at a position of
        its own.
        """
        self._queue = queue
        self._consumer = _CONSUMER if partition is None else f"{_CONSUMER}-{partition}"
        self._suspicious: bool | None = None

    def are_suspicious(self, position: int) -> bool:
        """Return whether the events behind a position, at which dispatch begins, may have ended the server.

        Counts the start when it is first called. Raises `DatabaseError`.
        """
        if self._suspicious is None:
            kept = self._queue.position(self._consumer) - _MARK
            before = kept & _COUNTED if kept >= 0 and kept >> 3 == position else 0
            starts = min(before + 1, _COUNTED)
            self._queue.enqueue(
                InvocationBatch(position=ConsumerPosition(self._consumer, _MARK + (position << 3 | starts)))
            )
            self._suspicious = starts > MOST_STARTS
            if self._suspicious:
                _logger.warning("events_dispatched_with_care", position=position, starts=starts)
        return self._suspicious

    def got_beyond(self) -> None:
        """Record that the events at which dispatch began are done."""
        self._suspicious = False
