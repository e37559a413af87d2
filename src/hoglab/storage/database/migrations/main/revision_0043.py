"""Leases and tries of jobs of every kind in one table, and queries that are answered later"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import UtcTime

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Tries that did not end are forgotten: each computation is tried once by the new version.
    op.drop_table("metric_attempt")
    op.create_table(
        "job",
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("subject", sa.String(255), primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("token", sa.String(36), unique=True),
        sa.Column("leased_until", sa.BigInteger, nullable=False),
        sa.Column("retry_at", UtcTime),
        sa.Column("error", sa.Text),
    )
    op.create_table(
        "query_status",
        sa.Column("project_id", sa.Integer, sa.ForeignKey("project.id"), primary_key=True),
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("query", sa.Text),
        sa.Column("started_at", UtcTime, nullable=False),
        sa.Column("ended_at", UtcTime),
        sa.Column("answer", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("cancelled", sa.Boolean, nullable=False, server_default="0"),
    )
    op.create_index("ix_query_status_started", "query_status", ["started_at"])
