"""The invocation queue in PostgreSQL, on which workers in several processes work."""

from hoglab.storage.invocations.postgres.tables import PostgresQueueTables

__all__ = ["PostgresQueueTables"]
