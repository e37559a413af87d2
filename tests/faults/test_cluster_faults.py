"""A cluster, two processes of each role, under load: whatever dies, is restarted or cut off, nothing is lost.

What happens, and to whom, is drawn at random; `SEED` makes it the same again.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from tests.cluster import Cluster, RoundRobin, cluster
from tests.conftest import free_port
from tests.faults.test_processes_killed import Sink, prepare, wait_for
from tests.faults.visitors import SENDERS, Visitor, await_shares, check
from tests.generated import SEED
from tests.kafka import Broker, own_broker
from tests.links import Link
from tests.storage.own_postgres import OwnServer, own_server
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ServerError
from hoglab.storage.event_log.leases import LEASE_S

FAULTS_S = float(os.environ.get("HOGLAB_TEST_CLUSTER_FAULTS_S", "40"))
"""Time for which something happens all the time."""
ROLES = ("api", "analysis", "edge", "ingest", "deliver")
COPIES = 2
PARTITIONS = 8
CUT_S = 6.0
"""Longest time of a cut; some are longer than processes wait for an answer, none is longer than a lease."""
PAUSE_S = (0.5, 3.0)
MOST_STARTING = 2
"""Processes that start at the same time: with more, a machine with two processors does nothing else."""
MOST_BEHIND_S = 60.0
"""Time after the end of a lease within which others have the partitions of a process that was killed. Two seconds are
usual; a busy machine takes longer."""

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(1200 + 2 * FAULTS_S)]


class Faults:
    """What may happen to a cluster; ``counts`` has how often it did."""

    def __init__(self, server: Cluster, broker: Broker, postgres: OwnServer, links: dict[str, Link]) -> None:
        self._server = server
        self._broker = broker
        self._postgres = postgres
        self._links = links
        self._random = random.Random(SEED)
        self._starting: list[threading.Thread] = []
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "broker": self._restart_broker,
            "database": self._restart_database,
            "cut": self._cut,
            "one way": self._one_way,
        }
        self._weights = (list(self._kinds), (5, 1, 1, 2, 2))
        self.untried = self._random.sample(sorted(self._kinds), len(self._kinds))
        """Kinds of which none has happened yet."""

    def one(self) -> None:
        """Let something happen: each kind once, and then whichever."""
        name = self.untried.pop() if self.untried else self._random.choices(*self._weights)[0]
        self.counts[name] += 1
        self._kinds[name]()

    def rest(self) -> None:
        """Let nothing happen for a moment."""
        time.sleep(self._random.uniform(*PAUSE_S))

    def _kill(self) -> None:
        name = self._random.choice(sorted(self._server.processes))
        self.counts[f"kill {name.partition('-')[0]}"] += 1
        self._server.processes[name].kill(signal.SIGKILL)
        self._begin(name)

    def _begin(self, name: str) -> None:
        """Start a process beside what else happens, again while an engine that it asks at its start is away."""

        def start() -> None:
            process = self._server.processes[name]
            deadline = time.monotonic() + 2 * PATIENCE_S
            while not process.alive() and time.monotonic() < deadline:
                try:
                    process.start()
                except ServerError:
                    time.sleep(0.5)

        while sum(thread.is_alive() for thread in self._starting) >= MOST_STARTING:
            time.sleep(0.1)
        thread = threading.Thread(target=start)
        thread.start()
        self._starting.append(thread)

    def _restart_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _restart_database(self) -> None:
        self._postgres.stop(self._random.choice(("fast", "immediate")))
        self._postgres.start()

    def _cut(self) -> None:
        with self._links[self._random.choice(sorted(self._links))].cut():
            time.sleep(self._random.uniform(0.5, CUT_S))

    def _one_way(self) -> None:
        link = self._links[self._random.choice(sorted(self._links))]
        with link.silent(self._random.choice(("there", "back"))):
            time.sleep(self._random.uniform(0.5, CUT_S))

    def settle(self) -> None:
        """Wait until every process that was killed is there again."""
        for thread in self._starting:
            thread.join()
        ended = [name for name, process in self._server.processes.items() if not process.alive()]
        for name in ended:  # ended by itself, which is no fault where an engine was away at its start
            self._begin(name)
        for thread in self._starting:
            thread.join()
        assert all(process.alive() for process in self._server.processes.values())


def test_whatever_happens_to_a_cluster_loses_and_doubles_nothing(events_url: str, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    sink, stop = Sink(), threading.Event()
    with ExitStack() as opened:
        opened.callback(sink.close)
        postgres = opened.enter_context(own_server())
        (tmp_path / "broker").mkdir()
        listens_on = free_port()
        log = Link(("127.0.0.1", listens_on))
        broker = opened.enter_context(own_broker(tmp_path / "broker", (listens_on, log.port)))
        broker.start()
        topic = f"kafka://{broker.address}/events?partitions={PARTITIONS}"
        urls = {"HOGLAB_EVENT_STORE_URL": events_url, "HOGLAB_EVENT_LOG_URL": topic}
        server = opened.enter_context(cluster(tmp_path, postgres.url, **urls))
        links = _add_processes(server, postgres.url, events_url, log.url_of(topic))
        links["the log of edge-1 and ingest-1"] = log
        for link in links.values():
            opened.callback(link.close)
        server.start(*server.processes)
        proxy = RoundRobin([server.processes[f"edge-{number}"].url for number in (1, 2)])
        opened.callback(proxy.close)
        with server.api("api-2") as api:
            prepare(api, sink)
        visitors = [Visitor(proxy.url, line, stop) for line in range(SENDERS)]
        for visitor in visitors:
            visitor.start()
        _goes_on(visitors)
        took_s = _take_over(server, postgres.url)
        assert took_s <= LEASE_S + MOST_BEHIND_S
        faults = Faults(server, broker, postgres, links)
        deadline = time.monotonic() + FAULTS_S
        while faults.untried or time.monotonic() < deadline:
            faults.one()
            _goes_on(visitors)
            faults.rest()
        stop.set()
        for visitor in visitors:
            visitor.join(PATIENCE_S)
            assert visitor.error is None
            assert visitor.wrong == []
        faults.settle()
        with psycopg.connect(postgres.url) as connection:  # those with the API began at the same time
            assert connection.execute("SELECT count(*) FROM hoglab.organization").fetchone() == (1,)
        sent = [event for visitor in visitors for event in visitor.sent]
        with server.api("api-1") as api:
            check(api, sink, sent, events_url, postgres.url, tmp_path)
        doubles = len(sink.came) - len({each["uuid"] for each in sink.came})
        print(
            f"taken over within {took_s:.1f} s; {dict(faults.counts)}; acknowledged {len(sent)}, second tries {doubles}"
        )


def _add_processes(server: Cluster, database: str, events: str, log: str) -> dict[str, Link]:
    """Two of each role; the first of each reaches its engines by links that can be cut."""
    links: dict[str, Link] = {}
    for role in ROLES:
        for number in range(1, COPIES + 1):
            name, through = f"{role}-{number}", {}
            if number == 1:
                links[f"{name} database"] = Link.to(database)
                through["HOGLAB_DATABASE_URL"] = links[f"{name} database"].url_of(database)
            if number == 1 and role in ("api", "analysis", "ingest"):
                links[f"{name} events"] = Link.to(events)
                through["HOGLAB_EVENT_STORE_URL"] = links[f"{name} events"].url_of(events)
            if name in ("edge-1", "ingest-1"):
                through["HOGLAB_EVENT_LOG_URL"] = log
            server.add(name, role, **through)
    return links


def _goes_on(visitors: list[Visitor]) -> None:
    before = sum(len(each.sent) for each in visitors)
    wait_for(
        lambda: sum(len(each.sent) for each in visitors) >= before + 5 * SENDERS,
        lambda: f"nothing is taken any more: {[each.error for each in visitors]}",
    )


def _take_over(server: Cluster, database: str) -> float:
    """Seconds until the other process has the partitions of one that was killed."""
    await_shares(database, [PARTITIONS // 2] * 2)
    server.processes["ingest-2"].kill(signal.SIGKILL)
    killed = time.monotonic()
    with psycopg.connect(database, autocommit=True) as connection:
        asked = "SELECT count(DISTINCT owner) FROM hoglab_queue.log_lease"
        while connection.execute(asked).fetchone() != (1,):
            assert time.monotonic() < killed + PATIENCE_S
            time.sleep(0.05)
    took_s = time.monotonic() - killed
    server.start("ingest-2")
    return took_s
