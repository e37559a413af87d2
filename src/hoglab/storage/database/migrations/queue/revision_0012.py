"""Call what is parked by ingestion by another name than the dead letters of delivery"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "parked_record",
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("parked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("offset", name=op.f("pk_parked_record")),
    )
    op.execute(
        'INSERT INTO parked_record ("offset", reason, payload, parked_at) '
        'SELECT "offset", reason, payload, parked_at FROM dead_letter'
    )
    op.drop_table("dead_letter")
