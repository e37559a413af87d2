"""Deleting persons: at once for everybody who asks, and then out of every file.

The person, its distinct ids and its places in cohorts go in the transaction of the request, which notes what else has
to go. That is carried out in the background as soon as everything is ingested that had come in by then: events, what
results keep of them, records of the event log, runs of functions and what these left behind. At the end the bytes
themselves are overwritten. After a failure or a restart it is tried again from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

import sqlalchemy as sa
import structlog

from hoglab.accounts import activity
from hoglab.http.fields.dates import utc_now
from hoglab.people.reading import PersonView, distinct_ids_of, persons_for
from hoglab.storage.database import Rebuildable, among, listed, person_search
from hoglab.storage.database.tables import (
    backfill,
    dead_event,
    ingestion_warning,
    internal_event,
    invocation,
    invocation_result,
    log_entry,
    person,
    person_erasure,
    person_override,
)
from hoglab.storage.event_store.sealed.erasing import Doomed
from hoglab.storage.json_text import json_bytes

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.people.person_cache import PersonCache
    from hoglab.storage.database import Database

MAX_AT_ONCE = 1_000
"""Persons that are erased together, and rows that are deleted in a transaction."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Log(Protocol):
    """What erasing needs of the event log."""

    def last_offset(self) -> int: ...

    def trim(self, up_to: int) -> int: ...


class Events(Protocol):
    """What erasing needs of the event store: see `hoglab.storage.event_store.duckdb.DuckDbEventStore`."""

    def uuids(self, doomed: Doomed) -> list[UUID]: ...

    def erase(self, doomed: Doomed) -> int: ...

    def forget_overrides(self, project_id: int, person_ids: Sequence[UUID]) -> None: ...

    def distinct_ids_since(
        self, project_id: int, distinct_ids: Sequence[str], log_offset: int
    ) -> set[str]: ...

    def scrub(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Erasure:
    """Somebody to be erased; ``person_ids`` with those of persons who were merged into this one."""

    id: int
    project_id: int
    person_ids: list[UUID]
    distinct_ids: list[str]
    delete_events: bool
    log_offset: int
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Persons of a project who are erased together, and their events."""

    project_id: int
    person_ids: frozenset[str]
    distinct_ids: frozenset[str]
    events: frozenset[str]
    log_offset: int
    requested_at: datetime


class PersonErasing:
    """Deletes persons. `delete` is for requests, `carry_out` for one background thread."""

    def __init__(
        self,
        database: Database,
        queue_database: Database,
        known: PersonCache,
        log: Log,
        events: Events,
        *,
        ingested: Callable[[], int],
        without: Callable[[bytes, Set[str], Set[str]], bytes | None],
        forget_results: Callable[[], None],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """``ingested`` is the log offset up to which everything is done.

        ``without`` leaves persons with some ids, or distinct ids, out of the state of an invocation (None: nobody is
        left); ``forget_results`` drops what results keep of events.
        """
        self._database = database
        self._queue_database = queue_database
        self._known = known
        self._log = log
        self._events = events
        self._ingested = ingested
        self._without = without
        self._forget_results = forget_results
        self._now = now
        self._is_purged = True

    def delete(
        self, project_id: int, persons: Iterable[PersonView], *, delete_events: bool, user_id: int | None
    ) -> int:
        """Delete persons, and their events where that is wanted; how many persons there were."""
        log_offset = self._log.last_offset()
        by_row = {each.row_id: each for each in persons}
        with self._known.changing() as touch, self._database.write() as tx:
            touch(by_row)
            connection = tx.connection
            ids = distinct_ids_of(connection, list(by_row), each=None)
            former = _former(connection, project_id, [str(each.uuid) for each in by_row.values()])
            for row_id, view in by_row.items():
                uuid = str(view.uuid)
                if not connection.execute(sa.delete(person).where(person.c.id == row_id)).rowcount:
                    continue  # somebody else was faster
                connection.execute(
                    sa.insert(person_erasure).values(
                        project_id=project_id,
                        person_id=uuid,
                        former_ids=former.get(uuid, []),
                        distinct_ids=ids[row_id],
                        delete_events=delete_events,
                        log_offset=log_offset,
                        requested_at=self._now(),
                    )
                )
                detail = {"name": uuid, "type": "with events" if delete_events else "without events"}
                activity.record(tx, project_id, user_id, "deleted", "Person", uuid, detail)
        return len(by_row)

    # --- in the background

    def fill_search(self) -> None:
        """Put persons into the index for searches who are not in it yet."""
        with self._database.read(settled=False) as connection:
            more = not person_search.is_full(connection)
        while more:
            with self._database.write(rebuildable=Rebuildable.PERSON_SEARCH) as tx:
                more = person_search.fill(tx.connection)

    def carry_out(self) -> int:
        """Erase everywhere who is to be erased by now; how many.

        While functions are at work on them, and after errors of the engines, which are raised, some of it may be done,
        and the next call does the rest.
        """
        self._purge()
        due = self._due(self._ingested())
        if not due:
            return 0
        by_project = {
            project_id: erasures
            for project_id, group in groupby(due, attrgetter("project_id"))
            # Runs first, for events tell which log lines are about them. One project does not wait for another's.
            if self._forget_runs(self._subjects(erasures := list(group)))
        }
        if not by_project:
            return 0
        due = [each for erasures in by_project.values() for each in erasures]
        erased = 0
        for project_id, erasures in by_project.items():
            together = [each for each in erasures if each.delete_events]
            if together:
                erased += self._erase_events(project_id, together)
        if erased:
            self._forget_results()
        self._begin_search_anew()
        self._events.scrub()
        self._log.trim(self._ingested())  # of no use to mend the event store any more, which is on disk
        self._finish(due)
        self._is_purged = False
        self._purge()
        _log.info("persons_erased", persons=len(due), events=erased)
        return len(due)

    def _purge(self) -> None:
        if not self._is_purged:
            self._queue_database.purge(rewrite=True)
            self._database.purge()
            self._is_purged = True

    def _due(self, ingested: int) -> list[Erasure]:
        """Those for whom everything is ingested that had come in when they were deleted."""
        table = person_erasure
        asked = (
            sa.select(table)
            .where(table.c.finished_at.is_(None), table.c.log_offset <= ingested)
            .order_by(table.c.project_id, table.c.id)
            .limit(MAX_AT_ONCE)
        )
        with self._database.read() as connection:
            return [
                Erasure(
                    row.id,
                    row.project_id,
                    [UUID(row.person_id), *map(UUID, row.former_ids)],
                    row.distinct_ids,
                    row.delete_events,
                    row.log_offset,
                    row.requested_at,
                )
                for row in connection.execute(asked)
            ]

    def _erase_events(self, project_id: int, erasures: Sequence[Erasure]) -> int:
        person_ids = [person_id for each in erasures for person_id in each.person_ids]
        distinct_ids = [distinct_id for each in erasures for distinct_id in each.distinct_ids]
        log_offset = max(each.log_offset for each in erasures)
        self._forget_returned(project_id, distinct_ids, log_offset)
        erased = self._events.erase(Doomed.of_person(project_id, person_ids, distinct_ids, log_offset))
        self._events.forget_overrides(project_id, person_ids)
        texts = [str(each) for each in person_ids]
        mine = person_override.c.project_id == project_id
        with self._database.write() as tx:
            tx.connection.execute(
                sa.delete(person_override).where(
                    mine, person_override.c.old_person_id.in_(texts) | person_override.c.person_id.in_(texts)
                )
            )
        return erased

    def _forget_returned(self, project_id: int, distinct_ids: Sequence[str], log_offset: int) -> None:
        """Delete persons whom events made anew that had come in before their deletion, and nothing since."""
        since = self._events.distinct_ids_since(project_id, distinct_ids, log_offset)
        with self._known.changing() as touch, self._database.write() as tx:
            found = persons_for(
                tx.connection, project_id, [each for each in distinct_ids if each not in since]
            )
            rows = {view.row_id for view in found.values()}
            alive = {view.row_id for view in persons_for(tx.connection, project_id, since).values()}
            touch(rows - alive)
            tx.connection.execute(sa.delete(person).where(person.c.id.in_(rows - alive)))

    def _subjects(self, erasures: Sequence[Erasure]) -> _Subjects:
        """All of one project together."""
        project_id = erasures[0].project_id
        person_ids = {person_id for each in erasures for person_id in each.person_ids}
        distinct_ids = {distinct_id for each in erasures for distinct_id in each.distinct_ids}
        log_offset = max(each.log_offset for each in erasures)
        doomed = Doomed.of_person(project_id, list(person_ids), list(distinct_ids), log_offset)
        return _Subjects(
            project_id,
            frozenset(map(str, person_ids)),
            frozenset(distinct_ids),
            frozenset(map(str, self._events.uuids(doomed))),
            log_offset,
            max(each.requested_at for each in erasures),
        )

    def _forget_runs(self, subjects: _Subjects) -> bool:
        """Delete what ingestion and functions noted of persons, and what functions were still to do with them.

        Whether none is at work on them that will leave more.
        """
        is_over = self._forget_invocations(subjects)
        with self._queue_database.read() as connection:
            found = _left_behind(connection, subjects)
        for column, values in found.items():
            for some in _chunks(values):
                with self._queue_database.write() as tx:
                    tx.connection.execute(_forgetting(column).where(column.in_(some)))
        with self._database.write() as tx:
            _forget_notes(tx.connection, subjects)
        return is_over

    def _forget_invocations(self, subjects: _Subjects) -> bool:
        """Leave persons out of invocations, also of those that have others in them; whether none is being run."""

        def left(state: bytes) -> bytes | None:
            return self._without(state, subjects.person_ids, subjects.distinct_ids)

        row, is_over = invocation.c, True
        caused = (row.log_offset <= subjects.log_offset) | (
            row.log_offset.is_(None) & (row.created_at <= subjects.requested_at)
        )
        mine = sa.select(row.id, row.state).where(row.project_id == subjects.project_id, caused)
        with self._queue_database.read() as connection:
            ids = [each.id for each in connection.execute(mine) if left(each.state) != each.state]
        for some in _chunks(ids):
            with self._queue_database.write() as tx:
                asked = sa.select(row.id, row.state, row.status).where(row.id.in_(some))
                for each in tx.connection.execute(asked).all():
                    state = left(each.state)
                    if each.status == "running":
                        is_over = False
                    elif state is None:
                        tx.connection.execute(sa.delete(invocation).where(row.id == each.id))
                    else:
                        change = sa.update(invocation).where(row.id == each.id)
                        tx.connection.execute(change.values(state=state))
        return is_over

    def _begin_search_anew(self) -> None:
        with self._database.write() as tx:
            person_search.reset(tx.connection)
        self.fill_search()

    def _finish(self, erasures: Sequence[Erasure]) -> None:
        table = person_erasure
        with self._database.write() as tx:
            tx.connection.execute(
                sa.update(table)
                .where(table.c.id.in_([each.id for each in erasures]))
                .values(finished_at=self._now(), distinct_ids=[], former_ids=[])
            )


def _former(connection: Connection, project_id: int, uuids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of persons who were merged into others, by these."""
    table = person_override
    found: dict[str, list[str]] = {}
    asked = sa.select(table.c.person_id, table.c.old_person_id).where(
        table.c.project_id == project_id, table.c.person_id.in_(list(uuids))
    )
    for uuid, old in connection.execute(asked):
        found.setdefault(uuid, []).append(old)
    return found


def _left_behind(connection: Connection, subjects: _Subjects) -> dict[sa.Column[Any], list[Any]]:
    """Rows of the queue database that are about persons, by the column that they are named by."""
    result, line, dead = invocation_result.c, log_entry.c, dead_event.c
    about = among(result.person_id, listed(subjects.person_ids)) | among(
        result.distinct_id, listed(subjects.distinct_ids)
    )
    runs = connection.execute(
        sa.select(result.invocation_id, result.parent_run_id).where(
            result.project_id == subjects.project_id, about
        )
    ).all()
    # Lines about all events of a batch are those of their common run. Jobs that run many functions tell of none.
    parents = {each.parent_run_id for each in runs} - {None}
    parents -= set(connection.scalars(sa.select(backfill.c.id)))
    told = {*(each.invocation_id for each in runs), *parents, *subjects.events}
    mine = line.project_id == subjects.project_id
    lines = connection.scalars(sa.select(line.id).where(mine, among(line.instance_id, listed(told))))
    put_aside = connection.scalars(
        sa.select(dead.id).where(
            dead.project_id == subjects.project_id, among(dead.distinct_id, listed(subjects.distinct_ids))
        )
    )
    return {
        line.id: list(lines),
        dead.id: list(put_aside),
        result.invocation_id: [each.invocation_id for each in runs],
    }


def _forgetting(column: sa.Column[Any]) -> Any:
    """The statement that forgets rows of the column's table: results stay, without who they were about."""
    if column.table is not invocation_result:
        return sa.delete(column.table)
    return sa.update(invocation_result).values(
        distinct_id=None, person_id=None, invocation_globals=None, error_message=None
    )


def _forget_notes(connection: Connection, subjects: _Subjects) -> None:
    warning, event = ingestion_warning.c, internal_event.c
    mine = warning.project_id == subjects.project_id
    connection.execute(
        sa.delete(ingestion_warning).where(mine, among(warning.event_uuid, listed(subjects.events)))
    )
    for word in (*subjects.person_ids, *subjects.distinct_ids):
        text = json_bytes(word).decode()
        for table, column in ((ingestion_warning, warning.details), (internal_event, event.person)):
            held = sa.func.instr(sa.type_coerce(column, sa.Text), text) > 0
            connection.execute(sa.delete(table).where(table.c.project_id == subjects.project_id, held))
    connection.execute(
        sa.delete(internal_event).where(
            event.project_id == subjects.project_id, among(event.distinct_id, listed(subjects.distinct_ids))
        )
    )


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), MAX_AT_ONCE):
        yield values[start : start + MAX_AT_ONCE]
