"""The embedded engines by what they are for, for benchmarks and for tests of other rooms that want one of them alone.

What they promise is tested in `tests/storage`, with the engine as a parameter where there are several.
"""

from hoglab.storage.event_log.sqlite import SqliteEventLog as EmbeddedEventLog
from hoglab.storage.event_store.dialects.duckdb import DuckDb as EmbeddedDialect
from hoglab.storage.event_store.duckdb import DuckDbEventStore as EmbeddedEventStore
from hoglab.storage.event_store.duckdb_file import DuckDbReader as EmbeddedReader
from hoglab.storage.invocations.sqlite import SqliteQueueTables as EmbeddedQueueTables

__all__ = [
    "EmbeddedDialect",
    "EmbeddedEventLog",
    "EmbeddedEventStore",
    "EmbeddedQueueTables",
    "EmbeddedReader",
]
