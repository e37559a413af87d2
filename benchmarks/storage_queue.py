"""Invocations per second through the queue, against the bare SQLite statements that such a queue cannot avoid.

The reference has one table with one index and does per batch: insert in one transaction; mark as taken and
read in one; delete in one. The queue adds what makes it a queue: ids that are unique for good, lock tokens,
priorities and times, functions passed over, consumers' positions, logs and metrics of each run.

Run: ``python -m benchmarks.storage_queue [--smoke]``
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from tests.embedded import EmbeddedQueueTables

from hoglab.storage.database import Database, tables
from hoglab.storage.invocations import (
    AppMetric,
    ConsumerPosition,
    InvocationBatch,
    InvocationOutcome,
    InvocationQueue,
    LogEntry,
    NewInvocation,
)

BATCH = 100
STATE = b"x" * 600
Rates = dict[str, float]


def timed(work: Callable[[], int]) -> float:
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def reference(path: Path, total: int) -> Rates:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size=8192")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE TABLE job (id TEXT PRIMARY KEY, due INTEGER, taken INTEGER, state BLOB)")
    connection.execute("CREATE INDEX job_due ON job (due) WHERE taken = 0")

    def transaction(statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, rows)
        connection.execute("COMMIT")

    def enqueue() -> int:
        for first in range(0, total, BATCH):
            rows = [(str(uuid4()), first + number, 0, STATE) for number in range(BATCH)]
            transaction("INSERT INTO job VALUES (?, ?, ?, ?)", rows)
        return total

    def work() -> int:
        done = 0
        take = (
            "UPDATE job SET taken = 1 WHERE rowid IN (SELECT rowid FROM job WHERE taken = 0 ORDER BY due "
            "LIMIT ?) RETURNING id, state"
        )
        while rows := connection.execute(take, (BATCH,)).fetchall():
            transaction("DELETE FROM job WHERE id = ?", [(id_,) for id_, _ in rows])
            done += len(rows)
        return done

    rates = {"enqueue": timed(enqueue), "claim and finish": timed(work)}
    connection.close()
    return rates


def queue(path: Path, total: int, *, traces: bool, workers: int = 1) -> Rates:
    Database.open(path, tables.queue_metadata).dispose()
    invocations = InvocationQueue(EmbeddedQueueTables(path))
    now = datetime.now(UTC)

    def enqueue() -> int:
        for offset in range(total // BATCH):
            new = [
                NewInvocation(str(uuid4()), 1, f"function-{number % 10}", STATE) for number in range(BATCH)
            ]
            invocations.enqueue(InvocationBatch(new, position=ConsumerPosition("delivery", offset)))
        return total

    def work() -> int:
        done = 0
        while claimed := invocations.claim(limit=BATCH):
            logs = [
                LogEntry(1, each.function_id, each.id, now, "debug", "Function completed") for each in claimed
            ]
            metrics = [AppMetric(1, each.function_id, "success", "succeeded", 1, now) for each in claimed]
            invocations.finish(
                [InvocationOutcome(each.id, each.lock_token, "completed") for each in claimed],
                logs=logs if traces else (),
                metrics=metrics if traces else (),
            )
            done += len(claimed)
        return done

    def work_together() -> int:
        done: list[int] = []
        threads = [threading.Thread(target=lambda: done.append(work())) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done)

    rates = {"enqueue": timed(enqueue), "claim and finish": timed(work if workers == 1 else work_together)}
    invocations.close()
    return rates


def main() -> None:
    total = 2_000 if "--smoke" in sys.argv else 50_000
    print(f"invocation queue: invocations/s in batches of {BATCH}, ratio to bare SQLite statements")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        bare = reference(Path(folder) / "bare.db", total)
        cases = {
            "bare statements": bare,
            "queue": queue(Path(folder) / "a.db", total, traces=False),
            "with a log line and a metric each": queue(Path(folder) / "b.db", total, traces=True),
            "with traces, 4 workers": queue(Path(folder) / "c.db", total, traces=True, workers=4),
        }
    for name, rates in cases.items():
        for step, rate in rates.items():
            print(f"{name:<36}{step:<18}{rate:>10,.0f}   {rate / bare[step]:.2f}")


if __name__ == "__main__":
    main()
