"""Gauges of the queue for Prometheus, the same in every process that shares it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

import structlog
from prometheus_client import Gauge

from hoglab.background import BackgroundService
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from hoglab.delivery.limits import DestinationBreakers
    from hoglab.storage.invocations import InvocationQueue

EVERY_S = 5.0
"""Interval in seconds at which a process measures the queue."""

BACKLOG = Gauge("hoglab_delivery_backlog", "Invocations that are not finished.")
_WAITING = Gauge(
    "hoglab_delivery_waiting", "Invocations that wait: for their turn, an attempt or to wake up."
)
_OLDEST_S = Gauge(
    "hoglab_delivery_oldest_due_seconds", "For how long the oldest due invocation waits; 0: none."
)
_HELD_BACK = Gauge(
    "hoglab_delivery_circuits_open", "Functions whose runs wait because their destination is away."
)
_DEAD = Gauge(
    "hoglab_delivery_dead_events_kept", "Events put aside that nobody tried again or discarded yet."
)

_logger = structlog.get_logger(__name__)


def measure(queue: InvocationQueue, breakers: DestinationBreakers) -> None:
    """Set the gauges. Blocks; raises `DatabaseError`."""
    stats = queue.counts.stats()
    oldest = stats.oldest_due_at
    BACKLOG.set(queue.counts.backlog())
    _WAITING.set(stats.available)
    _OLDEST_S.set(0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds()))
    _DEAD.set(stats.dead_letters)
    _HELD_BACK.set(len(breakers.open_anywhere()))


class QueueGauges(BackgroundService):
    """Background service that measures the queue where no functions run."""

    NAME: ClassVar[str] = "queue-gauges"

    def __init__(self, queue: InvocationQueue, breakers: DestinationBreakers) -> None:
        super().__init__()
        self._queue = queue
        self._breakers = breakers

    def round(self) -> float:
        """Measure the queue, unless the database does not answer."""
        try:
            measure(self._queue, self._breakers)
        except DatabaseError as error:
            _logger.warning("queue_not_measured", reason=str(error))
        return EVERY_S
