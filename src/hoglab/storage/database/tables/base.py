"""The two schemas: metadata (``hoglab.db``) and queues (``queue.db``)."""

from __future__ import annotations

from sqlalchemy import MetaData

# Names that do not depend on the engine, so that migrations can refer to them.
_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

CHECKPOINT_PAGES = 8_192
"""Pages of the metadata's write-ahead log (32 MiB) at which it is worked into the file. A batch of events
touches pages of indexes all over, and the next batch mostly the same: they are copied once for several batches."""

# ``migrations`` names the folder in storage/database/migrations that builds the schema. ``sqlite_file`` are
# settings that a SQLite file has from its birth: the queues hold large rows that come and go, so their file
# has larger pages and can give space back. ``sqlite_connection`` are settings of each connection to it.
# ``postgresql``: see `PostgresConnections`.
metadata = MetaData(
    naming_convention=_NAMING,
    info={
        "migrations": "main",
        "sqlite_file": {"auto_vacuum": "INCREMENTAL"},
        "sqlite_connection": {"wal_autocheckpoint": CHECKPOINT_PAGES},
        "postgresql": {"schema": "hoglab", "lock": 1},
    },
)
queue_metadata = MetaData(
    naming_convention=_NAMING,
    info={
        "migrations": "queue",
        "sqlite_file": {"page_size": 8192, "auto_vacuum": "INCREMENTAL"},
        "postgresql": {"schema": "hoglab_queue", "lock": 2},
    },
)
