"""A proxy between an SDK and a server: it writes down what passes, and breaks what a test wants broken."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Exchange:
    """A request and the status that the SDK got; 0 when it got no answer."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    status: int


@dataclass
class Fault:
    """What happens to the next ``times`` requests whose path starts with ``path``.

    ``status`` is answered without asking the server, when it is given. Otherwise the server gets the request,
    and its answer is what ``change`` makes of its body, or without one is lost on the way back.
    """

    path: str
    times: int = 1
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    change: Callable[[bytes], bytes] | None = None


class Tap:
    """Listens on ``url`` and forwards to a server."""

    def __init__(self, server_url: str) -> None:
        self._target = urlsplit(server_url).netloc
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._exchanges: list[Exchange] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._pass))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def inject(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def exchanges(self, path: str) -> list[Exchange]:
        """What passed under paths that start with ``path``, oldest first."""
        with self._lock:
            return [each for each in self._exchanges if each.path.startswith(path)]

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _pass(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        fault = self._next_fault(handler.path)
        if fault is None or fault.status is None:
            status, headers, answer = self._forward(handler, body)
        else:
            status, headers, answer = fault.status, list(fault.headers.items()), fault.body
        if fault is not None and fault.change is not None:
            answer = fault.change(answer)
        lost = fault is not None and fault.status is None and fault.change is None
        known = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self._exchanges.append(
                Exchange(handler.command, handler.path, known, body, 0 if lost else status)
            )
        handler.close_connection = True
        if lost:
            return
        handler.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                handler.send_header(name, value)
        if status not in (204, 304):
            handler.send_header("Content-Length", str(len(answer)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(answer)

    def _next_fault(self, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and path.startswith(fault.path):
                    fault.times -= 1
                    return fault
        return None

    def _forward(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._target, timeout=PATIENCE_S)
        try:
            connection.request(handler.command, handler.path, body, dict(handler.headers.items()))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextmanager
def tapped(server_url: str) -> Iterator[Tap]:
    """A tap for the block."""
    tap = Tap(server_url)
    try:
        yield tap
    finally:
        tap.close()


def _handler(pass_on: Callable[[BaseHTTPRequestHandler], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            pass_on(self)

        do_GET = do_POST = do_HEAD = do_OPTIONS = _any  # noqa: N815 - the names that the base class calls

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    return Handler


def asks_again_for_one(answer: bytes) -> bytes:
    """An answer of the v1 protocol in which the first event was not taken."""
    results = json.loads(answer)["results"]
    results[next(iter(results))] = {"result": "retry", "details": "not_persisted"}
    return json.dumps({"results": results}).encode()
