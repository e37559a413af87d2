"""Trying events again that did not become invocations: the whole way from the filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa

from hoglab.delivery.runs.dead_letters import stored_row
from hoglab.storage.database.tables import dead_event
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hoglab.delivery.dispatch.dispatcher import EventDispatcher
    from hoglab.delivery.runs.dead_letters import DeadLetterSelection
    from hoglab.storage.database import Database

MAX_REVIVED = 10_000
"""Most dead events that one request tries again."""
PAGE = 100

_column = dead_event.c


@dataclass(slots=True)
class RetriedDeadLetters:
    """What became of a request.

    ``queued`` invocations were enqueued (with ``dry_run``: would be); ``tried`` events were asked about, of which
    ``failed`` failed again; ``skipped`` ones are for functions that are disabled or deleted, or for nobody, and stay.
    """

    queued: int = 0
    tried: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterRetry:
    """Tries dead events again: the whole way from the filters, and for the functions only that missed them.

    ``dispatcher``: makes one for a source, and for one function or (None) all that hear of it; None when the
    function does not run. ``read``: makes an event of the payload of step ``parse``.
    """

    database: Database
    dispatcher: Callable[[int, str, str | None], EventDispatcher | None]
    read: Callable[[bytes], IngestedEvent]

    def revive(
        self, project_id: int, wanted: DeadLetterSelection, *, dry_run: bool = False
    ) -> RetriedDeadLetters:
        """Up to `MAX_REVIVED` matching ones, oldest failure first. What fails again is kept with the new reason."""
        done = RetriedDeadLetters()
        for page in self._pages(project_id, wanted):
            groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
            for row in page:
                groups.setdefault((row["source"], row["function_id"]), []).append(row)
            for (source, function_id), rows in groups.items():
                dispatcher = self.dispatcher(project_id, source, function_id or None)
                if dispatcher is None:
                    done.skipped += len(rows)
                else:
                    self._again(dispatcher, rows, done, dry_run=dry_run)
        return done

    def _pages(self, project_id: int, wanted: DeadLetterSelection) -> Iterator[list[dict[str, Any]]]:
        ids = (
            sa.select(_column.id)
            .where(*wanted.clauses(project_id))
            .order_by(_column.failed_at, _column.id)
            .limit(MAX_REVIVED)
        )
        with self.database.read() as connection:
            left = list(connection.execute(ids).scalars())
        while left:
            page, left = left[:PAGE], left[PAGE:]
            with self.database.read() as connection:
                rows = connection.execute(sa.select(dead_event).where(_column.id.in_(page))).mappings()
                yield [dict(row) for row in rows]

    def _again(
        self,
        dispatcher: EventDispatcher,
        rows: Sequence[dict[str, Any]],
        done: RetriedDeadLetters,
        *,
        dry_run: bool,
    ) -> None:
        events, readable = [], []
        for row in rows:
            try:
                event = self.read(row["payload"]) if row["step"] == "parse" else _event(row["payload"])
            except Exception:  # whatever made it unreadable still does
                done.failed += 1
                continue
            events.append(event)
            readable.append(row["id"])
        plan = dispatcher.plan(events)
        done.tried += len(rows)
        failed = {one.event_uuid for one in plan.dead}
        done.failed += len(failed)
        if dry_run:
            done.queued += len(plan.invocations)
            return
        again = {one.id for one in plan.dead}
        plan.revived = [one for one in readable if one not in again]
        done.queued += dispatcher.commit(plan)


def _event(payload: bytes) -> IngestedEvent:
    row = stored_row(payload)
    return IngestedEvent(row, orjson.loads(row.properties))
