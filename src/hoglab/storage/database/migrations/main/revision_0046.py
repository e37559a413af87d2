"""Records of experiments: plans, amendments, alarms and decisions; and when harm was last looked for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import Json, UtcTime

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiment_record",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "experiment_id", sa.Integer, sa.ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("detail", Json, nullable=False),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("user.id")),
        sa.Column("created_at", UtcTime, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_experiment_record_experiment_id", "experiment_record", ["experiment_id"])
    op.add_column("experiment", sa.Column("watched_at", UtcTime))
