"""The invocation queue in a SQLite file: what a claim costs there, and a full disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.storage.engines import SqliteEngine
from tests.storage.test_invocations import START, Clock, invocation, line, outcome

from hoglab.storage.database import DatabaseFullError, tables
from hoglab.storage.invocations import InvocationBatch, InvocationQueue
from hoglab.storage.invocations.sqlite import SqliteQueueTables

_ids = itertools.count()


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(tmp_path)


@pytest.fixture
def queue(engine: SqliteEngine) -> Iterator[InvocationQueue]:
    queue = engine.queue(now=Clock(), jitter=lambda: 0.5)
    yield queue
    queue.close()


def tables_of(queue: InvocationQueue) -> SqliteQueueTables:
    assert isinstance(queue._tables, SqliteQueueTables)
    return queue._tables


def steps_of_claim(queue: InvocationQueue, **options: Any) -> int:
    """What claiming the one invocation that may be claimed costs, in tens of steps of the database's machine."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    tables_of(queue)._relaxed.set_progress_handler(count, 10)
    assert len(queue.claim(limit=10, **options)) == 1
    tables_of(queue)._relaxed.set_progress_handler(None, 0)
    return taken


def test_a_claim_does_not_look_at_what_it_passes_over(queue: InvocationQueue) -> None:
    """Counted in steps of the database's machine: a line a hundred times as long costs no more."""

    def steps(waiting: int) -> int:
        queue.enqueue(InvocationBatch([invocation(function_id="flood") for _ in range(waiting)]))
        queue.enqueue(InvocationBatch([invocation(function_id="small")]))
        return steps_of_claim(queue, exclude_functions=["flood"])

    first = steps(50)
    assert steps(5_000) <= first * 2


def test_however_many_wait_for_one_of_their_key_a_claim_looks_at_none(queue: InvocationQueue) -> None:
    """Counted as above, and nothing of it is late: nobody could take it."""

    def steps(waiting: int) -> int:
        queue.enqueue(InvocationBatch([invocation(order_key="stuck") for _ in range(waiting)]))
        queue.enqueue(InvocationBatch([invocation(order_key=f"k{next(_ids)}")]))
        return steps_of_claim(queue)

    queue.enqueue(InvocationBatch([invocation(order_key="stuck")]))
    [stuck] = queue.claim()
    queue.finish([outcome(stuck, "available", scheduled_at=START + timedelta(hours=1))])
    first = steps(50)
    assert steps(5_000) <= first * 2
    assert queue.counts.next_due() == START + timedelta(hours=1)
    stats = queue.counts.stats()
    assert (stats.available, stats.oldest_due_at) == (5_051, None)


def test_everything_is_written_or_nothing(queue: InvocationQueue, engine: SqliteEngine) -> None:
    pages = tables_of(queue)._durable.execute("PRAGMA page_count").fetchone()[0]
    tables_of(queue)._durable.execute(f"PRAGMA max_page_count={pages + 4}")
    lines = [line("x" * 5000) for _ in range(50)]
    with pytest.raises(DatabaseFullError):
        queue.enqueue(InvocationBatch([invocation()], logs=lines))
    tables_of(queue)._durable.execute("PRAGMA max_page_count=1000000")
    assert queue.claim() == []
    assert queue.counts.backlog() == 0
    assert engine.rows(tables.log_entry) == []
    assert queue.enqueue(InvocationBatch([invocation()], logs=lines)) == 1


def test_the_longest_back_off(queue: InvocationQueue) -> None:
    assert queue._janitor.backoff(50) == timedelta(seconds=300)  # half of 600 s
