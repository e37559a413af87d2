"""State of an installation that is being moved to another database, or was"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installation", sa.Column("move", sa.Text()))
