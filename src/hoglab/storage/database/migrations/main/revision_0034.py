"""Remember which events the points of metrics were computed from"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("metric_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("event_seq", sa.BigInteger(), nullable=True))
