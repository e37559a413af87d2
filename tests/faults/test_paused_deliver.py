"""A process that runs functions is stopped for a while: it goes on with nothing that another one did meanwhile."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster import TOKEN, cluster, send_signal
from tests.waiting import PATIENCE_S, wait_for

RUNS = 12
PROGRAM = """
fetch(f'{inputs.url}first', {'method': 'POST', 'body': {'uuid': event.uuid}})
fetch(f'{inputs.url}second', {'method': 'POST', 'body': {'uuid': event.uuid}})
"""


class Destination:
    """A destination that leaves the first requests of runs unanswered until it is ``open``.

    ``came``: how many requests of each event came to a path. ``first_by_port``: the events of the first requests, by
    the port of the client. ``ports``: of the clients, in the order in which they connected.
    """

    def __init__(self) -> None:
        self.came: dict[str, Counter[str]] = {"/first": Counter(), "/second": Counter()}
        self.first_by_port: dict[int, set[str]] = {}
        self.ports: list[int] = []
        self.open = threading.Event()
        came, by_port, ports, open_ = self.came, self.first_by_port, self.ports, self.open

        class Server(ThreadingHTTPServer):
            def process_request(self, request: Any, client_address: Any) -> None:
                ports.append(client_address[1])
                super().process_request(request, client_address)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                came[self.path][body["uuid"]] += 1
                if self.path == "/first":
                    by_port.setdefault(self.client_address[1], set()).add(body["uuid"])
                open_.wait(PATIENCE_S)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that gave up hang up
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def destination() -> Iterator[Destination]:
    made = Destination()
    yield made
    made.close()


def measured(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_process_that_was_stopped_goes_on_with_no_run_that_it_lost(
    destination: Destination, postgres_url: str, tmp_path: Path
) -> None:
    """Its requests are answered while it is stopped, so that it finds the answers when it may go on."""
    first, second = destination.came["/first"], destination.came["/second"]
    with cluster(tmp_path, postgres_url, HOGLAB_FETCH_TIMEOUT_S="60") as server:
        for name, role in {"core": "core", "deliver-1": "deliver", "deliver-2": "deliver"}.items():
            server.add(name, role)
        server.start("core", "deliver-1")
        function: dict[str, Any] = {
            "type": "destination",
            "name": "two requests",
            "enabled": True,
            "hog": PROGRAM,
            "inputs_schema": [{"key": "url", "type": "string"}],
            "inputs": {"url": {"value": destination.url}},
            "filters": {"events": [{"id": "hello", "type": "events"}]},
        }
        with server.api() as api:
            made = api.post("/hog_functions/", json=function)
            assert made.status_code == 201, made.text
            batch = [{"event": "hello", "distinct_id": f"u{number}"} for number in range(RUNS)]
            sent = httpx.post(
                f"{server.processes['core'].url}/batch/", json={"api_key": TOKEN, "batch": batch}, timeout=60
            )
            assert sent.status_code == 200
        wait_for(lambda: len(first) > 0)
        paused = server.processes["deliver-1"]
        send_signal(paused, signal.SIGSTOP)
        try:
            # Connections are accepted in their order: once this one is answered, all of the stopped process are known.
            assert httpx.get(destination.url, timeout=60).status_code == 501
            its_ports = set(destination.ports)
            destination.open.set()
            server.start("deliver-2")
            wait_for(lambda: len(second) == RUNS, every_s=0.1)
            begun = set[str]().union(*(destination.first_by_port.get(port, ()) for port in its_ports))
        finally:
            send_signal(paused, signal.SIGCONT)
        wait_for(lambda: measured(paused.url, "hoglab_delivery_fenced_total") > 0, every_s=0.2)
        for name in ("deliver-1", "deliver-2"):
            server.processes[name].stop()  # which waits until nothing runs any more
        assert second == dict.fromkeys(second, 1)
        assert {uuid for uuid, times in first.items() if times > 1} <= begun
        assert max(first.values()) <= 2
