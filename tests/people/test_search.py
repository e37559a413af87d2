"""Searching persons: what the index tells is what looking at everybody would."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from hoglab.backup.checking import check
from hoglab.people import reading
from hoglab.people.reading import PersonFilter, list_persons
from hoglab.storage.database import Database
from hoglab.storage.database.person_search import person_search
from hoglab.storage.database.sqlite import person_search as index_of_file
from hoglab.storage.database.tables import person, person_distinct_id, queue_metadata

START = datetime(2026, 1, 1, tzinfo=UTC)
SEARCHES = [
    "ada", "ADA@example", "user-1", "Zoë", "zoË", "a", "ab", "", "%", "_x_", "100%", '"quoted"', "nobody at all",
    "example.com", "o'neil", "日本語", "-7", "@", "a\x00b", "AND", "*", "\\",
]  # fmt: skip


def add(database: Database, count: int, *, seed: int = 0, project_id: int = 1, filled: bool = True) -> None:
    chance = random.Random(seed)
    words = ["ada", "Zoë", "O'Neil", "100%", "a_x_b", '"quoted"', "日本語の名前", "BOB", "back\\slash"]
    with database.write() as tx:
        for number in range(count):
            properties: dict[str, Any] = {"plan": "ada"}
            if chance.random() < 0.7:
                properties["email"] = f"{chance.choice(words)}{number}@example.com"
            if chance.random() < 0.5:
                properties["name"] = chance.choice([*words, None, 7, ["ada"]])
            values = {
                "uuid": str(uuid4()),
                "project_id": project_id,
                "properties": properties,
                "created_at": START + timedelta(seconds=chance.randrange(1_000)),
            }
            row = tx.connection.execute(
                sa.insert(person).values(**values).returning(person.c.id)
            ).scalar_one()
            for place in range(chance.choice([1, 1, 2])):
                name = f"user-{number}-{chance.choice(words)}-{place}"
                tx.connection.execute(
                    sa.insert(person_distinct_id).values(
                        project_id=project_id, distinct_id=name, person_id=row
                    )
                )
        while filled and person_search(tx.connection).fill(tx.connection):
            pass


def found(database: Database, **asked: Any) -> tuple[list[int], int]:
    with database.read() as connection:
        views, count = list_persons(
            connection, asked.pop("project_id", 1), PersonFilter(**asked), limit=1_000, offset=0
        )
    return [view.row_id for view in views], count


def same_as_looking_at_everybody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for project_id in (1, 2):
        for asked in [
            *({"search": text} for text in SEARCHES),
            {"email": "ADA3@example.com"},
            {"email": "ada"},
            {"distinct_id": "user-1-ada-0"},
            {"distinct_id": "user-1-ada-0", "search": "ada"},
        ]:
            by_index = found(database, project_id=project_id, **asked)
            with monkeypatch.context() as without:
                without.setattr(reading, "_maybe", lambda *_: None)
                assert by_index == found(database, project_id=project_id, **asked), asked
    with database.read() as connection:
        told = person_search(connection).find(connection, "example.com", 10_000)
    assert told is not None
    assert told[0], "the index was not asked"


def test_any_text(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    add(database, 120)
    add(database, 60, seed=1, project_id=2)
    assert len(found(database, search="ada")[0]) > 20
    same_as_looking_at_everybody(database, monkeypatch)


def test_persons_who_change_merge_and_go(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    add(database, 60)
    add(database, 5, seed=9, filled=False)  # who are not in the index yet
    ids, links = person.c.id, person_distinct_id.c
    with database.write() as tx:
        change = sa.update(person)
        tx.connection.execute(change.where(ids == 3).values(properties={"email": "renamed-ada@example.com"}))
        tx.connection.execute(change.where(ids == 4).values(properties={}))
        tx.connection.execute(sa.update(person_distinct_id).where(links.person_id == 5).values(person_id=6))
        tx.connection.execute(sa.delete(person).where(ids.in_([5, 7])))
    assert 3 in found(database, search="renamed-ADA")[0]
    same_as_looking_at_everybody(database, monkeypatch)


@pytest.mark.files
def test_persons_who_were_there_before_the_index(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, 120, filled=False)
    with database.read() as connection:
        assert not index_of_file.is_full(connection)
        assert index_of_file.find(connection, "example.com", 10_000) == ([], 0)
    assert len(found(database, search="ada")[0]) > 20  # without it
    monkeypatch.setattr(index_of_file, "FILL_AT_ONCE", 50)
    steps = 1
    with database.write() as tx:
        while index_of_file.fill(tx.connection):
            steps += 1
    assert steps == 3
    same_as_looking_at_everybody(database, monkeypatch)
    Database.open(tmp_path / "hoglab.db").dispose()  # makes no second one


def test_a_text_that_very_many_have_needs_no_index(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, 120)
    monkeypatch.setattr(reading, "MAX_FOUND", 10)
    with database.read() as connection:
        assert person_search(connection).find(connection, "example.com", 10) is None
    same_as_looking_at_everybody(database, monkeypatch)


@pytest.mark.parametrize(
    "asked", [{"search": "nobody at all"}, {"search": "-7-"}, {"email": "ADA3@example.com"}]
)
@pytest.mark.files
def test_it_takes_what_is_found_not_what_is_stored(database: Database, asked: dict[str, str]) -> None:
    """Counted in steps of the engine."""

    def steps() -> int:
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        with database.read() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.set_progress_handler(count, 10)
            try:
                list_persons(connection, 1, PersonFilter(**asked), limit=100, offset=0)
            finally:
                driver.set_progress_handler(None, 0)
        return counted

    add(database, 100)
    few = steps()
    with database.write() as tx:
        rows = [
            {
                "uuid": str(uuid4()),
                "project_id": 1,
                "properties": {"email": f"q{number}@b.se"},
                "created_at": START,
            }
            for number in range(3_000)
        ]
        tx.connection.execute(sa.insert(person), rows)
        while index_of_file.fill(tx.connection):
            pass
    assert steps() < few * 2


def test_how_many_there_are_is_said_up_to_a_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, 60)
    monkeypatch.setattr(reading, "MAX_COUNTED", 20)
    with database.read() as connection:
        for limit, offset, expected in ((5, 0, 20), (5, 30, 36), (5, 55, 60), (100, 0, 60), (5, 100, 60)):
            views, count = list_persons(connection, 1, PersonFilter(), limit=limit, offset=offset)
            assert (len(views), count) == (max(0, min(limit, 60 - offset)), expected)


@pytest.mark.files
def test_an_erased_person_leaves_nothing_in_the_index(database: Database) -> None:
    add(database, 20)
    with database.write() as tx:
        tx.connection.execute(
            sa.update(person).where(person.c.id == 3).values(properties={"email": "unique-xyzzy@example.com"})
        )
    with database.read() as connection:
        assert index_of_file.find(connection, "xyzzy", 10) == ([3], 20)
    with database.write() as tx:
        tx.connection.execute(sa.delete(person).where(person.c.id == 3))
        index_of_file.reset(tx.connection)
        assert not index_of_file.fill(tx.connection)
    with database.read() as connection:
        assert index_of_file.find(connection, "xyzzy", 10) == ([], 20)


@pytest.mark.files
def test_parts_of_it_that_are_gone_are_noticed(database: Database, tmp_path: Path) -> None:
    add(database, 120)
    with closing(sqlite3.connect(tmp_path / "hoglab.db")) as connection:
        assert list(index_of_file.missing(connection)) == []
        blocks = "SELECT id, block FROM person_search_data WHERE id > 10 ORDER BY length(block) DESC LIMIT 1"
        key, block = connection.execute(blocks).fetchone()
        noticed = 0
        for place in range(40, len(block), max(1, len(block) // 40)):
            flipped = block[:place] + bytes([block[place] ^ 1]) + block[place + 1 :]
            connection.execute("UPDATE person_search_data SET block = ? WHERE id = ?", (flipped, key))
            try:
                noticed += any(index_of_file.missing(connection))
            except sqlite3.DatabaseError:  # it cannot be read
                noticed += 1
            connection.rollback()
        assert noticed > 30  # the others make the index tell of somebody more, who is looked at and left out


@pytest.mark.files
def test_it_is_checked_and_repaired(database: Database, tmp_path: Path) -> None:
    add(database, 120)
    assert not database.files[0].repair_search()
    Database.open(tmp_path / "queue.db", queue_metadata).dispose()
    with closing(sqlite3.connect(tmp_path / "hoglab.db")) as connection:
        connection.execute("DELETE FROM person_search_data WHERE id > 10")
        connection.commit()
    report = check(tmp_path, full=True)
    assert any("`hoglab repair`" in text and "searching persons" in text for text in report.problems)
    assert database.files[0].repair_search()
    assert not any("searching persons" in text for text in check(tmp_path, full=True).problems)
    with database.write() as tx:
        assert index_of_file.find(tx.connection, "example.com", 10_000) == ([], 0)
        while index_of_file.fill(tx.connection):
            pass
        told = index_of_file.find(tx.connection, "example.com", 10_000)
    assert told is not None
    assert told[0]
