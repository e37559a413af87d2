"""How patient an import is, and with whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hoglab.transfer import sending
from hoglab.transfer.sending import BatchRefusedError, Sender, SendError

Answer = tuple[int, dict[str, str]]


class Server:
    """Gives the answers of a list, one for each request; its last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [(200, {})]
        self.bodies: list[bytes] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                status, headers = server.answers[0]
                if len(server.answers) > 1:
                    del server.answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": "3", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"why")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def test_a_busy_server_gets_the_same_body_when_it_asked_for_it(server: Server) -> None:
    waits: list[float] = []
    server.answers = [(503, {"Retry-After": "7"}), (429, {"Retry-After": "soon"}), (500, {}), (200, {})]
    sender = Sender(server.url, "phc_x", sleep=waits.append)
    sender.send(sender.body([b'{"event":"a"}']))
    sender.close()
    assert set(server.bodies) == {b'{"api_key":"phc_x","historical_migration":true,"batch":[{"event":"a"}]}'}
    assert (len(server.bodies), waits) == (4, [7.0, 1.0, 2.0])


def test_patience_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.0)
    server.answers = [(503, {})]
    with pytest.raises(SendError, match="has taken no events for 0 s: why"):
        Sender(server.url, "phc_x", sleep=lambda _: None).send(b"{}")


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (400, BatchRefusedError, "why"),
        (413, BatchRefusedError, "why"),
        (401, SendError, "does not know the project token"),
        (404, SendError, "answered 404: why"),
        (302, SendError, "answered 302"),
    ],
)
def test_answers_that_are_final(server: Server, status: int, error: type[Exception], text: str) -> None:
    server.answers = [(status, {})]
    with pytest.raises(error, match=text):
        Sender(server.url, "phc_x", sleep=lambda _: pytest.fail("waited")).send(b"{}")


@pytest.mark.slow
def test_a_server_that_was_never_there() -> None:
    with pytest.raises(SendError, match="cannot be reached"):
        Sender("127.0.0.1:9", "phc_x", sleep=lambda _: pytest.fail("waited")).send(b"{}")
