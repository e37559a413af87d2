"""SQLite below the database: one file, one writer at a time."""

from hoglab.storage.database.sqlite.connections import (
    SqliteConnections,
    connect,
)

__all__ = ["SqliteConnections", "connect"]
