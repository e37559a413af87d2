"""History of functions and the outcomes of their runs, for looking into missing deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hoglab.delivery.runs.telemetry import floor

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from hoglab.storage.invocations import RunStore

WINDOW = timedelta(hours=24)
FAILURES = frozenset({"failed", "inputs_failed", "filtering_failed", "queue_full", "disabled_permanently"})
"""The metrics that count as failures."""
LOOKED_AT = 1_000
"""Number of the newest lines of a function's log among which its last error is looked for."""


def counts(store: RunStore, project_id: int, now: datetime) -> dict[str, tuple[int, int]]:
    """Return successes and failures of the functions of a project in the last 24 hours, to the hour."""
    numbers = store.counts(project_id, {"succeeded", *FAILURES}, floor(now - WINDOW, "hour"))
    totals: dict[str, tuple[int, int]] = {}
    for (function_id, name), number in numbers.items():
        succeeded, failed = totals.get(function_id, (0, 0))
        totals[function_id] = (
            (succeeded + number, failed) if name == "succeeded" else (succeeded, failed + number)
        )
    return totals


def last_errors(store: RunStore, function_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the last error in each function's log, as far as it is among its newest lines."""
    return {
        function_id: {"message": line.message, "timestamp": line.timestamp}
        for function_id, line in store.last_errors(function_ids, LOOKED_AT).items()
    }


def runs(
    store: RunStore, project_id: int, function_id: str, statuses: Collection[str] | None, limit: int
) -> list[dict[str, Any]]:
    """Return runs of a function, the newest first, with the time when waiting ones continue."""
    results = store.results(project_id, function_id, statuses, limit)
    waiting = store.next_attempts([result.invocation_id for result in results if result.status == "running"])
    return [
        {
            "id": result.invocation_id,
            "status": result.status,
            "event_uuid": result.event_uuid,
            "distinct_id": result.distinct_id,
            "queued_at": result.first_scheduled_at,
            "finished_at": result.finished_at,
            "next_attempt_at": waiting.get(result.invocation_id),
            "error_kind": result.error_kind,
            "error": result.error_message,
        }
        for result in results
    ]
