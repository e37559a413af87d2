"""No secret leaves the server but in the requests it is for: responses, output and every file are searched."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.conftest import StartServer

from hoglab.demo.server import ChildServer

SECRET = 'tk "zebra/quartz+0042"'
"""With characters that JSON, addresses and Hog write in forms of their own."""
MAPPED = "mapped-giraffe-0815"
FORMS = (
    SECRET,
    MAPPED,
    json.dumps(SECRET)[1:-1],
    json.dumps(json.dumps(SECRET)[1:-1])[1:-1],
    quote(SECRET, safe=""),
    base64.b64encode(SECRET.encode()).decode(),
    "zebra/quartz",
)
CODE = """
print('token', inputs.token, [inputs.token], {'a': inputs.own})
let headers := {'Authorization': f'Bearer {inputs.token}'}
let answer := fetch(inputs.url, {'method': 'POST', 'headers': headers, 'body': {'t': inputs.token, 'o': inputs.own}})
print(answer.body)
throw Error(f'no {inputs.token} {inputs.own}')
"""
EVENT = {
    "uuid": "0199a3d4-aaaa-7000-8000-000000000009",
    "event": "bought",
    "distinct_id": "d",
    "properties": {},
}


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    """A service that answers with what it was sent, which is how secrets come back."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/in", seen
    server.shutdown()
    thread.join()
    server.server_close()


def until(holds: Callable[[], Any]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def body(url: str) -> dict[str, Any]:
    return {
        "type": "destination",
        "name": "Leaky",
        "enabled": True,
        "hog": CODE,
        "inputs_schema": [
            {"key": "url", "type": "string"},
            {"key": "token", "type": "string", "secret": True},
        ],
        "inputs": {"url": {"value": url}, "token": {"value": SECRET}},
        "mappings": [
            {
                "name": "m",
                "inputs_schema": [{"key": "own", "type": "string", "secret": True}],
                "inputs": {"own": {"value": MAPPED}},
                "filters": {"events": [{"id": "bought", "type": "events"}]},
            }
        ],
    }


def everything_said(server: ChildServer, url: str, seen: list[str]) -> Iterator[tuple[str, str]]:
    """Responses of every endpoint that has to do with a function, by what was asked."""
    client = httpx.Client(
        base_url=f"{server.url}/api/projects/1", headers={"Authorization": f"Bearer {server.api_key}"}
    )
    kept: dict[str, str] = {}

    def ask(method: str, path: str, content: Any = None) -> httpx.Response:
        answer = client.request(method, path, json=content)
        assert answer.status_code < 500, answer.text
        kept[f"{method} {path} {len(kept)}"] = answer.text
        return answer

    made = ask("POST", "/hog_functions/", body(url)).json()
    path = f"/hog_functions/{made['id']}"
    project = client.get("/").json()["api_token"]
    sent = httpx.post(f"{server.url}/i/v0/e/", json={"api_key": project, **EVENT})
    assert sent.status_code == 200
    until(lambda: seen)
    until(lambda: any(one["level"] == "ERROR" for one in client.get(f"{path}/logs/").json()["results"]))
    for tail in ("/", "/logs/", "/metrics/", "/metrics/totals/?breakdown_by=name", "/status/"):
        ask("GET", path + tail)
    run = {"configuration": {}, "globals": {"event": EVENT}}
    for mock in (True, False):
        ask("POST", f"{path}/invocations/", {**run, "mock_async_functions": mock})
    ask("POST", f"{path}/explain/", run)
    ask("POST", f"{path}/diagnostics/", body(url))
    ask("PATCH", f"{path}/", {"hog": CODE + " let"})
    ask("PATCH", f"{path}/", {"inputs": {"url": {"value": url}, "token": {"value": {"x": SECRET}}}})
    case = {"name": "t", "globals": {"event": EVENT}, "expect": {"status": "success"}}
    ask("PATCH", f"{path}/", {"x_tests": [case]})
    ask("PATCH", f"{path}/", {"hog": "print(inputs.token)"})
    ask("PATCH", f"{path}/", {"inputs_schema": [{"key": "token", "type": "string"}]})
    for tail in ("/", "/revisions/", "/revisions/1/", "/revisions/1/diff/"):
        ask("GET", path + tail)
    ask("POST", f"{path}/revisions/1/rollback/", {})
    for tail in ("/hog_functions/", "/hog_functions/?full=true&search=leaky", "/activity_log/"):
        ask("GET", tail)
    ask("POST", f"{path}/rerun/", {"filter": {}})
    client.close()
    yield from kept.items()


def test_no_secret_is_told(
    start_server: StartServer, receiver: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, seen = receiver
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    said = list(everything_said(server, url, seen))
    assert any("***REDACTED***" in answer for asked, answer in said if "/logs/" in asked)
    for asked, answer in said:
        for form in FORMS:
            assert form not in answer, f"{asked} tells {form}"
    assert seen[0] == f"Bearer {SECRET}"
    server.stop()
    output = server.output()
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "hoglab.db" for path in files)
    for form in FORMS:
        assert form not in output
        for path, content in files.items():
            assert form.encode() not in content, f"{path} holds {form}"
