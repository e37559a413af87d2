"""Remember which persons are to be erased until that is done everywhere"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import Json, UtcTime

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "person_erasure",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("project_id", sa.Integer, sa.ForeignKey("project.id"), nullable=False),
        sa.Column("person_id", sa.String(36), nullable=False),
        sa.Column("former_ids", Json, nullable=False),
        sa.Column("distinct_ids", Json, nullable=False),
        sa.Column("delete_events", sa.Boolean, nullable=False),
        sa.Column("log_offset", sa.BigInteger, nullable=False),
        sa.Column("requested_at", UtcTime, nullable=False),
        sa.Column("finished_at", UtcTime),
        sqlite_autoincrement=True,
    )
