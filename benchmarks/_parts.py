"""A server process that tells which of its parts took how much processor time: a child of benchmarks.

Run: ``python -m benchmarks._parts FOLDER ROLE``, with settings in the environment; prints its port. It begins with its
background work when it is told to (SIGUSR1), and prints the seconds of each part as JSON when it is ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import uvloop
from tests.embedded import EmbeddedEventStore

from benchmarks._driver import _children, _cpu_seconds
from hoglab.app import Hoglab
from hoglab.app.server import JoiningProcess
from hoglab.delivery.dispatch.dispatcher import EventDispatcher
from hoglab.http.server import claim, serve, stop_on_signals
from hoglab.people import PersonService
from hoglab.settings import Settings
from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

HTTP, LOG, INGESTION = "capture and HTTP", "event log", "ingestion"
PEOPLE, STORE, DISPATCH, DELIVERY = "people", "event store", "dispatch and queue", "delivery"
SEALING, BODIES, OTHER = "sealing", "processes of functions", "other threads"
THREADS = {
    "event-log": LOG,
    "ingestion": INGESTION,
    "delivery": DELIVERY,
    "hog-body": DELIVERY,
    "event-store-maintenance": SEALING,
    "MainThread": HTTP,
    "capture-decode": HTTP,
    "hoglab-": HTTP,
}
"""Parts by what names of threads begin with; of the others the engine's and the runtime's have no name here."""


class Meter:
    """Seconds that the calling threads spent in methods, by parts."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._before: dict[str, float] = {}

    def watch(self, owner: type, method: str, part: str) -> None:
        known: Callable[..., Any] = getattr(owner, method)

        @wraps(known)
        def measured(*arguments: Any, **named: Any) -> Any:
            before = time.thread_time()
            try:
                return known(*arguments, **named)
            finally:
                self.seconds[part] += time.thread_time() - before

        setattr(owner, method, measured)

    def begin(self) -> None:
        """Forget what was before: imports, and opening what there is."""
        self._before = self._all()

    def parts(self) -> dict[str, float]:
        """The seconds of all parts since then."""
        return {part: seconds - self._before.get(part, 0.0) for part, seconds in self._all().items()}

    def _all(self) -> dict[str, float]:
        """Those of the whole process; what was measured inside of ingestion is not counted there once more."""
        found = defaultdict(float, self.seconds)
        found[INGESTION] -= sum(self.seconds.values())
        known = 0.0
        for thread in threading.enumerate():
            spent = _thread_seconds(thread.native_id)
            part = next((part for name, part in THREADS.items() if thread.name.startswith(name)), None)
            if part is not None:
                found[part] += spent
                known += spent
        found[OTHER] = max(0.0, _cpu_seconds(os.getpid()) - known)
        found[BODIES] = sum(_cpu_seconds(child) for child in _children(os.getpid()))
        return dict(found)


def _thread_seconds(native_id: int | None) -> float:
    try:
        fields = Path(f"/proc/self/task/{native_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def opened(settings: Settings) -> Iterator[Hoglab | JoiningProcess]:
    """The server, or the process beside one, during the block."""
    process = Hoglab.open(settings) if settings.role in ("all", "core") else JoiningProcess.open(settings)
    try:
        yield process
    finally:
        process.stop()


async def main(folder: str, role: str) -> None:
    meter = Meter()
    meter.watch(PersonService, "apply", PEOPLE)
    meter.watch(EmbeddedEventStore, "append", STORE)
    meter.watch(ClickHouseEventStore, "append", STORE)
    meter.watch(EventDispatcher, "dispatch", DISPATCH)
    stop = asyncio.Event()
    stop_on_signals(stop)
    with claim("127.0.0.1", 0) as address:
        settings = Settings.model_validate(
            {"data": folder, "role": role, "port": address.port, "access_log": False}
        )
        with opened(settings) as process:
            meter.begin()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, process.start)
            await serve(
                process.http, address, stop=stop, grace_s=1, ready=lambda _: print(address.port, flush=True)
            )
            print(json.dumps(meter.parts()), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
