"""Keep what cannot be ingested in a quarantine that is never emptied by itself, and know the installation"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quarantined_record",
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("quarantined_at", sa.BigInteger(), nullable=False),
        sa.Column("is_replaying", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("offset", name=op.f("pk_quarantined_record")),
    )
    op.create_index("ix_quarantined_record_project", "quarantined_record", ["project_id", "offset"])
    op.create_index(
        "ix_quarantined_record_replaying",
        "quarantined_record",
        ["offset"],
        sqlite_where=sa.text("is_replaying"),
        postgresql_where=sa.text("is_replaying"),
    )
    op.execute(
        'INSERT INTO quarantined_record ("offset", reason, size, quarantined_at, is_replaying, payload) '
        'SELECT "offset", reason, length(payload), parked_at, false, payload FROM parked_record'
    )
    op.drop_table("parked_record")
    op.create_table(
        "installation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("installation_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("seen_changes", sa.BigInteger(), nullable=False),
        sa.Column("held_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
