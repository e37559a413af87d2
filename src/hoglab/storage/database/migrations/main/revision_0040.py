"""Sessions of browsers, and the links that open them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hoglab.storage.database.types import UtcTime

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "user_session",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("user.id"), nullable=False),
        sa.Column("key_id", sa.String(36), sa.ForeignKey("personal_api_key.id")),
        sa.Column("secure_value", sa.String(128), nullable=False, unique=True),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("last_seen_at", UtcTime, nullable=False),
        sa.Column("user_agent", sa.Text, nullable=False),
        sa.Column("ip", sa.String(64), nullable=False),
    )
    op.create_index("ix_user_session_user_id", "user_session", ["user_id"])
    op.create_index("ix_user_session_key_id", "user_session", ["key_id"])
    op.create_table(
        "login_link",
        sa.Column("secure_value", sa.String(128), primary_key=True),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("user.id"), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.Column("used_at", UtcTime),
    )
