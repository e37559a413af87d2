"""PostgreSQL below the database. The driver is imported where an address names it, and not before."""

from hoglab.storage.database.postgres.connections import PostgresConnections

__all__ = ["PostgresConnections"]
