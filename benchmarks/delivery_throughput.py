"""How many requests a second hog functions send durably, and how fast events are held against functions.

Deliveries: a queue full of invocations of a function that posts each event, worked off by the real worker
(claims, inputs, program, request, results, logs, metrics). The reference is the bare HTTP client posting bodies of
the same size to the same receiver, which runs in a process of its own. Rates are sustained ones, so neither side's
first fifth counts: connections and processes start in it. Several rounds, with the bare client before and after each
delivery; the median of their ratios counts.

Dispatch: batches of events through the real dispatcher with 100 and 1,000 functions, once where no function
matches and once with the mix of `benchmarks.dispatch_filters`, where a few do; of 1,000, one in fifty. Inputs are
fixed, or one of them is a template, which is computed for each run.

    python -m benchmarks.delivery_throughput [--smoke]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import orjson
import uvloop
from aiohttp import web
from cryptography.fernet import Fernet
from tests.embedded import EmbeddedQueueTables

from benchmarks.dispatch_filters import make_event, make_filter
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.config import DeliveryConfig
from hoglab.delivery.limits.function_breaker import FunctionBreakers
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.service import Delivery, run_context
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.fields.dates import utc_now
from hoglab.people import PersonService
from hoglab.storage.database import Database, tables
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import InvocationQueue
from hoglab.storage.invocations.sql import stores_of

SEED = 20_260_101
CONCURRENCY = 64
BATCH = 1_000

FORWARD = """\
let response := fetch(inputs.url, {
    'method': 'POST',
    'body': {'uuid': event.uuid, 'event': event.event, 'properties': event.properties, 'person': person.name}
})
if (response.status >= 400) {
    throw Error(f'the destination answered {response.status}')
}
"""


async def capture_nothing(project_id: int, event: dict[str, Any], *, insist: bool = False) -> None:
    """Raise: the functions of the benchmark capture no events."""
    raise NotImplementedError(project_id, event, insist)


class House:
    """Delivery on a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.database = Database.open(folder / "hoglab.db")
        accounts = AccountService(self.database)
        bootstrap(self.database, accounts)
        project = accounts.project(1)
        assert project is not None
        self.project = project
        self.queue_database = Database.open(folder / "queue.db", tables.queue_metadata)
        self.queue = InvocationQueue(EmbeddedQueueTables(folder / "queue.db"))
        box = SecretBox([Fernet.generate_key().decode()])
        stores = stores_of(self.queue, self.queue_database)
        config = DeliveryConfig("http://localhost:8000", guard=AddressGuard.create(["127.0.0.0/8"]))
        registry, people = FunctionRegistry(self.database, box), PersonService(self.database)
        self._bodies = BodyPool(config.bodies)
        self.delivery = Delivery(
            stores,
            run_context(registry, box, people, stores, config, utc_now),
            FunctionBreakers(stores.breakers, lambda *_: None, utc_now),
            self._bodies,
            capture_nothing,
            config,
        )
        self.functions = FunctionService(self.database, box, self.delivery.states)
        self._offset = 0

    def create(self, **body: Any) -> None:
        self.functions.create(
            self.project, None, FunctionPatch({"type": "destination", "enabled": True, **body})
        )

    def dispatch(self, events: list[IngestedEvent]) -> None:
        self._offset += 1
        self.delivery.dispatcher.dispatch(events, log_offset=SequenceNumber(self._offset))

    def close(self) -> None:
        self.delivery.stop(10)
        self._bodies.close()
        self.queue.close()
        self.queue_database.dispose()
        self.database.dispose()


def ingested(event: dict[str, Any]) -> IngestedEvent:
    """A made-up event as ingestion hands it over."""
    now = datetime.now(UTC)
    properties = event["properties"]
    row = EventRow(
        1,
        uuid4(),
        event["event"],
        event["distinct_id"],
        now,
        now,
        orjson.dumps(properties),
        UUID(int=1),
        orjson.dumps(event["person"]["properties"]),
        now,
        "full",
        "",
        {},
        SequenceNumber(1),
        None,
        None,
        None,
    )
    return IngestedEvent(row, properties)


# --- the receiver, in a process of its own


def serve() -> None:
    """Answer every request at once; print the port first, then how long what says when it was sent took to come."""

    async def main() -> None:
        async def answer(request: web.BaseRequest) -> web.Response:
            now = time.time()
            body = await request.read()
            if request.path == "/timed":
                print(now - orjson.loads(body)["properties"]["sent"], flush=True)
            return web.Response(text='{"ok":true}', content_type="application/json")

        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


def bare_client(url: str, body: bytes, count: int) -> float:
    """Requests per second of the HTTP client alone."""

    async def main() -> float:
        connector = aiohttp.TCPConnector(limit=CONCURRENCY)
        async with aiohttp.ClientSession(connector=connector) as session:
            left = iter(range(count))

            async def send() -> None:
                for _ in left:
                    async with session.post(
                        url, data=body, headers={"Content-Type": "application/json"}
                    ) as got:
                        await got.read()

            started = time.perf_counter()
            await asyncio.gather(*(send() for _ in range(CONCURRENCY)))
            return count / (time.perf_counter() - started)

    return uvloop.run(main())


def measure_deliveries(url: str, count: int, warming: int) -> tuple[float, float]:
    """Deliveries a second and processor seconds for each, once so many have warmed it up."""
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))
        house.create(
            hog=FORWARD,
            inputs_schema=[{"key": "url", "type": "string"}],
            inputs={"url": {"value": url}},
        )
        chance = random.Random(SEED)
        total = count + warming
        for start in range(0, total, BATCH):
            house.dispatch([ingested(make_event(chance)) for _ in range(min(BATCH, total - start))])
        assert house.queue.counts.backlog() == total
        house.delivery.start()
        while (left := house.queue.counts.backlog()) > count:
            time.sleep(0.01)
        started, processor = time.perf_counter(), time.process_time()
        while house.queue.counts.backlog():
            time.sleep(0.01)
        took, used = time.perf_counter() - started, time.process_time() - processor
        house.close()
    return left / took, used / left


def compare_deliveries(rounds: int, count: int) -> None:
    """Print deliveries beside the bare client."""
    warming = count // 5
    ratios = []
    command = [sys.executable, "-m", "benchmarks.delivery_throughput", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            url = f"http://127.0.0.1:{int(receiver.stdout.readline())}/"
            body = orjson.dumps(
                {**make_event(random.Random(SEED))["properties"], "uuid": str(uuid4()), "event": "e"}
            )
            bare_client(url, body, warming)
            before = bare_client(url, body, count)
            for _ in range(rounds):
                durable, used_s = measure_deliveries(url, count, warming)
                after = bare_client(url, body, count)
                reference = (before + after) / 2
                before = after
                ratios.append(durable / reference)
                print(
                    f"  durable deliveries {durable:8,.0f} requests/s, {used_s * 1e6:4.0f} µs of processor time each"
                    f"   bare HTTP client {reference:8,.0f} requests/s   {ratios[-1]:.2f} of it"
                )
        finally:
            receiver.terminate()
    print(f"  durable deliveries, median of {rounds}: {statistics.median(ratios):.2f} of the bare client")


def measure_dispatch(functions: int, events: int, *, matching: bool, templates: bool = False) -> str:
    """Events a second, matches of each event, and invocations a second, on the wall and of computing time."""
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))
        chance = random.Random(SEED)
        schema = [{"key": "url", "type": "string"}, {"key": "text", "type": "string"}]
        text = "{event.event} by {person.name}" if templates else "text"
        inputs = {"url": {"value": "https://a.example"}, "text": {"value": text}}
        for _ in range(functions):
            filters = make_filter(chance, dense=False)
            if not matching:
                filters = {"events": [{"id": f"never_{chance.randrange(40)}", "type": "events"}]}
            house.create(hog=FORWARD, filters=filters, inputs_schema=schema, inputs=inputs)
        made = [ingested(make_event(chance)) for _ in range(events)]
        house.dispatch(made[:1])  # compiles
        before = house.queue.counts.backlog()
        started, computed = time.perf_counter(), time.thread_time()
        for start in range(0, events, BATCH):
            house.dispatch(made[start : start + BATCH])
        took, used = time.perf_counter() - started, time.thread_time() - computed
        new = house.queue.counts.backlog() - before
        house.close()
    return (
        f"{events / took:10,.0f} events/s ({events / used:10,.0f} computing)   {new / events:5.1f} matches each"
        f"   {new / took:8,.0f} invocations/s ({new / used:8,.0f} computing)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    from hoglab.app import calm_garbage_collector  # what the receiver has no use for

    calm_garbage_collector()  # as the server does
    rounds, deliveries, events = (1, 300, 1_000) if options.smoke else (5, 10_000, 10_000)
    compare_deliveries(rounds, deliveries)
    for count in (100, 1_000):
        print(
            f"  dispatch, {count:5,} functions, none match {measure_dispatch(count, events, matching=False)}"
        )
        for templates in (False, True):
            found = measure_dispatch(count, events // 5, matching=True, templates=templates)
            print(f"  dispatch, {count:5,} functions, {'templates ' if templates else 'fixed     '} {found}")


if __name__ == "__main__":
    main()
