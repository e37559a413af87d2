"""Share the paces of functions between processes, and which of their destinations are away"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "function_pace",
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("tokens", sa.Float(), nullable=False),
        sa.Column("filled_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("function_id", name=op.f("pk_function_pace")),
    )
    op.create_table(
        "destination_outage",
        sa.Column("process", sa.String(length=36), nullable=False),
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("process", "function_id", name=op.f("pk_destination_outage")),
    )
