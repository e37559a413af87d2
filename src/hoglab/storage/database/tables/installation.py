"""Installation that a file belongs to, the same in all of a data directory (see `hoglab.storage.identity`)."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text

from hoglab.storage.database.tables.base import metadata, queue_metadata
from hoglab.storage.database.types import Json, UtcTime


def _identity(of: MetaData, *further: Column[object]) -> Table:
    return Table(
        "installation",
        of,
        Column("id", Integer, primary_key=True),  # there is one row
        Column("installation_id", String(36), nullable=False),
        Column("generation", Integer, nullable=False),  # one more after each restore, and move of events
        Column("starts", Integer, nullable=False),  # of a server; equal in all files
        *further,
    )


installation = _identity(
    metadata,
    Column("sealed_check", Text),  # a text that the right secret keys can read; NULL: not written yet
    # {"step": "leaving" | "left" | "arriving", "other": where it goes or comes from}; NULL: it is at home here
    Column("move", Json),
)

queue_installation = _identity(
    queue_metadata,
    # What of ``hoglab.db`` was there for certain: the sum of its change versions.
    Column("seen_changes", BigInteger, nullable=False),
    Column("held_at", UtcTime),  # since when deliveries are held, after a restore; NULL: they are not
)
