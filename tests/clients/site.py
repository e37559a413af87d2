"""A web site of ours, on an origin of its own: pages that use PostHog's browser SDKs against a server elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "shop.example"
"""The browser is told that this name leads here; SDKs treat pages of localhost as a developer's."""

MODULES = """
<!doctype html><title>Shop</title>
<script type="importmap">{"imports": {
  "posthog-js": "/npm/posthog-js/dist/module.js",
  "posthog-js-lite": "/npm/posthog-js-lite/dist/index.mjs",
  "@posthog/core": "/npm/@posthog/core/dist/index.mjs"
}}</script>
<h1>Shop</h1>
<button id="buy" class="big red" data-attr="buy-button">Buy it</button>
"""
"""A page on which ``import("posthog-js")`` finds the SDKs' npm packages, as a bundler would have put them there."""


class Site:
    """Serves ``pages`` by path, and below ``/npm`` the packages of a ``node_modules``."""

    def __init__(self, node_modules: Path) -> None:
        self.pages = {"/": MODULES, "/basket": MODULES}
        site = self

        class Handler(SimpleHTTPRequestHandler):
            extensions_map = {".js": "text/javascript", ".mjs": "text/javascript", "": "text/plain"}  # noqa: RUF012

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                page = site.pages.get(path)
                if page is None and path.startswith("/npm/"):
                    self.path = path.removeprefix("/npm")
                    super().do_GET()
                    return
                body = (page or "").encode()
                self.send_response(404 if page is None and path != "/favicon.ico" else 200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
                pass

        self._http = ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *given: Handler(*given, directory=str(node_modules))
        )
        self._http.daemon_threads = True
        self.url = f"http://{HOST}:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def served(node_modules: Path) -> Iterator[Site]:
    """A site for the block."""
    site = Site(node_modules)
    try:
        yield site
    finally:
        site.close()
