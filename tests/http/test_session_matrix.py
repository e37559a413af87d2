"""Which requests a session's cookie counts for: method, Fetch Metadata, origin, cookie, key and kind of path."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from tests.http.asgi import Answer, ask

from hoglab.accounts.sessions.service import Browser
from hoglab.app import Hoglab
from hoglab.settings import Settings

KEY = "phx_" + "k" * 40
OWN = "http://hoglab.test"
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
SITES = (None, "same-origin", "same-site", "cross-site", "none", "SAME-ORIGIN", "")
ORIGINS = (None, OWN, f"{OWN}:80", f"{OWN}:8000", "https://hoglab.test", "http://evil.test", "null", "x://[")
COOKIES = (None, "good", "foreign")
KEYS = (None, "good", "wrong", "in query", "wrong in query")
PATHS = ("/api/projects/1/", "/api/environments/@current", "/api/users/@me/", "/api/session/")


@dataclass
class Server:
    hoglab: Hoglab
    runner: asyncio.Runner
    token: str
    """What the cookie of a session of the owner carries."""

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        path, _, query = path.partition("?")
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        parts = [body] if body else []
        return self.runner.run(ask(self.hoglab.http, method, path, encoded, query=query.encode(), body=parts))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("matrix") / "data"
    hoglab = Hoglab.open(Settings(data=data, access_log=False, bootstrap_api_key=KEY))
    try:
        link = hoglab.sessions.new_link(hoglab.accounts.owner_id())
        token = hoglab.sessions.log_in(link, Browser("192.0.2.1", "")).token
        with asyncio.Runner() as runner:
            yield Server(hoglab, runner, token)
    finally:
        hoglab.stop()


def counts(method: str, site: str | None, origin: str | None) -> bool:
    """The rule, said another way than the server does."""
    if site is not None:
        return site == "same-origin"
    if origin is not None:
        return origin in (OWN, f"{OWN}:80")
    return method in ("GET", "HEAD", "OPTIONS")


def is_let_in(path: str, method: str, site: Any, origin: Any, cookie: Any, key: Any) -> bool:
    if path == "/api/session/":  # tells of the cookie's session alone, or who reads that there is none
        known = cookie == "good" or method in ("GET", "HEAD")
        return key is None and known and counts(method, site, origin)
    return key in ("good", "in query") or (key is None and cookie == "good" and counts(method, site, origin))


@pytest.mark.parametrize("path", PATHS)
def test_every_combination_on_the_management_api(server: Server, path: str) -> None:
    wrong = []
    for method, site, origin, cookie, key in itertools.product(METHODS, SITES, ORIGINS, COOKIES, KEYS):
        if path == "/api/session/" and method in ("POST", "DELETE"):
            continue  # these open and end sessions
        headers = {"content-type": "application/json"}
        if site is not None:
            headers["sec-fetch-site"] = site
        if origin is not None:
            headers["origin"] = origin
        if cookie is not None:
            headers["cookie"] = f"a=b; hoglab-80={server.token if cookie == 'good' else 'A' * 43}"
        if key is not None and "query" not in key:
            headers["authorization"] = f"Bearer {KEY if key == 'good' else KEY.upper()}"
        query = {"in query": f"?personal_api_key={KEY}", "wrong in query": "?personal_api_key=phx_x"}
        answer = server.ask(method, path + query.get(key or "", ""), headers)
        let_in = answer.status != 401
        # What a session may not be asked with is refused by its method alone.
        if path == "/api/session/" and method in ("OPTIONS", "PUT", "PATCH"):
            let_in = answer.status in (200, 405) and key is None
        if let_in != is_let_in(path, method, site, origin, cookie, key):
            wrong.append((method, site, origin, cookie, key, answer.status))
        assert not any(name.startswith("access-control-") for name in answer.headers)
    assert wrong == []


def test_what_a_session_reads_is_not_kept(server: Server) -> None:
    """Also what has a tag, and would be asked for again with a key."""
    headers = {"content-type": "application/json", "sec-fetch-site": "same-origin"}
    cookie = {"cookie": f"hoglab-80={server.token}"}
    made = server.ask(
        "POST", "/api/projects/1/experiments/", headers | cookie, b'{"name": "a", "feature_flag_key": "a"}'
    )
    assert made.status == 201
    path = f"/api/projects/1/experiments/{orjson.loads(made.body)['id']}/"
    by_key = server.ask("GET", path, {"authorization": f"Bearer {KEY}"})
    by_cookie = server.ask("GET", path, headers | cookie)
    assert by_key.headers["etag"] == by_cookie.headers["etag"]
    assert by_key.headers["cache-control"] == "private, no-cache"
    assert by_cookie.headers["cache-control"] == "no-store"


def test_headers_that_come_twice_count_for_nothing(server: Server) -> None:
    cookie = (b"cookie", f"hoglab-80={server.token}".encode())
    for twice in (
        [(b"sec-fetch-site", b"same-origin"), (b"sec-fetch-site", b"cross-site")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-origin")],
        [(b"origin", OWN.encode()), (b"origin", b"http://evil.test")],
        [(b"origin", b"http://evil.test"), (b"origin", OWN.encode())],
        [cookie],
    ):
        answer = server.runner.run(ask(server.hoglab.http, "GET", PATHS[0], [cookie, *twice]))
        assert answer.status == 401


def elsewhere(hoglab: Hoglab) -> set[str]:
    """Every path that is not of the management API: of SDKs, webhooks, files, tools and people."""
    patterns = {getattr(route, "path", "") for route, _ in hoglab.http._patterns}
    filled = {re.sub(r"\{[^}]*\}", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22", path) for path in patterns}
    return {*hoglab.http._exact, *filled, "/nothing", "/api/nothing/"}


def test_elsewhere_nobody_looks_at_the_cookie(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("the cookie was read")

    monkeypatch.setattr(server.hoglab.sessions, "recall", fail)
    monkeypatch.setattr(server.hoglab.sessions, "authenticate", fail)
    paths = elsewhere(server.hoglab)
    assert {"/flags", "/capture/", "/metrics", "/", "/api/docs"} <= paths
    for prefix in ("/public/webhooks/", "/static/"):
        assert any(path.startswith(prefix) for path in paths)
    for path, method, site in itertools.product(paths, ("GET", "POST"), (None, "same-origin")):
        headers = {"content-type": "application/json"} | ({} if site is None else {"sec-fetch-site": site})
        body = orjson.dumps({"token": "phc_none", "distinct_id": "d"}) if method == "POST" else b""
        plain = server.ask(method, path, headers, body)
        answer = server.ask(method, path, {**headers, "cookie": f"hoglab-80={server.token}"}, body)
        assert (path, method, answer.status) == (path, method, plain.status)
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(("with_key", "status"), [(True, 201), (False, 403)])
def test_a_page_of_another_origin_opens_no_session(server: Server, with_key: bool, status: int) -> None:
    """Nor can it put its own session under somebody else."""
    headers = {
        "content-type": "application/json",
        "sec-fetch-site": "same-origin" if with_key else "cross-site",
    }
    answer = server.ask("POST", "/api/session/", headers, orjson.dumps({"personal_api_key": KEY}))
    assert answer.status == status


def test_two_servers_of_one_machine_do_not_log_each_other_out(server: Server) -> None:
    cookies = []
    for port in (b"8000", b"9000"):
        headers = [(b"host", b"127.0.0.1:" + port), (b"content-type", b"application/json")]
        body = [orjson.dumps({"personal_api_key": KEY})]
        answer = server.runner.run(
            ask(_OneHost(server.hoglab.http), "POST", "/api/session/", headers, body=body)
        )
        cookies.append(answer.headers["set-cookie"].partition("=")[0])
    assert cookies == ["hoglab-8000", "hoglab-9000"]


class _OneHost:
    """Leaves out the host that all requests of `ask` name, so that they name their own."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["headers"] = [each for each in scope["headers"] if each != (b"host", b"hoglab.test")]
        await self._app(scope, receive, send)
