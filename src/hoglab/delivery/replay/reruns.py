"""Running past invocations again, with the present configuration (spec: hog-functions-api 20.1, hog-runtime 4.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from hoglab.delivery.runs.globals import EventGlobals
from hoglab.delivery.runs.results import restored_globals
from hoglab.delivery.runs.state import RunState, encode_state, raw_json
from hoglab.filters.model import GROUP_TYPES
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations import (
    AppMetric,
    InvocationBatch,
    InvocationResult,
    JobKind,
    JobOverError,
    JobStep,
    LogEntry,
    NewInvocation,
    ReplayJob,
    ResultSelection,
)

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.http.identity import Project

PAGE = 500
"""Number of invocations that one step enqueues, besides those of the same moment as the last of them."""
MAX_IDS = 10_000
"""Maximum number of values of one list in a selection."""
DISABLED = "The function is disabled or deleted."


@dataclass(frozen=True, slots=True)
class RerunFilter:
    """Filter for past invocations; None leaves a column unrestricted. ``until`` is exclusive."""

    since: datetime | None = None
    until: datetime | None = None
    statuses: tuple[str, ...] = ("failed",)
    error_kinds: tuple[str, ...] | None = None
    message_part: str | None = None
    max_attempts: int | None = None
    invocation_ids: tuple[str, ...] | None = None
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class Rerun:
    """Result of a request so far. ``skipped`` are still running, or not stored well enough to be run again."""

    job_id: str
    queued: int
    skipped: int


def dry_run(delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter) -> Rerun:
    """Return the result that `rerun` would have now."""
    selection = _selection(project.id, function_id, _kept(wanted), wanted.since, wanted.until)
    total, queued = delivery.stores.runs.repeatable(selection, wanted.max_count)
    return Rerun("", queued, total - queued)


def rerun(
    delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter, shown: Mapping[str, Any]
) -> Rerun:
    """Begin to enqueue matching invocations, the oldest first, under their own ids.

    The first ones are enqueued at once, the rest in the background. ``shown`` is the text about the request for the
    log. Filters, masking and the circuit breaker are not applied again; inputs, person and groups are looked up
    again.
    """
    kept, now = _kept(wanted), delivery.now()
    selection = _selection(project.id, function_id, kept, wanted.since, wanted.until)
    count, newest = delivery.stores.runs.extent(selection)
    job = ReplayJob(
        id=str(uuid4()),
        project_id=project.id,
        function_id=function_id,
        status="running",
        dry_run=False,
        since=wanted.since or from_micros(0),
        until=wanted.until or now,
        max_events=wanted.max_count,
        selection=kept,
        cursor=-1 if wanted.since is None else to_micros(wanted.since) - 1,
        last_seq=-1 if newest is None else to_micros(newest),
        total=min(count, wanted.max_count or count),
        created_at=now,
    )
    reruns = Reruns(delivery)
    delivery.stores.jobs.begin(job, alone=False)
    reruns.log(job, "info", f"Re-run queued. Filter: {orjson.dumps(dict(shown)).decode()}")
    reruns.step(job)
    after = delivery.stores.jobs.get(JobKind.RERUN, project.id, function_id, job.id) or job
    if after.status == "running":
        delivery.on_rerun()
    return Rerun(job.id, after.queued, after.seen - after.queued)


class Reruns:
    """The jobs that run past invocations again."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._jobs = delivery.stores.jobs

    def step(self, job: ReplayJob) -> None:
        """Enqueue the next invocations, together with the place reached."""
        delivery = self._delivery
        functions = delivery.registry.for_project(job.project_id)
        if functions is None or job.function_id not in functions.by_id:
            self.end(job, "failed", DISABLED)
            return
        results, last = _page(delivery, job)
        event_globals = delivery.context.new_event_globals()
        ready = [_again(event_globals, result, job) for result in results if _can_run_again(result)]
        step = JobStep(job.id, job.cursor, last, seen=len(results))
        try:
            new = delivery.queue.enqueue(InvocationBatch(ready, step=step))
        except JobOverError:  # cancelled, or another thread was faster
            return
        if new:
            metric = AppMetric(job.project_id, job.function_id, "other", "triggered", new, delivery.now())
            delivery.stores.runs.write_metrics([metric])
        if last >= job.last_seq:
            self.end(job, "completed")

    def end(self, job: ReplayJob, status: str, error: str | None = None) -> None:
        """Record the end of a job."""
        if not self._jobs.finish(job.id, status, self._delivery.now(), error):
            return
        after = self._jobs.get(JobKind.RERUN, job.project_id, job.function_id, job.id) or job
        queued, skipped = after.queued, after.seen - after.queued
        text = f"{queued} invocations are run again, {skipped} were skipped."
        self.log(job, "info" if error is None else "error", text if error is None else f"{text} {error}")

    def log(self, job: ReplayJob, level: str, text: str) -> None:
        line = LogEntry(job.project_id, job.function_id, job.id, self._delivery.now(), level, text)
        self._delivery.stores.runs.write_logs([line])


def _kept(wanted: RerunFilter) -> dict[str, Any]:
    """Return the parameters of a job for a filter, besides its range of time."""
    return {
        "statuses": wanted.statuses,
        "error_kinds": wanted.error_kinds,
        "message_part": wanted.message_part,
        "max_attempts": wanted.max_attempts,
        "invocation_ids": wanted.invocation_ids,
    }


def _selection(
    project_id: int,
    function_id: str,
    kept: Mapping[str, Any],
    since: datetime | None = None,
    until: datetime | None = None,
) -> ResultSelection:
    return ResultSelection(project_id, function_id, **kept, since=since, until=until)


def _page(delivery: Delivery, job: ReplayJob) -> tuple[list[InvocationResult], int]:
    """Return the next results of a rerun and the place behind them.

    A result that was enqueued again is not met again: its time is then later than the range of the rerun.
    """
    left = None if job.max_events is None else job.max_events - job.seen
    wanted = _selection(job.project_id, job.function_id, job.selection or {})
    until = from_micros(job.last_seq)
    results, last = delivery.stores.runs.page(wanted, from_micros(job.cursor), until, size=PAGE, limit=left)
    if left is not None and len(results) >= left:
        last = until  # enough results were read
    return results, to_micros(last)


def _can_run_again(result: InvocationResult) -> bool:
    return result.invocation_globals is not None and result.status != "running"


def _again(event_globals: EventGlobals, result: InvocationResult, job: ReplayJob) -> NewInvocation:
    globals_, mapping_id = restored_globals(result.invocation_globals or b"")
    properties = globals_["event"].get("properties") or {}
    keys = {index: properties.get(f"$group_{index}") for index in range(GROUP_TYPES)}
    named = {index: key for index, key in keys.items() if isinstance(key, str) and key}
    globals_["groups"] = event_globals.groups_of(job.project_id, named) if named else {}
    first = result.first_scheduled_at
    state = RunState(
        globals=raw_json(globals_),
        event_uuid=result.event_uuid,
        distinct_id=result.distinct_id,
        person_id=result.person_id,
        mapping_id=mapping_id,
        rerun=result.attempts,
        first_scheduled_us=None if first is None else to_micros(first),
    )
    return NewInvocation(
        result.invocation_id,
        job.project_id,
        result.function_id,
        encode_state(state),
        parent_run_id=job.id,
        repeats=result.version,
    )
