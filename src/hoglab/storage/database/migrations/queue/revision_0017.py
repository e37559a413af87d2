"""Know whose records are in the event log, and let those of a flood wait beside it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("event_log_record", sa.Column("owner", sa.Integer(), nullable=True))
    op.create_table(
        "deferred_record",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Integer(), nullable=False),
        sa.Column("appended_at", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deferred_record")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deferred_record_owner", "deferred_record", ["owner", "id"])
