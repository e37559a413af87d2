"""The edges: hosts, framing, what caches may keep, who reads the metrics, and what people try first."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.http.asgi import Answer, ask
from tests.http.test_server import Running, run

from hoglab.http.health import Problem
from hoglab.http.management.config import HttpConfig

__all__ = ["run"]  # a fixture

WIDGETS = "/api/projects/1/widgets/"
TOKEN = "metrics-of-the-lab"


HERE = (b"host", b"localhost:8000")


def get(client: Any, path: str, *headers: tuple[bytes, bytes], peer: str = "192.0.2.1") -> Answer:
    answer: Answer = client.runner.run(ask(client.app, "GET", path, headers, client=(peer, 1)))
    return answer


class TestHost:
    @pytest.mark.parametrize(
        "hosts",
        [
            b"",
            b"Host:\r\n",
            b"Host: a\r\nHost: b\r\n",
            b"Host: a\r\nHost: a\r\n",
            b"Host: a b\r\n",
            b"Host: a/b\r\n",
            b"Host: a@b\r\n",
            b"Host: a:b\r\n",
            b"Host: " + b"a" * 300 + b"\r\n",
        ],
    )
    @pytest.mark.parametrize("path", [b"/_health", b"/api/projects/", b"/nothing", b"/wait"])
    def test_none_two_or_none_that_is_one(
        self, run: Callable[..., Running], hosts: bytes, path: bytes
    ) -> None:
        answer = run().exchange(b"GET " + path + b" HTTP/1.1\r\n" + hosts + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b"}")
        assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_request"

    @pytest.mark.parametrize("host", [b"a", b"a.example:80", b"127.0.0.1:1", b"[::1]:8000", b"a-b_c.example"])
    def test_one(self, run: Callable[..., Running], host: bytes) -> None:
        assert run().answer(b"GET /_health HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")[0] == 200

    def test_the_older_protocol_need_not_say(self, run: Callable[..., Running]) -> None:
        assert run().answer(b"GET /_health HTTP/1.0\r\n\r\n")[0] == 200


class TestChunks:
    @pytest.mark.parametrize(
        "chunks", [b"ZZ\r\nabc\r\n", b"3\r\nabcdef\r\n", b"-1\r\n", b"3\r\nab", b"ffffffffffffffffff\r\n"]
    )
    @pytest.mark.parametrize("path", [WIDGETS, "/swallow"])
    def test_malformed_ones(self, run: Callable[..., Running], first: Any, path: str, chunks: bytes) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {first.api_key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with run(HttpConfig(body_timeout_s=5)).connect() as connection:
            connection.sendall(head.encode() + chunks)
            if chunks.endswith(b"ab"):
                connection.shutdown(1)  # the client ends in the middle
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"parse_error" in answer


class TestCaches:
    """What a key is needed for is kept by nobody, or asked for again: it may hold secrets."""

    @pytest.mark.parametrize("path", [WIDGETS, WIDGETS + "3/", "/api/things/"])
    def test_answers_to_a_key(self, client: Any, path: str) -> None:
        assert client.get(path).headers["Cache-Control"] == "no-store"
        assert client.post(WIDGETS, json={"name": "x"}).headers["Cache-Control"] == "no-store"


class TestMetrics:
    def test_this_machine(self, client: Any) -> None:
        for address in ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"):
            assert get(client, "/metrics", HERE, peer=address).status == 200

    def test_others(self, client: Any) -> None:
        for address in ("192.0.2.1", "10.0.0.1", "::2"):
            answer = get(client, "/metrics", HERE, peer=address)
            assert answer.status == 401
            assert "HOGLAB_METRICS_TOKEN" in orjson.loads(answer.body)["detail"]

    @pytest.mark.parametrize(
        "name",
        [b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-real-ip", b"forwarded", b"via"],
    )
    def test_others_through_a_proxy_of_this_machine(self, client: Any, name: bytes) -> None:
        assert get(client, "/metrics", HERE, (name, b"127.0.0.1"), peer="127.0.0.1").status == 401

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            *(
                (name, 200)
                for name in (b"localhost", b"LOCALHOST:8000", b"localhost.", b"app.localhost:8000")
            ),
            *(
                (name, 200)
                for name in (b"127.0.0.1", b"127.0.0.1:8000", b"[::1]", b"[::1]:8000", b"127.1.2.3")
            ),
            *((name, 401) for name in (b"evil.example", b"evil.example:8000", b"127.0.0.1.evil.example")),
            *((name, 401) for name in (b"localhost.evil.example", b"192.0.2.1", b"0.0.0.0")),
            *((name, 401) for name in (b"[::2]:8000", b"notlocalhost")),
        ],
    )
    def test_a_name_that_leads_here_is_not_this_machine(self, client: Any, host: bytes, status: int) -> None:
        assert get(client, "/metrics", (b"host", host), peer="127.0.0.1").status == status

    def test_token(self, make_client: Any) -> None:
        client = make_client(HttpConfig(metrics_token=TOKEN))
        good = (b"authorization", f"Bearer {TOKEN}".encode())
        assert get(client, "/metrics", good).status == 200
        for sent in (
            [],
            [(b"authorization", b"Bearer wrong")],
            [(b"authorization", f"Bearer {client.key}".encode())],
        ):
            assert get(client, "/metrics", *sent, peer="127.0.0.1").status == 401
        assert get(client, "/metrics", (b"authorization", "Bearer \xff".encode("latin-1"))).status == 401


class TestProbes:
    def test_a_crowd_is_told_of_one_look(self, make_client: Any) -> None:
        looks, began, may_end = [], threading.Event(), threading.Event()

        def checks() -> list[Problem]:
            looks.append(1)
            began.set()
            may_end.wait(10)
            return []

        client = make_client(checks=checks)

        async def crowd() -> list[Answer]:
            asking = [
                asyncio.ensure_future(ask(client.app, "GET", path))
                for path in ("/_health", "/_readiness") * 50
            ]
            await asyncio.to_thread(began.wait, 10)
            may_end.set()
            return list(await asyncio.gather(*asking))

        assert {answer.status for answer in client.runner.run(crowd())} == {200}
        assert len(looks) == 1
        assert get(client, "/_health").status == 200
        assert len(looks) == 2


class TestFirstAddresses:
    def test_page_for_browsers(self, client: Any) -> None:
        accept = (b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
        page = get(client, "/", accept)
        text = page.body.decode()
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["vary"] == "Accept"
        assert "hoglab keys create" in text
        links = re.findall(r'(?:href|src)="([^"]+)"', text)
        for link in links:
            assert link.startswith("/")  # nothing is fetched from elsewhere
            assert get(client, link).status == 200, link
        assert {"/api/docs/", "/api/docs/try/", "/openapi.json"} <= set(links)

    def test_its_policy_allows_its_style_and_nothing_else(self, client: Any) -> None:
        page = get(client, "/", (b"accept", b"text/html"))
        policy = dict(
            part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
        )
        style = re.search(r"<style>(.*?)</style>", page.body.decode(), re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert policy.pop("style-src") == f"'sha256-{digest}'"
        assert policy.pop("img-src") == "'self'"
        assert set(policy.values()) == {"'none'"}
        assert "default-src" in policy
        assert b"<script" not in page.body

    @pytest.mark.parametrize("headers", [[], [(b"accept", b"*/*")], [(b"accept", b"application/json")]])
    def test_json_for_others(self, client: Any, headers: list[tuple[bytes, bytes]]) -> None:
        answer = get(client, "/", *headers)
        assert orjson.loads(answer.body)["docs"] == "/api/docs/"
        assert answer.headers["vary"] == "Accept"

    def test_documents(self, client: Any) -> None:
        document = get(client, "/openapi.json")
        assert document.body == get(client, "/api/schema/").body
        assert orjson.loads(document.body)["openapi"].startswith("3.")
        for path in ("/docs", "/docs/"):
            answer = get(client, path)
            assert (answer.status, answer.headers["location"]) == (307, "/api/docs/")
        assert get(client, "/robots.txt").body == b"User-agent: *\nDisallow: /\n"
        icon = get(client, "/favicon.ico")
        assert (icon.headers["content-type"], icon.body[:4]) == ("image/svg+xml", b"<svg")
        for path in ("/", "/docs", "/favicon.ico", "/robots.txt", "/openapi.json"):
            assert client.post(path).status_code == 405
