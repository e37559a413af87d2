"""Leases of jobs on each engine: who gets them, who loses them, and what is known of earlier tries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from tests.databases import ENGINES, Template, template
from tests.storage import job_worker
from tests.storage.job_worker import done
from tests.waiting import PATIENCE_S, wait_for

from hoglab.storage import job_leases
from hoglab.storage.database import Database, DatabaseUnreachableError, Rebuildable, tables
from hoglab.storage.job_leases import JobLease, JobLeases, JobLostError, JobName

NAME = JobName("work", "one")
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
SHORT_S = 0.2


@pytest.fixture(scope="module", params=ENGINES)
def prepared(request: pytest.FixtureRequest) -> Template:
    return template(request, "job_leases", engine=request.param)


@pytest.fixture
def address(prepared: Template, tmp_path: Path) -> Iterator[str]:
    with prepared.copied(tmp_path) as address:
        yield str(address)


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    database = Database.open(address)
    yield database
    database.dispose()


def write(jobs: JobLeases, lease: JobLease, value: str) -> None:
    """What comes of a job, whose end is not noted."""
    with jobs.writing(lease, rebuildable=Rebuildable.RESULTS) as tx:
        tx.execute(sa.insert(tables.organization).values(id=value, name=value, created_at=NOW))


def written(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(sa.select(tables.organization.c.id).order_by(sa.text("1"))))


def end(jobs: JobLeases, lease: JobLease) -> None:
    with jobs.writing(lease, rebuildable=Rebuildable.RESULTS) as tx:
        jobs.end(tx, lease)


def fail(jobs: JobLeases, lease: JobLease, error: str = "no", retry_at: datetime = NOW) -> None:
    with jobs.writing(lease, rebuildable=Rebuildable.RESULTS) as tx:
        jobs.fail(tx, lease, error, retry_at)


def test_one_of_many_gets_a_job(database: Database) -> None:
    everybody = [JobLeases(database) for _ in range(6)]
    together, over = threading.Barrier(6), threading.Barrier(6)

    def claim(jobs: JobLeases) -> bool:
        together.wait()
        with jobs.claimed(NAME) as lease:
            over.wait()
            return lease is not None

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(claim, everybody)) == 1
    with everybody[0].claimed(NAME) as lease, everybody[0].claimed(NAME) as again:
        assert (lease is not None, again) == (True, None), "not even its own process has it twice"
        with everybody[1].claimed(NAME._replace(subject="other")) as other:
            assert other is not None


def test_a_job_that_is_given_back_was_not_tried(database: Database) -> None:
    one, two = JobLeases(database), JobLeases(database)
    with one.claimed(NAME) as lease:
        assert lease is not None
        assert one.of(NAME) == job_leases.JobTries(1, None, None, is_at_work=True, was_left=False)
    assert two.of(NAME) is None
    with pytest.raises(ValueError, match="broken"), one.claimed(NAME):
        raise ValueError("broken")
    with two.claimed(NAME) as lease:
        assert lease is not None
        assert (lease.tries, lease.was_left) == (1, False)


def test_tries_that_fail_are_counted_until_one_ends_well(database: Database) -> None:
    jobs, later = JobLeases(database), NOW + timedelta(minutes=1)
    for tries in (1, 2):
        with jobs.claimed(NAME) as lease:
            assert lease is not None
            assert lease.tries == tries
            fail(jobs, lease, "too slow", later)
    known = jobs.of(NAME)
    assert known == job_leases.JobTries(2, later, "too slow", is_at_work=False, was_left=False)
    assert jobs.waiting("work", NOW) == {"one"}
    assert jobs.waiting("work", later) == jobs.waiting("other", NOW) == set()
    with jobs.claimed(NAME) as lease:
        assert lease is not None
        assert jobs.waiting("work", NOW) == set(), "it is at work"
        end(jobs, lease)
    assert jobs.of(NAME) is None


def test_who_does_not_renew_a_lease_loses_it_and_writes_nothing(database: Database) -> None:
    paused, other = JobLeases(database, lease_s=SHORT_S), JobLeases(database)
    lost: list[str] = []
    with paused.claimed(NAME, on_lost=lambda: lost.append("told")) as lease:
        assert lease is not None
        write(paused, lease, "before")
        with other.claimed(NAME, wait_s=10 * SHORT_S) as taken:
            assert taken is not None
            assert (taken.tries, taken.was_left) == (2, True)
            with pytest.raises(JobLostError):
                write(paused, lease, "late")
            with pytest.raises(JobLostError):
                end(paused, lease)
            write(other, taken, "its own")
            paused.round()
            assert lost == ["told"]
            end(other, taken)
        with other.claimed(NAME) as anew:
            assert anew is not None
            with pytest.raises(JobLostError):
                write(paused, lease, "later still")
    assert written(database) == ["before", "its own"]


def test_who_renews_a_lease_keeps_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_leases, "RENEW_S", SHORT_S / 10)
    one, two = JobLeases(database, lease_s=10 * SHORT_S), JobLeases(database)
    one.start()
    with one.claimed(NAME) as lease, two.claimed(NAME, wait_s=20 * SHORT_S) as other:
        assert (lease is not None, other) == (True, None)
    with two.claimed(NAME) as other:
        assert other is not None
    one.stop()


def test_leases_outlive_a_database_that_is_away_for_a_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobLeases(database)
    with jobs.claimed(NAME) as lease:
        assert lease is not None
        with monkeypatch.context() as patch:
            patch.setattr(database, "write", Mock(side_effect=DatabaseUnreachableError("away")))
            assert jobs.round() == job_leases.RENEW_S
        assert jobs.round() == job_leases.RENEW_S
        end(jobs, lease)


def test_a_server_that_ends_gives_back_what_it_has(database: Database) -> None:
    one, two = JobLeases(database), JobLeases(database)
    with one.claimed(NAME) as lease:
        assert lease is not None
        one.stop()
        with two.claimed(NAME) as other:
            assert other is not None
            assert (other.tries, other.was_left) == (1, False)


def test_the_next_server_need_not_wait_for_leases_of_the_one_before(database: Database) -> None:
    before, after = JobLeases(database), JobLeases(database)
    with before.claimed(NAME):
        after.take_over()
        known = after.of(NAME)
        assert known is not None
        assert (known.is_at_work, known.was_left) == (False, True)
        with after.claimed(NAME) as lease:
            assert lease is not None
            assert lease.was_left
            after.forget_old()
            end(after, lease)


def test_what_nobody_tries_any_more_is_forgotten(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobLeases(database, lease_s=0)
    with jobs.claimed(NAME) as lease:
        assert lease is not None
        fail(jobs, lease)
    jobs.forget_old()
    assert jobs.of(NAME) is not None
    monkeypatch.setattr(job_leases, "KEPT_FOR_S", -1.0)
    jobs.forget_old()
    assert jobs.of(NAME) is None


def test_a_cancelled_job_is_taken_away(database: Database) -> None:
    jobs = JobLeases(database)
    with jobs.claimed(NAME) as lease:
        assert lease is not None
        with database.write() as tx:
            jobs.cancel(tx, NAME)
        with pytest.raises(JobLostError):
            write(jobs, lease, "late")
    assert jobs.of(NAME) is None


# -- several processes -----------------------------------------------------------------------------------


def started(address: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, job_worker.__file__, address], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.faults
@pytest.mark.slow
def test_jobs_of_processes_that_are_killed_or_paused_are_done_once_each(
    address: str, database: Database
) -> None:
    with database.write() as tx:
        done.create(tx.connection)

    def rounds() -> list[tuple[int, int, int, bool]]:
        with database.read() as connection:
            return [tuple(row) for row in connection.execute(sa.select(done))]

    def go_on(more: int) -> None:
        deadline, until = time.monotonic() + PATIENCE_S, len(rounds()) + more
        while len(rounds()) < until:
            assert time.monotonic() < deadline, "nobody goes on"
            assert all(each.poll() is None for each in workers), "a round was done twice"
            time.sleep(0.02)

    workers = [started(address) for _ in range(3)]
    try:
        for _ in range(4):
            go_on(20)
            killed = workers.pop(0)
            killed.kill()
            killed.wait(10)
            workers.append(started(address))
        for paused in workers:
            os.kill(paused.pid, signal.SIGSTOP)
            time.sleep(2 * job_worker.LEASE_S)  # perhaps in a transaction, which keeps the others waiting
            os.kill(paused.pid, signal.SIGCONT)
            go_on(20)
    finally:
        for each in workers:
            each.kill()
            each.wait(10)
            assert each.stdout is not None
            each.stdout.close()
    found = rounds()
    for subject in range(job_worker.SUBJECTS):
        numbers = sorted(number for of, number, _, _ in found if of == subject)
        assert numbers == list(range(len(numbers)))
    assert len({pid for _, _, pid, _ in found}) > 3
    assert any(was_left for _, _, _, was_left in found), "no process was killed amid a job"


def test_processes_are_told_once_of_a_lease_that_ran_out(database: Database) -> None:
    other, told = JobLeases(database), []
    other.on_expired.append(lambda: told.append(1))
    with JobLeases(database, lease_s=SHORT_S).claimed(NAME):
        other.round()
        assert told == []
        wait_for(lambda: other.round() and told)
        other.round()
    assert told == [1]
