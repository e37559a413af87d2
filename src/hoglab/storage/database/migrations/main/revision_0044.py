"""Phases of experiments: the shares of people by variant from the launch on"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import Json

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What a flag asked for before is not known: the first change of its shares writes those before it down.
    op.add_column("experiment", sa.Column("phases", Json))
