"""Keep events of the server itself until functions were asked about them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "internal_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(length=200), nullable=False),
        sa.Column("distinct_id", sa.String(length=200), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_internal_event_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_internal_event")),
        sqlite_autoincrement=True,
    )
