"""A transaction that stays open in PostgreSQL keeps the rows of finished runs: the queue becomes slower, not slow.

``HOGLAB_TEST_SNAPSHOT_S``: for how long; `make soak` says a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.storage.test_invocations import invocation, outcome

from hoglab.storage.invocations import InvocationBatch, InvocationQueue

pytestmark = pytest.mark.faults

SECONDS = float(os.environ.get("HOGLAB_TEST_SNAPSHOT_S", "4"))
BATCH = 100
WORKERS = 2
LEAST = 0.2
"""Of the rate without the snapshot."""


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


def work(queue: InvocationQueue, seconds: float) -> float:
    """Runs that are enqueued, claimed and finished in a second."""
    begun = time.monotonic()
    done = 0
    while time.monotonic() < begun + seconds:
        queue.enqueue(InvocationBatch([invocation(function_id=f"f{place % 5}") for place in range(BATCH)]))
        while claimed := queue.claim(limit=BATCH):
            done += len(queue.finish(list(map(outcome, claimed))))
    return done / (time.monotonic() - begun)


@pytest.mark.slow
@pytest.mark.timeout(900 + 4 * SECONDS)
def test_claims_stay_quick_while_a_snapshot_is_held(engine: PostgresEngine) -> None:
    queues = [engine.queue() for _ in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:

        def rate() -> float:
            return sum(pool.map(lambda queue: work(queue, SECONDS), queues))

        undisturbed = rate()
        with engine.connect() as holder, holder.transaction():
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM invocation")
            held = rate()
            dead = holder.execute("SELECT count(*) FROM invocation WHERE finished_at IS NOT NULL").fetchone()
        print(f"{undisturbed:.0f} runs a second undisturbed, {held:.0f} beside a snapshot; {dead}")
    for queue in queues:
        queue.close()
    assert held >= LEAST * undisturbed
