"""Serve functions in turn, and invocations with an order key one after the other"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_OPEN_IN_ORDER = "order_key IS NOT NULL AND finished_at IS NULL"


def upgrade() -> None:
    with op.batch_alter_table("invocation", schema=None) as batch_op:
        batch_op.add_column(sa.Column("order_key", sa.String(length=400), nullable=True))
        batch_op.drop_index("ix_invocation_due", sqlite_where=sa.text("status = 'available'"))
        batch_op.create_index(
            "ix_invocation_due",
            ["queue", "priority", "project_id", "function_id", "scheduled_at", "status"],
            unique=False,
            sqlite_where=sa.text("status = 'available'"),
            postgresql_where=sa.text("status = 'available'"),
        )
        batch_op.create_index(
            "ix_invocation_order",
            ["function_id", "order_key"],
            unique=False,
            sqlite_where=sa.text(_OPEN_IN_ORDER),
            postgresql_where=sa.text(_OPEN_IN_ORDER),
        )
