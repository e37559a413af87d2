"""Let functions say how they want to be delivered"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("hog_function", schema=None) as batch_op:
        batch_op.add_column(sa.Column("x_delivery", sa.Text(), nullable=True))
