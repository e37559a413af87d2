"""Keep versions and test cases of functions"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hog_function_revision",
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by_id"], ["user.id"], name=op.f("fk_hog_function_revision_created_by_id")
        ),
        sa.ForeignKeyConstraint(
            ["function_id"],
            ["hog_function.id"],
            name=op.f("fk_hog_function_revision_function_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("function_id", "version", name=op.f("pk_hog_function_revision")),
    )
    with op.batch_alter_table("hog_function", schema=None) as batch_op:
        batch_op.add_column(sa.Column("x_tests", sa.Text(), nullable=True))
