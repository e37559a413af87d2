"""Events that are older than their project keeps them are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from hoglab.accounts import activity
from hoglab.accounts.service import RETENTION_SETTING
from hoglab.accounts.store import DELETED_SETTING
from hoglab.http.fields.dates import format_moment, utc_now
from hoglab.storage.event_store import EventsBefore
from hoglab.storage.job_leases import JobName

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import ErasableStore
    from hoglab.storage.job_leases import JobLeases

JOB = JobName("event retention", "")
END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""Moment before which all events of a deleted project are."""

_log = structlog.get_logger(__name__)


class EventRetention:
    """Called by one background thread."""

    def __init__(
        self,
        database: Database,
        store: ErasableStore,
        projects: Callable[[], Iterable[Project]],
        jobs: JobLeases,
        *,
        most_days: int | None,
        forget_results: Callable[[datetime], None],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Delete events after ``most_days``, or fewer where a project says so; None: they are kept for ever.

        ``projects`` returns all projects, also deleted ones: of these all events are deleted.
        ``jobs`` are those of this process.
        ``forget_results`` drops what the aggregate cache has of events before a moment.
        """
        self._database = database
        self._store = store
        self._projects = projects
        self._jobs = jobs
        self._most_days = most_days
        self._forget_results = forget_results
        self._now = now
        self._has_to_scrub = True
        """Whether bytes of expired events may be in the files; a process before this one may have left some."""

    def expire(self) -> int:
        """Delete events past their time, by whole days (UTC), and return how many; their bytes, too.

        Raises the errors of the engines: the next call does the rest, also where somebody read what was deleted. Of
        several processes one does it at a time.
        """
        with self._jobs.claimed(JOB) as lease:
            return 0 if lease is None else self._expire()

    def _expire(self) -> int:
        today = self._now().replace(hour=0, minute=0, second=0, microsecond=0)
        expired, keeps_for_a_time = 0, False
        for project in self._projects():
            days = kept_days(project.settings.get(RETENTION_SETTING), self._most_days)
            if DELETED_SETTING in project.settings:
                before = END_OF_TIME
            elif days is not None:
                before = today - timedelta(days=days)
            else:
                continue
            keeps_for_a_time = True
            count = self._store.events.erase(EventsBefore(project.id, before))
            if not count:
                continue
            expired += count
            self._forget_results(before)
            self._record(project.id, before, count)
        self._has_to_scrub = self._has_to_scrub or expired > 0
        if self._has_to_scrub and keeps_for_a_time:
            self._store.scrub()
            self._has_to_scrub = False
        return expired

    def _record(self, project_id: int, before: datetime, count: int) -> None:
        detail = {"name": f"{count} events from before {format_moment(before)}", "type": "retention"}
        with self._database.write() as tx:
            activity.record(tx, project_id, None, "deleted", "Event", project_id, detail)
        _log.info("events_expired", project=project_id, events=count)


def kept_days(own: int | None, most: int | None) -> int | None:
    """Return the number of days for which events are kept; None: for ever."""
    given = [days for days in (own, most) if days]
    return min(given) if given else None
