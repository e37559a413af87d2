"""A process that is killed in the middle of a merge leaves people as they were, and who comes next merges them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.people.conftest import NOW, add_projects
from tests.people.test_service import Event, identify, merge

from hoglab.people import PersonService, derived_person_id
from hoglab.storage.database import Database
from hoglab.storage.database.tables import (
    cohort,
    cohort_person,
    flag_hash_key_override,
    ingestion_progress,
    person,
    person_distinct_id,
    person_override,
)

TABLES = (
    person,
    person_distinct_id,
    person_override,
    cohort_person,
    flag_hash_key_override,
    ingestion_progress,
)
OFFSET = 10


def before() -> list[Event]:
    """Two persons, and more names for the one that is to go."""
    return at_offset(
        1,
        Event("e", "anon", {"$set": {"a": 1, "both": "anon"}}, NOW - timedelta(days=1)),
        Event("$create_alias", "anon", {"alias": "anon-laptop"}),
        Event("e", "user", {"$set": {"both": "user"}}),
    )


def merging() -> list[Event]:
    return at_offset(
        OFFSET,
        merge("anon", "user"),
        Event("e", "somebody", {"$set": {"x": 1}}),
        identify("somebody", "user", **{"$set": {"plan": "pro"}}),
    )


def at_offset(log_offset: int, *events: Event) -> list[Event]:
    return [replace(event, log_offset=log_offset) for event in events]


def apply(path: Path) -> None:
    """Apply the batch as ingestion does, from where it stopped."""
    database = Database.open(path)
    PersonService(database, now=lambda: NOW).apply(merging(), log_offset=OFFSET)
    database.dispose()


def apply_and_die(path: Path, number: int) -> None:
    """Apply the batch, but for the statement of that number and all after it."""
    database = Database.open(path)
    with database.write() as tx:
        driver: Any = tx.connection.connection.driver_connection  # there is one connection that writes
    left = iter(range(number - 1))

    def count(_statement: str) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    driver.set_trace_callback(count)
    PersonService(database, now=lambda: NOW).apply(merging(), log_offset=OFFSET)
    os._exit(0)


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    database = Database.open(path)
    with database.read() as connection:
        found = {
            table.name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
            for table in TABLES
        }
    database.dispose()
    return found


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "original" / "hoglab.db"
    path.parent.mkdir()
    database = Database.open(path)
    add_projects(database)
    PersonService(database, now=lambda: NOW).apply(before(), log_offset=1)
    with database.write() as tx:
        found = sa.select(person.c.id).where(person.c.uuid == str(derived_person_id(1, "anon")))
        anon = tx.execute(found).scalar_one()
        tx.execute(sa.insert(cohort), {"id": 1, "project_id": 1, "groups": [], "created_at": NOW})
        tx.execute(sa.insert(cohort_person), {"cohort_id": 1, "person_id": anon})
        tx.execute(
            sa.insert(flag_hash_key_override),
            {"project_id": 1, "person_id": anon, "feature_flag_key": "f", "hash_key": "anon"},
        )
    database.dispose()
    return path


@pytest.mark.files
@pytest.mark.faults
def test_a_merge_is_done_or_not_begun(original: Path, tmp_path: Path) -> None:
    begun = contents(original)
    whole = tmp_path / "whole.db"
    shutil.copy(original, whole)
    apply(whole)
    done = contents(whole)
    assert (len(begun["person"]), len(done["person"])) == (2, 1)
    assert len(done["person_distinct_id"]) == 4

    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])  # what it imports, it imports once
    number, killed = 0, True
    while killed:
        number += 1
        path = tmp_path / f"killed-{number}.db"
        shutil.copy(original, path)
        process = processes.Process(target=apply_and_die, args=(path, number))
        process.start()
        process.join(60)
        killed = process.exitcode == -signal.SIGKILL
        assert killed or process.exitcode == 0
        assert contents(path) == (begun if killed else done)
        apply(path)  # after a restart, the log gives the same batch again
        assert contents(path) == done
    assert number > 10
