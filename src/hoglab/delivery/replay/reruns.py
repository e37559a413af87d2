"""Running past invocations again, with the present configuration (spec: hog-functions-api 20.1, hog-runtime 4.10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
import sqlalchemy as sa

from hoglab.delivery.replay.jobs import Job, Jobs, Kind
from hoglab.delivery.runs.globals import EventGlobals, GroupProperties
from hoglab.delivery.runs.results import restored_globals
from hoglab.delivery.runs.state import State, encode_state, raw_json
from hoglab.filters.model import GROUP_TYPES
from hoglab.storage.database.tables import invocation_result
from hoglab.storage.database.types import from_micros, to_micros
from hoglab.storage.invocations import (
    AppMetric,
    BackfillOverError,
    BackfillStep,
    LogEntry,
    NewInvocation,
)

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.http.identity import Project

PAGE = 500
"""Invocations that one step enqueues, and those of the same moment as the last of them."""
MAX_IDS = 10_000
"""Most values of one list in a selection."""
DISABLED = "The function is disabled or deleted."

_column = invocation_result.c


@dataclass(frozen=True, slots=True)
class RerunFilter:
    """Which past invocations are wanted; None leaves a column alone. ``until`` is exclusive."""

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
    """What a request started, as far as it came. Skipped: still running, or not kept well enough to be run again."""

    job_id: str
    queued: int
    skipped: int


def dry_run(delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter) -> Rerun:
    """What `rerun` would do, as things are now."""
    ready = sa.and_(_column.invocation_globals.is_not(None), _column.status != "running")
    rows = (
        sa.select(sa.case((ready, 1), else_=0).label("ready"))
        .where(*_range(wanted), *_clauses(project.id, function_id, _selection(wanted)))
        .order_by(_column.scheduled_at)
        .limit(wanted.max_count)
        .subquery()
    )
    counts = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(rows.c.ready), 0)).select_from(rows)
    with delivery.queue_database.read() as connection:
        total, queued = connection.execute(counts).one()
    return Rerun("", int(queued), int(total) - int(queued))


def rerun(
    delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter, shown: Mapping[str, Any]
) -> Rerun:
    """Begin to enqueue matching invocations, the oldest first, under their own ids.

    The first ones are enqueued at once, the rest in the background. ``shown`` is what the log says of the request.
    Filters, masking and the watcher are not asked again; inputs, person and groups are looked up anew.
    """
    selection, now = _selection(wanted), delivery.now()
    matching = (*_range(wanted), *_clauses(project.id, function_id, selection))
    extent = sa.select(sa.func.count(), sa.func.max(_column.scheduled_at)).where(*matching)
    with delivery.queue_database.read() as connection:
        count, newest = connection.execute(extent).one()
    job: Job = {
        "id": str(uuid4()),
        "project_id": project.id,
        "function_id": function_id,
        "status": "running",
        "dry_run": False,
        "since": wanted.since or from_micros(0),
        "until": wanted.until or now,
        "max_events": wanted.max_count,
        "selection": selection,
        "cursor": -1 if wanted.since is None else to_micros(wanted.since) - 1,
        "last_seq": -1 if newest is None else to_micros(newest),
        "total": min(count, wanted.max_count or count),
        "seen": 0,
        "queued": 0,
        "created_at": now,
    }
    reruns = Reruns(delivery)
    reruns.jobs.begin(job, alone=False)
    reruns.log(job, "info", f"Re-run queued. Filter: {orjson.dumps(dict(shown)).decode()}")
    reruns.step(job)
    after = reruns.jobs.get(project.id, function_id, job["id"]) or job
    if after["status"] == "running":
        delivery.on_rerun()
    return Rerun(job["id"], after["queued"], after["seen"] - after["queued"])


class Reruns:
    """The jobs that run past invocations again."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.jobs = Jobs(delivery.queue_database, delivery.now, Kind.RERUN)

    def step(self, job: Job) -> None:
        """Enqueue the next invocations, together with the place reached."""
        delivery = self._delivery
        functions = delivery.registry.for_project(job["project_id"])
        if functions is None or job["function_id"] not in functions.by_id:
            self.end(job, "failed", DISABLED)
            return
        rows, last = _page(delivery, job)
        event_globals = EventGlobals(delivery.site, delivery.people, GroupProperties(delivery.people))
        ready = [again for row in rows if (again := _again(event_globals, row, job)) is not None]
        step = BackfillStep(job["id"], job["cursor"], last, seen=len(rows))
        try:
            new = delivery.queue.enqueue(ready, step=step)
        except BackfillOverError:  # cancelled, or another thread was here first
            return
        if new:
            metric = AppMetric(
                job["project_id"], job["function_id"], "other", "triggered", new, delivery.now()
            )
            delivery.queue.write_metrics([metric])
        if last >= job["last_seq"]:
            self.end(job, "completed")

    def end(self, job: Job, status: str, error: str | None = None) -> None:
        """Say that one is over."""
        if not self.jobs.finish(job["id"], status, error):
            return
        after = self.jobs.get(job["project_id"], job["function_id"], job["id"]) or job
        queued, skipped = after["queued"], after["seen"] - after["queued"]
        text = f"{queued} invocations are run again, {skipped} were skipped."
        self.log(job, "info" if error is None else "error", text if error is None else f"{text} {error}")

    def log(self, job: Job, level: str, text: str) -> None:
        line = LogEntry(job["project_id"], job["function_id"], job["id"], self._delivery.now(), level, text)
        self._delivery.queue.write_logs([line])


def _selection(wanted: RerunFilter) -> dict[str, Any]:
    """What a job keeps of a filter, besides its range of time."""
    return {
        "statuses": wanted.statuses,
        "error_kinds": wanted.error_kinds,
        "message_part": wanted.message_part,
        "max_attempts": wanted.max_attempts,
        "invocation_ids": wanted.invocation_ids,
    }


def _range(wanted: RerunFilter) -> Iterator[sa.ColumnElement[bool]]:
    yield _column.scheduled_at.is_not(None)
    if wanted.since is not None:
        yield _column.scheduled_at >= wanted.since
    if wanted.until is not None:
        yield _column.scheduled_at < wanted.until


def _clauses(
    project_id: int, function_id: str, selection: Mapping[str, Any]
) -> Iterator[sa.ColumnElement[bool]]:
    yield _column.project_id == project_id
    yield _column.function_id == function_id
    yield _column.status.in_(selection["statuses"])
    if selection["invocation_ids"] is not None:
        yield _column.invocation_id.in_(selection["invocation_ids"])
    if selection["error_kinds"] is not None:
        yield _column.error_kind.in_(selection["error_kinds"])
    if selection["message_part"]:
        yield _column.error_message.icontains(selection["message_part"], autoescape=True)
    if selection["max_attempts"] is not None:
        yield _column.attempts <= selection["max_attempts"]


def _page(delivery: Delivery, job: Job) -> tuple[list[dict[str, Any]], int]:
    """The next rows of a rerun and the place behind them.

    What was enqueued again is not met again: its time is then later than all that the rerun is about.
    """
    moment, last = _column.scheduled_at, job["last_seq"]
    left = None if job["max_events"] is None else job["max_events"] - job["seen"]
    here = (
        *_clauses(job["project_id"], job["function_id"], job["selection"]),
        moment > from_micros(job["cursor"]),
        moment <= from_micros(last),
    )
    with delivery.queue_database.read() as connection:
        full = sa.select(moment).where(*here).order_by(moment).offset(PAGE - 1).limit(1)
        edge = connection.execute(full).scalar()
        if edge is not None:
            last = to_micros(edge)
        query = sa.select(invocation_result).where(*here, moment <= from_micros(last))
        query = query.order_by(moment, _column.invocation_id).limit(left)
        rows = [dict(row) for row in connection.execute(query).mappings()]
    if left is not None and len(rows) >= left:
        last = job["last_seq"]  # enough was seen
    return rows, last


def _can_run_again(row: Mapping[str, Any]) -> bool:
    return row["invocation_globals"] is not None and row["status"] != "running"


def _again(event_globals: EventGlobals, row: Mapping[str, Any], job: Job) -> NewInvocation | None:
    if not _can_run_again(row):
        return None
    globals_, mapping_id = restored_globals(row["invocation_globals"])
    properties = globals_["event"].get("properties") or {}
    keys = {index: properties.get(f"$group_{index}") for index in range(GROUP_TYPES)}
    named = {index: key for index, key in keys.items() if isinstance(key, str) and key}
    globals_["groups"] = event_globals.groups_of(job["project_id"], named) if named else {}
    first = row["first_scheduled_at"]
    state = State(
        globals=raw_json(globals_),
        event_uuid=row["event_uuid"],
        distinct_id=row["distinct_id"],
        person_id=row["person_id"],
        mapping_id=mapping_id,
        rerun=row["attempts"],
        first_scheduled_us=None if first is None else to_micros(first),
    )
    return NewInvocation(
        row["invocation_id"],
        job["project_id"],
        row["function_id"],
        encode_state(state),
        parent_run_id=job["id"],
        repeats=row["version"],
    )
