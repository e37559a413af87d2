"""Running past invocations again, with the present configuration (spec: hog-functions-api 20.1, hog-runtime 4.10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
import sqlalchemy as sa

from hoglab.delivery.globals import encoded
from hoglab.delivery.results import restored_globals
from hoglab.delivery.state import State, encode_state, raw_json
from hoglab.storage.database.tables import invocation_result
from hoglab.storage.database.types import to_micros
from hoglab.storage.invocations import AppMetric, LogEntry, NewInvocation

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.http.identity import Project

MAX_RERUN = 10_000
"""Most invocations that one request runs again."""
PAGE = 500

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
    max_count: int = MAX_RERUN


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a request started. Skipped: still running, or not kept well enough to be run again."""

    job_id: str
    queued: int
    skipped: int


def dry_run(delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter) -> Rerun:
    """What `rerun` would do, as things are now."""
    queued = skipped = 0
    for page in _pages(delivery, project.id, function_id, wanted):
        ready = sum(_can_run_again(row) for row in page)
        queued += ready
        skipped += len(page) - ready
    return Rerun("", queued, skipped)


def rerun(
    delivery: Delivery, project: Project, function_id: str, wanted: RerunFilter, shown: Mapping[str, Any]
) -> Rerun:
    """Enqueue matching invocations under their own ids. ``shown`` is what the log says of the request.

    Filters, masking and the watcher are not asked again; inputs, person and groups are looked up anew.
    """
    job_id = str(uuid4())
    now = delivery.now()
    first = f"Re-run queued. Filter: {orjson.dumps(dict(shown)).decode()}"
    delivery.queue.write_logs([LogEntry(project.id, function_id, job_id, now, "info", first)])
    queued = skipped = 0
    for page in _pages(delivery, project.id, function_id, wanted):
        invocations = [_again(delivery, project, row, job_id) for row in page]
        ready = [one for one in invocations if one is not None]
        new = delivery.queue.enqueue(ready) if ready else 0
        if new:
            delivery.queue.write_metrics([AppMetric(project.id, function_id, "other", "triggered", new, now)])
        queued += new
        skipped += len(page) - new
    text = f"{queued} invocations are run again, {skipped} were skipped."
    delivery.queue.write_logs([LogEntry(project.id, function_id, job_id, delivery.now(), "info", text)])
    return Rerun(job_id, queued, skipped)


def _pages(
    delivery: Delivery, project_id: int, function_id: str, wanted: RerunFilter
) -> Iterator[list[dict[str, Any]]]:
    clauses = [_column.project_id == project_id, _column.function_id == function_id]
    if wanted.since is not None:
        clauses.append(_column.scheduled_at >= wanted.since)
    if wanted.until is not None:
        clauses.append(_column.scheduled_at < wanted.until)
    if wanted.invocation_ids is not None:
        clauses.append(_column.invocation_id.in_(wanted.invocation_ids))
    if wanted.error_kinds is not None:
        clauses.append(_column.error_kind.in_(wanted.error_kinds))
    if wanted.message_part:
        clauses.append(_column.error_message.icontains(wanted.message_part, autoescape=True))
    if wanted.max_attempts is not None:
        clauses.append(_column.attempts <= wanted.max_attempts)
    clauses.append(_column.status.in_(wanted.statuses))
    last, left = "", min(wanted.max_count, MAX_RERUN)
    while left > 0:
        query = (
            sa.select(invocation_result)
            .where(*clauses, _column.invocation_id > last)
            .order_by(_column.invocation_id)
            .limit(min(PAGE, left))
        )
        with delivery.queue_database.read() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        if not rows:
            return
        last = rows[-1]["invocation_id"]
        left -= len(rows)
        yield rows


def _can_run_again(row: Mapping[str, Any]) -> bool:
    return row["invocation_globals"] is not None and row["status"] != "running"


def _again(delivery: Delivery, project: Project, row: Mapping[str, Any], job_id: str) -> NewInvocation | None:
    if not _can_run_again(row):
        return None
    globals_, mapping = restored_globals(row["invocation_globals"])
    globals_["groups"] = _groups(delivery, project, globals_["event"].get("properties") or {})
    first = row["first_scheduled_at"]
    state = State(
        globals=raw_json(globals_),
        event_uuid=row["event_uuid"],
        distinct_id=row["distinct_id"],
        person_id=row["person_id"],
        mapping=mapping,
        rerun=row["attempts"],
        first_scheduled_us=None if first is None else to_micros(first),
    )
    return NewInvocation(
        row["invocation_id"],
        project.id,
        row["function_id"],
        encode_state(state),
        parent_run_id=job_id,
        again=True,
    )


def _groups(delivery: Delivery, project: Project, properties: Mapping[str, Any]) -> dict[str, Any]:
    url = delivery.site.project_url(project.id)
    found = {}
    for group_type, index in delivery.people.group_types(project.id).items():
        key = properties.get(f"$group_{index}")
        if isinstance(key, str) and key:
            found[group_type] = {
                "id": key,
                "type": group_type,
                "index": index,
                "url": f"{url}/groups/{index}/{encoded(key)}",
                "properties": delivery.people.group_properties(project.id, index, key) or {},
            }
    return found
