"""Keep invocations that wait for an earlier one of their key apart from those that may be taken"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        return  # no database there is that old
    op.execute(
        "UPDATE invocation SET status = 'held' WHERE status = 'available' AND order_key IS NOT NULL AND EXISTS ("
        "SELECT 1 FROM invocation AS earlier WHERE earlier.function_id = invocation.function_id "
        "AND earlier.order_key = invocation.order_key AND earlier.finished_at IS NULL "
        "AND earlier.rowid < invocation.rowid)"
    )
