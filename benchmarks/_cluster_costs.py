"""Processor time of each part of a server in the cluster shape, for an event, a batch and a run of a function.

Everything runs on this machine: a broker of Kafka, PostgreSQL, ClickHouse's engine as a library behind HTTP, a core, an
edge, a deliver, and one or two processes that ingest. Persons are known before it is measured, and one event in ten
changes one. What a batch costs beside its events is told from a time when few events come, and batches are small.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.clickhouse import running as clickhouse_running
from tests.faults.destination import Destination
from tests.kafka import own_broker

from benchmarks._driver import _children
from benchmarks.capture_batches import EVENTS, make_batch
from benchmarks.cost_per_million import FUNCTION, KEY, Server, _spent, counted, running, send, wait_until
from benchmarks.second_process import COUNTER

PARTITIONS = 16
CHANGES_EVERY = 10
BATCHES_COUNTER = "hoglab_ingestion_batch_seconds_count "
SETTLE_S, QUIET_S, TRICKLE_S, TRICKLE_EVERY_S = 5.0, 5.0, 15.0, 0.25

Spent = dict[str, float]
"""Seconds, or microseconds for each thing, by parts: those of the server and the engines."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of processors by parts: of an event, of a batch beside its events, and of a run."""

    event: Spent
    batch: Spent
    run: Spent


def make(number: int) -> bytes:
    """A batch as SDKs send them, in which some events change their persons."""
    body = json.loads(gzip.decompress(make_batch(number)))
    for each in body["batch"][::CHANGES_EVERY]:
        each["properties"]["$set"] = {"seen": number}
    return gzip.compress(json.dumps(body).encode())


class Cluster:
    """The processes and engines, and what they have spent."""

    def __init__(self, server: Server, ingesting: list[str], engines: dict[str, int]) -> None:
        """``engines``: process ids by names."""
        self.server, self.ingesting = server, ingesting
        self._engines = engines
        self._clients = [httpx.Client(base_url=server.url(name), timeout=60) for name in ingesting]

    def spent(self) -> Spent:
        """Seconds so far, by parts."""
        server = self.server
        found = {role: server.seconds(role) for role in ("edge", "deliver")}
        found["ingest"] = server.seconds(*self.ingesting)
        found["postgres"] = server.engine_seconds()
        return found | {name: _spent(process_id) for name, process_id in self._engines.items()}

    def counted(self, name: str) -> float:
        return sum(counted(client, name) for client in self._clients)

    def until_stored(self, events: int) -> None:
        wait_until(lambda: self.counted(COUNTER) >= events)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def cluster(ingesting: int) -> Iterator[Cluster]:
    """A server with so many processes that ingest, during the block."""
    names = ["ingest", "ingest-2"][:ingesting]
    with (
        tempfile.TemporaryDirectory() as name,
        own_broker(Path(name)) as broker,
        clickhouse_running(Path(name) / "events") as events,
    ):
        broker.start()
        assert broker.process is not None
        log = f"kafka://{broker.address}/events?partitions={PARTITIONS}"
        engines = {"kafka": broker.process.pid, "clickhouse": _adapter()}
        urls = {"HOGLAB_EVENT_LOG_URL": log, "HOGLAB_EVENT_STORE_URL": events.database()}
        with running("core", "edge", "deliver", *names, more=urls) as server:
            server.begin("core", "edge", "deliver")
            made = Cluster(server, names, engines)
            yield made
            made.close()
            server.end()


def _adapter() -> int:
    """The process that has ClickHouse's engine."""
    return next(
        child
        for child in _children(os.getpid())
        if b"clickhouse_adapter" in Path(f"/proc/{child}/cmdline").read_bytes()
    )


def each(spent: Spent, things: float) -> Spent:
    """Microseconds for each thing."""
    return {name: round(max(0.0, seconds) / things * 1e6, 3) for name, seconds in spent.items()}


class Beyond:
    """What is spent from now on, less what passes when nothing happens."""

    def __init__(self, found: Cluster, quiet: Spent) -> None:
        """``quiet``: seconds of each part in a second."""
        self._found, self._quiet = found, quiet
        self._before, self._started = found.spent(), time.monotonic()

    def spent(self) -> Spent:
        seconds = time.monotonic() - self._started
        after = self._found.spent()
        return {name: after[name] - self._before[name] - self._quiet[name] * seconds for name in after}


def quiet_of(found: Cluster) -> Spent:
    """Seconds of each part in a second in which nothing happens: before anything has, so that nothing is cleaned up."""
    time.sleep(SETTLE_S)
    nothing = Beyond(found, dict.fromkeys(found.spent(), 0.0))
    time.sleep(QUIET_S)
    return {name: seconds / QUIET_S for name, seconds in nothing.spent().items()}


def ingested(found: Cluster, batches: int) -> tuple[Spent, Spent, float]:
    """The quiet; microseconds for each of many events, taken and then ingested in full batches; number of these."""
    server, names = found.server, found.ingesting
    server.begin(*names)
    quiet = quiet_of(found)
    asyncio.run(send(server.url("edge"), batches, make=make))
    found.until_stored(batches * EVENTS)  # persons are known from now on
    counted_before = found.counted(BATCHES_COUNTER)
    server.signal(signal.SIGSTOP, *names)
    taking = Beyond(found, {**quiet, "ingest": 0.0})
    asyncio.run(send(server.url("edge"), batches, first=batches, make=make))
    taken = taking.spent()
    ingesting = Beyond(found, quiet)
    server.signal(signal.SIGCONT, *names)
    found.until_stored(2 * batches * EVENTS)
    stored = ingesting.spent()
    event = each({name: taken[name] + stored[name] for name in taken}, batches * EVENTS)
    return quiet, event, found.counted(BATCHES_COUNTER) - counted_before


def of_a_batch(found: Cluster, quiet: Spent, event: Spent, stored: int) -> Spent:
    """Microseconds of a batch beside its events, from a time when they are small."""
    small, counted_before, started = Beyond(found, quiet), found.counted(BATCHES_COUNTER), time.monotonic()
    sent = 0
    while time.monotonic() < started + TRICKLE_S:
        asyncio.run(send(found.server.url("edge"), 1, first=1_000_000 + sent, make=make))
        sent += 1
        time.sleep(TRICKLE_EVERY_S)
    found.until_stored(stored + sent * EVENTS)
    batches = found.counted(BATCHES_COUNTER) - counted_before
    beside = {name: seconds - event[name] * sent * EVENTS / 1e6 for name, seconds in small.spent().items()}
    return {**each(beside, batches), "edge": 0.0, "deliver": 0.0}


def of_a_run(found: Cluster, quiet: Spent) -> Spent:
    """Microseconds of a run that sends one request, of stored events that a function is asked about."""
    with (
        Destination() as destination,
        httpx.Client(
            base_url=found.server.url("core"), headers={"Authorization": f"Bearer {KEY}"}, timeout=120
        ) as api,
    ):
        body = {**FUNCTION, "inputs": {"url": {"value": destination.url}}}
        made = api.post("/api/projects/1/hog_functions/", json=body)
        address = f"/api/projects/1/hog_functions/{made.json()['id']}"
        sending = Beyond(found, quiet)
        begun = api.post(f"{address}/backfill/", json={"from": "2020-01-01"})
        assert begun.is_success, begun.text

        def is_done() -> bool:
            [state] = api.get(f"{address}/backfills/").json()["results"]
            return bool(state["status"] == "completed" and len(destination.bodies) >= state["queued"])

        wait_until(is_done)
        return {**each(sending.spent(), len(destination.bodies)), "edge": 0.0, "ingest": 0.0, "kafka": 0.0}


def measure(batches: int) -> tuple[Costs, Spent, Spent]:
    """The costs; and those of an event with one process that ingests, and with two."""
    with cluster(1) as found:
        quiet, one, number = ingested(found, batches)
        small = of_a_batch(found, quiet, one, 2 * batches * EVENTS)
        run = of_a_run(found, quiet)
    share = number / (batches * EVENTS)  # of a full batch in an event
    event = {name: round(max(0.0, value - small[name] * share), 3) for name, value in one.items()}
    with cluster(2) as found:
        _, two, _ = ingested(found, batches)
    return Costs({**event, "deliver": 0.0}, small, run), one, two
