"""Acknowledged records per second of the event log, against the fastest thing that keeps the same promise.

64 producers in one event loop, each waiting for its record to be on disk before it sends the next. The
reference appends to a plain file and calls ``fdatasync`` once for everything that waits: no index, no
positions, no deletion, so it is the ceiling of this disk and this Python.

Run: ``python -m benchmarks.storage_log [--smoke]``
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.embedded import EmbeddedEventLog

from hoglab.storage.event_log import Offset, numbered
from hoglab.storage.event_log.log import GroupCommitLog, LogLimits

PRODUCERS = 64
SIZES = (600, 5_000, 60_000)
Append = Callable[[bytes], Awaitable[int]]


class PlainFile:
    """Length, checksum and payload, appended and synced by a thread for all who wait."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._condition = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._offset = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    async def append(self, payload: bytes) -> int:
        future: asyncio.Future[int] = self._loop.create_future()
        with self._condition:
            self._waiting.append((payload, future))
            if len(self._waiting) == 1:
                self._condition.notify()
        return await future

    def _write(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                group, self._waiting = self._waiting, []
            frames = b"".join(
                struct.pack("<II", len(payload), zlib.crc32(payload)) + payload for payload, _ in group
            )
            view = memoryview(frames)
            while view:
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
            self._loop.call_soon_threadsafe(self._resolve, [future for _, future in group])

    def _resolve(self, futures: list[asyncio.Future[int]]) -> None:
        for future in futures:
            self._offset += 1
            future.set_result(self._offset)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()
        os.close(self._file)


async def produce(append: Append, payload: bytes, seconds: float) -> list[float]:
    """Seconds that each acknowledgement took."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        while (start := time.perf_counter()) < end:
            await append(payload)
            waits.append(time.perf_counter() - start)

    await asyncio.gather(*(one() for _ in range(PRODUCERS)))
    return waits


async def measure(kind: str, size: int, seconds: float) -> tuple[float, str]:
    payload = os.urandom(size)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        if kind == "file":
            log: EmbeddedEventLog | PlainFile = PlainFile(Path(folder) / "log")
        else:
            log = EmbeddedEventLog(Path(folder) / "queue.db", limits=LogLimits(max_backlog_bytes=1 << 40))
        stop = threading.Event()
        consumer = threading.Thread(target=consume, args=(log, stop))
        if kind == "log, consumed":
            consumer.start()
        start = time.perf_counter()
        waits = sorted(await produce(log.append, payload, seconds))
        rate = len(waits) / (time.perf_counter() - start)
        stop.set()
        if consumer.is_alive():
            consumer.join()
        log.close()
    middle, late = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
    speed = f"{rate:>9,.0f} records/s {rate * size / 1e6:>6,.0f} MB/s"
    return rate, f"{speed}   p50 {middle:>6.1f} ms  p99 {late:>6.1f} ms"


def consume(log: GroupCommitLog, stop: threading.Event) -> None:
    """What ingestion does to the log while others append: read, commit, trim."""
    position = Offset(0)
    while not stop.is_set():
        if not log.wait(position, 0.1):
            continue
        records = log.read(position, max_records=1000, max_bytes=8_000_000)
        position = records[-1].offset
        log.commit("benchmark", position)
        log.trim(numbered(position))


def main() -> None:
    seconds = 0.2 if "--smoke" in sys.argv else 4.0
    print(f"event log: acknowledged records, {PRODUCERS} producers; ratio to plain file + fdatasync")
    for size in SIZES:
        reference, text = asyncio.run(measure("file", size, seconds))
        print(f"{size:>6} bytes  plain file      {text}   1.00")
        for kind in ("log", "log, consumed"):
            rate, text = asyncio.run(measure(kind, size, seconds))
            print(f"{size:>6} bytes  {kind:<14}  {text}   {rate / reference:.2f}")


if __name__ == "__main__":
    main()
