"""A server that is split into five processes behind a router, where tests expect one process.

``HOGLAB_TEST_SHAPE=split`` makes the servers of all suites so. What split servers promise less is in one place: a
change is known to all processes after `KNOWN_AFTER_S`, so the router lets requests of SDKs wait as long after the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import httpx
from starlette.types import ASGIApp
from tests.forked import ForkedServer
from tests.waiting import PATIENCE_S

SHAPE = os.environ.get("HOGLAB_TEST_SHAPE", "all")
KNOWN_AFTER_S = 1.0
BESIDE = ("edge", "edge", "deliver", "deliver")
_MAX_HEAD_BYTES = 64 * 1024
# As docs/deploy/nginx.conf has them.
_TO_EDGES = re.compile(
    r"/(batch|capture|decide|e|engage|flags|i|s|track|array|site_app|static|toolbar|public/webhooks)(/|$)"
    r"|/api/(feature_flag/local_evaluation|surveys|early_access_features|web_experiments|product_tours)/?$"
)
_READING = (b"GET", b"HEAD", b"OPTIONS")
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)


def goes_to_edges(path: str) -> bool:
    """Whether a path is of what SDKs and webhooks ask."""
    return _TO_EDGES.match(path) is not None


class SplitTransport(httpx.AsyncBaseTransport):
    """The same between applications in this process."""

    def __init__(self, core: ASGIApp, edges: Sequence[ASGIApp]) -> None:
        core_, *others = (httpx.ASGITransport(app, raise_app_exceptions=False) for app in (core, *edges))
        self._core, self._edges = core_, itertools.cycle(others)
        self._known_at = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if goes_to_edges(request.url.path):
            await asyncio.sleep(max(0.0, self._known_at - time.monotonic()))
            return await next(self._edges).handle_async_request(request)
        answer = await self._core.handle_async_request(request)
        if request.method.encode() not in _READING:
            self._known_at = time.monotonic() + KNOWN_AFTER_S
        return answer


class Router:
    """An HTTP proxy on a port: what SDKs and webhooks ask goes to edges in turn, everything else to the core."""

    def __init__(self, host: str, core: str, edges: list[str]) -> None:
        self._core = httpx.URL(core)
        self._edges = itertools.cycle([httpx.URL(url) for url in edges])
        self._known_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = asyncio.start_server(self._serve, host, 0, limit=_MAX_HEAD_BYTES, backlog=256)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(30)
        self.url = f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on each connection: the answer says that it is closed."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target = head.split(b" ", 2)[:2]
            to_edge = goes_to_edges(target.decode("latin-1").partition("?")[0])
            if to_edge:
                await asyncio.sleep(max(0.0, self._known_at - time.monotonic()))
            url = next(self._edges) if to_edge else self._core
            behind, there = await asyncio.open_connection(url.host, url.port)
            there.write(_CONNECTION.sub(b"", head[:-4]) + b"\r\nConnection: close\r\n\r\n")
            sending = asyncio.create_task(_pipe(reader, there))
            begun = await behind.read(65_536)
            if not to_edge and method not in _READING:
                self._known_at = time.monotonic() + KNOWN_AFTER_S
            writer.write(begun)
            await _pipe(behind, writer)
            sending.cancel()
            there.close()
        writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()


def _at_once(calls: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def secret_key(data: Path) -> str:
    """A key that is the same for all processes of a directory."""
    return urlsafe_b64encode(sha256(bytes(data)).digest()).decode()


class SplitServer(ForkedServer):
    """A core, two edges and two delivers; what is asked of the process is asked of the core."""

    def __init__(
        self, *, data: Path, host: str, port: int, environment: dict[str, str], other_ports: list[int]
    ) -> None:
        environment = {"HOGLAB_SECRET_KEYS": secret_key(data), **environment}
        super().__init__(
            data=data,
            host=host,
            port=port,
            environment={**environment, "HOGLAB_ROLE": "core"},
            start_timeout_s=PATIENCE_S,
        )
        self._beside = [
            ForkedServer(
                data=Path("/dev/null/none"),
                host=host,
                port=other_port,
                environment={**environment, "HOGLAB_ROLE": role},
                start_timeout_s=PATIENCE_S,
            )
            for role, other_port in zip(BESIDE, other_ports, strict=True)
        ]
        edges = [each.url for role, each in zip(BESIDE, self._beside, strict=True) if role == "edge"]
        self._router = Router(host, self.url, edges)
        self.url = self._router.url

    def start(self) -> None:
        super().start()
        _at_once(each.start for each in self._beside)
        assert all(each.alive() for each in self._beside), self.output()

    def stop(self) -> None:
        _at_once(each.stop for each in self._beside)
        super().stop()

    def kill(self, number: signal.Signals) -> None:
        for each in self._beside:
            each.kill(number)
        super().kill(number)

    def close(self) -> None:
        super().close()
        _at_once(each.close for each in self._beside)
        self._router.close()

    def output(self) -> str:
        return super().output() + "".join(each.output() for each in self._beside)
