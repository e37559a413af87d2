"""Keep who reads the partitions of an event log that has several"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_lease",
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=36), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("partition", name=op.f("pk_log_lease")),
    )
