"""Load on an HTTP server: keep-alive connections that each send the next request when the last is answered."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

CONNECTIONS = 32
STOP_S = 30.0
"""How long a server may take to end."""
SHOWN = 400
"""Bytes of a wrong answer that are shown."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Load(NamedTuple):
    """Requests per second, and the median and 99th percentile of latencies in milliseconds."""

    rate: float
    median_ms: float
    tail_ms: float
    requests: int


class Served(NamedTuple):
    """A server in a process of its own."""

    port: int
    process_id: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """Processor time that the server and its workers took so far; not a number off Linux."""
        return sum(_cpu_seconds(number) for number in (self.process_id, *_children(self.process_id)))


def _cpu_seconds(process_id: int) -> float:
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(process_id: int) -> list[int]:
    try:
        text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


@contextmanager
def served(*command: str) -> Iterator[Served]:
    """A Python process that prints its port once it serves; it ends with the block."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.strip().isdecimal():
            raise SystemExit(f"{' '.join(command[:2])} did not start: {line!r}, status {process.poll()}")
        yield Served(int(line), process.pid)
    finally:
        process.terminate()
        process.wait(STOP_S)


class Run(NamedTuple):
    """One round of load, and the processor time that the server took for each request.

    The processor time says more than the rate where other programs, the client among them, want the processor too.
    """

    load: Load
    cpu_us: float


def run(server: Served, requests: list[bytes], seconds: float, *, wrong: bytes | None = None) -> Run:
    """One round of `drive`, on a fast event loop so that the client is not what is measured."""
    before = server.cpu_seconds()
    load = uvloop.run(drive(server.port, requests, seconds, wrong=wrong))
    return Run(load, (server.cpu_seconds() - before) / load.requests * 1e6 or nan)


class Client(asyncio.Protocol):
    """One connection. Any answer that is not a 200, or holds ``wrong``, ends it with an error."""

    def __init__(self, requests: list[bytes], until: float, wrong: bytes | None) -> None:
        self.requests = requests
        self.until = until
        self.wrong = wrong
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = bytearray()
        self.expected = 0  # bytes of the answer, once its head is known
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.started_at = time.perf_counter()
        self.transport.write(self.requests[len(self.latencies) % len(self.requests)])

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.expected:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self.received, 0, end + 2)
            if length is None:
                self.fail("an answer without Content-Length")
                return
            self.expected = end + 4 + int(length[1])
        if len(self.received) < self.expected:
            return
        if not self.received.startswith(b"HTTP/1.1 200") or (self.wrong and self.wrong in self.received):
            self.fail(f"answered {bytes(self.received[:SHOWN])!r}")
            return
        self.received.clear()
        self.expected = 0
        self.latencies.append(time.perf_counter() - self.started_at)
        if time.perf_counter() < self.until:
            self.ask()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        self.fail("the server closed the connection")

    def fail(self, reason: str) -> None:
        if not self.done.done():
            request = self.requests[len(self.latencies) % len(self.requests)].partition(b"\r\n")[0].decode()
            self.done.set_exception(RuntimeError(f"{request}, after {len(self.latencies)} answers: {reason}"))


def posts(path: str, bodies: Iterable[bytes], headers: Mapping[str, str] | None = None) -> list[bytes]:
    """Requests that POST JSON bodies."""
    head = _head("POST", path, {"Content-Type": "application/json", **(headers or {})})
    return [head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


def gets(paths: Iterable[str], headers: Mapping[str, str] | None = None) -> list[bytes]:
    """Requests that GET."""
    return [_head("GET", path, headers or {}) + b"\r\n" for path in paths]


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    named = {"Host": "127.0.0.1", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}".encode()


async def drive(port: int, requests: list[bytes], seconds: float, *, wrong: bytes | None = None) -> Load:
    """Send requests in turn over all connections for some time."""
    loop = asyncio.get_running_loop()
    started_at = time.perf_counter()
    clients = []
    for number in range(CONNECTIONS):
        turned = requests[number:] + requests[:number]
        _, client = await loop.create_connection(
            partial(Client, turned, started_at + seconds, wrong), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    elapsed = time.perf_counter() - started_at
    for client in clients:
        client.transport.close()
    every = sorted(latency for client in clients for latency in client.latencies)
    median_s, tail_s = every[len(every) // 2], every[len(every) * 99 // 100]
    return Load(len(every) / elapsed, median_s * 1e3, tail_s * 1e3, len(every))
