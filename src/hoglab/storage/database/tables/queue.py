"""The event log, the invocation queue and what running functions leave behind (``queue.db``)."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

from hoglab.storage.database.tables.base import queue_metadata
from hoglab.storage.database.types import Json, UtcTime

_Number = BigInteger().with_variant(Integer, "sqlite")
"""Counts up for ever; SQLite's integers are as large, and its keys that count up have to be called so."""

event_log_record = Table(
    "event_log_record",
    queue_metadata,
    Column("offset", _Number, primary_key=True),  # never reused (autoincrement)
    Column("appended_at", UtcTime, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("owner", Integer),  # the project that sent it
    sqlite_autoincrement=True,
)

# The end of the event log where several processes append to it: who does, holds the lock of its one row.
event_log_head = Table(
    "event_log_head",
    queue_metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last_offset", BigInteger, nullable=False),
    Column("deferrals", BigInteger, nullable=False),  # how often `deferred_record` was changed
)

# Accepted records that wait for room in the log: see `hoglab.storage.event_log.deferral`.
deferred_record = Table(
    "deferred_record",
    queue_metadata,
    Column("id", _Number, primary_key=True),
    Column("owner", Integer, nullable=False),
    Column("appended_at", UtcTime, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Index("ix_deferred_record_owner", "owner", "id"),
    sqlite_autoincrement=True,
)

consumer_position = Table(
    "consumer_position",
    queue_metadata,
    Column("consumer", String(64), primary_key=True),
    Column("offset", BigInteger, nullable=False),  # everything up to and including it is done
    Column("updated_at", UtcTime, nullable=False),
)

# Who reads a partition of an event log that has several, until when, and up to where it is done. Each change of the
# owner raises the epoch: who was paused and comes back finds another one, and writes nothing. A batch that was begun
# goes up to `begun_last`; numbers of records, counted in `event_log_head` for all partitions, are offsets and
# `begun_shift`.
log_lease = Table(
    "log_lease",
    queue_metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("owner", String(36)),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("begun_last", BigInteger),
    Column("begun_shift", BigInteger),
)

# The processes that read partitions: each gets its share of them.
log_reader = Table(
    "log_reader",
    queue_metadata,
    Column("id", String(36), primary_key=True),
    Column("expires_at", UtcTime, nullable=False),
)

# The processes that work on one queue. Who does not renew its row for long is dead, and others take over what it ran.
queue_worker = Table(
    "queue_worker",
    queue_metadata,
    Column("id", String(18), primary_key=True),  # the lock tokens of its invocations begin so
    Column("heartbeat_at", UtcTime, nullable=False),
)

# Spec hog-runtime 4.6 and 4.9.
invocation = Table(
    "invocation",
    queue_metadata,
    Column("id", String(36), primary_key=True),
    Column("project_id", Integer, nullable=False),
    Column("function_id", String(36), nullable=False),
    Column("parent_run_id", String(36)),
    Column("queue", String(16), nullable=False),  # hog, hogoverflow, email
    Column("priority", SmallInteger, nullable=False),  # low first
    Column("scheduled_at", UtcTime, nullable=False),
    Column("status", String(16), nullable=False),  # available, held, running, completed, failed, cancelled
    Column("lock_token", String(36)),
    Column("heartbeat_at", UtcTime),
    Column("reset_count", SmallInteger, nullable=False, server_default="0"),
    Column("log_offset", BigInteger),  # the event log record that caused it
    Column("state", LargeBinary, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("order_key", String(400)),
    # In the order of enqueueing. SQLite has it by itself, PostgreSQL by a revision; so it is in no CREATE TABLE.
    Column("rowid", BigInteger, system=True),
    Index(
        "ix_invocation_due",
        # Each function's due invocations stand together, so that one can be served after the other.
        "queue",
        "priority",
        "project_id",
        "function_id",
        "scheduled_at",
        "status",
        sqlite_where=text("status = 'available'"),
        postgresql_where=text("status = 'available'"),
    ),
    Index(
        "ix_invocation_order",
        "function_id",
        "order_key",
        sqlite_where=text("order_key IS NOT NULL AND finished_at IS NULL"),
        postgresql_where=text("order_key IS NOT NULL AND finished_at IS NULL"),
    ),
    Index(
        "ix_invocation_heartbeat",
        "heartbeat_at",
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
    Index(
        "ix_invocation_finished",
        "finished_at",
        sqlite_where=text("finished_at IS NOT NULL"),
        postgresql_where=text("finished_at IS NOT NULL"),
    ),
)

# Spec hog-runtime 4.10.
invocation_result = Table(
    "invocation_result",
    queue_metadata,
    Column("invocation_id", String(36), primary_key=True),
    Column("project_id", Integer, nullable=False),
    Column("function_id", String(36), nullable=False),
    Column("parent_run_id", String(36)),
    Column("status", String(16), nullable=False),  # running, succeeded, failed, cancelled
    Column("attempts", Integer, nullable=False),
    Column("is_retry", Boolean, nullable=False),
    Column("scheduled_at", UtcTime),
    Column("first_scheduled_at", UtcTime),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("duration_ms", Integer),
    Column("error_kind", String(32), nullable=False, server_default=""),
    Column("error_message", Text),
    Column("event_uuid", String(36)),
    Column("distinct_id", String(400)),
    Column("person_id", String(36)),
    Column("invocation_globals", LargeBinary),
    Column("version", BigInteger, nullable=False),
    Index("ix_invocation_result_function", "project_id", "function_id", "scheduled_at"),
    Index("ix_invocation_result_version", "version"),
)

log_entry = Table(
    "log_entry",
    queue_metadata,
    Column("id", _Number, primary_key=True),
    Column("project_id", Integer, nullable=False),
    Column("log_source", String(32), nullable=False),  # hog_function
    Column("log_source_id", String(36), nullable=False),
    Column("instance_id", String(36), nullable=False),
    Column("timestamp", UtcTime, nullable=False),
    Column("level", String(8), nullable=False),  # debug, info, warn, error
    Column("message", Text, nullable=False),
    Index("ix_log_entry_source", "log_source_id", "timestamp"),
    Index("ix_log_entry_timestamp", "timestamp"),
    sqlite_autoincrement=True,
)

app_metric = Table(
    "app_metric",
    queue_metadata,
    Column("project_id", Integer, primary_key=True),
    Column("app_source", String(32), primary_key=True),
    Column("app_source_id", String(36), primary_key=True),
    Column("hour", UtcTime, primary_key=True),
    Column("metric_kind", String(16), primary_key=True),
    Column("metric_name", String(64), primary_key=True),
    Column("instance_id", String(36), primary_key=True),  # "" when not tied to one
    Column("count", BigInteger, nullable=False),
    Index("ix_app_metric_hour", "hour"),
)

# Spec hog-runtime 5: fixed windows per (function, hash).
masking_counter = Table(
    "masking_counter",
    queue_metadata,
    Column("function_id", String(36), primary_key=True),
    Column("hash", String(32), primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("expires_at", UtcTime, nullable=False, index=True),
)

# Events that did not become invocations, and why (spec hog-runtime 4.10).
dead_event = Table(
    "dead_event",
    queue_metadata,
    Column("id", String(36), primary_key=True),
    Column("project_id", Integer, nullable=False),
    Column("function_id", String(36), nullable=False, server_default=""),  # "": no function was asked yet
    Column("source", String(16), nullable=False),  # events, internal
    Column("step", String(16), nullable=False),  # parse, filter, order, process
    Column("reason", Text, nullable=False),
    Column("event_uuid", String(36), nullable=False),
    Column("event", Text, nullable=False),
    Column("distinct_id", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="1"),
    Column("first_failed_at", UtcTime, nullable=False),
    Column("failed_at", UtcTime, nullable=False),
    Index("ix_dead_event_function", "project_id", "function_id", "failed_at"),
    Index("ix_dead_event_failed", "failed_at"),
)

# What of the past a function is run on: stored events, with a `selection` results that are run again. `cursor`, a
# place in the order of ingestion or a time in microseconds, moves with what is enqueued.
backfill = Table(
    "backfill",
    queue_metadata,
    Column("id", String(36), primary_key=True),
    Column("project_id", Integer, nullable=False),
    Column("function_id", String(36), nullable=False),
    Column("status", String(16), nullable=False),  # running, completed, cancelled, failed
    Column("dry_run", Boolean, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("until", UtcTime, nullable=False),
    Column("max_events", Integer),
    Column("selection", Json),
    Column("cursor", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False, server_default="0"),
    Column("queued", BigInteger, nullable=False, server_default="0"),
    Column("settled", BigInteger, nullable=False, server_default="0"),  # begun before, so left out
    Column("put_aside", BigInteger, nullable=False, server_default="0"),
    Column("error", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Index("ix_backfill_function", "project_id", "function_id", "created_at"),
)

# The token buckets of functions that limit how often they run, where several processes run them.
function_pace = Table(
    "function_pace",
    queue_metadata,
    Column("function_id", String(36), primary_key=True),
    Column("tokens", Float, nullable=False),
    Column("filled_at", BigInteger, nullable=False),  # microseconds of the server's clock
)

# Whose destinations a process found away, for those that run nothing and have to know.
destination_outage = Table(
    "destination_outage",
    queue_metadata,
    Column("process", String(36), primary_key=True),
    Column("function_id", String(36), primary_key=True),
    Column("seen_at", BigInteger, nullable=False),  # microseconds of the server's clock
)

# Spec hog-runtime 6.
watcher_state = Table(
    "watcher_state",
    queue_metadata,
    Column("function_id", String(36), primary_key=True),
    Column("state", SmallInteger, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("tokens_at", UtcTime, nullable=False),
    Column("locked_until", UtcTime),
    Column("detail", Json),
)
