"""Organizations, projects, users, personal API keys, sessions of browsers and the links that open them."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Integer, String, Table, Text

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

organization = Table(
    "organization",
    metadata,
    Column("id", String(36), primary_key=True),  # UUID
    Column("name", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

project = Table(
    "project",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("organization_id", String(36), ForeignKey("organization.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("api_token", String(64), nullable=False, unique=True),  # public token, phc_…
    Column("timezone", String(64), nullable=False, server_default="UTC"),
    Column("test_account_filters", Json, nullable=False),  # list of property filters
    Column("person_display_name_properties", Json),  # list of property names, null = default list
    Column("anonymize_ips", Boolean, nullable=False, server_default="0"),
    # Defaults of spec experiment-results 4.1 (default_experiment_stats_method, …) by those names.
    Column("experiment_defaults", Json, nullable=False),
    Column("settings", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

user = Table(
    "user",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("distinct_id", String(200), nullable=False, unique=True),
    Column("email", Text, nullable=False, unique=True),
    Column("first_name", Text, nullable=False, server_default=""),
    Column("last_name", Text, nullable=False, server_default=""),
    Column("is_email_verified", Boolean),
    Column("hedgehog_config", Json),
    Column("role_at_organization", String(64)),
    Column("is_active", Boolean, nullable=False, server_default="1"),
    Column("current_project_id", Integer, ForeignKey("project.id")),
    Column("created_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

membership = Table(
    "membership",
    metadata,
    Column("organization_id", String(36), ForeignKey("organization.id"), primary_key=True),
    Column("user_id", Integer, ForeignKey("user.id"), primary_key=True),
    Column("level", Integer, nullable=False),  # 1 member, 8 admin, 15 owner
    Column("joined_at", UtcTime, nullable=False),
)

personal_api_key = Table(
    "personal_api_key",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("user_id", Integer, ForeignKey("user.id"), nullable=False, index=True),
    Column("label", Text, nullable=False),
    Column("secure_value", String(128), nullable=False, unique=True),  # "sha256$" + hex digest of the key
    Column("mask_value", String(16), nullable=False),  # phx_...abcd, for people to recognise the key
    Column("scopes", Json, nullable=False),  # ["experiment:read", …] or ["*"]
    Column("scoped_projects", Json),  # list of project ids, null = all
    Column("scoped_organizations", Json),  # list of organization ids, null = all
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("last_used_at", UtcTime),
    Column("last_rolled_at", UtcTime),
)

user_session = Table(
    "user_session",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("user_id", Integer, ForeignKey("user.id"), nullable=False, index=True),
    # The key that it was made from, whose scopes and limits it has; null: it may do what the user may.
    Column("key_id", String(36), ForeignKey("personal_api_key.id"), index=True),
    Column("secure_value", String(128), nullable=False, unique=True),  # "sha256$" + hex digest of the cookie
    Column("created_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("user_agent", Text, nullable=False),
    Column("ip", String(64), nullable=False),
)

login_link = Table(
    "login_link",
    metadata,
    Column("secure_value", String(128), primary_key=True),  # "sha256$" + hex digest of what the link carries
    Column("user_id", Integer, ForeignKey("user.id"), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("used_at", UtcTime),
)
