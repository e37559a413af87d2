"""Point reads on the event loop: what one turn of it shares (see `hoglab.flags.matching.lookups`)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing

import pytest

from hoglab.flags.matching.lookups import DatabaseFacts, PointReader


@pytest.fixture(params=[False, True], ids=["read each time", "remembered"])
def reader(server, request):
    for number in range(3):
        server.event("$set", f"user-{number}", **{"$set": {"number": number}})
    reader = PointReader(server.database, server.people.known if request.param else None)
    yield reader
    reader.close()


def number_of(reader, distinct_id="user-1", project_id=1):
    person = DatabaseFacts(reader, project_id).person(distinct_id)
    return None if person is None else person.properties["number"]


def test_persons_and_strangers(reader):
    async def ask():
        return [number_of(reader, name) for name in ("user-2", "nobody", "user-0")]

    assert asyncio.run(ask()) == [2, None, 0]


def test_persons_of_other_projects_are_unknown(reader):
    async def ask():
        return number_of(reader), number_of(reader, project_id=2)

    assert asyncio.run(ask()) == (1, None)


def test_every_turn_sees_the_latest_commit(server, reader):
    async def ask():
        before = number_of(reader)
        server.event("$set", "user-1", **{"$set": {"number": 100}})
        same_turn = number_of(reader)
        await asyncio.sleep(0)
        return before, same_turn, number_of(reader)

    # Who asks in one turn sees one state; what is committed is seen from the next turn on.
    assert asyncio.run(ask()) == (1, 1, 100)


def test_what_asks_after_a_commit_sees_it(server, reader):
    """A read that is queued after a commit never shares the snapshot of one from before it."""

    async def ask():
        loop = asyncio.get_running_loop()
        seen: list[int | None] = []
        done = asyncio.Event()

        def first() -> None:
            seen.append(number_of(reader))
            server.event("$set", "user-1", **{"$set": {"number": 100}})
            loop.call_soon(second)

        def second() -> None:
            seen.append(number_of(reader))
            done.set()

        loop.call_soon(first)
        await done.wait()
        return seen

    assert asyncio.run(ask()) == [1, 100]


def test_a_read_that_shares_an_old_snapshot_is_not_remembered(server, reader):
    async def ask():
        number_of(reader, "user-0")  # begins what the turn reads from
        server.event("$set", "user-1", **{"$set": {"number": 100}})
        same_turn = number_of(reader)
        await asyncio.sleep(0)
        return same_turn, number_of(reader)

    assert asyncio.run(ask()) == (1, 100)


def test_a_person_changes_under_another_of_its_names(server, reader):
    async def ask():
        before = number_of(reader)
        server.event("$create_alias", "user-1", alias="alias-1")
        await asyncio.sleep(0)
        alias = number_of(reader, "alias-1")
        server.event("$set", "user-1", **{"$set": {"number": 100}})
        await asyncio.sleep(0)
        return before, alias, number_of(reader, "alias-1"), number_of(reader)

    assert asyncio.run(ask()) == (1, 1, 100, 100)


def test_merged_persons_are_one_under_all_names(server, reader):
    async def ask():
        names = ("user-0", "user-1", "alias-1")
        server.event("$create_alias", "user-1", alias="alias-1")
        before = [number_of(reader, name) for name in names]
        await asyncio.sleep(0)
        server.event("$merge_dangerously", "user-0", alias="user-1")
        await asyncio.sleep(0)
        after = [number_of(reader, name) for name in names]
        server.event("$set", "alias-1", **{"$set": {"number": 100}})
        await asyncio.sleep(0)
        return before, after, [number_of(reader, name) for name in names]

    assert asyncio.run(ask()) == ([0, 1, 1], [0, 0, 0], [100, 100, 100])


def test_no_reader_lags_behind_a_writer(server, reader):
    """While another thread writes, a read never gives less than what was written before it was asked for."""
    written = [1]

    def write() -> None:
        for number in range(2, 60):
            server.event("$set", "user-1", **{"$set": {"number": number}})
            written[0] = number

    async def watch() -> list[int]:
        writer = asyncio.create_task(asyncio.to_thread(write))
        lags = []
        while not writer.done():
            least = written[0]
            found = number_of(reader)
            assert found is not None
            lags.append(least - found)
            await asyncio.sleep(0)
        await writer
        return [*lags, written[0] - (number_of(reader) or 0)]

    lags = asyncio.run(watch())
    assert len(lags) > 1
    assert max(lags) <= 0


@pytest.mark.files
def test_no_transaction_stays_open(server, reader, tmp_path):
    async def ask():
        number_of(reader)
        await asyncio.sleep(0)

    asyncio.run(ask())
    server.event("$set", "user-1", **{"$set": {"number": 100}})
    with closing(sqlite3.connect(tmp_path / "hoglab.db", timeout=0, isolation_level=None)) as other:
        # Emptying the write-ahead log has to wait for everybody who still reads from it.
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0


def test_a_failure_is_over_once_its_cause_is(server, reader):
    async def ask():
        try:
            return number_of(reader)
        except Exception as error:
            return str(error)

    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE person RENAME TO gone")
    assert re.search("no such table|does not exist", asyncio.run(ask()))
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE gone RENAME TO person")
    assert asyncio.run(ask()) == 1
