"""Jobs that a process is at, or that did not end well; and queries that are answered later."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

job = Table(
    "job",
    metadata,
    Column("kind", String(32), primary_key=True),
    Column("subject", String(255), primary_key=True),  # what it is about
    Column("tries", Integer, nullable=False),  # since it ended well; the one at work among them
    Column("token", String(36), unique=True),  # of the lease; null when nobody has it
    Column("leased_until", BigInteger, nullable=False),  # by the clock of the database, in microseconds
    Column("retry_at", UtcTime),  # after a try that did not end well
    Column("error", Text),  # of that, in one line
)

query_status = Table(
    "query_status",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("id", String(200), primary_key=True),
    Column("key", String(64), nullable=False),  # equal for queries that ask the same
    Column("query", Json),  # as it was sent; null when a request waits for it and computes it
    Column("started_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("answer", Text),  # JSON
    Column("error", Text),
    Column("cancelled", Boolean, nullable=False, server_default="0"),
    Index("ix_query_status_started", "started_at"),
)
