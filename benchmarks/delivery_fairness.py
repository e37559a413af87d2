"""What a flood of one function does to the deliveries of another.

A quiet function gets events at a steady rate; the time from each event's dispatch to its arrival at the receiver is
measured: alone, while another function has a hundred times as many waiting all the time, and while four functions have
their destinations hang, which time out and are tried again. The reference is the quiet function alone, in the same run.
The three take turns, so that what else the machine does meets all of them; how much that is, the load says. The quiet
function has a receiver, a process, of its own: how other destinations serve their requests is not measured.

Latencies on a busy machine say more of the machine than of the server. So what the server's process computed between
an event's dispatch and its arrival is shown, too: that is the work that the event waited for, whoever else was busy.

    python -m benchmarks.delivery_fairness [--smoke]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from benchmarks.delivery_throughput import SEED, House, ingested
from benchmarks.dispatch_filters import make_event

SHARE = 100
"""How many events of the flood come for each of the quiet function."""
PER_S = 5
ROUNDS = 4
EVENTS = 75
"""Of the quiet function in each round of each case."""

SEND = "fetch(inputs.url, {'body': {'sent': event.properties.sent, 'uuid': event.uuid}})"


def quiet_event(chance: random.Random, name: str) -> Any:
    event = make_event(chance)
    event["event"] = name
    event["properties"] = {**event["properties"], "sent": time.time()}
    return ingested(event)


def serve() -> None:
    """Answer at once; print how long each request with path /quiet took to come; hang on /hang."""
    import asyncio

    import uvloop
    from aiohttp import web

    async def main() -> None:
        async def answer(request: web.BaseRequest) -> web.Response:
            now = time.time()
            body = await request.read()
            if request.path == "/quiet":
                print(now - orjson.loads(body)["sent"], flush=True)
            elif request.path == "/hang":
                await asyncio.sleep(3600)
            return web.Response(text="{}", content_type="application/json")

        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", 0).start()  # noqa: S104 - several loopback addresses are hosts here
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


@contextmanager
def receiver() -> Iterator[tuple[int, IO[str]]]:
    """A receiver's port, and what it prints after that."""
    command = [sys.executable, "-m", "benchmarks.delivery_fairness", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.stdout
        finally:
            process.terminate()


@dataclass(frozen=True)
class Passage:
    """One event of the quiet function. In seconds: how long it took, and what the server computed meanwhile."""

    took: float
    computed: float


class Latencies:
    """Reads what a receiver prints. ``sent``: note each event just before it is dispatched; they arrive in order."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self._computed: deque[float] = deque()
        self._seen: list[Passage] = []
        threading.Thread(target=self._read, daemon=True).start()

    def sent(self) -> None:
        self._computed.append(time.process_time())

    def _read(self) -> None:
        for line in self._lines:
            now = time.process_time()
            self._seen.append(Passage(float(line), now - self._computed.popleft()))

    def take(self, count: int) -> list[Passage]:
        while len(self._seen) < count:
            time.sleep(0.01)
        taken, self._seen = self._seen[:count], []
        return taken


@dataclass(frozen=True)
class Ports:
    quiet: int
    others: int


def measure(
    ports: Ports, latencies: Latencies, events: int, *, flood: bool = False, hanging: int = 0
) -> list[Passage]:
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))

        def function(name: str, host: str, port: int = ports.others) -> None:
            house.create(
                hog=SEND,
                filters={"events": [{"id": name, "type": "events"}]},
                inputs_schema=[{"key": "url", "type": "string"}],
                inputs={"url": {"value": f"http://{host}:{port}/{name}"}},
            )

        function("quiet", "127.0.0.1", ports.quiet)
        function("flood", "127.0.0.2")
        for number in range(hanging):
            function("hang", f"127.0.1.{number + 1}")
        house.delivery.start()
        latencies.sent()
        house.dispatch([quiet_event(chance, "quiet")])
        latencies.take(1)  # everything is warm
        if hanging:
            house.dispatch([quiet_event(chance, "hang") for _ in range(500)])
        for _ in range(events):
            started = time.perf_counter()
            if flood:
                house.dispatch([quiet_event(chance, "flood") for _ in range(SHARE)])
            latencies.sent()
            house.dispatch([quiet_event(chance, "quiet")])
            time.sleep(max(0.0, 1 / PER_S - (time.perf_counter() - started)))
        found = latencies.take(events)
        house.close()
    return found


def shown(what: str, found: list[float], alone: list[float]) -> None:
    cuts, reference = statistics.quantiles(found, n=100), statistics.quantiles(alone, n=100)
    figures = [
        f"p{place} {cuts[place - 1] * 1000:6.1f} ms ({cuts[place - 1] / reference[place - 1]:.2f} of alone)"
        for place in (50, 90, 99)
    ]
    print(f"    {what:9} {'   '.join(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    events, rounds = (10, 1) if options.smoke else (EVENTS, ROUNDS)
    found: dict[str, list[Passage]] = {
        "alone": [],
        f"with a flood of {SHARE} x": [],
        "with 4 hanging destinations": [],
    }
    ways: list[dict[str, Any]] = [{}, {"flood": True}, {"hanging": 4}]
    with receiver() as (quiet_port, lines), receiver() as (other_port, _):
        latencies, ports = Latencies(lines), Ports(quiet_port, other_port)
        for _ in range(rounds):
            for name, way in zip(found, ways, strict=True):
                found[name] += measure(ports, latencies, events, **way)
    for name, seen in found.items():
        print(f"  {name}")
        shown("latency", [one.took for one in seen], [one.took for one in found["alone"]])
        shown("computing", [one.computed for one in seen], [one.computed for one in found["alone"]])
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(
        f"  {rounds * events} events each; load of the machine at the end {load:.1f}, processors {processors}"
    )


if __name__ == "__main__":
    main()
