"""Remember up to where the points of metrics count events and merges, and that a day's newest try failed

Points knew their newest event, which says nothing of merged persons: all points are computed again once.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("metric_result", "event_seq")
    op.add_column("metric_result", sa.Column("log_offset", sa.BigInteger(), nullable=True))
    op.add_column("metric_result", sa.Column("failed_at", sa.BigInteger(), nullable=True))
