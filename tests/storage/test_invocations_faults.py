"""The invocation queue when its process is killed: nothing is lost, nothing finished runs again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from hoglab.storage.database import Database, tables
from hoglab.storage.invocations import InvocationOutcome, InvocationQueue
from hoglab.storage.invocations.sqlite import SqliteQueueTables

pytestmark = pytest.mark.faults

# One thread enqueues batches for log records, two work. Every line is printed after its call returned.
WORKER = """
import sys, threading
from pathlib import Path
from hoglab.storage.invocations import (
    ConsumerPosition, InvocationBatch, InvocationOutcome, InvocationQueue, NewInvocation
)
from hoglab.storage.invocations.sqlite import SqliteQueueTables

queue = InvocationQueue(SqliteQueueTables(Path(sys.argv[1])))
queue.release_all()
lock = threading.Lock()

def say(*words):
    with lock:
        print(*words, flush=True)

def work():
    while True:
        claimed = queue.claim(limit=5)
        outcomes = []
        for each in claimed:
            # Every third run waits once before it ends.
            done = each.state == b"again" or not each.id.endswith("3")
            status = "completed" if done else "available"
            outcomes.append(InvocationOutcome(each.id, each.lock_token, status, state=b"again"))
        applied = queue.finish(outcomes)
        for outcome in outcomes:
            if outcome.id in applied and outcome.status == "completed":
                say("finished", outcome.id)
        if not claimed:
            queue.arrivals.wait(0.05)

def enqueue():
    offset = queue.position("delivery")
    while True:
        offset += 1
        new = [NewInvocation(f"{offset}-{n}", 1, "f", b"start", log_offset=offset) for n in range(1, 8)]
        queue.enqueue(InvocationBatch(new, position=ConsumerPosition("delivery", offset)))
        say("enqueued", offset)
        if queue.counts.backlog() > 200:
            queue.arrivals.wait(0.01)

threads = [threading.Thread(target=work), threading.Thread(target=work), threading.Thread(target=enqueue)]
for thread in threads:
    thread.start()
"""


def test_killed_ten_times_it_loses_nothing_and_finishes_once(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    Database.open(path, tables.queue_metadata).dispose()
    chance = random.Random(3)
    finished: list[str] = []
    enqueued = 0
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            lines = [worker.stdout.readline() for _ in range(chance.randrange(1, 300))]
            worker.kill()
            lines += worker.stdout.readlines()
        for said in lines:
            if said.endswith("\n"):
                word, name = said.split()
                if word == "finished":
                    finished.append(name)
                else:
                    enqueued = int(name)
    assert len(finished) == len(set(finished))

    queue = InvocationQueue(SqliteQueueTables(path))
    assert enqueued <= queue.position("delivery") <= enqueued + 10
    enqueued = queue.position("delivery")
    everything = {f"{offset}-{number}" for offset in range(1, enqueued + 1) for number in range(1, 8)}
    before = statuses(path)
    assert before.keys() == everything  # nobody swept, so every run is there, finished or not
    assert {before[each] for each in finished} == {"completed"}
    queue.release_all()
    left = set()
    while claimed := queue.claim():
        left |= {each.id for each in claimed}
        queue.finish([InvocationOutcome(each.id, each.lock_token, "completed") for each in claimed])
    assert left == {each for each, status in before.items() if status != "completed"}
    assert set(statuses(path).values()) == {"completed"}
    assert queue.counts.backlog() == 0
    queue.close()


def statuses(path: Path) -> dict[str, str]:
    database = Database.open(path, tables.queue_metadata)
    with database.read() as connection:
        rows = connection.execute(select(tables.invocation.c.id, tables.invocation.c.status)).all()
    database.dispose()
    return {row.id: row.status for row in rows}
