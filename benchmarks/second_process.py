"""What a process of its own for capture and flags would bring beside ingestion: the same work in one process and two.

A log with a backlog is ingested while requests for capture and flags come at a steady pace, far below what the server
can answer. *Together*: one server does both, as it is. *Apart*: two processes on directories of their own, one of which
only answers requests and one of which only ingests; they share no interpreter, as two processes on one directory would
not. What they would have to share beside it (the log's file, notices of changes) is left out: it is what a second
process could bring at most. Processor time tells whether somebody waits for the interpreter or for a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.embedded import EmbeddedEventLog

from benchmarks._driver import Served, served
from benchmarks.capture_batches import EVENTS, TOKEN, make_batch
from benchmarks.ingestion_loop import fill
from hoglab.app import Hoglab
from hoglab.settings import Settings

COUNTER = "hoglab_ingestion_events_total "
BATCHES = 2_000
CAPTURES_PER_S, FLAGS_PER_S = 10, 40
QUIET_S = 10.0
"""How long requests come while nothing is ingested, for comparison."""

WORKER = """
import asyncio, sys
import benchmarks  # its logs go to standard error
from pathlib import Path
from hoglab.app import Hoglab
from hoglab.http.server import claim, serve, stop_on_signals
from hoglab.settings import Settings

async def main(folder, ingests):
    stop = asyncio.Event()
    stop_on_signals(stop)
    with claim("127.0.0.1", 0) as address:
        hoglab = Hoglab.open(Settings(data=Path(folder), port=address.port, access_log=False))
        if ingests:
            hoglab.start()
        await serve(hoglab.http, address, stop=stop, grace_s=1, ready=lambda _: print(address.port, flush=True))
        await asyncio.to_thread(hoglab.stop)

import uvloop
uvloop.run(main(sys.argv[1], sys.argv[2] == "ingests"))
"""


@dataclass
class Latencies:
    """Milliseconds of every request, by kind."""

    capture: list[float]
    flags: list[float]

    def line(self) -> str:
        parts = []
        for name, values in (("capture", self.capture), ("flags", self.flags)):
            ordered = sorted(values)
            tail = ordered[int(len(ordered) * 0.99)] if ordered else float("nan")
            parts.append(f"{name} p50 {statistics.median(ordered):6.1f} p99 {tail:6.1f} ms")
        return "   ".join(parts)


def prepared(folder: Path, batches: int) -> Path:
    """A directory with a project, and a backlog in its log."""
    settings = {"data": folder, "bootstrap_project_token": TOKEN, "access_log": False}
    Hoglab.open(Settings.model_validate(settings)).stop()
    if batches:
        log = EmbeddedEventLog(folder / "queue.db")
        asyncio.run(fill(log, range(batches)))
        log.close()
    return folder


def worker(folder: Path, *, ingests: bool) -> AbstractContextManager[Served]:
    """A server process; only one that ingests does anything but answer."""
    return served("-c", WORKER, str(folder), "ingests" if ingests else "answers")


async def steady(url: str, until: asyncio.Event, offset: int) -> Latencies:
    """Requests at a steady pace, whether earlier ones were answered or not."""
    found = Latencies([], [])
    flags = json.dumps({"api_key": TOKEN, "distinct_id": "somebody"})
    async with httpx.AsyncClient(
        base_url=url, timeout=60, limits=httpx.Limits(max_connections=200)
    ) as client:

        async def capture(number: int) -> None:
            body, started = make_batch(offset + number), time.perf_counter()
            answer = await client.post(
                "/batch/",
                content=body,
                headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
            found.capture.append((time.perf_counter() - started) * 1e3)

        async def ask() -> None:
            started = time.perf_counter()
            answer = await client.post("/flags/?v=2", content=flags)
            assert answer.status_code == 200, answer.text
            found.flags.append((time.perf_counter() - started) * 1e3)

        async with asyncio.TaskGroup() as requests:
            number = 0
            while not until.is_set():
                requests.create_task(ask())
                if number % (FLAGS_PER_S // CAPTURES_PER_S) == 0:
                    requests.create_task(capture(number))
                number += 1
                await asyncio.sleep(1 / FLAGS_PER_S)
    return found


def ingested(url: str) -> float:
    """Events that were ingested since the start."""
    text = httpx.get(f"{url}/metrics", timeout=60).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(COUNTER))


async def during_ingestion(asked: Served, ingesting: Served, events: int) -> tuple[Latencies, float]:
    """Requests until the backlog is ingested, and how long that took."""
    until, started = asyncio.Event(), time.perf_counter()
    requests = asyncio.create_task(steady(asked.url, until, 10_000_000))
    while await asyncio.to_thread(ingested, ingesting.url) < events:  # noqa: ASYNC110 - another process tells nobody
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - started
    until.set()
    return await requests, seconds


async def quiet(asked: Served, seconds: float) -> Latencies:
    until = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, until.set)
    return await steady(asked.url, until, 20_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args()
    batches, quiet_s = (50, 1.0) if options.smoke else (BATCHES, QUIET_S)
    events = batches * EVENTS
    with tempfile.TemporaryDirectory() as root:
        together = prepared(Path(root) / "together", batches)
        answers, ingests = prepared(Path(root) / "answers", 0), prepared(Path(root) / "ingests", batches)
        with worker(answers, ingests=False) as asked, worker(ingests, ingests=True) as ingesting:
            before = asked.cpu_seconds(), ingesting.cpu_seconds()
            apart, apart_s = asyncio.run(during_ingestion(asked, ingesting, events))
            cost = asked.cpu_seconds() - before[0], ingesting.cpu_seconds() - before[1]
            alone = asyncio.run(quiet(asked, quiet_s))
        with worker(together, ingests=True) as server:
            before_together = server.cpu_seconds()
            both, both_s = asyncio.run(during_ingestion(server, server, events))
            cost_together = server.cpu_seconds() - before_together
    print(
        f"{os.cpu_count()} processors; {events:,} events, {CAPTURES_PER_S} batches and {FLAGS_PER_S} flags a second"
    )
    print(f"  requests alone    {alone.line()}")
    for title, found, seconds, processor_s in (
        ("in two processes", apart, apart_s, sum(cost)),
        ("in one process", both, both_s, cost_together),
    ):
        speed = f"{events / seconds:9,.0f} events/s ingested, processor {processor_s:.1f} s"
        print(f"  {title:17} {found.line()}   {speed}")
    print(
        f"ratio of one to two processes: ingestion {apart_s / both_s:.2f}, capture p50 "
        f"{statistics.median(both.capture) / statistics.median(apart.capture):.1f}, flags p50 "
        f"{statistics.median(both.flags) / statistics.median(apart.flags):.1f}"
    )


if __name__ == "__main__":
    main()
