"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "app_metric",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("app_source", sa.String(length=32), nullable=False),
        sa.Column("app_source_id", sa.String(length=36), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("metric_kind", sa.String(length=16), nullable=False),
        sa.Column("metric_name", sa.String(length=64), nullable=False),
        sa.Column("instance_id", sa.String(length=36), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project_id",
            "app_source",
            "app_source_id",
            "hour",
            "metric_kind",
            "metric_name",
            "instance_id",
            name=op.f("pk_app_metric"),
        ),
    )
    with op.batch_alter_table("app_metric", schema=None) as batch_op:
        batch_op.create_index("ix_app_metric_hour", ["hour"], unique=False)

    op.create_table(
        "consumer_position",
        sa.Column("consumer", sa.String(length=64), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer", name=op.f("pk_consumer_position")),
    )
    op.create_table(
        "event_log_record",
        sa.Column("offset", sa.Integer(), nullable=False),
        sa.Column("appended_at", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("offset", name=op.f("pk_event_log_record")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "invocation",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("parent_run_id", sa.String(length=36), nullable=True),
        sa.Column("queue", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("scheduled_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("lock_token", sa.String(length=36), nullable=True),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=True),
        sa.Column("reset_count", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("log_offset", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invocation")),
    )
    with op.batch_alter_table("invocation", schema=None) as batch_op:
        batch_op.create_index(
            "ix_invocation_due",
            ["queue", "priority", "scheduled_at"],
            unique=False,
            sqlite_where=sa.text("status = 'available'"),
            postgresql_where=sa.text("status = 'available'"),
        )
        batch_op.create_index(
            "ix_invocation_finished",
            ["finished_at"],
            unique=False,
            sqlite_where=sa.text("finished_at IS NOT NULL"),
            postgresql_where=sa.text("finished_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_invocation_heartbeat",
            ["heartbeat_at"],
            unique=False,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )

    op.create_table(
        "invocation_result",
        sa.Column("invocation_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("parent_run_id", sa.String(length=36), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("is_retry", sa.Boolean(), nullable=False),
        sa.Column("scheduled_at", sa.BigInteger(), nullable=True),
        sa.Column("first_scheduled_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("error_kind", sa.String(length=32), server_default="", nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("event_uuid", sa.String(length=36), nullable=True),
        sa.Column("distinct_id", sa.String(length=400), nullable=True),
        sa.Column("person_id", sa.String(length=36), nullable=True),
        sa.Column("invocation_globals", sa.LargeBinary(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("invocation_id", name=op.f("pk_invocation_result")),
    )
    with op.batch_alter_table("invocation_result", schema=None) as batch_op:
        batch_op.create_index(
            "ix_invocation_result_function", ["project_id", "function_id", "scheduled_at"], unique=False
        )

    op.create_table(
        "log_entry",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("log_source", sa.String(length=32), nullable=False),
        sa.Column("log_source_id", sa.String(length=36), nullable=False),
        sa.Column("instance_id", sa.String(length=36), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.String(length=8), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_entry")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("log_entry", schema=None) as batch_op:
        batch_op.create_index("ix_log_entry_source", ["log_source_id", "timestamp"], unique=False)
        batch_op.create_index("ix_log_entry_timestamp", ["timestamp"], unique=False)

    op.create_table(
        "masking_counter",
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("hash", sa.String(length=32), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("function_id", "hash", name=op.f("pk_masking_counter")),
    )
    with op.batch_alter_table("masking_counter", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_masking_counter_expires_at"), ["expires_at"], unique=False)

    op.create_table(
        "watcher_state",
        sa.Column("function_id", sa.String(length=36), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("tokens_at", sa.BigInteger(), nullable=False),
        sa.Column("locked_until", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("function_id", name=op.f("pk_watcher_state")),
    )
