"""A destination on this machine that counts what the hog function delivers."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    # More than the worker opens at once. A full queue drops connections, and the sender then waits out its time
    # limit and delivers again.
    request_queue_size = 256
    daemon_threads = True


class Receiver:
    """An HTTP server on a free loopback port that remembers the event uuid of every request it got."""

    def __init__(self) -> None:
        deliveries: Counter[str] = Counter()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    deliveries[json.loads(body)["uuid"]] += 1
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._deliveries = deliveries
        self._lock = lock
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="demo-receiver", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/purchases"

    def delivered(self) -> Counter[str]:
        """Return the number of deliveries of each event uuid so far."""
        with self._lock:
            return Counter(self._deliveries)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
