"""Tables beside the events."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, String, Table, UniqueConstraint

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

# Spec experiment-results 1.6, 3.7.
warehouse_table = Table(
    "warehouse_table",
    metadata,
    Column("id", String(36), primary_key=True),  # UUIDv7
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("name", String(128), nullable=False),
    Column("format", String(32), nullable=False),
    Column("url_pattern", String(500), nullable=False),
    Column("columns", Json, nullable=False),  # [name, type] of each, in the order of the files
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("project_id", "name"),
)
