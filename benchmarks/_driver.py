"""Load on an HTTP server: keep-alive connections that each send the next request when the last is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

CONNECTIONS = 32


class Load(NamedTuple):
    """Requests per second, and the median and 99th percentile of latencies in milliseconds."""

    rate: float
    median_ms: float
    tail_ms: float


class Client(asyncio.Protocol):
    """One connection. Any answer that is not a 200, or holds ``wrong``, ends it with an error."""

    def __init__(self, requests: list[bytes], until: float, wrong: bytes | None) -> None:
        self.requests = requests
        self.until = until
        self.wrong = wrong
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.started_at = time.perf_counter()
        self.transport.write(self.requests[len(self.latencies) % len(self.requests)])

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().partition(b"content-length:")[2].split()[0]):
            return
        if not head.startswith(b"HTTP/1.1 200") or (self.wrong is not None and self.wrong in body):
            self.done.set_exception(RuntimeError(self.received.decode()))
            return
        self.received = b""
        self.latencies.append(time.perf_counter() - self.started_at)
        if time.perf_counter() < self.until:
            self.ask()
        elif not self.done.done():
            self.done.set_result(None)


async def drive(
    port: int,
    path: str,
    bodies: list[bytes],
    seconds: float,
    *,
    headers: Mapping[str, str] | None = None,
    wrong: bytes | None = None,
) -> Load:
    """POST JSON bodies in turn over all connections for some time."""
    named = {"Host": "127.0.0.1", "Content-Type": "application/json", **(headers or {})}
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in named.items())
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    loop = asyncio.get_running_loop()
    started_at = time.perf_counter()
    clients = []
    for number in range(CONNECTIONS):
        turned = requests[number:] + requests[:number]
        _, client = await loop.create_connection(
            lambda turned=turned: Client(turned, started_at + seconds, wrong), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    elapsed = time.perf_counter() - started_at
    for client in clients:
        client.transport.close()
    every = sorted(latency for client in clients for latency in client.latencies)
    return Load(len(every) / elapsed, every[len(every) // 2] * 1e3, every[len(every) * 99 // 100] * 1e3)
