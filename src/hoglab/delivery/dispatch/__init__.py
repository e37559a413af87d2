"""Dispatch: from events to runs in the queue."""

from hoglab.delivery.dispatch.dead_letter_retry import MAX_RETRIED, DeadLetterRetry
from hoglab.delivery.dispatch.dispatcher import (
    DEGRADED_PRIORITY,
    NO_EVENTS_FAULT,
    OVERFLOW_QUEUE,
    EventDispatcher,
    Subscribers,
    stored_subscribers,
)
from hoglab.delivery.dispatch.explain import explain_configuration
from hoglab.delivery.dispatch.internal_events import (
    InternalEventDispatcher,
    internal_subscribers,
    read_unreadable,
)
from hoglab.delivery.dispatch.plan import DispatchPlan

__all__ = [
    "DEGRADED_PRIORITY",
    "MAX_RETRIED",
    "NO_EVENTS_FAULT",
    "OVERFLOW_QUEUE",
    "DeadLetterRetry",
    "DispatchPlan",
    "EventDispatcher",
    "InternalEventDispatcher",
    "Subscribers",
    "explain_configuration",
    "internal_subscribers",
    "read_unreadable",
    "stored_subscribers",
]
