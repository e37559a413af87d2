"""Tables of ingestion beside events and persons: merges, warnings, and records it could not read."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)

from hoglab.storage.database.tables.base import metadata, queue_metadata
from hoglab.storage.database.types import Json, UtcTime

# Events stored under the old id belong to the person with the new one (spec: sdk-wire 1.13). Written in
# the transaction of the merge; the event store gets its own copy with the events of the same batch.
person_override = Table(
    "person_override",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("old_person_id", String(36), primary_key=True),
    Column("person_id", String(36), nullable=False),
    Column("log_offset", BigInteger, nullable=False),  # of the event log record that caused it
    Index("ix_person_override_person", "project_id", "person_id"),
    Index("ix_person_override_offset", "log_offset"),
)

# How far a stage of ingestion came in the event log, written in the stage's own transaction.
ingestion_progress = Table(
    "ingestion_progress",
    metadata,
    Column("stage", String(32), primary_key=True),  # people
    Column("log_offset", BigInteger, nullable=False),
)

ingestion_warning = Table(
    "ingestion_warning",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("type", String(64), nullable=False),
    Column("event_uuid", String(36), nullable=False),
    Column("details", Json, nullable=False),
    Column("timestamp", UtcTime, nullable=False),
    # A batch that is processed again after a crash warns once.
    Index("uq_ingestion_warning_event", "project_id", "type", "event_uuid", unique=True),
    Index("ix_ingestion_warning_time", "project_id", "timestamp"),
    sqlite_autoincrement=True,
)

quarantined_record = Table(
    "quarantined_record",
    queue_metadata,
    Column("offset", BigInteger, primary_key=True, autoincrement=False),  # where it was in the event log
    Column("project_id", Integer),  # NULL when it could not be read
    Column("reason", Text, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes of the payload
    Column("quarantined_at", UtcTime, nullable=False),
    Column("is_replaying", Boolean, nullable=False),
    Column("payload", LargeBinary, nullable=False),  # last, so that what is listed is read without it
    Index("ix_quarantined_record_project", "project_id", "offset"),
    Index(
        "ix_quarantined_record_replaying",
        "offset",
        sqlite_where=text("is_replaying"),
        postgresql_where=text("is_replaying"),
    ),
)
