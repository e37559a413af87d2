"""Remember with which actions and cohorts the points of metrics were computed

Until now only the files of tables were remembered. Points of metrics that name any are computed again once.
"""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE metric_result RENAME COLUMN table_state TO named_state")
