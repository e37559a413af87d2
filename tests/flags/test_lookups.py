"""Point reads: persons of many requests in one statement (see `hoglab.flags.lookups`)."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from hoglab.flags.lookups import PersonLoader, PointRead, PointReader
from hoglab.storage.database.tables import person_distinct_id


class Counting:
    """Runs reads for real and counts them."""

    def __init__(self, database) -> None:
        self.reader = PointReader(database)
        self.count = 0

    def __call__(self, read, *values):
        self.count += 1
        return self.reader(read, *values)


@pytest.fixture
def reads(server):
    for number in range(40):
        server.event("$set", f"user-{number}", **{"$set": {"number": number}})
    reads = Counting(server.database)
    yield reads
    reads.reader.close()


def test_persons_of_one_turn_are_read_together(reads):
    async def ask(wanted):
        loader = PersonLoader(reads)
        return await asyncio.gather(*(loader.load(1, distinct_id) for distinct_id in wanted))

    found = asyncio.run(ask(["user-3", "nobody", "user-5", "user-3"]))
    assert [None if each is None else each.properties["number"] for each in found] == [3, None, 5, 3]
    assert reads.count == 1
    everybody = asyncio.run(ask([f"user-{number}" for number in range(40)]))
    assert [each.properties["number"] for each in everybody] == list(range(40))
    assert reads.count == 3  # 32 and 8


def test_persons_of_other_projects_are_unknown(reads):
    async def ask():
        loader = PersonLoader(reads)
        return await asyncio.gather(loader.load(1, "user-1"), loader.load(2, "user-1"))

    here, there = asyncio.run(ask())
    assert (here.properties["number"], there) == (1, None)


def test_a_request_that_is_given_up_leaves_the_others_alone(reads):
    async def ask():
        loader = PersonLoader(reads)

        async def wait():
            return await loader.load(1, "user-1")

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(ask()).properties["number"] == 1


def test_a_failure_reaches_all_who_asked_and_is_over_afterwards(server, reads):
    async def ask():
        loader = PersonLoader(reads)
        return await asyncio.gather(
            loader.load(1, "user-1"), loader.load(1, "user-2"), return_exceptions=True
        )

    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE person RENAME TO gone")
    failures = asyncio.run(ask())
    assert ["no such table" in str(each) for each in failures] == [True, True]
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE gone RENAME TO person")
    assert [each.properties["number"] for each in asyncio.run(ask())] == [1, 2]


def test_every_read_sees_the_latest_commit(server, reads):
    async def ask():
        return (await PersonLoader(reads).load(1, "user-1")).properties["number"]

    assert asyncio.run(ask()) == 1
    server.event("$set", "user-1", **{"$set": {"number": 100}})
    assert asyncio.run(ask()) == 100


def test_parameters_must_be_in_the_order_of_the_statement(server):
    column = person_distinct_id.c
    where = (
        column.project_id == sa.bindparam("project_id"),
        column.distinct_id == sa.bindparam("distinct_id"),
    )
    read = PointRead(("distinct_id", "project_id"), column.person_id, where=where)
    with pytest.raises(ValueError, match="in the order"):
        PointReader(server.database)(read, "user-1", 1)
