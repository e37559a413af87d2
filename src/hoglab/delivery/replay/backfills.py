"""Running a function on past events, in the order in which they were stored.

A backfill treats the events of a range of time as if they came now: filters, inputs, masking. Its runs have the ids
that live ones have, so delivered events are not delivered again as long as that is remembered (30 days), however
often the backfill is repeated. Its place is written with the runs it enqueues: after a crash the server continues
there.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import orjson
import structlog
from msgspec.structs import replace
from prometheus_client import Counter, Gauge

from hoglab.background import RETRY_S, BackgroundService
from hoglab.delivery.replay.reruns import DISABLED, Reruns
from hoglab.delivery.runs.dead_letters import EVENTS, reason_of
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.history import TimeRange
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import JobKind, JobOverError, JobStep, LogEntry, ReplayJob
from hoglab.storage.job_leases import JobName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hoglab.delivery.dispatch import DispatchPlan, EventDispatcher
    from hoglab.delivery.service import Delivery
    from hoglab.functions.runtime import CompiledFunction
    from hoglab.storage.event_store import EventReader, EventRow
    from hoglab.storage.job_leases import JobLeases

WINDOW = 2_000
"""Number of events of all projects that one step looks at."""
PRIORITY = 5
"""Priority of the runs of backfills: live runs, and their retries, go first."""
MAX_BACKLOG = 5_000
"""Unfinished invocations of a function, or of all that do not hold themselves back, above which backfills wait."""
ROOM_POLL_S = 0.2
QUERY_TIMEOUT_S = 60.0

_STORE_TROUBLE = (EventStoreUnavailableError, QueryError, QueryMemoryError, QueryTimeoutError)

_logger = structlog.get_logger(__name__)
_EVENTS = Counter("hoglab_delivery_backfilled_events", "Stored events that backfills asked functions about.")
_RUNNING = Gauge("hoglab_delivery_backfills_running", "Backfills that are not over.")


class Steps(Protocol):
    """Procedure for jobs of one kind. Errors that `step` raises, apart from those of databases, end the job."""

    def step(self, job: ReplayJob) -> None:
        """Do the next part of a job, and write the place reached with what it enqueues; `end` it after the last."""
        ...

    def end(self, job: ReplayJob, status: str, error: str | None = None) -> None:
        """Record the end of a job, in its row and in the function's log."""
        ...


class Backfills(BackgroundService):
    """Background service that runs backfills. The other methods may be called from any thread."""

    NAME = "backfill"

    def __init__(
        self,
        delivery: Delivery,
        store: EventReader,
        leases: JobLeases,
        *,
        max_backlog: int = MAX_BACKLOG,
        catch_up: CatchUp | None = None,
        newest: Callable[[], int] | None = None,
        look_every_s: float | None = None,
    ) -> None:
        """Create the service.

        ``leases`` are the leases of this process, which owns a job during each step. ``newest`` is the place up to
        which all events are stored, where the store itself does not know. ``look_every_s`` is the interval at which
        jobs of other processes are looked for, where there are any.
        """
        super().__init__()
        self._leases = leases
        self._look_every_s = look_every_s
        self._newest = newest
        self._delivery = delivery
        self._jobs = delivery.stores.jobs
        self._history = _History(delivery, store)
        self._kinds: Mapping[JobKind, Steps] = {
            JobKind.BACKFILL: self._history,
            JobKind.RERUN: Reruns(delivery),
        }
        delivery.on_rerun = self.wake
        self._store = store
        self._catch_up = catch_up
        self._max_backlog = max_backlog

    def now(self) -> datetime:
        return self._delivery.now()

    # --- for the API

    def begin(
        self,
        project_id: int,
        function_id: str,
        since: datetime,
        until: datetime,
        *,
        max_events: int | None,
        dry_run: bool,
    ) -> ReplayJob:
        """Begin a backfill; it goes on in the background.

        Raises `JobRunsError`, `NotCaughtUpError` and the store's errors.
        """
        if self._catch_up is not None:
            self._catch_up.require(project_id)
        # Later events are still being stored, and functions run on them anyway.
        newest = None if self._newest is None else self._newest()
        with self._store.reader() as reader:
            extent = TimeRange(project_id, since, until).extent(reader, newest, timeout_s=QUERY_TIMEOUT_S)
        job = ReplayJob(
            id=str(uuid4()),
            project_id=project_id,
            function_id=function_id,
            status="running" if extent else "completed",
            dry_run=dry_run,
            since=since,
            until=until,
            max_events=max_events,
            cursor=extent.first_seq - 1 if extent else 0,
            last_seq=extent.last_seq if extent else 0,
            total=min(extent.count, max_events or extent.count) if extent else 0,
            created_at=self.now(),
            finished_at=None if extent else self.now(),
        )
        self._jobs.begin(job, alone=True)
        self._history.log(
            job, "info", f"Backfill of {job.total} events begins{' (dry run)' if dry_run else ''}."
        )
        self.wake()
        return self.get(project_id, function_id, job.id) or job

    def get(
        self, project_id: int, function_id: str, job_id: str, kind: JobKind = JobKind.BACKFILL
    ) -> ReplayJob | None:
        return self._jobs.get(kind, project_id, function_id, job_id)

    def page(
        self, project_id: int, function_id: str, limit: int, offset: int, kind: JobKind = JobKind.BACKFILL
    ) -> tuple[list[ReplayJob], int]:
        """Return the jobs of a function, newest first, and how many there are."""
        return self._jobs.page(kind, project_id, function_id, limit, offset)

    def cancel(
        self, project_id: int, function_id: str, job_id: str, kind: JobKind = JobKind.BACKFILL
    ) -> ReplayJob | None:
        """Stop a job; the runs that it enqueued go on. A finished job stays as it is."""
        if self.get(project_id, function_id, job_id, kind) is not None:
            self._jobs.finish(job_id, "cancelled", self.now())
        if kind is JobKind.BACKFILL:
            self.wake()
        return self.get(project_id, function_id, job_id, kind)

    # --- life

    def round(self) -> float | None:
        """Do one step of each backfill that no other process works on.

        Return the wait before the next round, in seconds. None when none is left, and no other process begins one.
        """
        try:
            jobs = self.running()
            _RUNNING.set(len(jobs))
            if not jobs:
                self._history.forget()
                return self._look_every_s
            waits, is_elsewhere = True, False
            for job in jobs:
                if self.is_stopping:
                    break
                if not job.dry_run and not self._has_capacity_for(job.function_id):
                    continue
                with self._leases.claimed(JobName("replay", job.id)) as lease:
                    if lease is None:
                        is_elsewhere = True
                        continue
                    self._try(job)
                    waits = False
            if waits:
                return RETRY_S if is_elsewhere else ROOM_POLL_S
        except (DatabaseError, *_STORE_TROUBLE) as error:
            _logger.warning("backfill_waits", reason=str(error))
            return RETRY_S
        return 0.0

    def _has_capacity_for(self, function_id: str) -> bool:
        """Return whether neither the function nor all others together have too many runs.

        Runs that cannot begin now do not count, nor those of functions that hold themselves back.
        """
        most, delivery = self._max_backlog, self._delivery
        return (
            delivery.queue.counts.backlog_of(function_id) < most and delivery.backpressure.load(most) < most
        )

    def _try(self, job: ReplayJob) -> None:
        """Do a step; a backfill that fails for a reason of its own ends, and delays no other."""
        try:
            self.step(job)
        except (DatabaseError, *_STORE_TROUBLE):
            raise
        except Exception as error:
            _logger.exception("backfill_failed", backfill_id=job.id)
            self._kinds[job.kind].end(job, "failed", reason_of(error))

    def step(self, job: ReplayJob) -> None:
        """Do the next part of a job."""
        self._kinds[job.kind].step(job)

    def running(self) -> list[ReplayJob]:
        """Return jobs that are not over, backfills and reruns, oldest first."""
        return self._jobs.running()


class _History:
    """The jobs that evaluate functions on stored events."""

    def __init__(self, delivery: Delivery, store: EventReader) -> None:
        self._delivery = delivery
        self._store = store
        self._jobs = delivery.stores.jobs
        self._dispatchers: dict[str, tuple[CompiledFunction, EventDispatcher]] = {}

    def forget(self) -> None:
        """Drop cached dispatchers when no job is left."""
        self._dispatchers.clear()

    def step(self, job: ReplayJob) -> None:
        """Evaluate the function on the next events, and enqueue their runs together with the place reached."""
        dispatcher = self._dispatcher(job)
        if dispatcher is None:
            self.end(job, "failed", DISABLED)
            return
        last = min(job.cursor + WINDOW, job.last_seq)
        rows = self._window(job, last)
        if job.max_events is not None and len(rows) >= job.max_events - job.seen:
            rows = rows[: job.max_events - job.seen]
            last = job.last_seq  # enough events were read

        def write(plan: DispatchPlan) -> None:
            plan.invocations = [
                replace(invocation, priority=PRIORITY, parent_run_id=job.id)
                for invocation in plan.invocations
            ]
            step = JobStep(
                job.id,
                job.cursor,
                last,
                seen=len(rows),
                already_run=plan.already_run,
                dead_letters=len(plan.dead),
            )
            if job.dry_run:
                self._jobs.advance(step, len(plan.invocations))
            else:
                dispatcher.commit(plan, step=step)

        try:
            dispatcher.carry_out([IngestedEvent(row, orjson.loads(row.properties)) for _, row in rows], write)
        except JobOverError:
            return
        _EVENTS.inc(len(rows))
        if last >= job.last_seq:
            self.end(job, "completed")

    def _dispatcher(self, job: ReplayJob) -> EventDispatcher | None:
        """Return the dispatcher of a backfill, a new one after the function changed.

        None when the function does not run.
        """
        function_id = job.function_id
        functions = self._delivery.registry.for_project(job.project_id)
        function = None if functions is None else functions.by_id.get(function_id)
        known = self._dispatchers.get(function_id)
        if known is not None and known[0] is function:
            return known[1]
        dispatcher = self._delivery.dispatcher_for(job.project_id, EVENTS, function_id)
        if function is not None and dispatcher is not None:
            self._dispatchers[function_id] = (function, dispatcher)
        return dispatcher

    def _window(self, job: ReplayJob, last: int) -> list[tuple[int, EventRow]]:
        wanted = TimeRange(job.project_id, job.since, job.until)
        with self._store.reader() as reader:
            return wanted.window(reader, job.cursor, last, end=job.last_seq, timeout_s=QUERY_TIMEOUT_S)

    def end(self, job: ReplayJob, status: str, error: str | None = None) -> None:
        """Record the end of a job, unless that was done."""
        if not self._jobs.finish(job.id, status, self._delivery.now(), error):
            return
        after = self._jobs.get(JobKind.BACKFILL, job.project_id, job.function_id, job.id) or job
        text = f"Backfill {after.status}: {after.seen} of {after.total} events, {after.queued} runs"
        self.log(
            job, "info" if error is None else "error", f"{text}." if error is None else f"{text}: {error}"
        )

    def log(self, job: ReplayJob, level: str, text: str) -> None:
        line = LogEntry(job.project_id, job.function_id, job.id, self._delivery.now(), level, text)
        self._delivery.stores.runs.write_logs([line])
