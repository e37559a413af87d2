"""Runs of hog functions, and what they leave behind, each in a store with one job.

The queue writes in its transactions what belongs to a change: logs, metrics, results, dead letters, and the place that
a job has reached. The other stores read that, and write what stands alone.
"""

from __future__ import annotations

from hoglab.storage.invocations.counts import Arrivals, QueueCounts
from hoglab.storage.invocations.dead_letters import (
    DeadLetter,
    DeadLetterSelection,
    StoredDeadLetter,
)
from hoglab.storage.invocations.erasing import ErasedPersons
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
from hoglab.storage.invocations.jobs import JobKind, JobOverError, JobRunsError, JobStep, ReplayJob
from hoglab.storage.invocations.limits import BreakerState, Granted
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
)
from hoglab.storage.invocations.sql import InvocationStores
from hoglab.storage.invocations.sql.breakers import BreakerStates
from hoglab.storage.invocations.sql.dead_letters import DeadLetters
from hoglab.storage.invocations.sql.erasing import RunErasing
from hoglab.storage.invocations.sql.jobs import Jobs
from hoglab.storage.invocations.sql.runs import RunStore
from hoglab.storage.invocations.sql.sharing import Outages, RateLimits

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
    "StoredDeadLetter",
    "Sweep",
]
