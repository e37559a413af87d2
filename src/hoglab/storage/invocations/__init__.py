"""Runs of hog functions, and what they leave behind, each behind a protocol with one job.

The queue writes in its transactions what belongs to a change: logs, metrics, results, dead letters, and the place that
a job has reached. The other stores read that, and write what stands alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoglab.storage.invocations.counts import Arrivals, QueueCounts
from hoglab.storage.invocations.dead_letters import (
    DeadLetter,
    DeadLetters,
    DeadLetterSelection,
    StoredDeadLetter,
)
from hoglab.storage.invocations.erasing import ErasedPersons, RunErasing
from hoglab.storage.invocations.invocation import (
    Allowance,
    ClaimedInvocation,
    ConsumerPosition,
    FinalStatus,
    InvocationBatch,
    InvocationOutcome,
    MaskingCount,
    MaskingMovedError,
    NewInvocation,
    QueueStats,
    Sweep,
)
from hoglab.storage.invocations.jobs import JobKind, JobOverError, JobRunsError, Jobs, JobStep, ReplayJob
from hoglab.storage.invocations.limits import BreakerState, BreakerStates, Granted, Outages, RateLimits
from hoglab.storage.invocations.queue import InvocationQueue
from hoglab.storage.invocations.runs import (
    AppMetric,
    HourlyCount,
    HourQuery,
    InvocationResult,
    LogEntry,
    LogLine,
    LogQuery,
    ResultSelection,
    ResultStatus,
    RunStore,
    RunWriter,
)

__all__ = [
    "Allowance",
    "AppMetric",
    "Arrivals",
    "BreakerState",
    "BreakerStates",
    "ClaimedInvocation",
    "ConsumerPosition",
    "DeadLetter",
    "DeadLetterSelection",
    "DeadLetters",
    "ErasedPersons",
    "FinalStatus",
    "Granted",
    "HourQuery",
    "HourlyCount",
    "InvocationBatch",
    "InvocationOutcome",
    "InvocationQueue",
    "InvocationResult",
    "InvocationStores",
    "JobKind",
    "JobOverError",
    "JobRunsError",
    "JobStep",
    "Jobs",
    "LogEntry",
    "LogLine",
    "LogQuery",
    "MaskingCount",
    "MaskingMovedError",
    "NewInvocation",
    "Outages",
    "QueueCounts",
    "QueueStats",
    "RateLimits",
    "ReplayJob",
    "ResultSelection",
    "ResultStatus",
    "RunErasing",
    "RunStore",
    "RunWriter",
    "StoredDeadLetter",
    "Sweep",
]


@dataclass(frozen=True, slots=True)
class InvocationStores:
    """Everything that delivery keeps.

    ``rate_limits`` and ``outages``: where several processes run functions; else None, and they are in memory.
    """

    queue: InvocationQueue
    runs: RunStore
    dead_letters: DeadLetters
    jobs: Jobs
    breakers: BreakerStates
    erasing: RunErasing
    rate_limits: RateLimits | None = None
    outages: Outages | None = None
