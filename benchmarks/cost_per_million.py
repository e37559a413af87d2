"""Seconds of processors that a million events cost, by part, of a directory and of PostgreSQL in several processes.

Events come as gzip batches of a hundred over HTTP, are ingested (a tenth of them of persons not seen before, at first),
and one in ten is delivered to a destination on this machine. *directory* is one process; *postgres* is a core, an edge
that takes the events, a deliver, and the processes of the PostgreSQL server, which syncs its disk. Who sends and who
receives is not counted. The clock says how long each step took, with everybody on the same processors.

Two more lines compare both shapes in one process: what a directory needs for a step, over what PostgreSQL needs for it.

Run: ``python -m benchmarks.cost_per_million [--smoke]``; the part of PostgreSQL is left out where none is installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.fernet import Fernet
from tests.faults.destination import Destination
from tests.postgres import _programs
from tests.storage.own_postgres import own_server

from benchmarks._driver import STOP_S, _children, _cpu_seconds
from benchmarks.capture_batches import EVENTS, TOKEN, make_batch
from benchmarks.second_process import COUNTER
from hoglab.storage.engines import upgrade_databases

CONNECTIONS = 8
POLL_S = 0.2
WAIT_S = 1_800.0
KEY = "phx_" + "c" * 43
FUNCTION = {
    "type": "destination",
    "name": "sink",
    "enabled": True,
    "hog": "fetch(inputs.url, {'method': 'POST', 'body': {'uuid': event.uuid}})",
    "inputs_schema": [{"key": "url", "type": "string"}],
    "filters": {
        "events": [
            {
                "id": "purchase",
                "type": "events",
                "properties": [
                    {"key": "property_0", "type": "event", "operator": "exact", "value": ["alpha"]}
                ],
            }
        ]
    },
}
"""A third of the events are purchases, and more than a quarter of these are alpha."""
CAPTURE, INGEST, DELIVER = "capture", "ingestion", "delivery"
GOALS = {CAPTURE: 0.35, INGEST: 0.5, DELIVER: 0.5}
"""Of PostgreSQL with all roles in one process, beside a directory."""


class Server:
    """Processes of one server, by roles; of several of one role the others are called ``edge-2``, say."""

    def __init__(
        self, folder: Path, roles: list[str], environment: dict[str, str], engine: int | None
    ) -> None:
        """``engine``: the first process of the PostgreSQL server."""
        self._engine = engine
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ports: dict[str, int] = {}
        for name in roles:
            command = [sys.executable, "-m", "benchmarks._parts", str(folder / name), name.partition("-")[0]]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
            )
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line.isdecimal():
                raise SystemExit(f"{name} did not start: {line!r}")
            self._processes[name], self._ports[name] = process, int(line)

    def url(self, *roles: str) -> str:
        """The address of the first of some roles that there is."""
        return next(f"http://127.0.0.1:{self._ports[role]}" for role in roles if role in self._ports)

    def port(self, role: str) -> int:
        return self._ports[role]

    def begin(self, *roles: str) -> None:
        """Let background work begin, of all processes when none is named."""
        self.signal(signal.SIGUSR1, *(roles or self._processes))

    def signal(self, number: signal.Signals, *roles: str) -> None:
        for role in roles:
            self._processes[role].send_signal(number)

    def seconds(self, *roles: str) -> float:
        """Processor time so far: of some processes, or of all and the engine."""
        ours = sum(_spent(self._processes[role].pid) for role in roles or self._processes)
        return ours if roles else ours + self.engine_seconds()

    def engine_seconds(self) -> float:
        return 0.0 if self._engine is None else _spent(self._engine, ended=True)

    def end(self) -> dict[str, dict[str, float]]:
        """End it; the seconds of each part of each process."""
        parts = {}
        for role, process in self._processes.items():
            process.terminate()
            assert process.stdout is not None
            parts[role] = json.loads(process.stdout.readline())
            process.wait(STOP_S)
        return parts

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()


def _spent(process_id: int, *, ended: bool = False) -> float:
    """Of a process and its children; ``ended``: with those that ended."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11 : 15 if ended else 13])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_cpu_seconds(child) for child in _children(process_id))


class Step(NamedTuple):
    """Seconds by the clock and of processors, the engine's among these, and how many things were done."""

    seconds: float
    processor_s: float
    engine_s: float
    things: int

    @property
    def each_us(self) -> float:
        return self.processor_s / self.things * 1e6


class Measured(NamedTuple):
    steps: dict[str, Step]
    parts: dict[str, dict[str, float]]


@contextmanager
def step(server: Server, name: str, steps: dict[str, Step], things: Counter[str]) -> Iterator[None]:
    """Measure a block; how many things it did it notes in ``things``."""
    started, processor, engine = time.perf_counter(), server.seconds(), server.engine_seconds()
    yield
    steps[name] = Step(
        time.perf_counter() - started,
        server.seconds() - processor,
        server.engine_seconds() - engine,
        things[name],
    )


async def send(url: str, batches: int, *, first: int = 0, make: Callable[[int], bytes] = make_batch) -> None:
    """Send batches over some connections; ``first``: the number of the first."""
    numbers = iter(range(first, first + batches))
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}

    async def work(client: httpx.AsyncClient) -> None:
        for number in numbers:
            answer = await client.post("/batch/", content=make(number), headers=headers)
            assert answer.status_code == 200, answer.text

    async with httpx.AsyncClient(base_url=url, timeout=120) as client, asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(work(client))


def measured(server: Server, batches: int, destination: Destination) -> Measured:
    """Capture alone, then ingestion without functions, then a function on what was stored."""
    steps: dict[str, Step] = {}
    things: Counter[str] = Counter()
    with step(server, CAPTURE, steps, things):
        asyncio.run(send(server.url("edge", "all"), batches))
        things[CAPTURE] = batches * EVENTS
    core = httpx.Client(
        base_url=server.url("core", "all"), headers={"Authorization": f"Bearer {KEY}"}, timeout=120
    )
    with step(server, INGEST, steps, things):
        server.begin()
        wait_until(lambda: counted(core, COUNTER) >= batches * EVENTS)
        things[INGEST] = batches * EVENTS
    body = {**FUNCTION, "inputs": {"url": {"value": destination.url}}}
    made = core.post("/api/projects/1/hog_functions/", json=body)
    assert made.status_code == 201, made.text
    # Stored events go to the function by a backfill: nothing is captured or ingested meanwhile.
    address = f"/api/projects/1/hog_functions/{made.json()['id']}"
    with step(server, DELIVER, steps, things):
        begun = core.post(f"{address}/backfill/", json={"from": "2020-01-01"})
        assert begun.status_code in (200, 201, 202), begun.text

        def queued() -> int:
            """How many runs the backfill made; more than there can be, before it ended."""
            [found] = core.get(f"{address}/backfills/").json()["results"]
            return found["queued"] if found["status"] == "completed" else sys.maxsize

        wait_until(lambda: len(destination.bodies) >= queued())
        things[DELIVER] = len(destination.bodies)
    core.close()
    return Measured(steps, server.end())


def wait_until(look: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while not look():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit("it takes too long")
        time.sleep(POLL_S)


def counted(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


@contextmanager
def running(*roles: str, on_files: bool = False, more: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server of some roles, on a database of its own unless it is on files; ``more``: further settings."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".")))
        environment = {
            "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN,
            "HOGLAB_BOOTSTRAP_API_KEY": KEY,
            "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.0/8",
            **(more or {}),
        }
        engine = None
        if not on_files:
            database = stack.enter_context(own_server())
            upgrade_databases(database.url)
            engine = int(
                (Path(database.url.partition("host=")[2]) / "data/postmaster.pid").read_text().split()[0]
            )
            environment |= {
                "HOGLAB_DATABASE_URL": database.url,
                "HOGLAB_SECRET_KEYS": Fernet.generate_key().decode(),
            }
        server = Server(folder, list(roles), environment, engine)
        stack.callback(server.close)
        yield server


def shape(title: str, batches: int, *roles: str) -> Measured:
    """The costs of a server of some roles; of ``all`` and *directory* on files."""
    on_files = title == "directory"
    with Destination() as destination, running(*roles, on_files=on_files) as server:
        found = measured(server, batches, destination)
    print(f"\n{title} ({', '.join(roles)})")
    events = batches * EVENTS
    print(
        f"  {'step':<12} {'clock s':>9} {'processor s':>12} {'of it engine':>13}   per million events (or deliveries)"
    )
    for name, taken in found.steps.items():
        print(
            f"  {name:<12} {taken.seconds:>9.1f} {taken.processor_s:>12.1f} {taken.engine_s:>13.1f}   "
            f"{taken.each_us:>8.0f} s   {taken.things:,} {'runs' if name == DELIVER else 'events'}"
        )
    print("  seconds of processors by part, for each million events that were captured:")
    for role, parts in found.parts.items():
        for part, seconds in sorted(parts.items(), key=lambda item: -item[1]):
            if seconds >= 0.01:
                print(f"    {role:<9} {part:<24} {seconds / events * 1e6:>8.1f}")
    if not on_files:
        spent = sum(taken.engine_s for taken in found.steps.values())
        print(f"    {'postgres':<9} {'processes of the engine':<24} {spent / events * 1e6:>8.1f}")
    return found


def main() -> None:
    batches = 10 if "--smoke" in sys.argv else 2_000
    print(f"{os.cpu_count()} processors, {batches * EVENTS:,} events")
    files = shape("directory", batches, "all")
    if _programs() is None:
        print("needs PostgreSQL for the rest")
        return
    shape("postgres", batches, "core", "edge", "deliver")
    one = shape("postgres in one process", batches, "all")
    print("\nratio of a directory to PostgreSQL in one process, each step")
    for name, goal in GOALS.items():
        here, there = files.steps[name], one.steps[name]
        # A short run may take less than a tick of the clock of processor time.
        processor = f"{here.each_us / there.each_us:.2f}" if there.each_us else "-"
        print(
            f"  {name:<12} processor time {processor}   clock "
            f"{here.seconds / here.things / (there.seconds / there.things):.2f}   (goal {goal})"
        )


if __name__ == "__main__":
    main()
