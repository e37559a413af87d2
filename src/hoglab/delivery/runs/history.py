"""How functions fared lately, and what became of their runs: looked at first when something does not arrive."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from hoglab.delivery.runs.telemetry import APP_SOURCE, floor
from hoglab.storage.database.tables import app_metric, invocation, invocation_result, log_entry

if TYPE_CHECKING:
    from sqlalchemy import Connection

WINDOW = timedelta(hours=24)
FAILURES = frozenset({"failed", "inputs_failed", "filtering_failed", "queue_full", "disabled_permanently"})
"""The metrics that count as failures."""
LOOKED_AT = 1_000
"""The newest lines of a function's log among which its last error is looked for."""


def counts(connection: Connection, project_id: int, now: datetime) -> dict[str, tuple[int, int]]:
    """Successes and failures of the functions of a project in the last 24 hours, to the hour."""
    column = app_metric.c
    rows = connection.execute(
        select(column.app_source_id, column.metric_name, func.sum(column.count))
        .where(
            column.project_id == project_id,
            column.app_source == APP_SOURCE,
            column.hour >= floor(now - WINDOW, "hour"),
            column.metric_name.in_({"succeeded", *FAILURES}),
        )
        .group_by(column.app_source_id, column.metric_name)
    )
    found: dict[str, tuple[int, int]] = {}
    for function_id, name, number in rows:
        succeeded, failed = found.get(function_id, (0, 0))
        found[function_id] = (
            (succeeded + number, failed) if name == "succeeded" else (succeeded, failed + number)
        )
    return found


def last_errors(connection: Connection, function_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """The last error in each function's log, as far as it is among its newest lines."""
    column = log_entry.c
    found = {}
    for function_id in function_ids:
        newest = (
            select(column.level, column.message, column.timestamp)
            .where(column.log_source_id == function_id)
            .order_by(column.timestamp.desc())
            .limit(LOOKED_AT)
            .subquery()
        )
        row = connection.execute(
            select(newest).where(newest.c.level == "error").order_by(newest.c.timestamp.desc()).limit(1)
        ).first()
        if row is not None:
            found[function_id] = {"message": row.message, "timestamp": row.timestamp}
    return found


def runs(
    connection: Connection, project_id: int, function_id: str, statuses: Collection[str] | None, limit: int
) -> list[dict[str, Any]]:
    """Runs of a function, the newest first, with when those that wait are to be gone on with."""
    column = invocation_result.c
    wanted = [column.project_id == project_id, column.function_id == function_id]
    if statuses is not None:
        wanted.append(column.status.in_(statuses))
    query = select(invocation_result).where(*wanted).order_by(column.scheduled_at.desc()).limit(limit)
    rows = connection.execute(query).mappings().all()
    waiting = _due(connection, [row["invocation_id"] for row in rows if row["status"] == "running"])
    return [
        {
            "id": row["invocation_id"],
            "status": row["status"],
            "event_uuid": row["event_uuid"],
            "distinct_id": row["distinct_id"],
            "queued_at": row["first_scheduled_at"],
            "finished_at": row["finished_at"],
            "next_attempt_at": waiting.get(row["invocation_id"]),
            "error_kind": row["error_kind"],
            "error": row["error_message"],
        }
        for row in rows
    ]


def _due(connection: Connection, ids: list[str]) -> Mapping[str, datetime]:
    column = invocation.c
    query = select(column.id, column.scheduled_at).where(column.id.in_(ids), column.status == "available")
    return {row.id: row.scheduled_at for row in connection.execute(query)}
