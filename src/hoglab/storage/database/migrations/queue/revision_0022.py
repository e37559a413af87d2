"""Keep which batch of a partition of an event log was begun"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("log_lease", sa.Column("begun_last", sa.BigInteger()))
    op.add_column("log_lease", sa.Column("begun_shift", sa.BigInteger()))
