"""The seam between the invocation queue and its engines: verbs on rows.

The rules are in `hoglab.storage.invocations.queue`. An engine knows how rows are found, locked and written. Moments are
microseconds since the Unix epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hoglab.storage.database.types import from_micros
from hoglab.storage.invocations.invocation import ClaimedInvocation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from hoglab.storage.event_log.partitions import PartitionDone
    from hoglab.storage.invocations.claims import Waiting
    from hoglab.storage.invocations.invocation import ConsumerPosition, InvocationOutcome


Row = tuple[Any, ...]
"""Values of a row, in the order of the columns of the statement that writes or reads it."""


class Lane(NamedTuple):
    """Available invocations that stand in one line, by the time when they are due."""

    queue: str
    priority: int
    project_id: int
    function_id: str


class AppliedOutcome(NamedTuple):
    """Invocation whose outcome was applied, and the status that it has now."""

    id: str
    function_id: str
    order_key: str | None
    status: str


class QueueRows(Protocol):
    """Rows inside of one transaction.

    Locks come first: `lock_keys`, and the key locks of `apply`, before any row of an invocation is changed, so that
    nobody who has a row waits for a lock of somebody who wants that row.
    """

    def lock_keys(self, keys: Iterable[tuple[str, str]]) -> None:
        """Keep other transactions with some of these function ids and order keys waiting until this one is over."""
        ...

    def advance(self, position: ConsumerPosition | PartitionDone, now: int) -> None:
        """Move a consumer's position, never back, or that of a partition. Raises `LeaseLostError`."""
        ...

    def insert(self, rows: Sequence[Row]) -> Mapping[str, int]:
        """Add invocations with different ids, and return the number of new ones by function.

        Known ids are skipped. An invocation is blocked while an earlier one of its function and order key is not
        finished.
        """
        ...

    def insert_again(self, row: Row, version: int) -> int:
        """Begin a finished invocation again if its result has a version, and return 1 if so, else 0."""
        ...

    def count_masked(self, counts: Sequence[Mapping[str, Any]]) -> int:
        """Replace counts that are what ``before`` says, and return how many were."""
        ...

    def add_logs(self, rows: Sequence[Row]) -> None: ...

    def add_metrics(self, rows: Sequence[Row]) -> None:
        """Add amounts to metrics."""
        ...

    def save_results(self, rows: Sequence[Row]) -> None:
        """Keep results of different invocations, as far as there is no newer one."""
        ...

    def save_dead(self, rows: Sequence[Row]) -> None: ...

    def trim_dead(self, owners: Sequence[tuple[int, str]], most: int) -> int:
        """Keep the newest dead letters of each project and function, and return how many were deleted."""
        ...

    def forget_dead(self, ids: Sequence[str]) -> None: ...

    def advance_job(self, step: Mapping[str, Any]) -> bool:
        """Record a step of a job, and return whether the job runs and was where the step begins."""
        ...

    def oldest(self, lane: Lane, most: int) -> list[ClaimedInvocation]:
        """Return the oldest available invocations of a lane, due or not, kept from others until this is over."""
        ...

    def complete(self, ids: Sequence[str], now: int) -> None:
        """End available invocations as completed."""
        ...

    def apply(self, outcomes: Sequence[InvocationOutcome], now: int) -> list[AppliedOutcome]:
        """Apply outcomes, with different pairs of id and token, whose lock tokens are valid."""
        ...

    def unblock(self, keys: Sequence[tuple[str, str]], now: int) -> int:
        """Make the oldest unfinished invocation of each function id and order key available; return how many."""
        ...

    def announce(self) -> None:
        """Wake other processes when the transaction is stored."""
        ...


class Candidates(Protocol):
    """Due invocations of a queue, as they were seen at one moment, and those of them that are taken."""

    priorities: Sequence[int]
    """Priorities with due or available invocations, ascending."""

    def lane(self, priority: int) -> Waiting[Any]:
        """Return the due invocations of one priority, to take some of them."""
        ...

    def lock(self) -> list[ClaimedInvocation]:
        """Return what was taken, locked, and without what others locked meanwhile."""
        ...

    def may_have_more(self) -> bool:
        """Return whether some due invocations may not have been seen."""
        ...


class QueueTables(Protocol):
    """Tables of an engine. Methods may be called from any thread; each but `turn` is a transaction of its own.

    They raise `DatabaseError`.
    """

    steady: Callable[[], float] | None
    """Seconds by a clock that nobody sets, also while that of `now` is set; None when nobody sets that one, either."""

    def now(self) -> datetime:
        """Return the present moment, by the clock that all processes share."""
        ...

    def new_token(self) -> str:
        """Return a lock token."""
        ...

    def follow(self, arrived: Callable[[], None], count: Callable[[], None]) -> None:
        """Call ``arrived`` when another process adds work, and ``count`` now and then, until `close`."""
        ...

    def turn(self) -> AbstractContextManager[object]:
        """Provide a block in which no other thread of this process has a `transaction`."""
        ...

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[QueueRows]:
        """Provide the rows for a block of the thread that has the `turn`: all of it is stored, or nothing.

        Only the end of a ``durable`` one waits for the disk.
        """
        ...

    def candidates(self, queue: str, most: int, token: str, now: int) -> AbstractContextManager[Candidates]:
        """Provide a block, in a turn, in which up to ``most`` due invocations of a queue are locked with a token."""
        ...

    def beat(self, lock_tokens: Mapping[str, str], now: int) -> frozenset[str]:
        """Renew locks (id -> token), and return the ids of those that are valid."""
        ...

    def release(self, now: int, *, own: bool) -> int:
        """Make due what dead processes were running, and (``own``) this one; return the number of invocations."""
        ...

    def latest(self) -> int:
        """Return the latest moment that was noted of what is over or at work."""
        ...

    def move(self, jump: int, before: int) -> None:
        """Move heartbeats, and what waits or is open beyond a moment."""
        ...

    def reset(self, beat_before: int, max_resets: int, most: int, due: Callable[[int], int]) -> int:
        """Make invocations without a heartbeat since a moment due again, and return how many.

        ``due`` gives the time by the number of resets.
        """
        ...

    def take_poisoned(
        self, beat_before: int, max_resets: int, most: int, now: int
    ) -> list[ClaimedInvocation]:
        """Lock invocations without a heartbeat since a moment that were reset ``max_resets`` times."""
        ...

    def delete_finished(self, before: int, most: int) -> int:
        """Delete what was finished before, as far as every consumer of the event log is past its record."""
        ...

    def delete_expired(self, table: str, before: int, most: int) -> int:
        """Delete rows of a table of `expiry` that are older, up to ``most``, and return how many."""
        ...

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]: ...

    def masking_counts(self, keys: Sequence[tuple[str, str]], now: int) -> list[Row]:
        """Return function id, hash, count and end of open windows."""
        ...

    def position(self, consumer: str) -> int: ...

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with available invocations in a queue."""
        ...

    def ready(self, queue: str, sizes: Mapping[str, int], now: int) -> list[Lane]:
        """Return lanes in which as many invocations wait as their function wants, or in which one is due."""
        ...

    def first_scheduled(self, apart_from: Collection[str]) -> int | None:
        """Return the moment when the first available invocation is due, apart from those of some functions."""
        ...

    def count_due(self, until: int, apart_from: Collection[str], most: int, most_of_project: int) -> int:
        """Return the number of available invocations due at a moment, apart from those of some functions.

        Counted up to ``most``, and up to ``most_of_project`` of a project in each queue and priority.
        """
        ...

    def count_unfinished(self) -> list[tuple[str, int]]:
        """Return numbers of unfinished invocations; a function may come more than once."""
        ...

    def count_running(self) -> int: ...

    def count_dead(self) -> int: ...

    def close(self) -> None: ...


def claimed_of(row: Row) -> ClaimedInvocation:
    """Return the invocation of a row with the part ``columns`` of the statements."""
    id_, project_id, function_id, parent, queue, priority, scheduled_at, resets, state, token, created_at = (
        row
    )
    return ClaimedInvocation(
        id=id_,
        project_id=project_id,
        function_id=function_id,
        parent_run_id=parent,
        queue=queue,
        priority=priority,
        scheduled_at=from_micros(scheduled_at),
        reset_count=resets,
        state=state,
        lock_token=token,
        created_at=from_micros(created_at),
    )
