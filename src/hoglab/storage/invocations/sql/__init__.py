"""Stores beside the queue, in tables of a `Database` of any engine, through SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.storage.invocations import InvocationStores
from hoglab.storage.invocations.sql.breakers import SqlBreakerStates
from hoglab.storage.invocations.sql.dead_letters import SqlDeadLetters
from hoglab.storage.invocations.sql.erasing import SqlRunErasing
from hoglab.storage.invocations.sql.jobs import SqlJobs
from hoglab.storage.invocations.sql.runs import SqlRunStore
from hoglab.storage.invocations.sql.sharing import SharedOutages, SharedRateLimits

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.invocations import InvocationQueue


def stores_of(queue: InvocationQueue, database: Database) -> InvocationStores:
    """Return the queue with what else is kept in its file. ``database``: that file, opened with ``queue_metadata``."""
    return InvocationStores(
        queue,
        SqlRunStore(database, queue),
        SqlDeadLetters(database),
        SqlJobs(database),
        SqlBreakerStates(database),
        SqlRunErasing(database),
        SharedRateLimits(database) if database.is_shared else None,
        SharedOutages(database) if database.is_shared else None,
    )
