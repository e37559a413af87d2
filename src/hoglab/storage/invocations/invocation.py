"""Values that go into the invocation queue, and that it returns.

Spec hog-runtime 4.6 (record). Values of which each invocation needs one are `Struct`s, which take a fifth of the time
of frozen dataclasses to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hoglab.storage.event_log.partitions import PartitionDone
    from hoglab.storage.invocations.dead_letters import DeadLetter
    from hoglab.storage.invocations.jobs import JobStep
    from hoglab.storage.invocations.runs import AppMetric, InvocationResult, LogEntry

FinalStatus = Literal["completed", "failed", "cancelled"]


class NewInvocation(Struct, frozen=True):
    """``id`` is derived from what causes the run, so enqueueing the same cause twice adds nothing."""

    id: str
    project_id: int
    function_id: str
    state: bytes  # opaque to the queue
    queue: str = "hog"
    priority: int = 0
    scheduled_at: datetime | None = None  # None = now
    parent_run_id: str | None = None
    log_offset: int | None = None
    order_key: str | None = None  # of a function's invocations with one key, only the oldest is at work
    repeats: int | None = None  # version of a result: begun once more, unless there is another result by then


class ClaimedInvocation(Struct, frozen=True):
    id: str
    project_id: int
    function_id: str
    parent_run_id: str | None
    queue: str
    priority: int
    scheduled_at: datetime
    reset_count: int
    state: bytes
    lock_token: str
    created_at: datetime


class InvocationOutcome(Struct, frozen=True):
    """Outcome of a turn of a claimed invocation: finish it, or wait and run it again."""

    id: str
    lock_token: str
    status: FinalStatus | Literal["available"]
    state: bytes | None = None  # for "available": the state to resume from
    scheduled_at: datetime | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class MaskingCount:
    """Number of times that a value came in the window of a function's masking (spec: hog-runtime 5).

    ``before``: the count of the open window that this one was made of, 0 for none.
    """

    function_id: str
    hash: str
    count: int
    expires_at: datetime
    before: int = 0


class MaskingMovedError(Exception):
    """Somebody counted in the same windows meanwhile: what was made of the counts before is to be made again."""


class ConsumerPosition(NamedTuple):
    """Up to where a consumer of the event log has come."""

    consumer: str
    log_offset: int


@dataclass(frozen=True, slots=True)
class InvocationBatch:
    """Invocations to enqueue, and what is written with them.

    Known ids of invocations are skipped. Without a ``position``, the batch waits for the disk: else the event log has
    what it is made of. The partition of a `PartitionDone` is kept from others until all is written; where it is
    another's, that raises `LeaseLostError`, and nothing is added. ``masking`` counts take the place of those of the
    same function and hash, which must be those that they were made of. The dead letters with the ids ``retried`` are
    forgotten. With a ``step``, the progress of its job is recorded, too.
    """

    invocations: Sequence[NewInvocation] = ()
    position: ConsumerPosition | PartitionDone | None = None
    metrics: Sequence[AppMetric] = ()
    logs: Sequence[LogEntry] = ()
    results: Sequence[InvocationResult] = ()
    masking: Sequence[MaskingCount] = ()
    dead: Sequence[DeadLetter] = ()
    retried: Sequence[str] = ()
    step: JobStep | None = None


class Sweep(NamedTuple):
    """Result of a sweep by the janitor.

    ``poisoned`` invocations lost their worker too often: they are claimed for the caller, who must
    `InvocationQueue.finish` them as failed, with result, log and metric. Until then each sweep after the heartbeat
    limit hands them out again.
    """

    reset: int
    poisoned: list[ClaimedInvocation]


@dataclass(frozen=True, slots=True)
class QueueStats:
    available: int
    running: int
    oldest_due_at: datetime | None
    dead_letters: int


class Allowance(Protocol):
    """Limit on what one claim may take. Asked inside of a transaction."""

    def allowed(self, project_id: int, function_id: str, wanted: int) -> int:
        """Return the number of ``wanted`` runs that a function may have."""
        ...

    def took(self, project_id: int, function_id: str, number: int) -> None:
        """Note that a function was given ``number`` runs."""
        ...
