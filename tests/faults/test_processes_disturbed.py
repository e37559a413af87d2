"""Processes that are paused, a database that is restarted, cut off or looked at for long, an update: nothing is lost.

All of it happens to one server of several processes, one after the other, while events come in.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from tests.cluster import TOKEN, Cluster, RoundRobin, cluster, send_signal
from tests.faults.test_processes_killed import SENDERS, Sender, Sink, check, prepare, stored, wait_for
from tests.storage.own_postgres import OwnServer, own_server

from hoglab.storage.database import tables
from hoglab.storage.database.postgres.driver import Driver
from hoglab.storage.event_log.postgres import PostgresEventLog

ROLES = {"core": "core", "edge-1": "edge", "edge-2": "edge", "deliver-1": "deliver", "deliver-2": "deliver"}
STORMS = 15
HOT = "system"
HOT_BATCH = 50
QUEUE = tables.queue_metadata.info["postgresql"]["schema"]
_RUNNING = f"SELECT id, lock_token FROM {QUEUE}.invocation WHERE status = 'running'".encode()  # noqa: S608
_QUARANTINED = f"SELECT count(*) FROM {QUEUE}.quarantined_record".encode()  # noqa: S608
_END_ALL = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hoglab'"


class HotSender(threading.Thread):
    """Sends batches of events that are all of one distinct id, each again until it is acknowledged."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._stop_now = stop
        self.acknowledged: set[str] = set()
        self.last = 0

    def run(self) -> None:
        while not self._stop_now.wait(0.3):
            number = self.last + 1
            events = [
                {
                    "uuid": str(uuid4()),
                    "event": "hot",
                    "distinct_id": HOT,
                    "properties": {"$set": {"last": number}},
                }
                for _ in range(HOT_BATCH)
            ]
            while not self._sent(events):
                self._stop_now.wait(0.2)
            self.acknowledged |= {each["uuid"] for each in events}
            self.last = number

    def _sent(self, events: list[dict[str, Any]]) -> bool:
        try:
            body = {"api_key": TOKEN, "batch": events}
            return httpx.post(f"{self._url}/batch/", json=body, timeout=20).status_code == 200
        except httpx.TransportError:
            return False


class Load:
    """What comes in all the time."""

    def __init__(self, url: str) -> None:
        self.stop = threading.Event()
        self.senders = [Sender(url, line, self.stop) for line in range(SENDERS)]
        self.hot = HotSender(url, self.stop)
        for each in (*self.senders, self.hot):
            each.start()

    def goes_on(self) -> None:
        """Events are taken again, of each sender."""
        before = [len(each.acknowledged) for each in self.senders]
        wait_for(
            lambda: all(
                len(each.acknowledged) >= count + 3 for each, count in zip(self.senders, before, strict=True)
            ),
            lambda: f"nothing is taken any more: {[each.error for each in self.senders]}",
        )

    def end(self) -> None:
        self.stop.set()
        for each in (*self.senders, self.hot):
            each.join(90)
            assert not each.is_alive()
        assert [each.error for each in self.senders] == [None] * SENDERS


def pause(server: Cluster, name: str, until: Callable[[], bool]) -> None:
    """Keep a process from doing anything until something holds."""
    send_signal(server.processes[name], signal.SIGSTOP)
    try:
        wait_for(until, lambda: f"what was waited for beside {name}")
    finally:
        send_signal(server.processes[name], signal.SIGCONT)


def measured(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def a_deliver_is_taken_for_dead(
    server: Cluster, connection: psycopg.Connection[Any], load: Load, sink: Sink
) -> None:
    """What it was running others run, and what it says of that later does not count."""
    server.processes["deliver-2"].stop()
    paused = server.processes["deliver-1"]
    # A run without an answer cannot end: what came of it is written after the pause, when another process has it.
    sink.answers.clear()
    came = len(sink.came)
    wait_for(lambda: len(sink.came) > came, lambda: "a request")
    send_signal(paused, signal.SIGSTOP)
    try:
        sink.answers.set()
        held = connection.execute(_RUNNING).fetchall()
        assert held
        server.start("deliver-2")
        wait_for(
            lambda: set(held).isdisjoint(connection.execute(_RUNNING).fetchall()), lambda: "who takes over"
        )
    finally:
        send_signal(paused, signal.SIGCONT)
    wait_for(lambda: measured(paused.url, "hoglab_delivery_fenced_total") > 0, lambda: "a run that is fenced")
    load.goes_on()


def connections_end_all_the_time(connection: psycopg.Connection[Any], load: Load) -> None:
    for _ in range(STORMS):
        connection.execute(_END_ALL)
        load.stop.wait(0.1)
    load.goes_on()


def the_database_is_restarted(postgres: OwnServer, load: Load) -> None:
    for how in ("fast", "immediate"):
        postgres.stop(how)
        postgres.start()
        load.goes_on()


def a_record_cannot_be_read(url: str, load: Load) -> None:
    driver = Driver(url, QUEUE)
    with closing(PostgresEventLog(lambda: driver.connect(autocommit=True), driver.name)) as log:
        asyncio.run(log.append(b"\xc1 no record"))
    load.goes_on()


def an_update(server: Cluster, load: Load) -> None:
    """Each process is stopped in order and started again, edges first."""
    for name in ("edge-1", "edge-2", "core", "deliver-1", "deliver-2"):
        server.processes[name].stop()
        load.goes_on()
        server.start(name)
    load.goes_on()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_happens_to_processes_and_to_their_database_loses_nothing(tmp_path: Path) -> None:
    sink = Sink(takes_s=0.05)
    with own_server() as postgres, cluster(tmp_path, postgres.url) as server:
        for name, role in ROLES.items():
            server.add(name, role)
        server.start(*ROLES)
        proxy = RoundRobin([server.processes[name].url for name in ("edge-1", "edge-2")])
        api = server.api()
        experiment = prepare(api, sink)
        load = Load(proxy.url)
        load.goes_on()
        steps: list[Callable[[], None]] = [
            lambda: connected(
                postgres.url, lambda open_: a_deliver_is_taken_for_dead(server, open_, load, sink)
            ),
            lambda: a_record_cannot_be_read(postgres.url, load),
            lambda: connected(postgres.url, lambda open_: connections_end_all_the_time(open_, load)),
            lambda: the_database_is_restarted(postgres, load),
            lambda: pause(server, "core", lambda: bool(load.goes_on() or True)),
            lambda: an_update(server, load),
        ]
        for step in steps:
            begun = time.monotonic()
            step()
            print(f"{time.monotonic() - begun:.1f} s")
        load.end()
        check(server, api, sink, load.senders, experiment, late=True)
        assert not [pair for pair in sink.overlaps if not is_second_try(sink, pair)]
        wait_for(
            lambda: (
                set(stored(api, "hot").values()) == {1} and set(stored(api, "hot")) == load.hot.acknowledged
            ),
            lambda: f"{len(stored(api, 'hot'))} of {len(load.hot.acknowledged)} hot events",
        )
        [person] = api.get("/persons/", params={"distinct_id": HOT}).json()["results"]
        assert person["properties"]["last"] == load.hot.last
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute(_QUARANTINED).fetchone() == (1,)
        api.close()
        proxy.close()
    sink.close()


def is_second_try(sink: Sink, pair: tuple[str, str]) -> bool:
    """Whether one of two runs that overlapped was carried out by two processes, because one had been paused."""
    came = [each["uuid"] for each in sink.came]
    return any(came.count(uuid) > 1 for uuid in pair)


def connected(url: str, step: Callable[[psycopg.Connection[Any]], None]) -> None:
    with psycopg.connect(url, autocommit=True, application_name="test") as connection:
        step(connection)
