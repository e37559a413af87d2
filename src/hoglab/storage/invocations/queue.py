"""The invocation queue: durable runs of hog functions.

Spec hog-runtime 4.6 (record), 4.9 (guarantees, heartbeats, poison pills). Delivery is at-least-once:
an invocation is claimed under a lock token, and every later change must present that token.

What is made for each invocation is a `Struct`, which takes a fifth of the time of a frozen dataclass to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
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


class InvocationQueue(Protocol):
    """Blocking methods, called from worker threads. `wait` lets a consumer sleep until work may exist."""

    def enqueue(self, batch: InvocationBatch) -> int:
        """Add a batch in one transaction; the number of invocations that were new.

        Raises `JobOverError` and `MaskingMovedError`, and then nothing is added.
        """
        ...

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run, as far as is remembered.

        Cancelled ones were not run.
        """
        ...

    def masking_counts(self, keys: Sequence[tuple[str, str]]) -> list[MaskingCount]:
        """Return the counts of (function id, hash) pairs whose windows are open."""
        ...

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached through `enqueue`, 0 when it never did."""
        ...

    def claim(
        self,
        *,
        queue: str = "hog",
        limit: int = 100,
        limit_each: int | None = None,
        exclude_functions: Collection[str] = (),
        exclude_projects: Collection[int] = (),
        allowance: Allowance | None = None,
    ) -> list[ClaimedInvocation]:
        """Lock and return up to ``limit`` due invocations, and never more than ``allowance`` says.

        Of one function and priority there are at most ``limit_each``. Priority ascending; among those, projects take
        turns, and so do the functions of each, with the oldest first. An invocation with an order key is passed over
        as long as an earlier one of its function and key is not finished.
        """
        ...

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with invocations that wait in a queue for others."""
        ...

    def gather(
        self,
        queue: str,
        sizes: Mapping[str, int],
        merge: Callable[[list[ClaimedInvocation]], tuple[NewInvocation | None, list[InvocationResult]]],
    ) -> int:
        """Make one invocation of as many that wait in a queue as their function wants, and return how many.

        Of fewer when one of them is due. ``merge`` makes it, with results to be kept. They are over with that, in one
        transaction. Functions that ``sizes`` does not name keep waiting.
        """
        ...

    def finish(
        self,
        outcomes: Sequence[InvocationOutcome],
        *,
        logs: Sequence[LogEntry] = (),
        metrics: Sequence[AppMetric] = (),
        results: Sequence[InvocationResult] = (),
    ) -> frozenset[str]:
        """Apply the outcomes of turns with logs, metrics and results in one transaction.

        An outcome whose lock token is no longer valid changes nothing, and the result of its invocation is for the
        holder of the lock to give; logs, metrics and results of others are written all the same. Returns the ids of
        applied outcomes.
        """
        ...

    def heartbeat(self, lock_tokens: Mapping[str, str]) -> frozenset[str]:
        """Renew the locks (id -> token), and return the ids that are still held."""
        ...

    def sweep(self) -> Sweep:
        """Return the janitor, to be called every few seconds.

        Reset invocations without a heartbeat, hand out those that were reset too often, delete finished ones past their
        grace and what is past its retention.
        """
        ...

    def release_all(self) -> int:
        """Make every invocation due that no living process runs; called at the start, when this process runs none.

        It does not count as a reset: the end of a process says nothing about any one of the hundreds that were
        in flight, and a server that is killed again and again must not give up healthy runs. Returns how many
        were released.
        """
        ...

    def next_due(self, *, apart_from: Collection[str] = ()) -> datetime | None:
        """Return the time when the next available invocation is due, ``apart_from`` those of some functions.

        None when there is none.
        """
        ...

    def due(
        self,
        until: datetime,
        *,
        most: int,
        most_of_project: int | None = None,
        apart_from: Collection[str] = (),
    ) -> int:
        """Return the number of available invocations due at a time, ``apart_from`` those of some functions.

        Counted up to ``most``, which is what it costs, and of one project (in each queue and priority) up to
        ``most_of_project``.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something was enqueued or released, at most ``timeout_s``, and return whether it was."""
        ...

    def wake(self) -> None:
        """End the waits of others, for something that kept them from claiming has changed."""
        ...

    def backlog(self) -> int:
        """Return the number of unfinished invocations; costs nothing."""
        ...

    def backlog_of(self, function_id: str) -> int:
        """Return the number of unfinished invocations of one function; costs nothing, either."""
        ...

    def backlogs(self) -> dict[str, int]:
        """Return numbers of unfinished invocations by function, of those that have any."""
        ...

    def stats(self) -> QueueStats: ...

    def close(self) -> None: ...
