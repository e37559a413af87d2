"""How long it takes from an event to the request that a function sends for it, through a whole server.

Events come at a steady rate, one a request, over HTTP to a server in a process of its own; the time runs from the
moment before the event is sent to the arrival at the receiver, so capturing it is part of it. The goal is
half of them within 150 ms, 99 in 100 within a second, at 500/s. The reference is the receiver alone: the same
bodies sent to it at the same rate.

    python -m benchmarks.delivery_latency [--smoke] [--rate N]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import httpx
import orjson
import uvloop

from benchmarks.delivery_throughput import FORWARD, SEED
from benchmarks.dispatch_filters import make_event
from hoglab.demo.server import ChildServer

PER_S = 500
CONNECTIONS = 32


def event_body(chance: random.Random, token: str) -> bytes:
    event = make_event(chance)
    properties = {**event["properties"], "sent": time.time()}
    sent = {"event": event["event"], "distinct_id": event["distinct_id"], "uuid": str(uuid4())}
    return orjson.dumps({"api_key": token, **sent, "properties": properties})


async def send_steadily(url: str, token: str, count: int, per_s: int) -> list[float]:
    """Send so many events, each on its time; seconds until each was answered."""
    chance = random.Random(SEED)
    answered: list[float] = []
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(
        connector=connector, headers={"Content-Type": "application/json"}
    ) as session:

        async def send() -> None:
            body, started = event_body(chance, token), time.perf_counter()
            async with session.post(url, data=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
            answered.append(time.perf_counter() - started)

        begun = time.perf_counter()
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0.0, begun + number / per_s - time.perf_counter()))
            tasks.append(asyncio.create_task(send()))
        await asyncio.gather(*tasks)
    return answered


def received(receiver: subprocess.Popen[str], count: int, send: Any) -> tuple[list[float], list[float]]:
    """Seconds to arrival as the receiver tells them, and to the answer of the server."""
    assert receiver.stdout is not None
    found: list[float] = []
    lines = itertools.islice(receiver.stdout, count)
    # Read as they come: a pipe that is full would hold up the receiver.
    reader = threading.Thread(target=lambda: found.extend(map(float, lines)))
    reader.start()
    answered = uvloop.run(send)
    reader.join()
    return found, answered


def show(name: str, waits: list[float]) -> float:
    cuts = statistics.quantiles(waits, n=100)
    print(f"  {name:<42} p50 {cuts[49] * 1000:6.1f} ms   p99 {cuts[98] * 1000:6.1f} ms")
    return cuts[49]


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def measure(server: ChildServer, receiver: subprocess.Popen[str], url: str, count: int, per_s: int) -> None:
    function = {
        "type": "destination",
        "name": "Forward",
        "enabled": True,
        "hog": FORWARD,
        "inputs_schema": [{"key": "url", "type": "string"}],
        "inputs": {"url": {"value": url}},
    }
    headers = {"Authorization": f"Bearer {server.api_key}"}
    made = httpx.post(f"{server.url}/api/projects/1/hog_functions/", json=function, headers=headers)
    assert made.status_code == 201, made.text
    capture = f"{server.url}/i/v0/e/"
    received(
        receiver, per_s, send_steadily(capture, server.project_token, per_s, per_s)
    )  # everything is warm
    waits, answered = received(receiver, count, send_steadily(capture, server.project_token, count, per_s))
    alone, _ = received(receiver, count, send_steadily(url, "phc_none", count, per_s))
    reference = show("sent to received, without a server between", alone)
    show("sent to accepted", answered)
    whole = show(f"sent to received by way of a function, {per_s}/s", waits)
    print(f"  the server adds {(whole - reference) * 1000:.1f} ms to half of them")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--rate", type=int, default=PER_S)
    options = parser.parse_args()
    per_s = 100 if options.smoke else options.rate
    command = [sys.executable, "-m", "benchmarks.delivery_throughput", "--serve"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver,
    ):
        server = ChildServer(
            data=Path(folder) / "data",
            host="127.0.0.1",
            port=free_port(),
            environment={"HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.0/8", "HOGLAB_ACCESS_LOG": "false"},
        )
        try:
            assert receiver.stdout is not None
            url = f"http://127.0.0.1:{int(receiver.stdout.readline())}/timed"
            server.start()
            measure(server, receiver, url, 200 if options.smoke else per_s * 20, per_s)
        finally:
            server.close()
            receiver.terminate()


if __name__ == "__main__":
    main()
