"""Rows of what runs leave behind, each kept for a limited time: log lines, hourly metrics, results, dead letters."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from hoglab.storage.database.types import to_micros

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hoglab.storage.invocations.dead_letters import DeadLetter
    from hoglab.storage.invocations.invocation import InvocationOutcome
    from hoglab.storage.invocations.runs import AppMetric, InvocationResult, LogEntry
    from hoglab.storage.invocations.tables import QueueRows, Row

TRACE_RETENTION_DAYS = 90
"""Days for which logs and metrics are kept unless the operator says otherwise."""
RESULT_RETENTION_DAYS = 30
BACKFILL_RETENTION_DAYS = 90
MAX_DEAD_LETTERS = 5_000
"""Dead letters that are kept of one function, and of a project where no function was asked; the oldest go first."""
DEAD_LETTER_RETENTION_DAYS = 30
MAX_REASON_BYTES = 1_024

LOG_TICK_US = 1000
"""Lines of one run that came at the same moment are set this far apart (spec: hog-runtime 8)."""

REMEMBERED_RUNS = 10_000
"""Runs whose last line is remembered, to keep their lines apart across transactions too."""

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US

_EXPIRED = {
    "invocation_result": RESULT_RETENTION_DAYS,
    "masking_counter": 0,
    "dead_event": DEAD_LETTER_RETENTION_DAYS,
    "backfill": BACKFILL_RETENTION_DAYS,
}
"""Days for which rows are kept, by table; besides logs and metrics."""


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
        rows: QueueRows,
        logs: Sequence[LogEntry],
        metrics: Sequence[AppMetric],
        results: Sequence[InvocationResult],
    ) -> None:
        """Write traces of runs: the lines of one run at strictly increasing moments, metrics added up by the hour.

        Rows that others may change, too, are written in one order, so that nobody waits for each other.
        """
        if logs:
            rows.add_logs(list(map(self._line, logs)))
        if metrics:
            rows.add_metrics(sorted((*key, count) for key, count in _totals(metrics).items()))
        if results:
            newest: dict[str, InvocationResult] = {}
            for result in results:
                known = newest.setdefault(result.invocation_id, result)
                if result.version > known.version:
                    newest[result.invocation_id] = result
            rows.save_results([_values_of(newest[id_]) for id_ in sorted(newest)])

    def _line(self, entry: LogEntry) -> Row:
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


def expiry(trace_days: int) -> dict[str, int]:
    """Return for how many microseconds rows are kept, by table. ``trace_days``: the days of logs and metrics."""
    days = {"log_entry": trace_days, "app_metric": trace_days, **_EXPIRED}
    return {table: number * _DAY_US for table, number in days.items()}


def _totals(metrics: Sequence[AppMetric]) -> dict[tuple[Any, ...], int]:
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


def _values_of(result: InvocationResult) -> Row:
    """Return a row of ``invocation_result``, with the columns as in the fields of `InvocationResult`."""
    return tuple(to_micros(value) if isinstance(value, datetime) else value for value in astuple(result))


def save_letters(rows: QueueRows, dead: Sequence[DeadLetter]) -> int:
    """Keep dead letters in a transaction of the queue, and return how many older ones were deleted to make room."""
    rows.save_dead([_row_of(letter) for letter in sorted(dead, key=attrgetter("id"))])
    owners = {(letter.project_id, letter.function_id or "") for letter in dead}
    return rows.trim_dead(sorted(owners), MAX_DEAD_LETTERS)


def _row_of(letter: DeadLetter) -> Row:
    """Return the values of a row of ``dead_event`` for a dead letter that fails for the first time."""
    at = to_micros(letter.failed_at)
    reason = letter.reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")
    return (
        letter.id,
        letter.project_id,
        letter.function_id or "",
        letter.source,
        letter.step,
        reason,
        letter.event_uuid,
        letter.event,
        letter.distinct_id,
        letter.payload,
        at,
        at,
    )
