"""Deleting persons: at once for every reader, and then from every file.

The transaction of the request deletes the person, its distinct ids and its memberships of cohorts, and notes what
else has to go. The rest is deleted in the background as soon as everything is ingested that had arrived by then:
events, what results keep of them, records of the event log, runs of functions and what these left behind. At the
end the bytes themselves are overwritten. After a failure or a restart the whole is tried again from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

import sqlalchemy as sa
import structlog

from hoglab.accounts import activity
from hoglab.people.reading import PersonView, distinct_ids_of, persons_for
from hoglab.storage.database import Rebuildable, among, listed
from hoglab.storage.database.person_search import person_search
from hoglab.storage.database.tables import (
    flag_log_in,
    ingestion_warning,
    internal_event,
    person,
    person_erasure,
    person_override,
)
from hoglab.storage.database.types import to_micros
from hoglab.storage.event_log import ReadToken, SequenceNumber
from hoglab.storage.event_store import EventsOfPersons
from hoglab.storage.invocations import ErasedPersons
from hoglab.storage.job_leases import JobName
from hoglab.storage.json_text import json_bytes

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.people.person_cache import PersonCache
    from hoglab.storage.database import Database
    from hoglab.storage.event_log import EventLog
    from hoglab.storage.event_store import ErasableStore
    from hoglab.storage.invocations import RunErasing
    from hoglab.storage.job_leases import JobLeases

DEFERRED = SequenceNumber(2**63 - 1)
"""The log offset of an erasure while its project's earlier events are deferred."""

MAX_AT_ONCE = 1_000
"""Maximum number of persons that are erased together."""
JOB = JobName("erasure", "")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Erasure:
    """One person to erase; ``person_ids`` includes the ids of persons who were merged into this one."""

    id: int
    project_id: int
    person_ids: list[UUID]
    distinct_ids: list[str]
    delete_events: bool
    log_offset: SequenceNumber
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class ErasedFrom:
    """Places outside of the database from which persons are erased."""

    runs: RunErasing
    without: Callable[[bytes, Set[str], Set[str]], bytes | None]
    """Removes persons with some ids, or distinct ids, from the state of an invocation; None when nobody is left."""
    store: ErasableStore
    known: PersonCache
    forget_results: Callable[[], None]
    """Drops the aggregate cache."""


class PersonErasing:
    """Deletes persons. Requests call `delete`; one background thread calls `carry_out`."""

    def __init__(
        self,
        database: Database,
        jobs: JobLeases,
        log: EventLog,
        ingested: Callable[[], SequenceNumber],
        places: ErasedFrom,
        now: Callable[[], datetime],
    ) -> None:
        """Create the service of one process.

        ``jobs`` are the jobs of this process; ``ingested`` returns the log offset up to which everything is done.
        """
        self._database = database
        self._jobs = jobs
        self._log = log
        self._ingested = ingested
        self._runs = places.runs
        self._without = places.without
        self._store = places.store
        self._known = places.known
        self._forget_results = places.forget_results
        self._now = now
        self._is_purged = True

    def delete(
        self, project_id: int, persons: Iterable[PersonView], *, delete_events: bool, user_id: int | None
    ) -> int:
        """Delete persons, with their events if asked, and return how many persons existed."""
        token = self._log.read_token(project_id)
        log_offset = token.offset if token.deferred_until is None else DEFERRED
        by_row = {person.row_id: person for person in persons}
        with self._known.changing() as touch, self._database.write() as tx:
            touch(by_row)
            connection = tx.connection
            ids = distinct_ids_of(connection, list(by_row), per_person=None)
            former = _former(connection, project_id, [str(person.uuid) for person in by_row.values()])
            for row_id, view in by_row.items():
                uuid = str(view.uuid)
                if not connection.execute(sa.delete(person).where(person.c.id == row_id)).rowcount:
                    continue  # another request was faster
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
        """Add persons to the search index who are missing from it."""
        with self._database.read(durable=False) as connection:
            more = not person_search(connection).is_full(connection)
        while more:
            with self._database.write(rebuildable=Rebuildable.PERSON_SEARCH) as tx:
                more = person_search(tx.connection).fill(tx.connection)

    def carry_out(self) -> int:
        """Erase everywhere the persons who are due, and return how many. One process does so at a time.

        While functions are at work on the persons, and after errors of the engines, which are raised, part of it
        may be done, and the next call does the rest.
        """
        self._purge()
        self._settle()
        if not self._due(self._ingested()):
            return 0
        with self._jobs.claimed(JOB) as lease:
            # Read once more: another process may just have erased them.
            return 0 if lease is None else self._erase(self._due(self._ingested()))

    def _erase(self, due: list[Erasure]) -> int:
        by_project = {
            project_id: erasures
            for project_id, group in groupby(due, attrgetter("project_id"))
            # Runs first: events tell which log lines are about the persons. One project does not wait for another.
            if self._forget_runs(self._persons(erasures := list(group)))
        }
        if not by_project:
            return 0
        due = [erasure for erasures in by_project.values() for erasure in erasures]
        erased = 0
        for project_id, erasures in by_project.items():
            together = [erasure for erasure in erasures if erasure.delete_events]
            if together:
                erased += self._erase_events(project_id, together)
        if erased:
            self._forget_results()
        self._rebuild_search()
        self._store.scrub()
        self._log.trim(self._ingested())  # the event store is on disk and no longer needs the log for repairs
        self._finish(due)
        self._is_purged = False
        self._purge()
        _log.info("persons_erased", persons=len(due), events=erased)
        return len(due)

    def _purge(self) -> None:
        if not self._is_purged:
            self._runs.purge()
            for file in self._database.files:
                file.purge()
            self._is_purged = True

    def _settle(self) -> None:
        """Set the log offset of erasures that were requested while records of their project were deferred."""
        row = person_erasure.c
        asked = sa.select(row.id, row.project_id, row.requested_at).where(
            row.log_offset == DEFERRED, row.finished_at.is_(None)
        )
        with self._database.read() as connection:
            waiting = connection.execute(asked).all()
        for erasure_id, project_id, requested_at in waiting:
            offset = self._log.resolve(ReadToken(project_id, SequenceNumber(0), to_micros(requested_at)))
            if offset is not None:
                with self._database.write() as tx:
                    change = sa.update(person_erasure).where(row.id == erasure_id)
                    tx.connection.execute(change.values(log_offset=offset))

    def _due(self, ingested: int) -> list[Erasure]:
        """Return the erasures for which everything is ingested that had arrived when they were requested."""
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
        person_ids = [person_id for erasure in erasures for person_id in erasure.person_ids]
        distinct_ids = [distinct_id for erasure in erasures for distinct_id in erasure.distinct_ids]
        log_offset = max(erasure.log_offset for erasure in erasures)
        self._forget_returned(project_id, distinct_ids, log_offset)
        erased = self._store.events.erase(EventsOfPersons(project_id, person_ids, distinct_ids, log_offset))
        self._store.events.forget_overrides(project_id, person_ids)
        texts = [str(person_id) for person_id in person_ids]
        mine = person_override.c.project_id == project_id
        with self._database.write() as tx:
            tx.connection.execute(
                sa.delete(person_override).where(
                    mine, person_override.c.old_person_id.in_(texts) | person_override.c.person_id.in_(texts)
                )
            )
        return erased

    def _forget_returned(
        self, project_id: int, distinct_ids: Sequence[str], log_offset: SequenceNumber
    ) -> None:
        """Delete persons whom events from before their deletion created again, and who have no newer events."""
        since = self._store.events.distinct_ids_since(project_id, distinct_ids, log_offset)
        with self._known.changing() as touch, self._database.write() as tx:
            returned = persons_for(
                tx.connection,
                project_id,
                [distinct_id for distinct_id in distinct_ids if distinct_id not in since],
            )
            rows = {view.row_id for view in returned.values()}
            alive = {view.row_id for view in persons_for(tx.connection, project_id, since).values()}
            touch(rows - alive)
            tx.connection.execute(sa.delete(person).where(person.c.id.in_(rows - alive)))

    def _persons(self, erasures: Sequence[Erasure]) -> ErasedPersons:
        """Return the persons of one project's erasures together."""
        project_id = erasures[0].project_id
        person_ids = {person_id for erasure in erasures for person_id in erasure.person_ids}
        distinct_ids = {distinct_id for erasure in erasures for distinct_id in erasure.distinct_ids}
        log_offset = max(erasure.log_offset for erasure in erasures)
        events = EventsOfPersons(project_id, list(person_ids), list(distinct_ids), log_offset)
        return ErasedPersons(
            project_id,
            frozenset(map(str, person_ids)),
            frozenset(distinct_ids),
            frozenset(map(str, self._store.events.uuids(events))),
            log_offset,
            max(erasure.requested_at for erasure in erasures),
        )

    def _forget_runs(self, persons: ErasedPersons) -> bool:
        """Delete what ingestion and functions noted of persons, and the runs that still concern them.

        Returns whether no function is at work on them that will leave more.
        """
        is_over = self._runs.erase(
            persons, lambda state: self._without(state, persons.person_ids, persons.distinct_ids)
        )
        with self._database.write() as tx:
            _forget_notes(tx.connection, persons)
        return is_over

    def _rebuild_search(self) -> None:
        with self._database.write() as tx:
            person_search(tx.connection).reset(tx.connection)
        self.fill_search()

    def _finish(self, erasures: Sequence[Erasure]) -> None:
        table = person_erasure
        with self._database.write() as tx:
            tx.connection.execute(
                sa.update(table)
                .where(table.c.id.in_([erasure.id for erasure in erasures]))
                .values(finished_at=self._now(), distinct_ids=[], former_ids=[])
            )


def _former(connection: Connection, project_id: int, uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of persons who were merged into these."""
    table = person_override
    old_ids: dict[str, list[str]] = {}
    asked = sa.select(table.c.person_id, table.c.old_person_id).where(
        table.c.project_id == project_id, table.c.person_id.in_(list(uuids))
    )
    for uuid, old in connection.execute(asked):
        old_ids.setdefault(uuid, []).append(old)
    return old_ids


def _forget_notes(connection: Connection, persons: ErasedPersons) -> None:
    warning, event = ingestion_warning.c, internal_event.c
    mine = warning.project_id == persons.project_id
    connection.execute(
        sa.delete(ingestion_warning).where(mine, among(warning.event_uuid, listed(persons.event_ids)))
    )
    for word in (*persons.person_ids, *persons.distinct_ids):
        text = json_bytes(word).decode()
        for table, column in ((ingestion_warning, warning.details), (internal_event, event.person)):
            stored = sa.type_coerce(column, sa.Text)
            held = (
                sa.func.replace(stored, text, "") != stored
            )  # LIKE would not tell small letters from large ones
            connection.execute(sa.delete(table).where(table.c.project_id == persons.project_id, held))
    connection.execute(
        sa.delete(internal_event).where(
            event.project_id == persons.project_id, among(event.distinct_id, listed(persons.distinct_ids))
        )
    )
    log_in, ids = flag_log_in.c, listed(persons.distinct_ids)
    connection.execute(
        sa.delete(flag_log_in).where(
            log_in.project_id == persons.project_id,
            among(log_in.distinct_id, ids) | among(log_in.anonymous_id, ids),
        )
    )
