"""The invocation queue on PostgreSQL with workers in several processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.storage.test_event_log_postgres import wait_until
from tests.storage.test_invocations import invocation, outcome

from hoglab.storage.database import tables
from hoglab.storage.database.postgres.session import PostgresSession
from hoglab.storage.invocations import (
    ClaimedInvocation,
    ConsumerPosition,
    InvocationBatch,
    InvocationQueue,
    LogEntry,
    MaskingCount,
    MaskingMovedError,
)
from hoglab.storage.invocations.postgres import workers
from hoglab.storage.invocations.postgres.rows import PostgresQueueRows
from hoglab.storage.invocations.sql import stores_of
from hoglab.storage.invocations.traces import Traces

# Works off what there is. Each line is printed at once, with a clock that all processes of a machine share.
WORKER = """
import sys, threading, time
import psycopg
from hoglab.storage.invocations import InvocationOutcome, InvocationQueue
from hoglab.storage.invocations.postgres import PostgresQueueTables, workers

workers.WORKER_BEAT_EVERY_S = 0.25
workers.WORKER_DEAD_AFTER_S = workers.SERVER_UP_FOR_S = 10.0  # a busy machine may hold up forty beats
queue = InvocationQueue(PostgresQueueTables(lambda: psycopg.connect(sys.argv[1], autocommit=True), "test"))
queue.release_all()
lock = threading.Lock()

def say(word, claimed):
    with lock:
        print(word, claimed.id, time.monotonic(), flush=True)

def work():
    while True:
        claimed = queue.claim(limit=4)
        for each in claimed:
            say("begin", each)
            time.sleep(0.002)
            say("end", each)
            queue.finish([InvocationOutcome(each.id, each.lock_token, "completed")])
        if not claimed:
            queue.arrivals.wait(0.2)

def sweep():
    while True:
        queue.sweep()
        time.sleep(0.2)

for target in (work, work, sweep):
    threading.Thread(target=target).start()
"""


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


@dataclass
class Turn:
    begin: float
    end: float | None = None


class Working:
    """A process that works, and what it said of each run."""

    def __init__(self, url: str) -> None:
        self.turns: dict[str, Turn] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word in ("begin", "end") and line.endswith("\n"):
                id_, moment = rest.split()
                if word == "begin":
                    assert id_ not in self.turns, "nobody gets a run twice"
                    self.turns[id_] = Turn(float(moment))
                else:
                    self.turns[id_].end = float(moment)

    def reaches(self, count: int) -> None:
        wait_until(lambda: len(self.turns) >= count or self._process.poll() is not None)
        assert self._process.poll() is None

    def close(self) -> float:
        """Kill it; the moment."""
        self._process.kill()
        killed_at = time.monotonic()
        self._process.wait()
        self._reader.join()
        return killed_at


@pytest.mark.faults
def test_no_run_is_claimed_twice_and_no_key_overlaps_also_when_a_worker_is_killed(
    engine: PostgresEngine,
) -> None:
    keys: dict[str, str | None] = {}
    order: defaultdict[str | None, list[str]] = defaultdict(list)
    with closing(engine.queue()) as queue, ExitStack() as working:
        for batch in range(20):
            new = [invocation(order_key=f"k{place}" if place < 4 else None) for place in range(20)]
            queue.enqueue(InvocationBatch(new, position=ConsumerPosition("dispatch", batch + 1)))
            for each in new:
                keys[each.id] = each.order_key
                order[each.order_key].append(each.id)
        victim, first, second = (working.enter_context(closing(Working(engine.url))) for _ in range(3))
        victim.reaches(20)
        killed_at = victim.close()
        wait_until(lambda: not queue.counts.backlogs())
        statuses = {row.id: row.status for row in engine.rows(tables.invocation)}
    begun = [id_ for each in (victim, first, second) for id_ in each.turns]
    lost = victim.turns.keys() & (first.turns.keys() | second.turns.keys())
    assert {id_ for id_ in begun if begun.count(id_) > 1} == lost
    assert len(lost) <= 8, "what two threads had claimed when they were killed"
    assert set(begun) == set(keys)
    assert set(statuses.values()) <= {"completed"}
    for key, ids in order.items():
        if key is None:
            continue
        turns = [
            (turn.begin, killed_at if turn.end is None else turn.end, id_)
            for each in (victim, first, second)
            for id_, turn in each.turns.items()
            if keys[id_] == key
        ]
        turns.sort()
        assert list(dict.fromkeys(id_ for _, _, id_ in turns)) == ids
        for (_, end, _), (begin, _, _) in itertools.pairwise(turns):
            assert end <= begin


@pytest.fixture
def up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the server were so."""
    monkeypatch.setattr(workers, "SERVER_UP_FOR_S", 0.0)


@pytest.mark.usefixtures("up_for_long")
def test_a_worker_that_starts_leaves_what_others_are_running(engine: PostgresEngine) -> None:
    with closing(engine.queue()) as one:
        one.enqueue(InvocationBatch([invocation() for _ in range(4)]))
        claimed = one.claim(limit=2)
        with closing(engine.queue()) as two:
            assert two.release_all() == 0
            two.sweep()
            assert len(two.claim()) == 2
            assert one.finish(list(map(outcome, claimed))) == {each.id for each in claimed}
        assert one.release_all() == 2, "what the one that left was running"


def test_nobody_is_taken_for_dead_while_the_server_just_started(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SERVER_UP_FOR_S", 1e9)
    with closing(engine.queue()) as one, closing(engine.queue()) as two:
        one.enqueue(InvocationBatch([invocation()]))
        monkeypatch.setattr(workers, "WORKER_DEAD_AFTER_S", -1e3)  # it did not renew its row yet
        one.claim()
        two.sweep()
        assert two.claim() == []
        monkeypatch.setattr(workers, "SERVER_UP_FOR_S", 0.0)
        two.sweep()
        assert len(two.claim()) == 1


@pytest.mark.usefixtures("up_for_long")
def test_what_a_dead_worker_was_running_is_due_at_once_and_not_held_against_it(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(engine.queue()) as one:
        one.enqueue(InvocationBatch([invocation()]))
        [lost] = one.claim()
        again: list[ClaimedInvocation] = []
        with closing(engine.queue()) as two, psycopg.connect(engine.url, autocommit=True) as connection:
            monkeypatch.setattr(workers.WorkerLease, "beat", lambda *_: None)

            def found_dead() -> bool:  # its last beat may be on the way yet
                connection.execute(
                    "UPDATE queue_worker SET heartbeat_at = 0 WHERE id = %s", (lost.lock_token[:18],)
                )
                two.sweep()
                again.extend(two.claim())
                return bool(again)

            wait_until(found_dead)
        assert [(each.id, each.reset_count) for each in again] == [(lost.id, 0)]
        assert one.finish([outcome(lost)]) == frozenset()


def test_others_know_of_what_is_enqueued_and_are_woken(engine: PostgresEngine) -> None:
    with closing(engine.queue()) as one, closing(engine.queue()) as two:
        assert two.claim() == []
        one.enqueue(InvocationBatch([invocation(function_id="f7") for _ in range(3)]))
        assert two.arrivals.wait(30)
        wait_until(lambda: two.counts.backlogs() == {"f7": 3})
        claimed: list[ClaimedInvocation] = two.claim()
        two.finish(list(map(outcome, claimed)))
        assert two.counts.backlog() == 0
        wait_until(lambda: one.counts.backlog() == 0)


def test_lines_of_a_log_come_in_order_whoever_writes_them(engine: PostgresEngine) -> None:
    """The newest line that is told of has no other before it that comes later."""

    def line(text: str) -> LogEntry:
        return LogEntry(1, "f", "run", datetime(2026, 1, 5, tzinfo=UTC), "info", text)

    with closing(engine.queue()) as queue, engine.connect() as slow, ThreadPoolExecutor(1) as pool:
        runs = stores_of(queue, engine.database).runs
        assert runs.last_log_id() == 0
        with slow.transaction():
            Traces().write(PostgresQueueRows(slow), [line("first")], [], [])
            runs.write_logs([line("second")])
            told = pool.submit(runs.last_log_id)
            wait_until(lambda: told.running() or told.done())
            assert not wait([told], timeout=0.2).done
        last = told.result(60)
        assert [each.message for each in runs.new_logs(["f"], 0, last, 10)] == ["first", "second"]
        with slow.transaction():  # one that does not end holds up nobody for long
            Traces().write(PostgresQueueRows(slow), [line("third")], [], [])
            runs.write_logs([line("fourth")])
            assert runs.last_log_id() == last + 2


def test_two_who_enqueue_one_key_at_once_keep_one_at_work(engine: PostgresEngine) -> None:
    with closing(engine.queue()) as one, closing(engine.queue()) as two:
        with ThreadPoolExecutor(2) as pool:
            for queue in (one, two):
                pool.submit(
                    lambda queue: [
                        queue.enqueue(InvocationBatch([invocation(order_key="a")])) for _ in range(20)
                    ],
                    queue,
                )
        for _ in range(40):
            [claimed] = one.claim()
            assert two.claim() == []
            one.finish([outcome(claimed)])
        assert one.claim() == []


def test_processes_that_count_for_one_masking_lose_no_count(engine: PostgresEngine) -> None:
    rounds = 15
    together = threading.Barrier(2)

    def count(queue: InvocationQueue, number: int) -> bool:
        """Whether it began the window."""
        together.wait(60)
        while True:
            found = queue.masking_counts([("f", f"{number}")])
            before = found[0].count if found else 0
            ends = found[0].expires_at if found else datetime.now(UTC) + timedelta(hours=1)
            try:
                counted = MaskingCount("f", f"{number}", before + 1, ends, before)
                queue.enqueue(InvocationBatch([invocation()] if before == 0 else (), masking=[counted]))
            except MaskingMovedError:
                continue
            return before == 0

    with closing(engine.queue()) as one, closing(engine.queue()) as two:
        with ThreadPoolExecutor(2) as pool:
            began = [
                pool.submit(lambda queue: [count(queue, number) for number in range(rounds)], queue)
                for queue in (one, two)
            ]
            firsts = [sum(pair) for pair in zip(*(each.result(60) for each in began), strict=True)]
        assert firsts == [1] * rounds
        counts = one.masking_counts([("f", f"{number}") for number in range(rounds)])
        assert [each.count for each in counts] == [2] * rounds
        assert len(one.claim()) == rounds


def test_what_others_enqueued_and_this_process_finished_counts_as_none(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as less than none, until all is counted again."""
    monkeypatch.setattr(workers, "COUNT_EVERY_S", 3600.0)
    with closing(engine.queue()) as other, closing(engine.queue()) as mine:
        other.enqueue(InvocationBatch([invocation()]))
        [claimed] = mine.claim()
        mine.finish([outcome(claimed)])
        assert (
            mine.counts.backlog(),
            mine.counts.backlog_of(claimed.function_id),
            mine.counts.backlogs(),
        ) == (0, 0, {})


def test_time_does_not_go_back_when_the_server_answers_slowly(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = PostgresSession.value

    def slow(session: PostgresSession, *arguments: Any) -> Any:
        found = value(session, *arguments)
        time.sleep(0.2)
        return found

    with closing(PostgresSession(engine.connect, engine.name)) as session:
        clock = workers.ServerClock(session)
        ahead = clock._ahead_us
        monkeypatch.setattr(PostgresSession, "value", slow)
        for _ in range(3):
            clock.read()
        assert clock._ahead_us >= ahead
