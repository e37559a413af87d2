"""Events that are too old go, by project; so do entries of the activity log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.embedded import EmbeddedEventStore
from tests.storage.event_rows import event_row

from hoglab.accounts import activity
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.ingestion.retention import JOB, EventRetention, kept_days
from hoglab.storage.database import Database
from hoglab.storage.database.tables import activity_log
from hoglab.storage.event_store import ErasableStore, EventBatch, EventStoreUnavailableError
from hoglab.storage.event_store.sealed.sealing import SealingLimits
from hoglab.storage.job_leases import JobLeases

NOW = datetime(2026, 3, 31, 17, 30, tzinfo=UTC)


@dataclass
class Project:
    id: int
    settings: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedEventStore]:
    store = EmbeddedEventStore(tmp_path / "events.duckdb")
    yield store
    store.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts)
    for name in ("Second", "Third"):
        accounts.create_project(accounts.projects()[0].organization_id, name)
    yield database
    database.dispose()


def days_left(store: EmbeddedEventStore) -> set[tuple[int, int]]:
    """Projects, and how many days old their events are."""
    with store.reader() as reader:
        found = reader.execute("SELECT project_id, timestamp FROM stored_events")
    return {(project, (NOW - moment.replace(tzinfo=UTC)).days) for project, moment in found}


@pytest.mark.parametrize(
    ("own", "most", "days"),
    [(None, None, None), (30, None, 30), (None, 90, 90), (30, 90, 30), (90, 30, 30)],
)
def test_the_shorter_time_counts(own: int | None, most: int | None, days: int | None) -> None:
    assert kept_days(own, most) == days


def test_events_expire_by_project_and_day(store: EmbeddedEventStore, database: Database) -> None:
    rows = [
        event_row(1, project_id=project, timestamp=NOW - timedelta(days=days), captured_at=NOW)
        for project in (1, 2, 3)
        for days in (0, 9, 10, 11, 29, 31, 400)
    ]
    store.append(EventBatch(rows), log_offset=1)
    forgotten: list[datetime] = []
    projects = [
        Project(1, {"event_retention_days": 10}),
        Project(2, {"event_retention_days": 365}),
        Project(3),
    ]
    retention = EventRetention(
        database,
        ErasableStore(store, [store]),
        lambda: projects[:1],
        JobLeases(database),
        most_days=None,
        forget_results=forgotten.append,
        now=lambda: NOW,
    )
    with JobLeases(database).claimed(JOB):  # by another process
        assert retention.expire() == 0
    assert retention.expire() == 4
    # Whole days: what happened ten days ago stays to the last minute of its day.
    assert {days for project, days in days_left(store) if project == 1} == {0, 9, 10}
    assert forgotten == [datetime(2026, 3, 21, tzinfo=UTC)]
    with database.read() as connection:
        [entry] = connection.execute(sa.select(activity_log).where(activity_log.c.scope == "Event"))
    assert (entry.activity, entry.is_system) == ("deleted", True)
    assert entry.detail["name"] == "4 events from before 2026-03-21T00:00:00Z"
    assert retention.expire() == 0

    both = EventRetention(
        database,
        ErasableStore(store, [store]),
        lambda: projects[:2],
        JobLeases(database),
        most_days=30,
        forget_results=forgotten.append,
        now=lambda: NOW,
    )
    assert both.expire() == 2
    assert {days for project, days in days_left(store) if project == 2} == {0, 9, 10, 11, 29}
    assert {days for project, days in days_left(store) if project == 3} == {0, 9, 10, 11, 29, 31, 400}


MARK = "zq7Xexpiredk93"


@pytest.mark.parametrize("is_read_meanwhile", [False, True])
def test_the_bytes_of_expired_events_leave_the_files(
    store: EmbeddedEventStore,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_read_meanwhile: bool,
) -> None:
    """Sealed ones and others, between those that stay; the next time, where they cannot be overwritten at once."""

    def holders() -> list[str]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return [path.name for path in files if MARK.encode() in path.read_bytes()]

    def keep(offset: int) -> None:
        rows = [
            event_row(
                offset,
                distinct_id=f"user-{number}-{MARK if is_old else 'kept'}",
                timestamp=NOW - timedelta(days=20 if is_old else 1),
                properties=f'{{"secret":"{MARK if is_old else "kept"}"}}'.encode(),
            )
            for number in range(10, 40)
            for is_old in (False, True, False)
        ]
        store.append(EventBatch(rows), log_offset=offset)

    keep(1)
    store.seal(SealingLimits(busy_rows=1, idle_rows=1, recent_rows=0), is_idle=True)
    keep(2)
    with store.pause_writes():  # which writes everything into the file
        pass
    assert holders() == ["events.duckdb"]
    retention = EventRetention(
        database,
        ErasableStore(store, [store]),
        lambda: [Project(1)],
        JobLeases(database),
        most_days=10,
        forget_results=lambda _before: None,
        now=lambda: NOW,
    )
    if is_read_meanwhile:
        with monkeypatch.context() as patch:

            def refuse() -> None:
                raise EventStoreUnavailableError("somebody reads what was deleted")

            patch.setattr(store, "scrub", refuse)
            with pytest.raises(EventStoreUnavailableError):
                retention.expire()
        assert retention.expire() == 0
    else:
        assert retention.expire() == 60
    assert holders() == []
    assert len(days_left(store)) == 1


def test_nothing_expires_by_default(store: EmbeddedEventStore, database: Database) -> None:
    store.append(EventBatch([event_row(1, timestamp=datetime(1999, 1, 1, tzinfo=UTC))]), log_offset=1)

    def never(_before: datetime) -> None:
        raise AssertionError

    retention = EventRetention(
        database,
        ErasableStore(store, [store]),
        lambda: [Project(1)],
        JobLeases(database),
        most_days=None,
        forget_results=never,
    )
    assert retention.expire() == 0


def test_the_activity_log_is_bounded_by_age_and_size(database: Database) -> None:
    with database.write() as tx:
        for number in range(2_500):
            moment = NOW - timedelta(days=number)
            activity.record(tx, 1, None, "updated", "FeatureFlag", number, {"name": "flag"}, now=moment)
    with database.read() as connection:
        others = connection.scalar(
            sa.select(sa.func.count()).select_from(activity_log).where(activity_log.c.scope != "FeatureFlag")
        )

    def left() -> int:
        mine = activity_log.c.scope == "FeatureFlag"
        with database.read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(activity_log).where(mine)) or 0

    assert activity.forget_old(database, now=NOW, age=timedelta(days=2_000, hours=1)) == 499
    assert left() == 2_001
    activity.forget_old(database, now=NOW, most=300)
    assert left() == 300 - (others or 0)


def test_a_deleted_project_keeps_no_events(store: EmbeddedEventStore, database: Database) -> None:
    rows = [
        event_row(1, project_id=project, timestamp=NOW - timedelta(days=days), captured_at=NOW)
        for project in (2, 3)
        for days in (-300, 0, 400)
    ]
    store.append(EventBatch(rows), log_offset=1)
    accounts = AccountService(database)
    accounts.delete_project(2)
    retention = EventRetention(
        database,
        ErasableStore(store, [store]),
        accounts.projects_ever,
        JobLeases(database),
        most_days=None,
        forget_results=lambda _: None,
        now=lambda: NOW,
    )
    assert retention.expire() == 3
    assert {project for project, _ in days_left(store)} == {3}
    assert retention.expire() == 0
