"""Hog functions and actions."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
)

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

# Spec hog-functions-api 3.1.
hog_function = Table(
    "hog_function",
    metadata,
    Column("id", String(36), primary_key=True),  # UUIDv7
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("type", String(32)),
    Column("name", String(400)),
    Column("description", Text, nullable=False, server_default=""),
    Column("enabled", Boolean, nullable=False, server_default="0"),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    Column("hog", Text, nullable=False),
    Column("bytecode", Json),
    Column("transpiled", Text),
    Column("inputs_schema", Json, nullable=False),
    Column("inputs", Json, nullable=False),
    Column("encrypted_inputs", LargeBinary),
    Column("filters", Json, nullable=False),
    Column("masking", Json),
    Column("mappings", Json),
    Column("icon_url", Text),
    Column("template_id", String(400)),
    Column("template", Json),  # the template as it was when the function was created
    Column("execution_order", SmallInteger),
    Column("x_tests", Json),  # test cases that are run on every save
    Column("x_delivery", Json),  # how it wants to be delivered, None for as usual
    Column("create_in_folder", Text),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("compiler_version", Integer, nullable=False, server_default="0"),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("ix_hog_function_list", "project_id", "deleted", "type", "enabled"),
)

# What decided how a function behaved, before and after each change; never a secret.
hog_function_revision = Table(
    "hog_function_revision",
    metadata,
    Column("function_id", String(36), ForeignKey("hog_function.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("content", Json, nullable=False),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
)

action = Table(
    "action",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("name", String(400)),
    Column("description", Text, nullable=False, server_default=""),
    Column("steps", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("ix_action_project_deleted", "project_id", "deleted"),
    sqlite_autoincrement=True,
)
