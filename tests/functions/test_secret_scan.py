"""No secret leaves the server but in the requests it is for.

Searched are the responses of every endpoint that has to do with functions, what the server prints at its most
talkative, every file, every cell of the databases but the encrypted column, and an export.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import html
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, quote_plus

import duckdb
import httpx
import pytest
from tests.conftest import StartServer
from tests.contract.rules import rule
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

SECRET = 'tk "zebra/quartz+0042"'
"""With characters that JSON, addresses and Hog write in forms of their own."""
MAPPED = "mapped-giraffe-0815"
BROKEN = "(hedgehog-unclosed-77"
"""No pattern: whoever uses it as one is told so, and must not be told which."""
SITE = "site-lemur-4711"
HOOK = "hook-ocelot-1234"
TURNED = "turned-badger-2468"
"""Stored in the clear at first."""
LISTENER = "listener-heron-3690"
"""Of a function that hears what happens to the others, and tells it outside."""
SECRETS = (SECRET, MAPPED, BROKEN, SITE, HOOK, TURNED, LISTENER)


def forms(secret: str) -> set[str]:
    """The ways in which a text may show a secret: as it is, inside JSON and addresses, printed, encoded."""
    inside = json.dumps(secret)[1:-1]
    data = secret.encode()
    found = {secret, inside, json.dumps(inside)[1:-1], repr(secret)[1:-1], html.escape(secret)}
    found |= {quote(secret, safe=""), quote(secret), quote_plus(secret), data.hex(), data.hex().upper()}
    for shift in range(3):  # base64 of something that has the secret in it
        text = base64.b64encode(b"x" * shift + data).decode()
        middle = text[4 if shift else 0 : len(text) - 4]
        found |= {middle, middle.replace("+", "-").replace("/", "_")}
    return found | {quote(form, safe="") for form in found}


FORMS = {form: secret for secret in SECRETS for form in forms(secret)} | {"zebra/quartz": SECRET}


def leaks(text: str) -> list[str]:
    """What a text shows of secrets."""
    return [form for form in FORMS if form in text]


CODE = """
print('token', inputs.token, [inputs.token], {'a': inputs.own})
print(base64Encode(inputs.token), base64Encode(f'u:{inputs.token}'), base64Encode(f'us:{inputs.own}'))
print(encodeURLComponent(inputs.token), base64Encode(jsonStringify({'a': inputs.token})), jsonStringify([inputs.own]))
let headers := {'Authorization': f'Bearer {inputs.token}'}
let answer := fetch(inputs.url, {'method': 'POST', 'headers': headers, 'body': {'t': inputs.token, 'o': inputs.own}})
print(answer.body)
throw Error(f'no {inputs.token} {inputs.own} {base64Encode(inputs.token)}')
"""
LISTENING = """
print(event, inputs.token)
let answer := fetch(inputs.url, {'method': 'POST', 'headers': {'Authorization': inputs.token}, 'body': event})
print(answer.body)
throw Error(f'no {inputs.token}')
"""
CHECKING = """
print(inputs.password, request)
if (inputs.password in [request.headers.authorization, request.query.key, request.body.key]) {
  throw Error(f'{inputs.password}')
}
return {'httpResponse': {'status': 401, 'body': 'no'}}
"""
EVENT = {
    "uuid": "0199a3d4-aaaa-7000-8000-000000000009",
    "event": "bought",
    "distinct_id": "d",
    "properties": {},
}


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A service that answers with what it was sent, which is how secrets come back; what came, by credentials."""
    seen: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append((self.headers["Authorization"], body.decode()))
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
    deadline = time.monotonic() + PATIENCE_S
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


class Spoken:
    """A client that keeps every answer by what was asked."""

    def __init__(self, server: ChildServer) -> None:
        self.server = server
        self.answers: dict[str, str] = {}
        self.client = httpx.Client(
            base_url=f"{server.url}/api/projects/1", headers={"Authorization": f"Bearer {server.api_key}"}
        )

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> httpx.Response:
        answer = self.client.request(method, path, json=content, headers=headers)
        fails = "/public/webhooks/" in path  # a program's error is the answer there
        assert answer.status_code < 500 or fails, answer.text
        self.answers[f"{method} {path} {len(self.answers)}"] = answer.text + str(dict(answer.headers))
        return answer

    def make(self, **content: Any) -> str:
        answer = self.ask("POST", "/hog_functions/", content, **{"Idempotency-Key": str(len(self.answers))})
        assert answer.status_code == 201, answer.text
        return f"/hog_functions/{answer.json()['id']}"

    def send_packed(self, address: str, content: Any) -> None:
        """A webhook with a compressed body."""
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = httpx.post(address, content=gzip.compress(json.dumps(content).encode()), headers=headers)
        self.answers[f"POST {address} packed"] = answer.text + str(dict(answer.headers))

    def follow(self, path: str) -> None:
        """Take the lines of a log as a stream, up to an error."""
        taken = []
        with self.client.stream("GET", f"{path}/logs/tail/", headers={"Last-Event-ID": "0"}) as stream:
            for line in stream.iter_lines():
                taken.append(line)
                if '"ERROR"' in line:
                    break
        self.answers[f"GET {path}/logs/tail/"] = "\n".join(taken)

    def logs(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"{path}/logs/").json()["results"]
        return found


def secret_input(key: str, value: str) -> dict[str, Any]:
    return {
        "inputs_schema": [{"key": key, "type": "string", "secret": True}],
        "inputs": {key: {"value": value}},
    }


def tell_all(spoken: Spoken, url: str, seen: list[tuple[str, str]]) -> None:
    """Use functions with secrets in every way there is."""
    ask, server = spoken.ask, spoken.server
    named = {"key": "detail.name", "type": "event", "operator": "is_not", "value": "Turned"}
    listener = spoken.make(
        name="Listener",
        type="internal_destination",
        enabled=True,
        hog=LISTENING,
        # What is no secret yet may be heard.
        filters={"events": [{"id": "$activity_log_entry_created", "type": "events", "properties": [named]}]},
        inputs_schema=[{"key": "url", "type": "string"}, {"key": "token", "type": "string", "secret": True}],
        inputs={"url": {"value": url}, "token": {"value": LISTENER}},
    )
    path = spoken.make(**body(url))
    unbuilt = spoken.make(
        name="Unbuilt",
        hog="print(inputs.bad)",
        enabled=True,
        filters={"events": [{"id": "bought", "type": "events"}]},
        inputs_schema=[
            {"key": "token", "type": "string", "secret": True},
            {"key": "bad", "type": "string"},
        ],
        inputs={"token": {"value": BROKEN}, "bad": {"value": "{match(event.event, inputs.token)}"}},
    )
    site = spoken.make(
        name="Site",
        type="site_app",
        enabled=True,
        hog="export function onLoad({ inputs }) { console.log(inputs) }",
        **secret_input("key", SITE),
    )
    hook = spoken.make(
        name="Hook",
        type="source_webhook",
        enabled=True,
        hog=CHECKING,
        **secret_input("password", HOOK),
    )
    plain = [{"key": "key", "type": "string"}]
    turned = spoken.make(
        name="Turned", hog="return 1", inputs_schema=plain, inputs={"key": {"value": "something else"}}
    )
    project = spoken.client.get("/").json()["api_token"]
    sent = httpx.post(f"{server.url}/i/v0/e/", json={"api_key": project, **EVENT})
    assert sent.status_code == 200
    address = f"{server.url}/public/webhooks/{hook.rpartition('/')[2]}"
    for password in ("wrong", HOOK):
        ask("POST", address, {"a": 1}, Authorization=password)
    ask("GET", f"{address}.gif?key={HOOK}")
    spoken.send_packed(address, {"key": HOOK})
    for credentials in (f"Bearer {SECRET}", LISTENER):
        until(lambda credentials=credentials: credentials in dict(seen))
    for each in (path, unbuilt, hook, listener):
        until(lambda each=each: any(one["level"] == "ERROR" for one in spoken.logs(each)))
        spoken.follow(each)
    ask("POST", f"{path}/backfill/", {"from": "2020-01-01", "to": "2100-01-01"})
    until(lambda: '"completed"' in ask("GET", f"{path}/backfills/").text)
    for each in (path, unbuilt, site, hook, turned, listener):
        for tail in ("/", "/logs/", "/metrics/", "/metrics/totals/?breakdown_by=name", "/status/"):
            ask("GET", each + tail)
        ask("POST", f"{each}/enable_backfills/")
        ask("POST", f"{each}/broadcast/", {})
    run = {"configuration": {}, "globals": {"event": EVENT}}
    for each in (path, unbuilt, listener):
        for mock in (True, False):
            ask("POST", f"{each}/invocations/", {**run, "mock_async_functions": mock})
        ask("POST", f"{each}/explain/", run)
        ask("POST", f"{each}/diagnostics/", {})
    changed = {
        "type": "transformation",
        "hog": "let e := event e.properties.t := {inputs.token: [inputs.token]} print(e) return e",
        **secret_input("token", SECRET),
    }
    shown = ask("POST", "/hog_functions/new/invocations/", {**run, "configuration": changed}).json()
    assert shown["status"] == "success", shown
    ask("POST", f"{path}/diagnostics/", body(url))
    ask("PATCH", f"{path}/", {"hog": CODE + " let"})
    ask("PATCH", f"{path}/", {"inputs": {"url": {"value": url}, "token": {"value": {"x": SECRET}}}})
    ask("PATCH", f"{path}/", {"inputs": {"url": {"value": url}, "token": {"value": "{" + SECRET}}})
    ask("PATCH", f"{path}/", {"inputs": {"token": {"value": SECRET, "templating": "jinja"}}})
    case = {"name": "t", "globals": {"event": EVENT}, "expect": {"status": "success"}}
    ask("PATCH", f"{path}/", {"x_tests": [case]})
    wanted = {"requests": [{"url": "https://example.com/other", "headers": {"Authorization": "x"}}]}
    ask("PATCH", f"{path}/", {"hog": CODE[: CODE.index("throw")], "x_tests": [{**case, "expect": wanted}]})
    ask("PATCH", f"{path}/", {"hog": "print(inputs.token)"})
    ask("PATCH", f"{path}/", {"inputs_schema": [{"key": "token", "type": "string"}]})
    spoken.client.patch(f"{turned}/", json={"inputs": {"key": {"value": TURNED}}})
    spoken.client.patch(f"{turned}/", json={"hog": "return 2"})
    spoken.client.post(f"{turned}/revisions/2/restore/", json={})  # a draft with what becomes a secret
    ask("PATCH", f"{turned}/", {"inputs_schema": [{**plain[0], "secret": True}]})
    for each in (path, turned):
        for tail in ("/", "/revisions/", "/revisions/1/", "/revisions/1/diff/", "/revisions/2/diff/?to=3"):
            ask("GET", each + tail)
        ask("POST", f"{each}/revisions/2/rollback/", {})
        draft(spoken, each)
        ask("POST", f"{each}/rerun/", {"filter": {}})
        ask("PATCH", f"{each}/", {"deleted": True})
        ask("PATCH", f"{each}/", {"deleted": False})
    ask("PATCH", f"{site}/", {"inputs": {"key": {"value": f"{SITE}-2"}}})
    until(lambda: any("encrypted_inputs" in told for who, told in seen if who == LISTENER))
    copied = ask("GET", f"{unbuilt}/").json()
    ask("POST", "/hog_functions/", copied)
    for tail in ("", "?full=true", "?full=true&search=leaky", "masked_secrets/"):
        ask("GET", f"/hog_functions/{tail}")
    ask("GET", "/activity_log/?limit=1000")
    ask("GET", "/events/?limit=1000")
    for tail in ("/metrics", f"/array/{project}/config.js", f"/array/{project}/config", "/api/schema/"):
        ask("GET", server.url + tail)


def draft(spoken: Spoken, path: str) -> None:
    """Stage a former version, try it, discard it, stage it again and publish it."""
    ask = spoken.ask
    for tail in ("discard_draft/", "publish/"):
        staged = ask("POST", f"{path}/revisions/2/restore/", {"overwrite": True})
        assert staged.json()["draft"], staged.text
        ask("GET", f"{path}/")
        ask("POST", f"{path}/invocations/", {"use_draft": True, "globals": {"event": EVENT}})
        preview = ask("POST", f"{path}/publish/", {}).json()
        done = ask("POST", f"{path}/{tail}", {"confirm": True, "confirm_token": preview["confirm_token"]})
    assert done.json()["published"], done.text


def cells(data: Path) -> Iterator[tuple[str, str]]:
    """Every value of the databases by where it stands, but for what is encrypted."""
    for path in (data / "hoglab.db", data / "queue.db"):
        with sqlite3.connect(path) as connection:
            for (table,) in connection.execute(
                "select name from sqlite_master where type = 'table' and sql not like 'CREATE VIRTUAL TABLE%'"
            ).fetchall():
                found = connection.execute(f'select * from "{table}"')  # noqa: S608 - names of our own tables
                names = [column[0] for column in found.description]
                for row in found:
                    for name, value in zip(names, row, strict=True):
                        if (table, name) != ("hog_function", "encrypted_inputs") and value is not None:
                            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
                            yield f"{path.name} {table}.{name}", text
    with duckdb.connect(str(data / "events.duckdb"), read_only=True) as store:
        for (table,) in store.execute("select table_name from information_schema.tables").fetchall():
            yield f"events.duckdb {table}", str(store.execute(f'select * from "{table}"').fetchall())  # noqa: S608


@rule("F10.5", "F10.7")
def test_no_secret_is_told(
    start_server: StartServer, receiver: tuple[str, list[tuple[str, str]]], tmp_path: Path
) -> None:
    url, seen = receiver
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8", HOGLAB_LOG_LEVEL="debug")
    spoken = Spoken(server)
    tell_all(spoken, url, seen)
    assert any("***REDACTED***" in answer for asked, answer in spoken.answers.items() if "/logs/" in asked)
    for asked, answer in spoken.answers.items():
        assert leaks(answer) == [], asked
    assert any(credentials == f"Bearer {SECRET}" for credentials, _ in seen)
    heard = [body for credentials, body in seen if credentials == LISTENER]
    for body in heard:
        assert leaks(body) == []
    assert_processes_tell_nothing(server)
    exported = tmp_path / "exported.jsonl"
    command = [sys.executable, "-m", "hoglab", "export", "events", "--to", str(exported)]
    server.stop()
    subprocess.run(
        command, check=True, env={**os.environ, "HOGLAB_DATA": str(server.data)}, timeout=PATIENCE_S
    )
    assert leaks(exported.read_text()) == []
    assert leaks(server.output()) == []
    stored = dict(cells(server.data))
    assert {"hoglab.db hog_function.inputs", "queue.db log_entry.message"} <= stored.keys()
    for place, text in cells(server.data):
        assert leaks(text) == [], place
    files = {path: path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "hoglab.db" for path in files)
    for path, content in files.items():
        assert leaks(content) == [], path


def assert_processes_tell_nothing(server: ChildServer) -> None:
    """What others on the machine see of the server and of the processes that run bodies, which are ended by force then:
    what the server puts out about that is looked through with the rest."""
    assert server._process is not None
    pid = server._process.pid
    told = [(each / "children").read_text() for each in Path(f"/proc/{pid}/task").iterdir()]
    children = {int(child) for child in " ".join(told).split()}
    assert children
    for each in {pid, *children}:
        assert leaks(Path(f"/proc/{each}/cmdline").read_text()) == []
    for child in children:
        environment = Path(f"/proc/{child}/environ").read_text()
        assert leaks(environment) == []
        assert "HOGLAB_" not in environment
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGABRT)


@pytest.mark.parametrize("secret", SECRETS)
def test_every_form_is_found(secret: str) -> None:
    """The scan's own check: what a careless server might write is noticed."""
    for written in (
        f"token={secret}",
        json.dumps({"message": f"Bearer {secret}"}),
        json.dumps(json.dumps([secret])),
        f"https://x.io/?key={quote_plus(secret)}&a=1",
        f"<p>{html.escape(secret)}</p>",
        f"Authorization: Basic {base64.b64encode(f'user:{secret}'.encode()).decode()}",
        f"Authorization: Basic {base64.b64encode(f'u:{secret}'.encode()).decode()}",
        base64.urlsafe_b64encode(f"ab{secret}".encode()).decode(),
        f"state {secret.encode().hex()} kept",
        repr({"inputs": {"token": secret}}),
    ):
        assert leaks(written), written
