"""The event log on PostgreSQL when several processes append, are killed, and when the server is restarted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.storage.engines import PostgresEngine, on_own_database
from tests.storage.own_postgres import own_server
from tests.storage.test_deferral import ingest, number, numbered, send

from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.log import LogLimits
from hoglab.storage.event_log.postgres import PostgresEventLog

pytestmark = pytest.mark.faults

PRODUCER = """
import asyncio, sys
import psycopg
import structlog
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.log import LogLimits
from hoglab.storage.event_log.postgres import PostgresEventLog

async def produce(log, name):
    number = 0
    while True:
        payload = f"{sys.argv[2]}/{name}/{number}|".encode().ljust(200 + 977 * (number % 9), b"x")
        try:
            offset = await log.append(payload)
        except EventLogFullError as error:
            assert error.retry_after_s > 0
            print("refused", flush=True)
            await asyncio.sleep(0.05)
        else:
            print(offset, payload.split(b"|")[0].decode(), flush=True)
            number += 1

# What the log says to operators must not come between what is told here.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    log = PostgresEventLog(lambda: psycopg.connect(sys.argv[1], autocommit=True), "test")
    await asyncio.gather(*(produce(log, name) for name in range(4)))

asyncio.run(main())
"""


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    with on_own_database(postgres) as engine:
        yield engine


class Producer:
    """A process that appends, and what was acknowledged to it."""

    def __init__(self, url: str, name: str) -> None:
        self.acknowledged: dict[int, str] = {}
        self.refused = 0
        command = [sys.executable, "-c", PRODUCER, url, name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "refused\n":
                self.refused += 1
            elif line.endswith("\n"):  # a process that was killed may have told half of its last line
                offset, name = line.split()
                assert int(offset) not in self.acknowledged
                self.acknowledged[int(offset)] = name

    def reaches(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count or self._process.poll() is not None)
        assert self._process.poll() is None

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def stored_in(engine: PostgresEngine) -> dict[int, str]:
    """Everything in the log, which has no gaps and nothing twice; each producer's records in its order."""
    with closing(engine.log()) as log:
        records = log.read(0, max_records=1_000_000, max_bytes=1 << 40)
    stored = {record.offset: record.payload.split(b"|")[0].decode() for record in records}
    assert sorted(stored) == list(range(1, len(records) + 1))
    numbers: dict[str, int] = {}
    for name in stored.values():
        producer, _, place = name.rpartition("/")
        assert int(place) >= numbers.get(producer, -1)
        numbers[producer] = int(place)
    return stored


def test_processes_that_are_killed_lose_and_double_nothing(engine: PostgresEngine) -> None:
    acknowledged: dict[int, str] = {}
    with closing(Producer(engine.url, "lasting")) as lasting:
        for turn in range(3):
            with closing(Producer(engine.url, f"victim{turn}")) as victim:
                victim.reaches(50)
            assert not acknowledged.keys() & victim.acknowledged.keys()
            acknowledged |= victim.acknowledged
        lasting.reaches(len(lasting.acknowledged) + 50)
    assert not lasting.refused
    assert not acknowledged.keys() & lasting.acknowledged.keys()
    stored = stored_in(engine)
    assert (acknowledged | lasting.acknowledged).items() <= stored.items()
    assert len(set(stored.values())) == len(stored)


def test_two_logs_keep_the_order_of_an_owner_whose_records_wait(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each knows in time what the other put aside, also when no notification came."""
    with closing(engine.log(window_bytes=64_000)) as one, closing(engine.log(window_bytes=64_000)) as two:
        logs = [one, two]
        monkeypatch.setattr(two, "_refresh", lambda: None)
        for first in range(0, 400, 20):
            send(logs[first // 20 % 2], 1, *numbered(20, first=first))
        done = ingest(one)
        while len(done) < 400:
            done += ingest(one, done[-1].offset)
        assert [record.offset for record in done] == list(range(1, 401))
        assert list(map(number, done)) == list(range(400))


def test_a_log_that_was_told_nothing_overtakes_nobody_whose_records_wait(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(engine.log(window_bytes=64_000)) as one, closing(engine.log(window_bytes=64_000)) as two:
        monkeypatch.setattr(two, "_refresh", lambda: None)
        for log in (one, two):
            monkeypatch.setattr(log, "_admits_at", float("inf"))
        assert send(one, 3, b"x" * 40_000) == [1]
        assert send(two, 4, b"x") == [2]
        assert send(one, 3, b"x" * 40_000) == [0]
        two.commit("ingestion", 2)  # now there is room, as far as this one knows
        assert send(two, 3, b"x") == [0]


def test_a_consumer_hears_of_what_another_process_appends(engine: PostgresEngine) -> None:
    with closing(engine.log()) as one, closing(engine.log(max_backlog_bytes=2_000)) as two:
        send(one, None, b"x" * 1_500)
        assert two.wait(0, 30)
        wait_until(lambda: two.pending_bytes() == 1_500)
        with pytest.raises(EventLogFullError, match="wait for ingestion"):
            send(two, None, b"x" * 600)
        one.commit("ingestion", 1)
        wait_until(lambda: not two.pending_bytes())
        assert send(two, None, b"x" * 600) == [2]


def test_a_server_that_crashes_under_load_loses_nothing_acknowledged() -> None:
    with own_server() as server:
        PostgresEngine.prepare(server.url)
        url = PostgresEngine(server.url).url
        with closing(Producer(url, "a")) as one, closing(Producer(url, "b")) as two:
            for _ in range(2):
                for producer in (one, two):
                    producer.reaches(len(producer.acknowledged) + 30)
                server.stop()
                refused = one.refused, two.refused
                wait_until(lambda: one.refused > refused[0] and two.refused > refused[1])  # noqa: B023
                server.start()
            for producer in (one, two):
                producer.reaches(len(producer.acknowledged) + 30)
        stored = stored_in(PostgresEngine(server.url))
        assert (one.acknowledged | two.acknowledged).items() <= stored.items()


def test_a_log_whose_server_is_away_refuses_says_so_and_recovers() -> None:
    with own_server() as server:
        PostgresEngine.prepare(server.url)

        def connect() -> psycopg.Connection[Any]:
            return psycopg.connect(PostgresEngine(server.url).url, autocommit=True)

        with closing(PostgresEventLog(connect, "test", limits=LogLimits())) as log:
            assert asyncio.run(log.append(b"a")) == 1
            server.stop()
            for _ in range(2):
                with pytest.raises(EventLogFullError) as caught:
                    asyncio.run(log.append(b"b"))
                assert caught.value.retry_after_s == 30
            with pytest.raises(EventLogFullError):
                log.check()
            server.start()
            log.check()
            assert asyncio.run(log.append(b"c")) == 2
            wait_until(lambda: log.wait(1, 0))
