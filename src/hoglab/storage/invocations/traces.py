"""Traces of runs in ``queue.db``: log lines, hourly metrics and results, each for a limited time.

Functions here write inside the transaction of the connection that they are given.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations import InvocationResult
from hoglab.storage.invocations.dead_letter_rows import DEAD_LETTER_RETENTION_DAYS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from hoglab.storage.invocations import AppMetric, InvocationOutcome, LogEntry

TRACE_RETENTION_DAYS = 90
"""Days for which logs and metrics are kept unless the operator says otherwise."""
RESULT_RETENTION_DAYS = 30
BACKFILL_RETENTION_DAYS = 90

LOG_TICK_US = 1000
"""Lines of one run that came at the same moment are set this far apart (spec: hog-runtime 8)."""

REMEMBERED_RUNS = 10_000
"""Runs whose last line is remembered, to keep their lines apart across transactions too."""

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US

_RESULT_FIELDS = InvocationResult.__struct_fields__
_INSERT_LOG = (
    "INSERT INTO log_entry (project_id, log_source, log_source_id, instance_id, timestamp, level, message) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ADD_METRIC = (
    "INSERT INTO app_metric (project_id, app_source, app_source_id, hour, metric_kind, metric_name, "
    "instance_id, count) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (project_id, app_source, app_source_id, hour, metric_kind, metric_name, instance_id) "
    "DO UPDATE SET count = count + excluded.count"
)
_SAVE_RESULT = (  # noqa: S608, constants only
    "INSERT INTO invocation_result ({}) VALUES ({}) ON CONFLICT (invocation_id) DO UPDATE SET {} "
    "WHERE excluded.version > version"
).format(
    ", ".join(_RESULT_FIELDS),
    ", ".join("?" for _ in _RESULT_FIELDS),
    ", ".join(f"{name} = excluded.{name}" for name in _RESULT_FIELDS[1:]),
)
_EXPIRED = {
    "invocation_result": ("version", RESULT_RETENTION_DAYS),
    "masking_counter": ("expires_at", 0),
    "dead_event": ("failed_at", DEAD_LETTER_RETENTION_DAYS),
    "backfill": ("finished_at", BACKFILL_RETENTION_DAYS),
}
"""Tables, the moment that a row's age is counted from, and how many days it is kept; besides logs and metrics."""


def still_mine(
    results: Sequence[InvocationResult], outcomes: Sequence[InvocationOutcome], applied: Collection[str]
) -> Sequence[InvocationResult]:
    """Return the results that the sender of outcomes may record; only outcomes with the ids ``applied`` counted.

    A process that was paused may not overwrite the result of the process that took the run over, nor the results of
    the events that a run is about, which name the run as their parent.
    """
    lost = {outcome.id for outcome in outcomes if outcome.id not in applied}
    if not lost:
        return results
    return [result for result in results if lost.isdisjoint((result.invocation_id, result.parent_run_id))]


class Traces:
    """Writer of logs, metrics and results. Used by one transaction at a time."""

    def __init__(self) -> None:
        self._last_line: OrderedDict[tuple[str, str], int] = OrderedDict()

    def write(
        self,
        connection: sqlite3.Connection,
        logs: Sequence[LogEntry],
        metrics: Sequence[AppMetric],
        results: Sequence[InvocationResult],
    ) -> None:
        """Write traces of runs: the lines of one run at strictly increasing moments, metrics added up by the hour."""
        if logs:
            connection.executemany(_INSERT_LOG, list(map(self.line, logs)))
        if metrics:
            connection.executemany(_ADD_METRIC, [(*key, count) for key, count in totals(metrics).items()])
        if results:
            connection.executemany(_SAVE_RESULT, list(map(values_of, results)))

    def line(self, entry: LogEntry) -> tuple[Any, ...]:
        """Return a row of ``log_entry``."""
        run = (entry.log_source_id, entry.instance_id)
        moment = to_micros(entry.timestamp)
        last = self._last_line.pop(run, None)
        if last is not None and moment <= last:
            moment = last + LOG_TICK_US
        self._last_line[run] = moment
        if len(self._last_line) > REMEMBERED_RUNS:
            self._last_line.popitem(last=False)
        return (entry.project_id, entry.log_source, *run, moment, entry.level, entry.message)


def expiry(trace_days: int) -> dict[str, tuple[str, int]]:
    """Return tables, the moment that a row's age is counted from, and how many microseconds it is kept.

    ``trace_days``: for how long logs and metrics are kept.
    """
    days = {"log_entry": ("timestamp", trace_days), "app_metric": ("hour", trace_days), **_EXPIRED}
    return {table: (column, number * _DAY_US) for table, (column, number) in days.items()}


def totals(metrics: Sequence[AppMetric]) -> dict[tuple[Any, ...], int]:
    """Return amounts to add to the rows of ``app_metric``."""
    sums: dict[tuple[Any, ...], int] = {}
    for metric in metrics:
        moment = to_micros(metric.timestamp)
        key = (
            metric.project_id,
            metric.app_source,
            metric.app_source_id,
            moment - moment % _HOUR_US,
            metric.metric_kind,
            metric.metric_name,
            metric.instance_id,
        )
        sums[key] = sums.get(key, 0) + metric.count
    return sums


def values_of(result: InvocationResult) -> list[Any]:
    """Return a row of ``invocation_result``, with the columns as in the fields of `InvocationResult`."""
    return [to_micros(value) if isinstance(value, datetime) else value for value in astuple(result)]
