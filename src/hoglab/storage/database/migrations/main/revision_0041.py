"""Owner and age of a request with an idempotency key"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("idempotency_key", sa.Column("owner", sa.String(36)))
    op.add_column("idempotency_key", sa.Column("leased_until", sa.BigInteger))
