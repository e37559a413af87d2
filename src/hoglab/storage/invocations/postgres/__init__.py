"""The invocation queue in PostgreSQL, on which workers in several processes work."""

from hoglab.storage.invocations.postgres.queue import PostgresInvocationQueue

__all__ = ["PostgresInvocationQueue"]
