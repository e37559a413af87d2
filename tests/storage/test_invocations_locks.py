"""The invocation queue on PostgreSQL: who locks what in which order, and what happens to those who met all the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.storage.test_event_log_postgres import wait_until
from tests.storage.test_invocations import invocation, outcome

from hoglab.storage.database.errors import DatabaseConflictError
from hoglab.storage.database.locks import ATTEMPTS, tried_again
from hoglab.storage.database.postgres.session import PostgresSession
from hoglab.storage.invocations import InvocationBatch, InvocationResult
from hoglab.storage.invocations.erasing import ErasedPersons
from hoglab.storage.invocations.postgres.rows import PostgresQueueRows
from hoglab.storage.invocations.sql import stores_of

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


def conflicts() -> float:
    return REGISTRY.get_sample_value("hoglab_database_conflicts_total") or 0.0


def waiting(connection: psycopg.Connection[Any]) -> int:
    """How many sessions wait for a lock."""
    row = connection.execute(_WAITING.encode()).fetchone()
    assert row is not None
    return int(row[0])


def result(id_: str, version: int) -> InvocationResult:
    return InvocationResult(id_, 1, "f1", "failed", attempts=1, version=version)


def test_a_run_may_end_while_it_is_asked_for_once_more(engine: PostgresEngine) -> None:
    """Who asks for it waits for its order key, and then who ends it: the first has nothing that the other needs."""
    keys = ["a", "b"]
    before = conflicts()
    new = [invocation(order_key=key) for key in keys]
    again = [invocation(id=each.id, order_key=each.order_key, repeats=1) for each in new]
    with (
        closing(engine.queue()) as one,
        closing(engine.queue()) as two,
        engine.connect() as third,
        engine.connect() as watcher,
        ThreadPoolExecutor(2) as pool,
    ):
        one.enqueue(InvocationBatch(new, results=[result(each.id, 1) for each in new]))
        for _ in range(3):
            claimed = one.claim()
            assert len(claimed) == 2
            with third.transaction():
                PostgresQueueRows(third).lock_keys([("f1", key) for key in keys])
                asking = pool.submit(two.enqueue, InvocationBatch(again[::-1]))
                wait_until(lambda: waiting(watcher) == 1)
                ending = pool.submit(one.finish, list(map(outcome, claimed)))
                wait_until(lambda: waiting(watcher) == 2)
            assert ending.result(60) == {each.id for each in new}
            assert asking.result(60) == 0, "they were at work"
            assert two.enqueue(InvocationBatch(again)) == 2
    assert conflicts() == before, "nobody was undone for the other"


def test_a_transaction_that_was_undone_for_another_one_is_begun_anew(engine: PostgresEngine) -> None:
    """Somebody locks results in an order that is not ours."""
    before = conflicts()
    with (
        closing(engine.queue()) as queue,
        engine.connect() as other,
        engine.connect() as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        queue.enqueue(InvocationBatch([invocation(id="a")], results=[result(id_, 1) for id_ in "ab"]))
        [claimed] = queue.claim()
        other.execute("SET deadlock_timeout = '60s'")  # it is not the one that notices
        with other.transaction():
            lock = "SELECT FROM invocation_result WHERE invocation_id = %s FOR UPDATE"
            other.execute(lock, ("b",))
            results = [result(id_, 2) for id_ in "ab"]
            ending = pool.submit(queue.finish, [outcome(claimed)], results=results)
            wait_until(lambda: waiting(watcher) == 1)
            other.execute(lock, ("a",))
        assert ending.result(60) == {"a"}
        rows = watcher.execute("SELECT version FROM invocation_result").fetchall()
        assert [version for (version,) in rows] == [2, 2]
        assert queue.counts.backlog() == 0
    assert conflicts() == before + 1


def test_who_is_undone_every_time_is_told(engine: PostgresEngine) -> None:
    before = conflicts()
    with closing(PostgresSession(engine.connect, "the database of a test")) as session:

        @tried_again
        def work() -> None:
            with session.transaction() as connection:
                connection.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")

        with pytest.raises(DatabaseConflictError, match="is kept busy by others"):
            work()
    assert conflicts() == before + ATTEMPTS


def test_nobody_claims_what_is_being_erased(engine: PostgresEngine) -> None:
    """What was claimed between a look at its status and its change would run with the person in it."""
    persons = ErasedPersons(1, {"p"}, {"d"}, {"e"}, log_offset=5, requested_at=datetime.now(UTC))
    claimed: list[Any] = []
    with closing(engine.queue()) as queue:
        queue.enqueue(InvocationBatch([invocation(state=b"them", log_offset=1)]))
        looks = 0

        def leave_out(state: bytes) -> bytes:
            nonlocal looks
            looks += 1
            if looks == 2:
                claimed.extend(queue.claim())
            return state.replace(b"them", b"others")

        erasing = stores_of(queue, engine.database).erasing
        assert erasing.erase(persons, leave_out), "none is at work"
        assert looks == 2
        assert claimed == []
        assert [each.state for each in queue.claim()] == [b"others"]
