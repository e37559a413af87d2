"""Which commits wait for the disk, how they share the wait, and what is exempt."""

from __future__ import annotations

import ast
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from hoglab.http.errors import known_error
from hoglab.storage.database import Database, DatabaseNotDurableError, Rebuildable, tables

SOURCE = Path(__file__).parents[2] / "src" / "hoglab"

EXEMPT = {
    ("accounts/usage.py", "write", "KEY_USAGE"),
    ("analysis/timeseries/attempts.py", "writing", "RESULTS"),
    ("analysis/timeseries/query_cache.py", "_announced", "QUERY_STATUS"),
    ("analysis/timeseries/query_cache.py", "_store", "QUERY_STATUS"),
    ("analysis/timeseries/query_cache.py", "ask", "QUERY_STATUS"),
    ("analysis/timeseries/query_cache.py", "cancel", "QUERY_STATUS"),
    ("analysis/timeseries/query_cache.py", "forget_old", "EXPIRED"),
    ("accounts/activity.py", "forget_old", "EXPIRED"),
    ("accounts/sessions/service.py", "forget_old", "EXPIRED"),
    ("analysis/timeseries/recalculations.py", "_note", "RECALCULATION_STATUS"),
    ("analysis/timeseries/recalculations.py", "_run", "RECALCULATION_STATUS"),
    ("people/erasing.py", "fill_search", "PERSON_SEARCH"),
    ("analysis/timeseries/service.py", "run_job", "RECALCULATION_STATUS"),
    ("delivery/dispatch/internal_events.py", "dispatch_waiting", "HANDED_ON"),
    ("http/management/idempotency.py", "_prune", "EXPIRED"),
    ("http/management/idempotency.py", "_remove_unanswered", "UNANSWERED_REQUESTS"),
    ("http/management/idempotency.py", "_take", "UNANSWERED_REQUESTS"),
    ("ingestion/flag_calls.py", "note", "FLAG_CALLS"),
    ("people/cohorts/calculation.py", "_fail", "COHORT_CALCULATION"),
    ("people/cohorts/calculation.py", "_refresh", "COHORT_CALCULATION"),
    ("people/cohorts/calculation.py", "_calculate", "COHORT_CALCULATION"),
    ("people/service.py", "forget_old_warnings", "EXPIRED"),
    ("storage/event_log/sqlite.py", "__init__", "LOG_POSITIONS"),
    ("storage/invocations/sql/breakers.py", "change", "FUNCTION_HEALTH"),
    ("storage/invocations/sql/sharing.py", "give_back", "FUNCTION_HEALTH"),
    ("storage/invocations/sql/sharing.py", "take", "FUNCTION_HEALTH"),
    ("storage/invocations/sql/sharing.py", "tell", "FUNCTION_HEALTH"),
    ("storage/invocations/sql/jobs.py", "advance", "BACKFILL_PROGRESS"),
    ("storage/invocations/sqlite/tables.py", "__init__", "DELIVERY_PROGRESS"),
    ("storage/job_leases.py", "_claim", "JOB_LEASES"),
    ("storage/job_leases.py", "_give_back", "JOB_LEASES"),
    ("storage/job_leases.py", "forget_old", "EXPIRED"),
    ("storage/job_leases.py", "_renew", "JOB_LEASES"),
    ("storage/job_leases.py", "take_over", "JOB_LEASES"),
}
"""Everything that a power cut may undo after it was written: file, function, and what makes it again."""


def add(database: Database, name: str, rebuildable: Rebuildable | None = None) -> None:
    with database.write(rebuildable=rebuildable) as tx:
        tx.execute(
            insert(tables.organization).values(
                id=name, name=name, created_at=datetime(2026, 3, 1, tzinfo=UTC)
            )
        )


def names(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(select(tables.organization.c.id).order_by(tables.organization.c.id)))


class Disk:
    """Stands in front of ``os.fdatasync``: counts, waits or fails when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.error: OSError | None = None
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.begun.set()
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        self._real(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def in_thread(target: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


class TestWaiting:
    def test_a_block_ends_only_when_its_commit_is_on_disk(self, database: Database, disk: Disk) -> None:
        disk.gate.clear()
        writer = in_thread(add, database, "a")
        assert disk.begun.wait(30)
        writer.join(0.05)
        assert writer.is_alive()
        disk.gate.set()
        writer.join(30)
        assert names(database) == ["a"]

    def test_writers_that_come_during_a_sync_share_the_next_one(self, database: Database, disk: Disk) -> None:
        disk.gate.clear()
        first = in_thread(add, database, "first")
        assert disk.begun.wait(30)
        others = [in_thread(add, database, f"{number:02}") for number in range(20)]
        while len(unsettled_names(database)) < 21:  # nobody waits for the disk to be able to write
            pass
        disk.gate.set()
        for thread in (first, *others):
            thread.join(30)
        assert len(names(database)) == 21
        # Two, and further ones for writers that had written but did not yet wait when the second began.
        assert 2 <= disk.syncs <= 10

    def test_a_transaction_that_finds_its_work_done_waits_for_who_did_it(
        self, database: Database, disk: Disk
    ) -> None:
        def look() -> None:
            with database.write() as tx:
                found.append(tx.execute(select(tables.organization.c.id)).scalar())

        found: list[str] = []
        disk.gate.clear()
        writer = in_thread(add, database, "a")
        assert disk.begun.wait(30)
        twin = in_thread(look)
        while not found:
            pass
        twin.join(0.05)
        assert found == ["a"]
        assert twin.is_alive()
        disk.gate.set()
        twin.join(30)
        writer.join(30)

    def test_reading_ends_only_when_what_was_read_is_on_disk(self, database: Database, disk: Disk) -> None:
        disk.gate.clear()
        writer = in_thread(add, database, "a")
        assert disk.begun.wait(30)
        reader = in_thread(names, database)
        reader.join(0.05)
        assert reader.is_alive()
        assert unsettled_names(database) == ["a"]
        disk.gate.set()
        reader.join(30)
        writer.join(30)
        assert not reader.is_alive()

    def test_what_can_be_made_again_does_not_wait(self, database: Database, disk: Disk) -> None:
        add(database, "a", Rebuildable.KEY_USAGE)
        assert disk.syncs == 0
        assert names(database) == ["a"]
        assert disk.syncs == 0

    def test_a_block_that_raises_waits_for_nothing(self, database: Database, disk: Disk) -> None:
        def fail() -> None:
            with database.write():
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        add(database, "a")
        assert names(database) == ["a"]
        assert disk.syncs == 1

    def test_listeners_hear_of_a_change_when_it_is_on_disk(self, database: Database, disk: Disk) -> None:
        def change() -> None:
            with database.write() as tx:
                tx.changed("keys", 0)

        heard: list[int] = []
        database.changes.subscribe("keys", heard.append)
        disk.gate.clear()
        writer = in_thread(change)
        assert disk.begun.wait(30)
        writer.join(0.05)
        assert heard == []
        disk.gate.set()
        writer.join(30)
        assert heard == [0]


def unsettled_names(database: Database) -> list[str]:
    with database.read(durable=False) as connection:
        return list(connection.scalars(select(tables.organization.c.id)))


class TestFailingDisk:
    def test_nothing_is_promised_any_more_after_a_failed_sync(self, database: Database, disk: Disk) -> None:
        disk.error = OSError(5, "Input/output error")
        with pytest.raises(DatabaseNotDurableError, match=r"Input/output error.*restart the server"):
            add(database, "a")
        # The system may have dropped what it could not write, so that a later sync that succeeds proves nothing.
        disk.error = None
        with pytest.raises(DatabaseNotDurableError) as refused:
            add(database, "b")
        with pytest.raises(DatabaseNotDurableError):
            database.check()
        answer = known_error(refused.value)
        assert answer is not None
        assert answer.status == 503
        assert "b" not in names(database)  # reading goes on


class TestNewFiles:
    def test_the_name_of_a_new_write_ahead_log_is_made_to_last_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        database = Database.open(tmp_path / "new.db")
        add(database, "a")
        database.dispose()
        assert str(tmp_path) in synced


class TestExemptions:
    def test_all_of_them_are_listed_here(self) -> None:
        assert exemptions() == EXEMPT

    def test_each_says_what_makes_it_again(self) -> None:
        assert {name for _, _, name in EXEMPT} == {member.name for member in Rebuildable}


def exemptions() -> set[tuple[str, str, str]]:
    """Calls in the source that pass something else than None as ``rebuildable``."""
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(SOURCE))
        if place in (
            "storage/database/engine.py",
            "storage/database/sqlite/connections.py",
            "storage/database/postgres/connections.py",
        ):
            continue  # these hand it on
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (place, function.name) == ("storage/job_leases.py", "writing"):
                continue  # so does this
            for node in ast.walk(function):
                if isinstance(node, ast.keyword) and node.arg == "rebuildable":
                    if isinstance(node.value, ast.Constant) and node.value.value is None:
                        continue
                    assert isinstance(node.value, ast.Attribute), f"{place}: name a member of Rebuildable"
                    found.add((place, function.name, node.value.attr))
    return found
