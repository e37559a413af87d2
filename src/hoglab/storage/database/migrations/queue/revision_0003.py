"""Pass over functions inside the index of due invocations, and find old results"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("invocation", schema=None) as batch_op:
        batch_op.drop_index("ix_invocation_due", sqlite_where=sa.text("status = 'available'"))
        batch_op.create_index(
            "ix_invocation_due",
            ["queue", "priority", "scheduled_at", "function_id", "status"],
            unique=False,
            sqlite_where=sa.text("status = 'available'"),
            postgresql_where=sa.text("status = 'available'"),
        )
    with op.batch_alter_table("invocation_result", schema=None) as batch_op:
        batch_op.create_index("ix_invocation_result_version", ["version"], unique=False)
