"""The metadata database: engine, transactions, migrations and change notification."""

from hoglab.storage.database.changes import ChangeFeed, State, Subject, Topic, state_in
from hoglab.storage.database.durability import Rebuildable
from hoglab.storage.database.engine import Database, Transaction
from hoglab.storage.database.errors import (
    DatabaseBusyError,
    DatabaseConflictError,
    DatabaseError,
    DatabaseFullError,
    DatabaseNotDurableError,
    DatabaseUnreachableError,
    DatabaseUnreadableError,
    NestedWriteError,
    SchemaTooNewError,
    SchemaTooOldError,
    UnsupportedDatabaseError,
)
from hoglab.storage.database.locks import repeat_conflicts
from hoglab.storage.database.prepared import PreparedSelect, among, listed
from hoglab.storage.database.sqlite.log_damage import lost_commits
from hoglab.storage.database.types import from_micros, to_micros

__all__ = [
    "ChangeFeed",
    "Database",
    "DatabaseBusyError",
    "DatabaseConflictError",
    "DatabaseError",
    "DatabaseFullError",
    "DatabaseNotDurableError",
    "DatabaseUnreachableError",
    "DatabaseUnreadableError",
    "NestedWriteError",
    "PreparedSelect",
    "Rebuildable",
    "SchemaTooNewError",
    "SchemaTooOldError",
    "State",
    "Subject",
    "Topic",
    "Transaction",
    "UnsupportedDatabaseError",
    "among",
    "from_micros",
    "listed",
    "lost_commits",
    "repeat_conflicts",
    "state_in",
    "to_micros",
]
