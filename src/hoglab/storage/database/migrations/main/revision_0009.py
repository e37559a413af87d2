"""Keep distinct ids inside the index that looks them up"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # how SQLite alone lays out a table
    # Made under its own name, not renamed at the end: SQLite keeps the text that it was made with.
    op.drop_index("ix_person_distinct_id_person_id", "person_distinct_id")
    op.rename_table("person_distinct_id", "person_distinct_id_before")
    op.create_table(
        "person_distinct_id",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("distinct_id", sa.String(length=400), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_person_distinct_id_person_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_person_distinct_id_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "distinct_id", name=op.f("pk_person_distinct_id")),
        sqlite_with_rowid=False,
    )
    columns = "project_id, distinct_id, person_id, version"
    op.execute(
        f"INSERT INTO person_distinct_id ({columns}) SELECT {columns} FROM person_distinct_id_before "  # noqa: S608
        "ORDER BY project_id, distinct_id"
    )
    op.drop_table("person_distinct_id_before")
    op.create_index("ix_person_distinct_id_person_id", "person_distinct_id", ["person_id"])
