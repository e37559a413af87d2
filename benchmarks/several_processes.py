"""What more processes of a role bring, and how soon one hears of what was changed at another.

- *delivery*: runs a second with two delivers beside one, from a queue that is full. The destination is not the limit.
- *flags*: requests a second at two edges beside one; and the slowest with and without an edit of a flag each second.
- *notify*: from the answer to an edit at the core to the first new answer of an edge, when nothing else happens, and
  while requests come as fast as they are answered.

Where clients, servers and PostgreSQL share two processors, rates cannot double: the processor time for each thing then
says whether two get in each other's way. A ratio of one of it, and a rate that grows with processors, are the goal.

Run: ``python -m benchmarks.several_processes [--smoke]``; says so and ends where no PostgreSQL is installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import uvloop
from tests.faults.destination import Destination
from tests.postgres import _programs

from benchmarks._driver import Load, drive, posts
from benchmarks.capture_batches import EVENTS, TOKEN
from benchmarks.cost_per_million import FUNCTION, KEY, Server, running, send, wait_until

DELIVERY_GOAL, FLAGS_GOAL = 1.8, 1.9
IDLE_MS, BUSY_MS = 100, 1_000
LOOK_EVERY_S = 0.003
"""How often an edge is asked whether it knows of an edit, when nothing else happens."""


class Rate(NamedTuple):
    """Things a second, and processor time in microseconds for each: of the processes that scale, and of the engine."""

    rate: float
    process_us: float
    engine_us: float = 0.0


def compared(name: str, one: Rate, two: Rate, goal: float) -> None:
    """Print what two bring beside one."""
    for count, found in ((1, one), (2, two)):
        print(
            f"  {name:<9} {count} {found.rate:>8,.0f}/s   processor {found.process_us:>7.0f} us each, "
            f"PostgreSQL {found.engine_us:>6.0f} us"
        )
    print(
        f"  {name:<9} 2/1: rate {two.rate / one.rate:.2f} (goal {goal} with a processor for each), "
        f"processor time {two.process_us / one.process_us:.2f}"
    )


def delivery(batches: int) -> None:
    with Destination() as destination, running("core", "deliver", "deliver-2") as server:
        server.begin("core")
        with client(server, "core") as core:
            body = {**FUNCTION, "filters": {}, "inputs": {"url": {"value": destination.url}}}
            assert core.post("/api/projects/1/hog_functions/", json=body).status_code == 201

            def drained(*roles: str, first: int) -> Rate:
                """Fill the queue, then let some processes work until it is empty; ``first``: of the batches."""
                expected = (first + batches) * EVENTS
                asyncio.run(send(server.url("core"), batches, first=first))
                wait_until(lambda: queued(core) >= expected)
                processor, engine = server.seconds(*roles), server.engine_seconds()
                started = time.perf_counter()
                server.begin(*roles[-1:])
                wait_until(lambda: len(destination.bodies) >= expected)
                seconds, runs = time.perf_counter() - started, batches * EVENTS
                return Rate(
                    runs / seconds,
                    (server.seconds(*roles) - processor) / runs * 1e6,
                    (server.engine_seconds() - engine) / runs * 1e6,
                )

            one = drained("deliver", first=0)
            # The second works beside the first from here on, which takes what comes while the queue is filled.
            two = drained("deliver", "deliver-2", first=batches)
        compared("delivery", one, two, DELIVERY_GOAL)
        server.end()


def queued(core: httpx.Client) -> float:
    """Runs that events were made into so far."""
    lines = core.get("/metrics").text.splitlines()
    name = 'hoglab_delivery_dispatched_total{outcome="triggered"} '
    found = [line for line in lines if line.startswith(name)]
    return float(found[0].split()[1]) if found else 0.0


def client(server: Server, role: str) -> httpx.Client:
    return httpx.Client(base_url=server.url(role), headers={"Authorization": f"Bearer {KEY}"}, timeout=120)


def asked() -> list[bytes]:
    return posts(
        "/flags/?v=2", [json.dumps({"token": TOKEN, "distinct_id": f"u{n}"}).encode() for n in range(64)]
    )


def flags(seconds: float, edits: int) -> None:
    with running("core", "edge", "edge-2") as server:
        server.begin()
        with client(server, "core") as core:
            path = make_flag(core)

            def loaded(*roles: str) -> tuple[Rate, Load]:
                before = server.seconds(*roles)

                async def together() -> list[Load]:
                    return list(
                        await asyncio.gather(*(drive(server.port(role), asked(), seconds) for role in roles))
                    )

                loads = uvloop.run(together())
                requests = sum(load.requests for load in loads)
                spent = (server.seconds(*roles) - before) / requests * 1e6
                return Rate(sum(load.rate for load in loads), spent), loads[0]

            for role in ("edge", "edge-2"):
                with client(server, role) as edge:
                    wait_until(lambda edge=edge: is_on(edge) is not None)
            loaded("edge", "edge-2")  # warm
            one, quiet = loaded("edge")
            two, _ = loaded("edge", "edge-2")
            compared("flags", one, two, FLAGS_GOAL)
            with repeated(lambda: edit(core, path, on=False), 1.0):
                _, edited = loaded("edge")
            print(
                f"  flags     p99 {quiet.tail_ms:.1f} ms, with an edit each second {edited.tail_ms:.1f} ms, "
                f"ratio {edited.tail_ms / quiet.tail_ms:.2f}"
            )
            idle = notified(server, core, path, edits, look_every_s=LOOK_EVERY_S)
            stop = threading.Event()

            def press() -> None:
                while not stop.is_set():
                    uvloop.run(drive(server.port("edge"), asked(), 1.0))

            load = threading.Thread(target=press)
            load.start()
            busy = notified(server, core, path, edits, look_every_s=0)
            stop.set()
            load.join()
        for name, found, goal in (("idle", idle, IDLE_MS), ("busy", busy, BUSY_MS)):
            ordered = sorted(found)
            print(
                f"  notify    {name}: p50 {ordered[len(ordered) // 2]:.1f} ms, p99 "
                f"{ordered[len(ordered) * 99 // 100]:.1f} ms (goal {goal}), {len(ordered)} edits"
            )
        server.end()


def make_flag(core: httpx.Client) -> str:
    filters = {"groups": [{"rollout_percentage": 0}]}
    made = core.post("/api/projects/1/feature_flags/", json={"key": "it", "active": True, "filters": filters})
    assert made.status_code == 201, made.text
    return f"/api/projects/1/feature_flags/{made.json()['id']}/"


def edit(core: httpx.Client, path: str, *, on: bool) -> None:
    filters = {"groups": [{"rollout_percentage": 100 if on else 0}]}
    answer = core.patch(path, json={"filters": filters})
    assert answer.status_code == 200, answer.text


def is_on(edge: httpx.Client) -> bool | None:
    """What an edge says of the flag; None: it does not know it yet."""
    answer: dict[str, Any] = edge.post("/flags/?v=2", json={"token": TOKEN, "distinct_id": "me"}).json()
    known = answer.get("flags", {}).get("it")
    return None if known is None else bool(known["enabled"])


def notified(
    server: Server, core: httpx.Client, path: str, edits: int, *, look_every_s: float
) -> list[float]:
    """Milliseconds from the answer to each edit to the first new answer of an edge.

    Who asks without a pause keeps the edge from hearing of the edit.
    """
    found = []
    with client(server, "edge") as edge:
        for number in range(edits):
            edit(core, path, on=number % 2 == 0)
            answered = time.perf_counter()
            while is_on(edge) is not (number % 2 == 0):
                time.sleep(look_every_s)
            found.append((time.perf_counter() - answered) * 1e3)
    return found


class repeated:  # noqa: N801 - it is used as a function
    """Something done again and again by a thread during the block."""

    def __init__(self, action: Callable[[], object], every_s: float) -> None:
        self._action, self._every_s = action, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._action()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    if _programs() is None:
        print("needs PostgreSQL")
        return
    smoke = "--smoke" in sys.argv
    print(f"{os.cpu_count()} processors for clients, servers and PostgreSQL together")
    delivery(2 if smoke else 200)
    flags(0.5 if smoke else 10.0, 4 if smoke else 200)


if __name__ == "__main__":
    main()
