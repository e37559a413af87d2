"""Tables of the activity log, and counters that tell caches that something changed."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

activity_log = Table(
    "activity_log",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("user_id", Integer, ForeignKey("user.id")),
    Column("activity", String(64), nullable=False),  # created, updated, deleted, restored, …
    Column("scope", String(64), nullable=False),  # Experiment, FeatureFlag, HogFunction, …
    Column("item_id", String(64), nullable=False),
    Column("detail", Json, nullable=False),
    Column("is_system", Boolean, nullable=False, server_default="0"),
    Column("created_at", UtcTime, nullable=False),
    Index("ix_activity_log_item", "project_id", "scope", "item_id", "created_at"),
    Index("ix_activity_log_project_created", "project_id", "created_at"),
)

# Events of the server itself that functions have not been asked about yet; ids are never used again.
internal_event = Table(
    "internal_event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("uuid", String(36), nullable=False),
    Column("event", String(200), nullable=False),
    Column("distinct_id", String(200), nullable=False),
    Column("properties", Json, nullable=False),
    Column("person", Json),
    Column("created_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

change_version = Table(
    "change_version",
    metadata,
    Column("topic", String(32), primary_key=True),  # flags, functions, project, people, …
    Column("project_id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("note", Text),
)
