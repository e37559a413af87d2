"""Persons, the distinct ids that name them, groups and cohorts."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

person = Table(
    "person",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("properties", Json, nullable=False),
    Column("is_identified", Boolean, nullable=False, server_default="0"),
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column("created_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime),
    UniqueConstraint("project_id", "uuid"),
    Index("ix_person_project_created", "project_id", "created_at"),
    sqlite_autoincrement=True,
)

person_distinct_id = Table(
    "person_distinct_id",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("distinct_id", String(400), primary_key=True),
    Column("person_id", Integer, ForeignKey("person.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("version", BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,  # looked up by its key for every event: one tree to search, not two
)

group_type = Table(
    "group_type",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("group_type_index", Integer, primary_key=True),  # 0..4 in order of first appearance
    Column("group_type", String(400), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    UniqueConstraint("project_id", "group_type"),
)

group = Table(
    "group",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("group_type_index", Integer, primary_key=True),
    Column("group_key", String(400), primary_key=True),
    Column("properties", Json, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column("created_at", UtcTime, nullable=False),
)

cohort = Table(
    "cohort",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("name", Text),
    Column("description", Text, nullable=False, server_default=""),
    Column("filters", Json),  # {"properties": {"type": "AND"|"OR", "values": […]}}
    Column("query", Json),
    Column("groups", Json, nullable=False),
    Column("is_static", Boolean, nullable=False, server_default="0"),
    Column("is_calculating", Boolean, nullable=False, server_default="0"),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    Column("count", Integer),
    Column("version", Integer),
    Column("pending_version", Integer),
    Column("errors_calculating", Integer, nullable=False, server_default="0"),
    Column("last_error_message", Text),
    Column("last_calculation", UtcTime),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Index("ix_cohort_project_deleted", "project_id", "deleted"),
    sqlite_autoincrement=True,
)

cohort_person = Table(
    "cohort_person",
    metadata,
    Column("cohort_id", Integer, ForeignKey("cohort.id", ondelete="CASCADE"), primary_key=True),
    Column("person_id", Integer, ForeignKey("person.id", ondelete="CASCADE"), primary_key=True, index=True),
)

# Somebody who was deleted, until that is done in every file; afterwards a note without any of their distinct ids.
person_erasure = Table(
    "person_erasure",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("person_id", String(36), nullable=False),
    Column("former_ids", Json, nullable=False),  # of persons who were merged into this one
    Column("distinct_ids", Json, nullable=False),
    Column("delete_events", Boolean, nullable=False),
    Column("log_offset", BigInteger, nullable=False),  # what came in later is of somebody new
    Column("requested_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    sqlite_autoincrement=True,
)
