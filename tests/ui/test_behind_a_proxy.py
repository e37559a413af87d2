"""The UI below a path of somebody else's, behind a proxy that takes the path away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.clients.node_process import NodeProcess
from tests.conftest import free_port
from tests.ui.conftest import new_server
from tests.ui.page import Page
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

PREFIX = "/tools/lab"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host"}


def proxy(port: int, target: str) -> ThreadingHTTPServer:
    """A proxy that knows one path, and takes it away from what it hands on."""
    client = httpx.Client(base_url=target, timeout=PATIENCE_S)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = [
                (name, value) for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP
            ]
            path = self.path.removeprefix(PREFIX)
            with client.stream(self.command, path, headers=headers, content=body) as answer:
                raw = b"".join(answer.iter_raw())
                self.send_response_only(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in HOP_BY_HOP | {"content-length"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(raw)

        do_GET = do_POST = do_DELETE = do_PATCH = forward  # noqa: N815 - named by the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, ChildServer]]:
    """The address that people know, and the server behind it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{PREFIX}"
    server = new_server(tmp_path / "data", HOGLAB_SITE_URL=url)
    server.start()
    http = proxy(port, server.url)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield url, server
    http.shutdown()
    thread.join()
    http.server_close()
    server.close()


def test_13_1_5_everything_stays_below_the_path_of_a_proxy(
    browser: NodeProcess, site: tuple[str, ChildServer]
) -> None:
    url, server = site
    page = Page(browser, url, "/p/1/experiments")
    page.see("Personal API key")
    page.fill("input[type=password]", server.api_key)
    page.button("Log in")
    page.see("No experiments yet")
    assert f"curl {url}/api/projects/1/experiments/" in page.text()
    page.click("nav >> text=Set-up")
    page.see(f"{url}/capture/")
    page.click("nav >> text=System status")
    page.see("Everything works")
    page.tell("reload")
    page.see("Everything works")
    assert page.address() == f"{PREFIX}/ui/status"
    # Also nothing is asked for beside that path: `complaints` takes what is not below it for another site.
    assert page.complaints() == []
    page.button("Log out")
    page.see("Personal API key")
    page.end()
