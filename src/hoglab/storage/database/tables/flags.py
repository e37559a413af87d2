"""Feature flags and the stored bucketing ids of experience continuity."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

feature_flag = Table(
    "feature_flag",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("key", String(500), nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("filters", Json, nullable=False),
    Column("active", Boolean, nullable=False, server_default="1"),
    Column("archived", Boolean, nullable=False, server_default="0"),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("ensure_experience_continuity", Boolean),
    Column("is_remote_configuration", Boolean),
    Column("has_encrypted_payloads", Boolean),
    Column("evaluation_runtime", String(16)),  # all, client, server
    Column("bucketing_identifier", String(16)),  # null, distinct_id, device_id
    Column("tags", Json, nullable=False),
    Column("evaluation_contexts", Json, nullable=False),
    Column("creation_context", String(64)),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("last_modified_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("last_called_at", UtcTime),
    Index("uq_feature_flag_project_key", "project_id", "key", unique=True),
    Index("ix_feature_flag_list", "project_id", "deleted", "archived", "created_at"),
    sqlite_autoincrement=True,
)

flag_hash_key_override = Table(
    "flag_hash_key_override",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("person_id", Integer, ForeignKey("person.id", ondelete="CASCADE"), primary_key=True),
    Column("feature_flag_key", String(500), primary_key=True),
    Column("hash_key", String(400), nullable=False),
)

flag_log_in = Table(
    "flag_log_in",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("distinct_id", String(400), primary_key=True),
    Column("anonymous_id", String(400), nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Index("ix_flag_log_in_expiry", "expires_at"),
)
"""Log-ins that a request for flags named before they were ingested, where several processes answer such requests."""
