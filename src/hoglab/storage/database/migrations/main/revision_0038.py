"""Remember computations that did not end, so that they do not take the server down again after each restart"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import UtcTime

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_attempt",
        sa.Column(
            "experiment_id", sa.Integer, sa.ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("metric_uuid", sa.String(64), primary_key=True),
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("retry_at", UtcTime, nullable=False),
        sa.Column("begun_by", sa.String(36)),
        sa.Column("stopped", sa.Boolean, nullable=False),
    )
