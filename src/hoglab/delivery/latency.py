"""How long deliveries take, for Prometheus: all together, and by function within a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Histogram

if TYPE_CHECKING:
    from datetime import datetime

MAX_SERIES = 200
"""Functions with series of their own; those that come later, until the next start, are counted as `OTHERS`."""
OTHERS = "other"

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_ACCEPTED = Histogram(
    "hoglab_delivery_accepted_to_request_seconds",
    "Time from the acceptance of an event to the first request of a run on it, by function.",
    ["function"],
    buckets=_BUCKETS,
)
_RUNS = Histogram(
    "hoglab_delivery_run_seconds",
    "Computing and requests of a run, over all its attempts and without the waits between them, by function.",
    ["function"],
    buckets=_BUCKETS,
)


class Latencies:
    """Used by one thread."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._names: set[str] = set()

    def first_request(self, function_id: str, accepted_at: datetime, now: datetime) -> None:
        _ACCEPTED.labels(self._name(function_id)).observe(max(0.0, (now - accepted_at).total_seconds()))

    def run_ended(self, function_id: str, took_s: float) -> None:
        _RUNS.labels(self._name(function_id)).observe(took_s)

    def _name(self, function_id: str) -> str:
        if function_id in self._names:
            return function_id
        if len(self._names) >= self._max_series:
            return OTHERS
        self._names.add(function_id)
        return function_id
