"""Run past invocations again in the background"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("backfill", sa.Column("selection", sa.Text(), nullable=True))
