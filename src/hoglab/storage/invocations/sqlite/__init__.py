"""The invocation queue in SQLite tables of ``queue.db``."""

from hoglab.storage.invocations.sqlite.tables import SqliteQueueTables

__all__ = ["SqliteQueueTables"]
