"""Stores beside the queue, in tables of a `Database` of any engine, through SQLAlchemy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.storage.invocations.sql.breakers import BreakerStates
from hoglab.storage.invocations.sql.dead_letters import DeadLetters
from hoglab.storage.invocations.sql.erasing import RunErasing
from hoglab.storage.invocations.sql.jobs import Jobs
from hoglab.storage.invocations.sql.runs import RunStore
from hoglab.storage.invocations.sql.sharing import Outages, RateLimits

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.invocations.queue import InvocationQueue


@dataclass(frozen=True, slots=True)
class InvocationStores:
    """Everything that delivery keeps.

    ``rate_limits`` and ``outages``: where several processes run functions; else None, and they are in memory.
    """

    queue: InvocationQueue
    runs: RunStore
    dead_letters: DeadLetters
    jobs: Jobs
    breakers: BreakerStates
    erasing: RunErasing
    rate_limits: RateLimits | None = None
    outages: Outages | None = None


def stores_of(queue: InvocationQueue, database: Database) -> InvocationStores:
    """Return the queue with what else is kept in its file. ``database``: that file, opened with ``queue_metadata``."""
    return InvocationStores(
        queue,
        RunStore(database, queue),
        DeadLetters(database),
        Jobs(database),
        BreakerStates(database),
        RunErasing(database),
        RateLimits(database) if database.is_shared else None,
        Outages(database) if database.is_shared else None,
    )
