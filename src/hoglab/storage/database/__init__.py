"""The metadata database: engine, transactions, migrations and change notification."""

from hoglab.storage.database.changes import ChangeFeed, Topic
from hoglab.storage.database.engine import Database, Transaction
from hoglab.storage.database.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseFullError,
    DatabaseUnreadableError,
    NestedWriteError,
    SchemaTooNewError,
    UnsupportedDatabaseError,
)
from hoglab.storage.database.types import from_micros, to_micros

__all__ = [
    "ChangeFeed",
    "Database",
    "DatabaseBusyError",
    "DatabaseError",
    "DatabaseFullError",
    "DatabaseUnreadableError",
    "NestedWriteError",
    "SchemaTooNewError",
    "Topic",
    "Transaction",
    "UnsupportedDatabaseError",
    "from_micros",
    "to_micros",
]
