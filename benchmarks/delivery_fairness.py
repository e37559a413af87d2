"""What a flood of one function does to the deliveries of another.

A quiet function gets events at a steady rate; the time from each event's dispatch to its arrival at the receiver is
measured, first alone, then while another function has a hundred times as many waiting all the time, and last while
four functions have their destinations hang. The reference is the quiet function alone, in the same run.

    python -m benchmarks.delivery_fairness [--smoke]
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import orjson

from benchmarks.delivery_throughput import SEED, House, ingested
from benchmarks.dispatch_filters import make_event

SHARE = 100
"""How many events of the flood come for each of the quiet function."""
PER_S = 5

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


class Latencies:
    """Reads what the receiver prints."""

    def __init__(self, receiver: subprocess.Popen[str]) -> None:
        assert receiver.stdout is not None
        self._lines = receiver.stdout
        self.seen: list[float] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines:
            self.seen.append(float(line))

    def take(self, count: int) -> list[float]:
        while len(self.seen) < count:
            time.sleep(0.01)
        taken, self.seen = self.seen[:count], []
        return taken


def measure(
    port: int, latencies: Latencies, events: int, *, flood: bool = False, hanging: int = 0
) -> list[float]:
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))

        def function(name: str, host: str) -> None:
            house.create(
                hog=SEND,
                filters={"events": [{"id": name, "type": "events"}]},
                inputs_schema=[{"key": "url", "type": "string"}],
                inputs={"url": {"value": f"http://{host}:{port}/{name}"}},
            )

        function("quiet", "127.0.0.1")
        function("flood", "127.0.0.2")
        for number in range(hanging):
            function("hang", f"127.0.1.{number + 1}")
        house.delivery.start()
        house.dispatch([quiet_event(chance, "quiet")])
        latencies.take(1)  # everything is warm
        if hanging:
            house.dispatch([quiet_event(chance, "hang") for _ in range(500)])
        for _ in range(events):
            started = time.perf_counter()
            if flood:
                house.dispatch([quiet_event(chance, "flood") for _ in range(SHARE)])
            house.dispatch([quiet_event(chance, "quiet")])
            time.sleep(max(0.0, 1 / PER_S - (time.perf_counter() - started)))
        found = latencies.take(events)
        house.close()
    return found


def shown(name: str, found: list[float], alone: list[float]) -> None:
    cuts, reference = statistics.quantiles(found, n=100), statistics.quantiles(alone, n=100)
    print(
        f"  {name:30} p50 {cuts[49] * 1000:7.1f} ms   p99 {cuts[98] * 1000:7.1f} ms"
        f"   {cuts[98] / reference[98]:.2f} of alone"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    events = 10 if options.smoke else 200
    command = [sys.executable, "-m", "benchmarks.delivery_fairness", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            port = int(receiver.stdout.readline())
            latencies = Latencies(receiver)
            alone = measure(port, latencies, events)
            flooded = measure(port, latencies, events, flood=True)
            hanging = measure(port, latencies, events, hanging=4)
        finally:
            receiver.terminate()
    shown("alone", alone, alone)
    shown(f"with a flood of {SHARE} x", flooded, alone)
    shown("with 4 hanging destinations", hanging, alone)


if __name__ == "__main__":
    main()
