"""Events that a server does not survive: found by how often it started without getting past them.

Nothing in the language should end the server, and what it may compute is bounded. Should it happen all the same (the
system is out of memory, a fault in a library), the same events come again after every start. So starts are counted by
the position in the event log that dispatch begins at. When it has begun often enough at the same one, the events behind
it are dispatched one by one, each among the dead letters while it is: the one that ends the server stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from hoglab.storage.invocations import ConsumerPosition, InvocationBatch

if TYPE_CHECKING:
    from hoglab.storage.invocations import InvocationQueue

MOST_STARTS = 2
"""After so many starts at one position, none of which got beyond it, its events are dispatched one by one."""
REASON = "The server ended while functions were asked about this event."

_CONSUMER = "dispatch-starts"
_MARK = 1 << 62
"""Above every offset: the log is kept for the lowest of all positions, and this is none."""
_COUNTED = 7

_logger = structlog.get_logger(__name__)


class Restarts:
    """Count of the times dispatch has begun at the same position. Used by one thread.

    The count is kept beside the positions, as the position with the number of starts in its lowest three bits.
    """

    def __init__(self, queue: InvocationQueue, partition: int | None = None) -> None:
        """``partition``: of the event log, where it has several, each of which begins at a position of its own."""
        self._queue = queue
        self._consumer = _CONSUMER if partition is None else f"{_CONSUMER}-{partition}"
        self._suspicious: bool | None = None

    def are_suspicious(self, position: int) -> bool:
        """Return whether the events behind a position, which dispatch begins at, may be what the server died of.

        Counts the start when it is first asked. Raises `DatabaseError`.
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
        """The events that dispatch began at are done."""
        self._suspicious = False
