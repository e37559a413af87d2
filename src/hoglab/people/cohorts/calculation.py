"""Finding the members of cohorts with rules in the background; those of static ones once, when they are created.

The database says which cohorts to calculate (``is_calculating``), so a restart continues where the last process
stopped; the process at work holds the cohort's job. Persons are read page by page outside of any transaction; the
new membership then replaces the old one in a single transaction, so that nobody ever sees half of one.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from hoglab.accounts import store as accounts
from hoglab.background import STOP_TIMEOUT_S, BackgroundService
from hoglab.filters.evaluate import EvaluationContext
from hoglab.filters.model import PropertyFilter
from hoglab.http.fields.dates import utc_now
from hoglab.people.cohorts import store
from hoglab.people.cohorts.definition import Cohort, read_trees, references
from hoglab.people.cohorts.matching import CohortError, RowIds, Sources, membership_test
from hoglab.storage.catching_up import Awaiting, CatchUp
from hoglab.storage.database import Rebuildable
from hoglab.storage.job_leases import JobLeases, JobLostError, JobName

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.people.cohorts.store import CohortRow
    from hoglab.storage.database import Database, Transaction
    from hoglab.storage.job_leases import JobLease

REFRESH_AFTER = timedelta(hours=1)
"""Age of the last calculation at which the members of a dynamic cohort are calculated again: persons change."""

REFRESH_CHECK_S = 60.0
"""Interval at which the calculator looks for outdated cohorts, and for cohorts of other processes."""

CATCH_UP_CHECK_S = 0.2
"""Interval at which the calculator looks whether the events that a waiting cohort depends on are stored."""

RETRY_FIRST_S, RETRY_LONGEST_S = 60.0, 3_600.0
"""First and longest delay before a cohort that could not be calculated is tried again; each failure doubles it."""

MAX_ERROR_LENGTH = 1_000

JOB = "cohort"
"""The kind of job that a calculation is."""

MAX_TRIES = 3
"""Maximum number of successive attempts that take their process down; after that the calculation has failed."""

STOPPED = "The server stopped while it was calculated."

Behaviour = Callable[["Project", PropertyFilter], Iterable[UUID]]
"""The persons of a project who did what a behavioural rule says. May raise any exception."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CalculationProgress:
    """Progress of the calculation of a cohort's members."""

    cohort_id: int
    checked: int
    """Persons checked so far."""
    persons: int
    """Persons to check when the calculation began."""


class CohortCalculator(BackgroundService):
    """Background service that finds members of cohorts. `calculate` may also be called by itself."""

    NAME = "cohort-calculator"

    def __init__(
        self,
        database: Database,
        *,
        behaviour: Behaviour | None = None,
        catch_up: CatchUp | None = None,
        jobs: JobLeases | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Create the calculator.

        ``jobs`` are the jobs of this process, whose leases are renewed elsewhere; without them, no calculation may
        take long.
        """
        super().__init__()
        self._database = database
        self._jobs = jobs or JobLeases(database)
        self._behaviour = behaviour
        self._awaiting: Awaiting[tuple[int, int, int]] = Awaiting(catch_up, itemgetter(0))
        self._now = now
        self._progress: CalculationProgress | None = None
        self._unsubscribe = database.changes.subscribe("cohorts", lambda _project_id: self.wake())

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop calculating; the cohort at hand starts from the beginning when the server starts again."""
        self._unsubscribe()
        super().stop(timeout_s)

    def progress(self, cohort_id: int) -> CalculationProgress | None:
        """Return the progress of a cohort's calculation; None when it is not being calculated at the moment."""
        progress = self._progress
        return progress if progress is not None and progress.cohort_id == cohort_id else None

    def round(self) -> float:
        self._refresh()
        self.run()
        return CATCH_UP_CHECK_S if self._awaiting else REFRESH_CHECK_S

    def _refresh(self) -> None:
        now = self._now()
        waiting = self._jobs.waiting(JOB, now)
        with self._database.read() as connection:
            outdated = store.outdated_cohorts(connection, now - REFRESH_AFTER)
        old = [cohort_id for cohort_id in outdated if str(cohort_id) not in waiting]
        if old:
            with self._database.write(rebuildable=Rebuildable.COHORT_CALCULATION) as tx:
                store.request_calculation(tx.connection, old)

    def run(self) -> int:
        """Calculate every waiting cohort, also those that wait for others, and return how many were calculated.

        A cohort that waits for events which are not stored yet goes on waiting, and so does one that another
        process calculates.
        """
        done = 0
        elsewhere: set[int] = set()
        while not self.is_stopping:
            with self._database.read() as connection:
                waiting = [
                    cohort for cohort in store.waiting_cohorts(connection) if cohort[1] not in elsewhere
                ]
            ready = self._awaiting.ready(waiting)
            if not ready:
                break
            project_id, cohort_id, _ = ready[0]
            if self.calculate(project_id, cohort_id):
                done += 1
            else:
                elsewhere.add(cohort_id)
        return done

    def calculate(self, project_id: int, cohort_id: int) -> bool:
        """Find the members of a cohort with rules. Return False when another process is doing so, else True.

        A failure is noted on the cohort, for its owner.
        """
        with self._jobs.claimed(JobName(JOB, str(cohort_id))) as lease:
            if lease is None:
                return False
            with self._database.read() as connection:
                row = store.cohort_by_id(connection, project_id, cohort_id)
            if row is not None and not row.deleted and (row.is_calculating or not row.is_static):
                try:
                    self._calculate(row, lease)
                except JobLostError as error:
                    _log.warning("cohort_not_stored", reason=str(error))
                    return False
        return True

    def _calculate(self, row: CohortRow, lease: JobLease) -> None:
        started, cohort_id = time.monotonic(), row.id
        if lease.was_left and lease.tries > MAX_TRIES:
            self._fail(row, lease, CohortError(STOPPED))
            return
        try:
            members = self._find(row)
        except Exception as error:
            self._fail(row, lease, error)
            return
        finally:
            self._progress = None
        if members is None:
            return
        with self._jobs.writing(lease, rebuildable=Rebuildable.COHORT_CALCULATION) as tx:
            put = store.add_further_members if row.is_static else store.replace_members
            changed = put(tx.connection, cohort_id, members)
            self._finish(tx, row, changed=changed)
            self._jobs.end(tx, lease)
        _log.info(
            "cohort_calculated",
            cohort_id=cohort_id,
            count=len(members),
            duration_ms=round((time.monotonic() - started) * 1_000),
        )

    def _find(self, row: CohortRow) -> RowIds | None:
        """Return the row ids of the persons in a cohort, ascending; None when the server is stopping."""
        is_in = membership_test(row.id, self._sources(row))
        members, after, checked = array("q"), 0, 0
        with self._database.read() as connection:
            total = store.count_persons(connection, row.project_id)
        while not self.is_stopping:
            self._progress = CalculationProgress(row.id, checked, max(total, checked))
            with self._database.read() as connection:
                persons = store.candidates(connection, row.project_id, after)
            if not persons:
                return members
            members.extend(person.row_id for person in persons if is_in(person))
            after = persons[-1].row_id
            checked += len(persons)
        return None

    def _sources(self, row: CohortRow) -> Sources:
        project_id = row.project_id
        with self._database.read() as connection:
            cohorts = store.definitions(connection, project_id)
            project = next(
                (candidate for candidate in accounts.projects(connection) if candidate.id == project_id), None
            )
        if project is None:
            raise CohortError("The project does not exist.")
        # Of a static cohort the rules count this once; for all others it is the list of its members.
        own = Cohort(row.id, False, (row.filters or {}).get("properties"))
        trees, faults = read_trees([*cohorts.values(), own])

        def static(cohort_id: int) -> RowIds:
            if cohort_id not in cohorts:
                raise CohortError(f"Cohort {cohort_id} does not exist.")
            if not cohorts[cohort_id].is_known:
                raise CohortError(f"The members of cohort {cohort_id} are not known yet.")
            with self._database.read() as connection:
                return store.member_rows(connection, cohort_id)

        def behaviour(leaf: PropertyFilter) -> RowIds:
            if self._behaviour is None:
                raise CohortError("Rules about behaviour cannot be calculated here.")
            did = map(str, self._behaviour(project, leaf))
            with self._database.read() as connection:
                return array("q", sorted(store.rows_of_persons(connection, project_id, did)))

        # One moment for the whole calculation, so that relative dates mean the same for everybody.
        moment = self._now()
        context = EvaluationContext(lambda: moment, zone_of(project.timezone))
        return Sources(context, trees, faults, static, behaviour)

    def _finish(self, tx: Transaction, before: CohortRow, *, changed: bool) -> None:
        """Store the new state; a cohort whose definition changed meanwhile goes on waiting."""
        row = store.cohort_by_id(tx.connection, before.project_id, before.id)
        if row is None:
            return
        if before.is_static:  # its version counts the changes of its list
            version, again = (row.version or 0) + 1, False
        else:
            version = before.pending_version or 1
            again = (row.pending_version or 1) != version
        store.update_cohort(
            tx.connection,
            row.id,
            {
                "count": store.count_members(tx.connection, row.id),
                "version": version,
                "pending_version": version if before.is_static else row.pending_version or version,
                "is_calculating": again,
                "last_calculation": self._now(),
                "errors_calculating": 0,
                "last_error_message": None,
            },
        )
        if changed:
            recalculate_dependents(tx, row.project_id, [row.id])
        tx.changed("cohorts", row.project_id)

    def _fail(self, row: CohortRow, lease: JobLease, error: Exception) -> None:
        known = isinstance(error, CohortError)
        _log.warning("cohort_not_calculated", cohort_id=row.id, error=str(error), exc_info=not known)
        failures = row.errors_calculating + 1
        wait_s = min(RETRY_FIRST_S * 2 ** min(failures - 1, 20), RETRY_LONGEST_S)
        message = str(error) if known else "The cohort could not be calculated; it will be tried again."
        with self._jobs.writing(lease, rebuildable=Rebuildable.COHORT_CALCULATION) as tx:
            self._jobs.fail(tx, lease, message[:MAX_ERROR_LENGTH], self._now() + timedelta(seconds=wait_s))
            store.update_cohort(
                tx.connection,
                row.id,
                {
                    "is_calculating": False,
                    "errors_calculating": failures,
                    "last_error_message": message[:MAX_ERROR_LENGTH],
                },
            )
            tx.changed("cohorts", row.project_id)


def recalculate_dependents(tx: Transaction, project_id: int, changed: Collection[int]) -> None:
    """Request a calculation of the dynamic cohorts whose definitions name any of these cohorts."""
    trees, _ = read_trees(store.definitions(tx.connection, project_id).values())
    affected = [cohort_id for cohort_id, tree in trees.items() if not references(tree).isdisjoint(changed)]
    if affected:
        store.request_calculation(tx.connection, affected)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name; UTC for one that is not known."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
