"""Runs: their state, and their logs, metrics, results, dead letters."""

from hoglab.delivery.runs import (
    dead_letters,
    globals,  # noqa: A004 - the word of the language
    history,
    results,
    state,
    telemetry,
)
from hoglab.delivery.runs.latency import Latencies
from hoglab.delivery.runs.live_logs import LiveLogs
from hoglab.delivery.runs.locks import Locks
from hoglab.delivery.runs.progress import Heartbeat
from hoglab.delivery.runs.streaks import Streaks

__all__ = [
    "Heartbeat",
    "Latencies",
    "LiveLogs",
    "Locks",
    "Streaks",
    "dead_letters",
    "globals",
    "history",
    "results",
    "state",
    "telemetry",
]
