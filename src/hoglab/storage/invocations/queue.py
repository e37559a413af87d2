"""The invocation queue: durable runs of hog functions, with one set of rules for all engines.

Spec hog-runtime 4.9 (guarantees, heartbeats, poison pills). Delivery is at-least-once: an invocation is claimed under a
lock token, and every later change must present that token. Workers claim and finish in batches, each in one transaction
of a few statements. Claims, heartbeats and outcomes do not wait for the disk: after a power cut the turns of the last
moment are run again. What was enqueued waits for the disk, unless it comes from the event log, which has it already.
"""

from __future__ import annotations

import random
from collections import Counter as Counts
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from prometheus_client import Counter

from hoglab.storage.database.locks import tried_again
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations.claims import Claims, Shares
from hoglab.storage.invocations.counts import Arrivals, QueueCounts
from hoglab.storage.invocations.invocation import MaskingCount, MaskingMovedError
from hoglab.storage.invocations.janitor import Janitor
from hoglab.storage.invocations.jobs import JobOverError
from hoglab.storage.invocations.traces import TRACE_RETENTION_DAYS, Traces, save_letters, still_mine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from hoglab.storage.invocations.invocation import (
        Allowance,
        ClaimedInvocation,
        InvocationBatch,
        InvocationOutcome,
        NewInvocation,
        Sweep,
    )
    from hoglab.storage.invocations.jobs import JobStep
    from hoglab.storage.invocations.runs import AppMetric, InvocationResult, LogEntry
    from hoglab.storage.invocations.tables import Candidates, Lane, QueueRows, QueueTables, Row

_CROWDED_OUT = Counter(
    "hoglab_delivery_dead_events_crowded_out", "Dead events that went to make room for newer ones."
)


@dataclass(slots=True)
class _Changes:
    """Changes of the counts by a transaction."""

    arrivals: int = 0
    added: Counts[str] = field(default_factory=Counts)
    over: Counts[str] = field(default_factory=Counts)


class InvocationQueue:
    """Queue in the tables of an engine. Blocking methods, called from any thread.

    They raise `DatabaseError`. A transaction that the engine undid for the sake of others is repeated.
    """

    def __init__(
        self,
        tables: QueueTables,
        *,
        now: Callable[[], datetime] | None = None,
        steady: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
        trace_days: int = TRACE_RETENTION_DAYS,
    ) -> None:
        """Open the queue in tables, which it closes at the end.

        ``now`` is the clock, by default that of the tables; ``steady`` counts seconds, also while the clock of ``now``
        is set. ``jitter`` gives numbers between 0 and 1 for back-off. ``trace_days``: for how long logs and metrics
        are kept.
        """
        self._tables = tables
        if now is None:
            now, steady = tables.now, steady or tables.steady
        self._now = now
        self.arrivals = Arrivals()
        """Lets a consumer sleep until work may exist."""
        self.counts = QueueCounts(tables, now)
        self._traces = Traces()
        self._claims = Claims()
        self._janitor = Janitor(tables, now, steady, jitter, trace_days)
        self._janitor.follow_clock_of_last_time()
        self._count()
        tables.follow(self.arrivals.wake, self._count)

    def close(self) -> None:
        """Close the tables; the queue is not used afterwards. What this process was running is for others."""
        self._tables.close()

    # -- adding -------------------------------------------------------------------------------------

    @tried_again
    def enqueue(self, batch: InvocationBatch) -> int:
        """Add a batch in one transaction, and return how many invocations were new.

        Raises `JobOverError`, `LeaseLostError` and `MaskingMovedError`, and then nothing is added.
        """
        now = self._moment()
        crowded_out = 0
        with self._changing(durable=batch.position is None) as (rows, changes):
            if batch.position is not None:
                rows.advance(batch.position, now)
            changes.added = new = _insert(rows, batch.invocations, now)
            changes.arrivals = new.total()
            if batch.masking:
                _count_masked(rows, batch.masking, now)
            self._traces.write(rows, batch.logs, batch.metrics, batch.results)
            if batch.retried:
                rows.forget_dead(batch.retried)
            if batch.dead:
                crowded_out = save_letters(rows, batch.dead)
            if batch.step is not None:
                _advance_job(rows, batch.step, new.total())
            if new:
                rows.announce()
        if crowded_out:
            _CROWDED_OUT.inc(crowded_out)
        return new.total()

    def known_ids(self, ids: Sequence[str]) -> frozenset[str]:
        """Return invocations among some that run, wait or were run, as far as is remembered.

        Cancelled ones were not run.
        """
        return self._tables.known_ids(ids)

    def masking_counts(self, keys: Sequence[tuple[str, str]]) -> list[MaskingCount]:
        """Return the counts of (function id, hash) pairs whose windows are open."""
        return [
            MaskingCount(function, hash_, count, from_micros(expires_at))
            for function, hash_, count, expires_at in self._tables.masking_counts(keys, self._moment())
        ]

    def position(self, consumer: str) -> int:
        """Return the log position that a consumer reached through `enqueue`, 0 when it never did."""
        return self._tables.position(consumer)

    # -- working ------------------------------------------------------------------------------------

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
        self.arrivals.look()
        now = self._moment()
        token = self._tables.new_token()
        shares = Shares(frozenset(exclude_functions), frozenset(exclude_projects), allowance)
        claimed: list[ClaimedInvocation] = []
        while (most := limit - len(claimed)) > 0:
            with self._tables.candidates(queue, limit, token, now) as candidates:
                self._take(candidates, queue, most, limit_each, shares)
                claimed += candidates.lock()
            if limit_each is not None or not candidates.may_have_more():
                break
        return sorted(claimed, key=attrgetter("priority", "scheduled_at"))

    def _take(
        self, candidates: Candidates, queue: str, most: int, most_each: int | None, shares: Shares
    ) -> None:
        """Take up to ``most`` candidates, and of one function and priority up to ``most_each``."""
        for priority in candidates.priorities:
            if most <= 0:
                break
            shares.begin(most if most_each is None else most_each)
            most -= len(self._claims.claim((queue, priority), candidates.lane(priority), most, shares))

    def gathering(self, queue: str) -> list[str]:
        """Return the functions with invocations that wait in a queue for others."""
        return self._tables.gathering(queue)

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
        now = self._moment()
        merged = 0
        for lane in self._tables.ready(queue, sizes, now):
            size = taken = sizes[lane.function_id]
            while taken == size:
                taken, new = self._gather(lane, size, now, merge)
                merged += new
        return merged

    @tried_again
    def _gather(
        self,
        lane: Lane,
        size: int,
        now: int,
        merge: Callable[[list[ClaimedInvocation]], tuple[NewInvocation | None, list[InvocationResult]]],
    ) -> tuple[int, int]:
        """Merge the oldest invocations of a lane, and return how many they were and how many were made of them."""
        with self._changing() as (rows, changes):
            rows.lock_keys([(f"gather {lane.queue}", lane.function_id)])
            waiting = rows.oldest(lane, size)
            if not waiting or (len(waiting) < size and to_micros(waiting[0].scheduled_at) > now):
                return 0, 0
            rows.complete([invocation.id for invocation in waiting], now)
            merged, results = merge(waiting)
            new = _insert(rows, () if merged is None else (merged,), now)
            self._traces.write(rows, (), (), results)
            changes.added, changes.over = new, Counts({lane.function_id: len(waiting)})
            changes.arrivals = new.total()
            if new:
                rows.announce()
        return len(waiting), new.total()

    @tried_again
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
        holder of the lock to give; logs, metrics and results of others are written nevertheless. Returns the ids of
        applied outcomes.
        """
        now = self._moment()
        last = {(outcome.id, outcome.lock_token): outcome for outcome in outcomes}
        with self._changing() as (rows, changes):
            applied = rows.apply(list(last.values()), now) if last else []
            ids = frozenset(outcome.id for outcome in applied)
            final = [outcome for outcome in applied if outcome.status != "available"]
            keys = {
                (outcome.function_id, outcome.order_key) for outcome in final if outcome.order_key is not None
            }
            unblocked = rows.unblock(sorted(keys), now) if keys else 0
            self._traces.write(rows, logs, metrics, still_mine(results, outcomes, ids))
            if unblocked:
                rows.announce()
            changes.over = Counts(outcome.function_id for outcome in final)
            changes.arrivals = len(applied) - len(final) + unblocked
        return ids

    def heartbeat(self, lock_tokens: Mapping[str, str]) -> frozenset[str]:
        """Renew locks (id -> token), about every `janitor.HEARTBEAT_EVERY_S`; return the ids that are still held."""
        return self._tables.beat(lock_tokens, self._moment())

    # -- the janitor --------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """Return the result of the janitor's work, which is to be done every few seconds.

        It resets invocations without a heartbeat, hands out those that were reset too often, deletes finished ones past
        their grace and what is past its retention. What a dead process was running is due at once, which does not count
        as a reset (`release_all`).
        """
        self._moment()
        released = self._tables.release(to_micros(self._now()), own=False)
        sweep = self._janitor.sweep()
        if released + sweep.reset:
            self.arrivals.wake()
        return sweep

    def release_all(self) -> int:
        """Make every invocation due that no living process runs; called at the start, when this process runs none.

        It does not count as a reset: the end of a process says nothing about any one of the hundreds that were
        in flight, and a server that is killed again and again must not give up healthy runs. Returns how many
        were released.
        """
        released = self._tables.release(to_micros(self._now()), own=True)
        if released:
            self.arrivals.wake()
        return released

    # -- what runs leave behind ---------------------------------------------------------------------

    @tried_again
    def write_logs(self, logs: Sequence[LogEntry]) -> None:
        """Add log lines outside of any turn."""
        with self._changing() as (rows, _):
            self._traces.write(rows, logs, (), ())

    @tried_again
    def write_metrics(self, metrics: Sequence[AppMetric]) -> None:
        """Count metrics outside of any turn."""
        with self._changing() as (rows, _):
            self._traces.write(rows, (), metrics, ())

    # -- plumbing -----------------------------------------------------------------------------------

    def _count(self) -> None:
        """Count the invocations of each function again, while this process changes none."""
        with self._tables.turn():
            has_grown = self.counts.replace(self._tables.count_unfinished())
        if has_grown:  # somebody enqueued, and nothing told of it
            self.arrivals.wake()

    def _moment(self) -> int:
        """Return the time in microseconds of Unix time, and notice when the clock was set."""
        if self._janitor.clock_was_set() and self._janitor.follow_clock():
            self.arrivals.wake()
        return to_micros(self._now())

    @contextmanager
    def _changing(self, *, durable: bool = False) -> Iterator[tuple[QueueRows, _Changes]]:
        """Provide the rows of a transaction, and what is to be counted after its commit, in the same turn."""
        changes = _Changes()
        with self._tables.turn():
            with self._tables.transaction(durable=durable) as rows:
                yield rows, changes
            self.counts.note(changes.added, changes.over)
            if changes.arrivals:
                self.arrivals.wake()


def _insert(rows: QueueRows, invocations: Sequence[NewInvocation], now: int) -> Counts[str]:
    """Add invocations, and return how many of each function are new.

    Those that repeat a result come last, in one order, so that nobody waits for each other.
    """
    first: dict[str, NewInvocation] = {}
    again: list[tuple[NewInvocation, int]] = []
    for invocation in invocations:
        if invocation.repeats is None:
            first.setdefault(invocation.id, invocation)
        else:
            again.append((invocation, invocation.repeats))
    if keys := [
        (invocation.function_id, invocation.order_key)
        for invocation in (*first.values(), *(invocation for invocation, _ in again))
        if invocation.order_key is not None
    ]:
        rows.lock_keys(keys)
    new: Counts[str] = Counts()
    if first:
        new.update(rows.insert([_row(invocation, now) for invocation in first.values()]))
    for invocation, version in sorted(again, key=lambda repeated: repeated[0].id):
        new[invocation.function_id] += rows.insert_again(_row(invocation, now), version)
    return +new


def _row(invocation: NewInvocation, now: int) -> Row:
    """Return the values of a row of ``invocation``."""
    return (
        invocation.id,
        invocation.project_id,
        invocation.function_id,
        invocation.parent_run_id,
        invocation.queue,
        invocation.priority,
        now if invocation.scheduled_at is None else to_micros(invocation.scheduled_at),
        invocation.log_offset,
        invocation.state,
        now,
        invocation.order_key,
    )


def _count_masked(rows: QueueRows, masking: Sequence[MaskingCount], now: int) -> None:
    """Replace the counts of masking. Raises `MaskingMovedError` if they have changed since they were read."""
    counts = [
        {
            "function_id": masked.function_id,
            "hash": masked.hash,
            "count": masked.count,
            "expires_at": to_micros(masked.expires_at),
            "before": masked.before,
            "now": now,
        }
        for masked in sorted(masking, key=attrgetter("function_id", "hash"))
    ]
    if rows.count_masked(counts) != len(counts):
        raise MaskingMovedError


def _advance_job(rows: QueueRows, step: JobStep, new: int) -> None:
    """Record the progress of a job. Raises `JobOverError`."""
    values = {
        "id": step.id,
        "before": step.before,
        "cursor": step.cursor,
        "seen": step.seen,
        "queued": new,
        "already_run": step.already_run,
        "dead_letters": step.dead_letters,
    }
    if not rows.advance_job(values):
        raise JobOverError(step.id)
