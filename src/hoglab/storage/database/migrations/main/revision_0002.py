"""Keep merges of persons and warnings of ingestion"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ingestion_warning",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("event_uuid", sa.String(length=36), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_ingestion_warning_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ingestion_warning")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("ingestion_warning", schema=None) as batch_op:
        batch_op.create_index("ix_ingestion_warning_time", ["project_id", "timestamp"], unique=False)
        batch_op.create_index("uq_ingestion_warning_event", ["project_id", "type", "event_uuid"], unique=True)

    op.create_table(
        "person_override",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("old_person_id", sa.String(length=36), nullable=False),
        sa.Column("person_id", sa.String(length=36), nullable=False),
        sa.Column("log_offset", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_person_override_project_id")),
        sa.PrimaryKeyConstraint("project_id", "old_person_id", name=op.f("pk_person_override")),
    )
    with op.batch_alter_table("person_override", schema=None) as batch_op:
        batch_op.create_index("ix_person_override_offset", ["log_offset"], unique=False)
        batch_op.create_index("ix_person_override_person", ["project_id", "person_id"], unique=False)
