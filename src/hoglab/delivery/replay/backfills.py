"""Running a function on events that came before it: history, in the order in which it was stored.

A backfill goes through the events of a range of time as if they came now: filters, inputs, masking. Its runs have the
ids that live ones have, so what was delivered is not delivered again as long as that is remembered (30 days), however
often the backfill is repeated. Its place is written with what it enqueues: a server that is killed goes on there.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import orjson
import sqlalchemy as sa
import structlog
from msgspec.structs import replace
from prometheus_client import Counter, Gauge

from hoglab.background import RETRY_S, BackgroundService
from hoglab.delivery.replay.jobs import Job, Jobs, Kind, running_jobs
from hoglab.delivery.replay.reruns import DISABLED, Reruns
from hoglab.delivery.runs.dead_letters import EVENTS, reason_of
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.database.tables import backfill
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.history import TimeRange
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import BackfillOverError, BackfillStep, LogEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hoglab.delivery.dispatch.dispatcher import EventDispatcher
    from hoglab.delivery.replay.jobs import Steps
    from hoglab.delivery.service import Delivery
    from hoglab.functions.runtime.compile import CompiledFunction
    from hoglab.storage.event_store import EventRow, EventStore

WINDOW = 2_000
"""Events of all projects that one step looks at."""
PRIORITY = 5
"""Of the runs of backfills: what comes live, and its retries, go first."""
MAX_BACKLOG = 5_000
"""With more invocations of a function unfinished, or of all that do not hold themselves back, backfills wait."""
ROOM_POLL_S = 0.2
QUERY_TIMEOUT_S = 60.0

_STORE_TROUBLE = (EventStoreUnavailableError, QueryError, QueryMemoryError, QueryTimeoutError)

_column = backfill.c
_logger = structlog.get_logger(__name__)
_EVENTS = Counter("hoglab_delivery_backfilled_events", "Stored events that backfills asked functions about.")
_RUNNING = Gauge("hoglab_delivery_backfills_running", "Backfills that are not over.")


class Backfills(BackgroundService):
    """Background service that goes on with backfills. The other methods may be called from any thread."""

    NAME = "backfill"

    def __init__(
        self,
        delivery: Delivery,
        store: EventStore,
        *,
        max_backlog: int = MAX_BACKLOG,
        catch_up: CatchUp | None = None,
    ) -> None:
        super().__init__()
        self._delivery = delivery
        self._database = delivery.queue_database
        self._history, reruns = _History(delivery, store), Reruns(delivery)
        self._kinds: Mapping[Kind, Steps] = {Kind.BACKFILL: self._history, Kind.RERUN: reruns}
        self._jobs, self.reruns = self._history.jobs, reruns.jobs
        """``reruns``: past invocations that are run again; they are gone on with here, too."""
        delivery.on_rerun = self.wake
        self._store = store
        self._catch_up = catch_up
        self._max_backlog = max_backlog

    def now(self) -> datetime:
        return self._delivery.now()

    # --- what the API asks for

    def begin(
        self,
        project_id: int,
        function_id: str,
        since: datetime,
        until: datetime,
        *,
        max_events: int | None,
        dry_run: bool,
    ) -> Job:
        """Begin a backfill; it goes on in the background.

        Raises `JobRunsError`, `NotCaughtUpError` and the store's errors.
        """
        if self._catch_up is not None:
            self._catch_up.require()
        with self._store.reader() as reader:
            extent = TimeRange(project_id, since, until).extent(reader, timeout_s=QUERY_TIMEOUT_S)
        job: Job = {
            "id": str(uuid4()),
            "project_id": project_id,
            "function_id": function_id,
            "status": "running" if extent else "completed",
            "dry_run": dry_run,
            "since": since,
            "until": until,
            "max_events": max_events,
            "cursor": extent.first_seq - 1 if extent else 0,
            "last_seq": extent.last_seq if extent else 0,
            "total": min(extent.count, max_events or extent.count) if extent else 0,
            "created_at": self.now(),
            "finished_at": None if extent else self.now(),
        }
        self._jobs.begin(job, alone=True)
        self._history.log(
            job, "info", f"Backfill of {job['total']} events begins{' (dry run)' if dry_run else ''}."
        )
        self.wake()
        return self.get(project_id, function_id, job["id"]) or job

    def get(self, project_id: int, function_id: str, job_id: str) -> Job | None:
        return self._jobs.get(project_id, function_id, job_id)

    def page(self, project_id: int, function_id: str, limit: int, offset: int) -> tuple[list[Job], int]:
        """The backfills of a function, newest first, and how many there are."""
        return self._jobs.page(project_id, function_id, limit, offset)

    def cancel(self, project_id: int, function_id: str, job_id: str) -> Job | None:
        """Stop a backfill; what it has enqueued runs. One that is over stays as it is."""
        cancelled = self._jobs.cancel(project_id, function_id, job_id)
        self.wake()
        return cancelled

    # --- life

    def round(self) -> float | None:
        """One step of each backfill; how long to wait before the next round, None when none is left."""
        try:
            jobs = self.running()
            _RUNNING.set(len(jobs))
            if not jobs:
                self._history.forget()
                return None
            waits = True
            for job in jobs:
                if self.is_stopping:
                    break
                if job["dry_run"] or self._has_room_for(job["function_id"]):
                    self._try(job)
                    waits = False
            if waits:
                return ROOM_POLL_S
        except (DatabaseError, *_STORE_TROUBLE) as error:
            _logger.warning("backfill_waits", reason=str(error))
            return RETRY_S
        return 0.0

    def _has_room_for(self, function_id: str) -> bool:
        """Whether neither the function has much to do nor all others together.

        What nobody could begin now does not count, nor what holds itself back.
        """
        most, delivery = self._max_backlog, self._delivery
        return delivery.queue.backlog_of(function_id) < most and delivery.room.load(most) < most

    def _try(self, job: Job) -> None:
        """Do a step; a backfill that fails for a reason of its own is over, and holds up no other."""
        try:
            self.step(job)
        except (DatabaseError, *_STORE_TROUBLE):
            raise
        except Exception as error:
            _logger.exception("backfill_failed", backfill_id=job["id"])
            self._kinds[Kind.of(job)].end(job, "failed", reason_of(error))

    def step(self, job: Job) -> None:
        """Do the next part of a job."""
        self._kinds[Kind.of(job)].step(job)

    def running(self) -> list[Job]:
        """What is not over, backfills and what is run again, oldest first."""
        return running_jobs(self._database)


class _History:
    """The jobs that ask functions about stored events."""

    def __init__(self, delivery: Delivery, store: EventStore) -> None:
        self._delivery = delivery
        self._store = store
        self.jobs = Jobs(delivery.queue_database, delivery.now, Kind.BACKFILL)
        self._dispatchers: dict[str, tuple[CompiledFunction, EventDispatcher]] = {}

    def forget(self) -> None:
        """Nothing is left to do for now."""
        self._dispatchers.clear()

    def step(self, job: Job) -> None:
        """Ask the function about the next events, and enqueue what they cause together with the place reached."""
        dispatcher = self._dispatcher(job)
        if dispatcher is None:
            self.end(job, "failed", DISABLED)
            return
        last = min(job["cursor"] + WINDOW, job["last_seq"])
        found = self._window(job, last)
        if job["max_events"] is not None and len(found) >= job["max_events"] - job["seen"]:
            found = found[: job["max_events"] - job["seen"]]
            last = job["last_seq"]  # enough was seen
        plan = dispatcher.plan([IngestedEvent(row, orjson.loads(row.properties)) for _, row in found])
        plan.invocations = [
            replace(one, priority=PRIORITY, parent_run_id=job["id"]) for one in plan.invocations
        ]
        step = BackfillStep(
            job["id"], job["cursor"], last, seen=len(found), settled=plan.settled, put_aside=len(plan.dead)
        )
        try:
            if job["dry_run"]:
                self._note(step, len(plan.invocations))
            else:
                dispatcher.commit(plan, step=step)
        except BackfillOverError:
            return
        _EVENTS.inc(len(found))
        if last >= job["last_seq"]:
            self.end(job, "completed")

    def _dispatcher(self, job: Job) -> EventDispatcher | None:
        """One for each backfill, made anew when the function changed; None when the function does not run."""
        function_id = job["function_id"]
        functions = self._delivery.registry.for_project(job["project_id"])
        function = None if functions is None else functions.by_id.get(function_id)
        known = self._dispatchers.get(function_id)
        if known is not None and known[0] is function:
            return known[1]
        made = self._delivery.dispatcher_for(job["project_id"], EVENTS, function_id)
        if function is not None and made is not None:
            self._dispatchers[function_id] = (function, made)
        return made

    def _window(self, job: Job, last: int) -> list[tuple[int, EventRow]]:
        wanted = TimeRange(job["project_id"], job["since"], job["until"])
        with self._store.reader() as reader:
            return wanted.window(reader, job["cursor"], last, timeout_s=QUERY_TIMEOUT_S)

    def _note(self, step: BackfillStep, queued: int) -> None:
        """Come further without enqueueing anything. Raises `BackfillOverError`."""
        here = (_column.id == step.id, _column.cursor == step.before, _column.status == "running")
        values = {
            "cursor": step.cursor,
            "seen": _column.seen + step.seen,
            "queued": _column.queued + queued,
            "settled": _column.settled + step.settled,
            "put_aside": _column.put_aside + step.put_aside,
        }
        with self._delivery.queue_database.write(rebuildable=Rebuildable.BACKFILL_PROGRESS) as tx:
            if not tx.connection.execute(sa.update(backfill).where(*here).values(**values)).rowcount:
                raise BackfillOverError(step.id)

    def end(self, job: Job, status: str, error: str | None = None) -> None:
        """Say that one is over."""
        self.jobs.finish(job["id"], status, error)
        after = self.jobs.get(job["project_id"], job["function_id"], job["id"]) or job
        text = (
            f"Backfill {after['status']}: {after['seen']} of {after['total']} events, {after['queued']} runs"
        )
        self.log(
            job, "info" if error is None else "error", f"{text}." if error is None else f"{text}: {error}"
        )

    def log(self, job: Job, level: str, text: str) -> None:
        line = LogEntry(job["project_id"], job["function_id"], job["id"], self._delivery.now(), level, text)
        self._delivery.queue.write_logs([line])
