"""Experiments, holdouts, saved metrics and the stored results of metrics."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from hoglab.storage.database.tables.base import metadata
from hoglab.storage.database.types import Json, UtcTime

experiment_holdout = Table(
    "experiment_holdout",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False, index=True),
    Column("name", String(400), nullable=False),
    Column("description", String(400)),
    Column("filters", Json, nullable=False),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

# Spec experiments-api 2.1.
experiment = Table(
    "experiment",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("name", String(400), nullable=False),
    Column("description", Text),
    Column("feature_flag_id", Integer, ForeignKey("feature_flag.id"), nullable=False, index=True),
    Column("holdout_id", Integer, ForeignKey("experiment_holdout.id", ondelete="SET NULL"), index=True),
    Column("exposure_cohort_id", Integer, ForeignKey("cohort.id", ondelete="SET NULL"), index=True),
    Column("parameters", Json),
    Column("running_time_calculation", Json, nullable=False),
    Column("excluded_variants", Json, nullable=False),
    Column("secondary_metrics", Json),
    Column("filters", Json, nullable=False),
    Column("metrics", Json),
    Column("metrics_secondary", Json),
    Column("primary_metrics_ordered_uuids", Json),
    Column("secondary_metrics_ordered_uuids", Json),
    Column("exposure_criteria", Json),
    Column("stats_config", Json),
    Column("scheduling_config", Json),
    Column("only_count_matured_users", Boolean, nullable=False, server_default="0"),
    Column("type", String(16)),
    Column("start_date", UtcTime),
    Column("end_date", UtcTime),
    Column("archived", Boolean, nullable=False, server_default="0"),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    Column("status", String(16), nullable=False),  # draft, running, stopped
    Column("conclusion", String(32)),
    Column("conclusion_comment", Text),
    Column("create_in_folder", Text),
    Column("feature_flag_auto_archived", Boolean, nullable=False, server_default="0"),
    Column("phases", Json),  # shares of people by variant, from the launch on; null for a draft
    Column("watched_at", UtcTime),  # when harm was last looked for; null: never since the launch
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("ix_experiment_list", "project_id", "deleted", "archived", "created_at"),
    sqlite_autoincrement=True,
)

# What happened to the plan of an experiment, and what was decided; see `hoglab.experiments.records`.
experiment_record = Table(
    "experiment_record",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "experiment_id", Integer, ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("kind", String(16), nullable=False),
    Column("detail", Json, nullable=False),
    Column("user_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

saved_metric = Table(
    "saved_metric",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("project.id"), nullable=False),
    Column("name", String(400), nullable=False),
    Column("description", String(400)),
    Column("query", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("created_by_id", Integer, ForeignKey("user.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("ix_saved_metric_project_name", "project_id", "name"),
    sqlite_autoincrement=True,
)

experiment_saved_metric = Table(
    "experiment_saved_metric",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("experiment_id", Integer, ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False),
    Column(
        "saved_metric_id",
        Integer,
        ForeignKey("saved_metric.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    UniqueConstraint("experiment_id", "saved_metric_id"),
    sqlite_autoincrement=True,
)

# Spec experiment-results 7.1: one daily point of one metric.
metric_result = Table(
    "metric_result",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("experiment_id", Integer, ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False),
    Column("metric_uuid", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("query_from", UtcTime, nullable=False),
    Column("query_to", UtcTime, nullable=False),
    Column("status", String(16), nullable=False),  # pending, completed, failed
    Column("result", Json),
    Column("query_id", String(64)),
    Column("completed_at", UtcTime),
    Column("error_message", Text),
    Column("failed_at", UtcTime),  # of a result: when the newest try failed since; ``error_message`` says why
    Column("named_state", String(64)),  # of the tables, actions and cohorts that it names; null for none
    Column("log_offset", BigInteger),  # up to where events and merges count; null where that is not known
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("experiment_id", "metric_uuid", "fingerprint", "query_to"),
    sqlite_autoincrement=True,
)

# Spec experiment-results 7.3: a job that computes a metric's whole series again.
metric_recalculation = Table(
    "metric_recalculation",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("experiment_id", Integer, ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False),
    Column("metric_uuid", String(64)),
    Column("fingerprint", String(64), nullable=False),
    Column("metric", Json, nullable=False),
    Column("status", String(16), nullable=False),  # pending, in_progress, completed, failed
    Column("last_successful_date", String(10)),
    Column("error_message", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("ix_metric_recalculation_key", "experiment_id", "fingerprint", "status"),
)

# Spec experiments-api 8.7: a job that computes all metrics of an experiment at one moment.
experiment_recalculation = Table(
    "experiment_recalculation",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("experiment_id", Integer, ForeignKey("experiment.id", ondelete="CASCADE"), nullable=False),
    Column("status", String(16), nullable=False),  # pending, in_progress, completed, failed
    Column("trigger", String(32), nullable=False),
    Column("total_metrics", Integer, nullable=False),
    Column("results", Json, nullable=False),
    Column("query_to", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("completed_at", UtcTime),
    Index("ix_experiment_recalculation_list", "experiment_id", "created_at"),
    Index("ix_experiment_recalculation_status", "status"),
)
