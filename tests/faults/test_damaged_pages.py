"""Damaged pages of databases: `check` reads every page, and readiness says so once an engine has met damage."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import orjson
import pytest
from tests.generated import SEED
from tests.http.asgi import ask
from tests.ingestion.conftest import event, record
from tests.waiting import wait_for

from hoglab.app import Hoglab
from hoglab.backup.checking import check
from hoglab.settings import Settings
from hoglab.storage.database.errors import DatabaseDamagedError
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.event_store.sealed.sealing import SealingLimits

PLACES = int(os.environ.get("HOGLAB_TEST_DAMAGES", "3"))
MAX_PLACES = max(PLACES, 100)
PAGE_BYTES = 4096
PEOPLE = 400


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with persons, events of which some are sealed, and records of the log that were not ingested."""
    data = tmp_path_factory.mktemp("sound") / "data"
    hoglab = Hoglab.open(Settings(data=data))
    hoglab.start()
    engines = hoglab.engines
    for start in range(0, PEOPLE, 100):
        events = [
            event(
                "e", f"p{n}", uuid=str(UUID(int=n + 1)), properties={"n": n, "$set": {"text": f"{n} " * 60}}
            )
            for n in range(start, start + 100)
        ]
        asyncio.run(engines.log.append(record(*events)))
        wait_for(lambda: engines.store.position() >= engines.log.last_offset())
        engines.store.seal(SealingLimits(idle_rows=1, recent_rows=150), is_idle=True)
    engines.store.checkpoint()
    hoglab.stop()
    return data


def problem_of_reading(path: Path) -> str | None:
    """Return the error of reading all of a database with its engine alone, and nothing of ours."""
    try:
        if path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608
        else:
            with closing(sqlite3.connect(path)) as connection:
                query = (
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
                )
                for (table,) in connection.execute(query).fetchall():
                    connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608
                [(text,), *_] = connection.execute("PRAGMA integrity_check").fetchall()
                return None if text == "ok" else str(text)
    except (duckdb.Error, sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)
    return None


@pytest.mark.faults
@pytest.mark.parametrize("count", [1, 16, 4096])
@pytest.mark.parametrize("name", ["hoglab.db", "queue.db", "events.duckdb"])
def test_a_check_notices_what_reading_everything_notices(
    sound: Path, tmp_path: Path, name: str, count: int
) -> None:
    """Bytes at random places, and at least one that is noticed."""
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(f"{SEED}:{name}:{count}")
    assert check(sound).problems == check(sound, full=True).problems == []
    noticed = 0
    for number in range(MAX_PLACES):
        data = Path(shutil.copytree(sound, tmp_path / str(number)))
        size = (data / name).stat().st_size
        # Most bytes are content, which nobody can check; what begins a page is checked nearly always.
        place = dice.randrange(size - count) // count * count
        if number % 2:
            place -= place % PAGE_BYTES
        with (data / name).open("r+b") as file:
            file.seek(place)
            file.write(dice.randbytes(count))
        shutil.copytree(data, tmp_path / "read")
        problem = problem_of_reading(tmp_path / "read" / name)
        said = check(data).problems
        print(f"{place} of {size}: {problem}, {said}")
        if problem is not None:
            assert any(name in text for text in said), (place, problem)
            noticed += 1
        shutil.rmtree(data)
        shutil.rmtree(tmp_path / "read")
        if number >= PLACES and noticed:
            break
    assert noticed


@pytest.mark.faults
@pytest.mark.parametrize("name", ["hoglab.db", "queue.db"])
def test_a_server_that_met_a_damaged_page_is_not_ready(sound: Path, tmp_path: Path, name: str) -> None:
    """A page of a table, after the first look at the files, once somebody has asked for what is in it."""
    data = Path(shutil.copytree(sound, tmp_path / "data"))
    table = {"hoglab.db": "person", "queue.db": "log_entry"}[name]
    hoglab = Hoglab.open(Settings(data=data, access_log=False))
    hoglab.start()
    try:
        with asyncio.Runner() as runner:

            def readiness() -> tuple[int, dict[str, Any]]:
                answer = runner.run(ask(hoglab.http, "GET", "/_readiness", []))
                return answer.status, orjson.loads(answer.body)

            engines = hoglab.engines
            database = {"hoglab.db": engines.database, "queue.db": engines.queue_database}[name]
            (watch,) = (service for service in hoglab._background if isinstance(service, IntegrityWatch))
            wait_for(watch.looked.is_set)
            wait_for(lambda: readiness() == (200, {"status": "ok"}))
            with closing(sqlite3.connect(data / name)) as connection:
                root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
                [(page,)] = root.fetchall()
                [(page_bytes,)] = connection.execute("PRAGMA page_size")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with (data / name).open("r+b") as file:
                file.seek((page - 1) * page_bytes)
                file.write(b"\xff" * page_bytes)
            with pytest.raises(DatabaseDamagedError, match="is damaged"), database.read() as connection_:
                connection_.exec_driver_sql(f"SELECT * FROM {table}").fetchall()  # noqa: S608
            status, body = readiness()
            assert (status, body["status"]) == (503, "not ready")
            assert any(name in reason and "hoglab check" in reason for reason in body["reasons"])
    finally:
        hoglab.stop()
