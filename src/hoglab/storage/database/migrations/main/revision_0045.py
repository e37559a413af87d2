"""Log-ins that are not ingested yet, which every process that answers requests for flags must know"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import UtcTime

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "flag_log_in",
        sa.Column("project_id", sa.Integer, sa.ForeignKey("project.id"), primary_key=True),
        sa.Column("distinct_id", sa.String(400), primary_key=True),
        sa.Column("anonymous_id", sa.String(400), nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
    )
    op.create_index("ix_flag_log_in_expiry", "flag_log_in", ["expires_at"])
