"""The invocation queue and the event log on PostgreSQL: against bare statements, and against the log on SQLite.

The bare queue has one table with one index and does per batch: insert; take with ``SKIP LOCKED``; delete. Ours adds
what makes it a queue: ids that are unique for good, fairness, lock tokens, consumers' positions. Both logs
answer when a record is on disk; PostgreSQL's is a process of its own, and the offsets of several writers have no gaps.

Run: ``python -m benchmarks.storage_postgres [--smoke]``; says so and ends where no PostgreSQL is installed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from tests.embedded import EmbeddedEventLog
from tests.postgres import _programs
from tests.storage.engines import PostgresEngine
from tests.storage.own_postgres import own_server

from benchmarks.storage_log import produce
from benchmarks.storage_queue import BATCH, STATE, Rates, timed
from hoglab.storage.event_log.log import GroupCommitLog, LogLimits
from hoglab.storage.invocations import (
    ClaimedInvocation,
    ConsumerPosition,
    InvocationBatch,
    InvocationOutcome,
    NewInvocation,
)

T = TypeVar("T")

QUEUE_GOAL, LOG_GOAL = 0.6, 0.35
SIZES = (600, 60_000)
"""Bytes of a record: a browser's request, and one of a server with a hundred events."""
UNBOUNDED = LogLimits(max_backlog_bytes=1 << 40)


def bare(url: str, total: int) -> Rates:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("CREATE TABLE job (id text PRIMARY KEY, due bigint, taken boolean, state bytea)")
        connection.execute("CREATE INDEX job_due ON job (due) WHERE NOT taken")

        def enqueue() -> int:
            for first in range(0, total, BATCH):
                ids = [str(uuid4()) for _ in range(BATCH)]
                connection.execute(
                    "INSERT INTO job SELECT id, due, false, state "
                    "FROM unnest(%b::text[], %b::bigint[], %b::bytea[]) AS new (id, due, state)",
                    (ids, list(range(first, first + BATCH)), [STATE] * BATCH),
                )
            return total

        def claim() -> list[Any]:
            take = (
                "UPDATE job SET taken = true WHERE id IN (SELECT id FROM job WHERE NOT taken ORDER BY due LIMIT %s "
                "FOR UPDATE SKIP LOCKED) RETURNING id, state"
            )
            return connection.execute(take, (BATCH,), binary=True).fetchall()

        def finish(rows: list[Any]) -> None:
            connection.execute("DELETE FROM job WHERE id = ANY (%b)", ([id_ for id_, _ in rows],))

        return {"enqueue": timed(enqueue), **worked(claim, finish)}


def worked(claim: Callable[[], list[T]], finish: Callable[[list[T]], object]) -> Rates:
    """How many are claimed and finished a second, until there are none."""
    seconds, done = {"claim": 0.0, "finish": 0.0}, 0
    while True:
        started = time.perf_counter()
        claimed = claim()
        seconds["claim"] += time.perf_counter() - started
        if not claimed:
            return {name: done / taken for name, taken in seconds.items()}
        done += len(claimed)
        started = time.perf_counter()
        finish(claimed)
        seconds["finish"] += time.perf_counter() - started


def queue(engine: PostgresEngine, total: int) -> Rates:
    with closing(engine.queue()) as invocations:

        def enqueue() -> int:
            for offset in range(total // BATCH):
                new = [NewInvocation(str(uuid4()), 1, f"function-{n % 10}", STATE) for n in range(BATCH)]
                invocations.enqueue(InvocationBatch(new, position=ConsumerPosition("delivery", offset)))
            return total

        def finish(claimed: list[ClaimedInvocation]) -> None:
            invocations.finish([InvocationOutcome(each.id, each.lock_token, "completed") for each in claimed])

        return {"enqueue": timed(enqueue), **worked(lambda: invocations.claim(limit=BATCH), finish)}


async def appended(log: GroupCommitLog, size: int, seconds: float) -> float:
    append: Callable[[bytes], Awaitable[Any]] = log.append
    return len(await produce(append, b"x" * size, seconds)) / seconds


def main() -> None:
    smoke = "--smoke" in sys.argv
    if _programs() is None:
        print("needs PostgreSQL")
        return
    total, seconds = (1_000, 0.2) if smoke else (20_000, 4.0)
    with own_server() as server, tempfile.TemporaryDirectory(dir=".") as folder:
        PostgresEngine.prepare(server.url)
        with closing(PostgresEngine(server.url)) as engine:
            reference, ours = bare(server.url, total), queue(engine, total)
            for name, rate in ours.items():
                ratio = rate / reference[name]
                print(
                    f"{name:<18} {rate:>8,.0f}/s, bare SKIP LOCKED {reference[name]:>8,.0f}/s, "
                    f"ratio {ratio:.2f} (goal {QUEUE_GOAL})"
                )
            for size in SIZES:
                with closing(EmbeddedEventLog(Path(folder) / f"{size}.db", limits=UNBOUNDED)) as embedded:
                    one = asyncio.run(appended(embedded, size, seconds))
                with closing(engine.log(max_backlog_bytes=1 << 40)) as log:
                    other = asyncio.run(appended(log, size, seconds))
                print(
                    f"append {size:>6} B {other:>8,.0f}/s, SQLite log {one:>8,.0f}/s, "
                    f"ratio {other / one:.2f} (goal {LOG_GOAL})"
                )


if __name__ == "__main__":
    main()
