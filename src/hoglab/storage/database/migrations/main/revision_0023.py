"""Remember tables beside the events"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "warehouse_table",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("url_pattern", sa.String(length=500), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by_id"], ["user.id"], name=op.f("fk_warehouse_table_created_by_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_warehouse_table_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_warehouse_table")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_warehouse_table_project_id_name")),
    )
