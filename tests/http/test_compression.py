"""Compressed answers, entity tags of what is read, and the version that every answer names."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from tests.apps import app_of
from tests.http.asgi import Answer, ask

from hoglab import __version__
from hoglab.accounts.bootstrap import FirstStart
from hoglab.accounts.routes import routers
from hoglab.accounts.scopes import KNOWN
from hoglab.accounts.service import AccountService
from hoglab.http.compression import GZIP as CODING
from hoglab.http.compression import choose_coding, compress
from hoglab.storage.database import Database

WIDGETS = "/api/projects/1/widgets/"
LONG = f"{WIDGETS}?limit=5&x={'n' * 1100}"
"""Long because it names the next page."""
GZIP = (b"accept-encoding", b"gzip")


@pytest.fixture
def get(client: Any, first: FirstStart) -> Callable[..., Answer]:
    def go(path: str, *headers: tuple[bytes, bytes], method: str = "GET", body: Any = None) -> Answer:
        key = (b"authorization", f"Bearer {first.api_key}".encode())
        sent = [key, (b"content-type", b"application/json"), *headers]
        parts = [] if body is None else [orjson.dumps(body)]
        path, _, query = path.partition("?")
        return client.runner.run(ask(client.app, method, path, sent, query=query.encode(), body=parts))

    return go


class TestCompression:
    def test_long_answers(self, get: Callable[..., Answer]) -> None:
        plain, small = get(LONG), get(LONG, GZIP)
        assert small.headers["content-encoding"] == "gzip"
        assert small.headers["content-length"] == str(len(small.body))
        assert len(small.body) < len(plain.body) / 5
        assert gzip.decompress(small.body) == plain.body
        assert "content-encoding" not in plain.headers
        assert plain.headers["vary"] == small.headers["vary"] == "Accept-Encoding"

    def test_short_answers_are_not(self, get: Callable[..., Answer]) -> None:
        assert "content-encoding" not in get(WIDGETS, GZIP).headers

    def test_of_changes(self, get: Callable[..., Answer]) -> None:
        answer = get(f"{WIDGETS}echo", GZIP, method="POST", body={"text": "x" * 2000})
        assert orjson.loads(gzip.decompress(answer.body)) == {"text": "x" * 2000}

    def test_of_documents(self, get: Callable[..., Answer]) -> None:
        for path in ("/api/docs/", "/api/schema/"):
            assert gzip.decompress(get(path, GZIP).body) == get(path).body

    def test_head_tells_what_get_sends(self, get: Callable[..., Answer]) -> None:
        head, full = get(LONG, GZIP, method="HEAD"), get(LONG, GZIP)
        assert head.body == b""
        assert head.headers["content-length"] == full.headers["content-length"]

    @pytest.mark.parametrize(
        ("accepted", "taken"),
        [
            (None, False), ("", False), ("gzip", True), ("GZIP", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False),
            ("gzip; q=0.0, *", False), ("*", True), ("*;q=0", False), ("br", False), ("gzip;q=x", False),
            ("identity", False), ("xgzip", False), (";;,,q=", False),
        ],
    )  # fmt: skip
    def test_who_takes_it(self, accepted: str | None, taken: bool) -> None:
        assert (choose_coding(accepted, [CODING]) == CODING) is taken

    @given(st.text())
    def test_any_header_is_understood_somehow(self, text: str) -> None:
        assert choose_coding(text, [CODING]) in (CODING, "identity")

    @pytest.mark.parametrize("kind", ["image/png", "text/event-stream", ""])
    def test_what_is_small_already_is_left_alone(self, kind: str) -> None:
        response = Response(b"x" * 2000, headers={"content-type": kind} if kind else {})
        compress(response, {"type": "http", "headers": [GZIP]})
        assert response.body == b"x" * 2000

    def test_answers_with_a_new_key_are_not(
        self, database: Database, accounts: AccountService, first: FirstStart
    ) -> None:
        app = app_of(accounts, *routers(accounts, database, lambda *_: None))
        scopes = sorted(f"{each}:{verb}" for each in KNOWN for verb in ("read", "write"))
        key = [
            (b"authorization", f"Bearer {first.api_key}".encode()),
            (b"content-type", b"application/json"),
            GZIP,
        ]
        with asyncio.Runner() as runner:
            body = [orjson.dumps({"label": "l", "scopes": scopes})]
            made = runner.run(ask(app, "POST", "/api/personal_api_keys/", key, body=body))
            path = f"/api/personal_api_keys/{orjson.loads(made.body)['id']}/"
            rolled = runner.run(ask(app, "POST", f"{path}roll/", key))
            read = runner.run(ask(app, "GET", path, key))
        app.close()
        for answer in (made, rolled):
            assert len(answer.body) > 1024
            assert orjson.loads(answer.body)["value"].startswith("phx_")
            assert "content-encoding" not in answer.headers
        assert read.headers["content-encoding"] == "gzip"


class TestTags:
    @pytest.mark.parametrize("path", [WIDGETS, f"{WIDGETS}3/", LONG, "/api/things/open"])
    def test_of_everything_that_is_read(self, get: Callable[..., Answer], path: str) -> None:
        first = get(path)
        tag = first.headers["etag"]
        again = get(path, (b"if-none-match", tag.encode()))
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert get(path, (b"if-none-match", b'"other"')).body == first.body
        assert get(path, (b"if-none-match", b'"other", W/' + tag.encode())).status == 304
        assert get(path, method="HEAD").headers["etag"] == tag

    def test_of_other_content_differ(self, get: Callable[..., Answer]) -> None:
        assert get(f"{WIDGETS}3/").headers["etag"] != get(f"{WIDGETS}4/").headers["etag"]

    def test_of_compressed_answers_are_the_same(self, get: Callable[..., Answer]) -> None:
        tag = get(LONG, GZIP).headers["etag"]
        assert tag == get(LONG).headers["etag"]
        assert get(LONG, GZIP, (b"if-none-match", tag.encode())).status == 304

    def test_failures_and_changes_have_none(self, get: Callable[..., Answer]) -> None:
        assert "etag" not in get(f"{WIDGETS}99/").headers
        assert "etag" not in get(f"{WIDGETS}echo", method="POST", body={}).headers


def test_every_answer_names_the_version(get: Callable[..., Answer]) -> None:
    for path in (WIDGETS, f"{WIDGETS}99/", "/api/schema/", "/nothing", "/"):
        assert get(path).headers["x-hoglab-version"] == __version__
