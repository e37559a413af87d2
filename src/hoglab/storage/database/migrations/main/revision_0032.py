"""Remember from which files of tables the points of metrics were computed"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("metric_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("table_state", sa.String(length=64), nullable=True))
