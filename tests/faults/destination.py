"""A destination that remembers which events reached it, and under which idempotency keys."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG_S = 60
"""How long requests to ``/hang`` wait for an answer that never comes."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # more than a worker opens at once: what does not fit waits for a time limit
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed has closed its connection; anything else is a mistake of the test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Destination:
    """An HTTP server on a loopback port, a free one by default.

    ``bodies``: idempotency keys by the body's uuid; ``tokens``: what the header ``X-Token`` said.
    """

    def __init__(self, port: int = 0) -> None:
        self.bodies: dict[str, list[str | None]] = {}
        self.tokens: set[str | None] = set()
        lock = threading.Lock()
        bodies, tokens, never = self.bodies, self.tokens, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/hang":
                    never.wait(HANG_S)
                    return
                with lock:
                    tokens.add(self.headers.get("X-Token"))
                    bodies.setdefault(body["uuid"], []).append(self.headers.get("Idempotency-Key"))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")  # as Slack's webhooks acknowledge a message

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = _Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Destination:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
