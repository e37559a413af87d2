"""Large cohorts: fast, in bounded memory, and whole even when the process is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from hoglab.people.cohorts import store
from hoglab.people.cohorts.calculation import CohortCalculator
from hoglab.storage.database import Database, sqlite
from hoglab.storage.database.tables import person

PERSONS = 10_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVEN = {"properties": {"type": "AND", "values": [{"key": "even", "type": "person", "value": "yes"}]}}
ALL = {"properties": {"type": "AND", "values": []}}


def fill(database: Database, last: int, first: int = 1) -> None:
    """Persons of whom every second one is even."""
    with database.write() as tx:
        rows = [
            {
                "uuid": f"00000000-0000-0000-0000-{number:012d}",
                "project_id": 1,
                "properties": {"even": "no" if number % 2 else "yes", "padding": f"{number:300d}"},
                "created_at": NOW,
            }
            for number in range(first, last + 1)
        ]
        tx.execute(sa.insert(person), rows)


def create(server, filters) -> int:
    answer = server.client.post("/api/projects/1/cohorts/", json={"name": "Large", "filters": filters})
    return answer.json()["id"]


def rows(database: Database, cohort_id: int) -> list[int]:
    with database.read() as connection:
        return list(store.member_rows(connection, cohort_id))


def test_ten_thousand_persons(server):
    fill(server.database, PERSONS)
    cohort_id = create(server, EVEN)
    server.calculator.run()
    assert rows(server.database, cohort_id) == list(range(2, PERSONS + 1, 2))
    with server.database.read() as connection:
        row = store.cohort_by_id(connection, 1, cohort_id)
    assert (row.count, row.is_calculating) == (PERSONS // 2, False)


def test_progress(server, monkeypatch: pytest.MonkeyPatch):
    fill(server.database, PERSONS)
    other, cohort_id = create(server, EVEN), create(server, EVEN)
    seen = []

    def ask(cohort_id: int) -> dict[str, Any]:
        answer = server.client.get(f"/api/projects/1/cohorts/{cohort_id}/calculation/")
        assert answer.status_code == 200
        return answer.json()

    candidates = store.candidates

    def asking(*arguments: Any) -> Any:
        progress, waiting = ask(cohort_id), ask(other)
        assert progress["is_calculating"] is waiting["is_calculating"] is True
        assert waiting["checked"] is waiting["persons"] is None
        seen.append((progress["checked"], progress["persons"], progress["count"]))
        return candidates(*arguments)

    monkeypatch.setattr(store, "candidates", asking)
    server.calculator.calculate(1, cohort_id)
    step = store.PERSONS_PER_READ
    assert seen == [(checked, PERSONS, None) for checked in range(0, PERSONS + 1, step)]
    after = ask(cohort_id)
    assert after["last_calculation"] is not None
    del after["last_calculation"]
    assert after == {
        "is_calculating": False,
        "checked": None,
        "persons": None,
        "errors_calculating": 0,
        "last_error_message": None,
        "count": PERSONS // 2,
    }
    assert server.client.get("/api/projects/1/cohorts/999/calculation/").status_code == 404


class Work:
    """Counts calls of functions, and instructions of SQLite by the hundred: time would depend on the machine."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.steps = 0
        connect = sqlite.connect

        def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **options)
            connection.set_progress_handler(self._step, 100)
            return connection

        monkeypatch.setattr(sqlite.connections, "connect", counted)
        self.database = Database.open(path)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def _call(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event in {"call", "c_call"}

    def of_calculating(self, cohort_id: int) -> tuple[int, int]:
        """The calls, and the hundreds of instructions, that it takes to find the members of a cohort."""
        self.calls = self.steps = 0
        sys.setprofile(self._call)
        try:
            CohortCalculator(self.database).calculate(1, cohort_id)
        finally:
            sys.setprofile(None)
        return self.calls, self.steps


@pytest.mark.files
def test_work_follows_the_number_of_persons(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work = Work(tmp_path / "hoglab.db", monkeypatch)
    fill(server.database, PERSONS // 4)
    few = work.of_calculating(create(server, EVEN))
    fill(server.database, PERSONS, first=PERSONS // 4 + 1)
    cohort_id = create(server, EVEN)
    calls, steps = work.of_calculating(cohort_id)
    work.database.dispose()
    assert rows(server.database, cohort_id) == list(range(2, PERSONS + 1, 2))
    assert calls < 4.5 * few[0], "four times the persons, four times the calls"
    assert steps < 4.5 * few[1], "the same for SQLite"
    assert calls < 50 * PERSONS, "25 for each person"
    assert steps * 100 < 75 * PERSONS, "36 for each person"


def test_memory_does_not_follow_the_number_of_persons(server):
    even = create(server, EVEN)

    def peak() -> int:
        tracemalloc.start()
        server.calculator.calculate(1, even)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    fill(server.database, PERSONS // 2)
    with_few = peak()
    fill(server.database, PERSONS * 2, first=PERSONS // 2 + 1)
    assert peak() < 1.5 * with_few
    assert len(rows(server.database, even)) == PERSONS


@pytest.mark.files
@pytest.mark.faults
def test_a_kill_leaves_the_old_members_or_the_new_ones(server, tmp_path: Path):
    fill(server.database, PERSONS)
    cohort_id = create(server, EVEN)
    server.calculator.run()
    even, everybody = list(range(2, PERSONS + 1, 2)), list(range(1, PERSONS + 1))
    for attempt in range(3):
        child = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path / "hoglab.db"), str(cohort_id)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.1 * attempt)  # the moment of the kill is the point of the test
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
        found = rows(server.database, cohort_id)
        assert found in (even, everybody), f"{len(found)} members"
    server.database.refresh_changes()
    server.client.patch(f"/api/projects/1/cohorts/{cohort_id}/", json={"filters": EVEN})
    server.calculator.run()
    assert rows(server.database, cohort_id) == even


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_differences(before, after):
    gone, new = store.differences(array("q", sorted(before)), array("q", sorted(after)))
    assert list(gone) == sorted(before - after)
    assert list(new) == sorted(after - before)


def flip_for_ever(path: str, cohort_id: int) -> None:
    """Change a cohort to and fro between two definitions, calculating each."""
    from hoglab.people.cohorts import CohortCalculator

    database = Database.open(Path(path))
    calculator = CohortCalculator(database)
    print("ready", flush=True)
    while True:
        for filters in (ALL, EVEN):
            with database.write() as tx:
                store.update_cohort(tx.connection, cohort_id, {"filters": filters})
                store.request_calculation(tx.connection, [cohort_id])
            calculator.run()


if __name__ == "__main__":
    flip_for_ever(sys.argv[1], int(sys.argv[2]))
