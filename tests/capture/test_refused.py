"""Requests that capture refuses: the owner of the project is told, whatever is wrong with them, and not too often."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.capture.test_v1 import HEADERS, PATH
from tests.capture.test_v1 import body as v1_body
from tests.capture.test_v1 import event as v1_event
from tests.http.asgi import ask

from hoglab.app import Hoglab
from hoglab.capture import RefusedRequests
from hoglab.capture.refused import MAX_REASONS, MAX_WAITING, SEARCHED_BYTES, tokens_in
from hoglab.settings import Settings
from hoglab.storage.database import Database
from hoglab.storage.database.tables import ingestion_warning

pytestmark = pytest.mark.anyio

KEY = "phx_" + "k" * 43
ONE, TWO = "phc_first_project", "phc_second_project"
NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def of(token: Any, *events: Any, **more: Any) -> bytes:
    return json.dumps({"api_key": token, "batch": list(events), **more}).encode()


GOOD = {"event": "e", "distinct_id": "u"}
BODIES: dict[str, Callable[[str], bytes]] = {
    "no name": lambda token: of(token, {"distinct_id": "u"}),
    "an empty name": lambda token: of(token, {**GOOD, "event": ""}),
    "nobody": lambda token: of(token, {"event": "e"}),
    "no events": lambda token: of(token),
    "one of three is bad": lambda token: of(token, GOOD, {**GOOD, "uuid": "no"}, GOOD),
    "properties that are a list": lambda token: of(token, {**GOOD, "properties": [1]}),
    "a text for $set": lambda token: of(token, {**GOOD, "$set": "x"}),
    "too deep": lambda token: of(token, {**GOOD, "properties": json.loads('{"a":' * 300 + "1" + "}" * 300)}),
    "a batch that is no list": lambda token: json.dumps({"api_key": token, "batch": 5}).encode(),
    "cut off": lambda token: of(token, GOOD)[:-3],
    "cut off, the token last": lambda token: b'{"batch": [}, "api_key" : "%b"}' % token.encode(),
    "no UTF-8": lambda token: of(token, GOOD).replace(b'"u"', b'"\xff"'),
    "the token in the event": lambda token: json.dumps({"distinct_id": "u", "token": token}).encode(),
    "the token in properties": lambda token: json.dumps(
        [{"distinct_id": "u", "properties": {"token": token}}]
    ).encode(),
    "a large event": lambda token: of(token, {**GOOD, "properties": {"x": "x" * 30_000}}),
    "large and broken": lambda token: of(token, {**GOOD, "properties": {"x": "x" * 30_000}})[:-3],
}
ENVELOPES: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "plain": lambda body: {"content": body},
    "gzip": lambda body: {"content": gzip.compress(body, mtime=0)},
    "base64": lambda body: {"content": base64.b64encode(body)},
    "form": lambda body: {
        "content": b"data=" + quote(base64.b64encode(body).decode()).encode(),
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    },
}


def warnings(database: Database) -> list[Any]:
    with database.read() as connection:
        return list(connection.execute(sa.select(ingestion_warning).order_by(ingestion_warning.c.id)))


@pytest.mark.parametrize(
    "path", ["/batch/", "/e/", "/capture", "/track/", "/engage/", "/i/v0/e/", "/i/v0/ai"]
)
async def test_the_owner_is_told_once_of_what_comes_again_and_again(
    server: Any, database: Database, path: str
) -> None:
    refused = 0
    for name, (form, envelope) in product(BODIES, ENVELOPES.items()):
        if name == "no UTF-8" and form in ("base64", "form"):
            continue  # which is read as no base64 at all
        with database.write() as tx:
            tx.execute(sa.delete(ingestion_warning))
        contents = [envelope(BODIES[name](token)) for token in (ONE, ONE, TWO, "phc_none")]
        answers = [await server.client.post(path, **content) for content in contents]
        server.refused.write()
        told = warnings(database)
        if answers[0].status_code == 200:  # what one path refuses another one takes
            assert told == [], name
            continue
        refused += 1
        assert answers[0].status_code in (400, 413), name
        expected = {"path": path.rstrip("/"), "reason": answers[0].text, "status": answers[0].status_code}
        assert [(row.project_id, row.type, row.details) for row in told] == [
            (1, "capture_request_refused", {**expected, "requests": 2}),
            (2, "capture_request_refused", {**expected, "requests": 1}),
        ], name
        await server.client.post(path, **contents[0])
        server.refused.write()
        assert [row.details["requests"] for row in warnings(database)] == [3, 1], name
    assert refused > 30


async def test_what_is_taken_and_what_comes_again_by_itself_is_not_told(
    server: Any, database: Database
) -> None:
    assert (await server.client.post("/batch/", content=of(ONE, GOOD))).status_code == 200
    assert (await server.client.post("/batch/", content=of("phc_none", {}))).status_code == 400
    assert (await server.client.post("/batch/", content=of("", GOOD))).status_code == 401
    server.refused.write()
    assert warnings(database) == []


V1 = {
    "no header": ({"PostHog-Attempt": None}, v1_body(v1_event())),
    "a bad header": ({"PostHog-Attempt": "0"}, v1_body(v1_event())),
    "another type": ({"Content-Type": "text/plain"}, v1_body(v1_event())),
    "no body": ({}, b""),
    "broken": ({}, v1_body(v1_event())[:-2]),
    "no events": ({}, v1_body()),
    "no uuid": ({}, v1_body(v1_event(uuid=None))),
    "broken gzip": ({"Content-Encoding": "gzip"}, b"abc"),
    "large": ({}, b"x" * 11_000_000),
}


@pytest.mark.parametrize(("headers", "body"), V1.values(), ids=V1)
async def test_batches_of_v1_that_are_refused_are_told(
    server: Any, database: Database, headers: dict[str, Any], body: bytes
) -> None:
    sent = {name: value for name, value in {**HEADERS, **headers}.items() if value is not None}
    answer = await server.client.post(PATH, content=body, headers=sent)
    assert 400 <= answer.status_code < 500
    sent["Authorization"] = "Bearer phc_none"
    await server.client.post(PATH, content=body, headers=sent)
    server.refused.write()
    [row] = warnings(database)
    assert (row.project_id, row.type) == (1, "capture_request_refused")
    assert row.details == {
        "path": PATH,
        "reason": answer.json()["error_description"][:300],
        "status": answer.status_code,
        "requests": 1,
    }


async def test_events_that_v1_leaves_out_are_told_by_their_reasons(server: Any, database: Database) -> None:
    bad = [v1_event(1, event=""), v1_event(2, distinct_id=""), v1_event(3, event=""), v1_event(4)]
    performance = v1_event(5, event="$performance_event")
    answer = await server.client.post(PATH, content=v1_body(*bad, performance), headers=HEADERS)
    assert answer.status_code == 200
    server.refused.write()
    assert sorted((row.type, row.details["reason"], row.details["events"]) for row in warnings(database)) == [
        ("capture_event_refused", "missing_distinct_id", 1),
        ("capture_event_refused", "missing_event_name", 2),
    ]


def test_a_server_tells_until_its_end(tmp_path: Path) -> None:
    server = Hoglab.open(
        Settings(data=tmp_path / "data", bootstrap_api_key=KEY, bootstrap_project_token=ONE, access_log=False)
    )
    server.start()
    json_type = [(b"content-type", b"application/json")]
    answer = asyncio.run(ask(server.http, "POST", "/batch/", json_type, body=[of(ONE, {"distinct_id": "u"})]))
    assert answer.status == 400
    server.stop()
    database = Database.open(tmp_path / "data" / "hoglab.db")
    assert [row.type for row in warnings(database)] == ["capture_request_refused"]
    database.dispose()


class TestBounds:
    def test_reasons_that_differ_in_places_are_one_and_others_are_counted_together(
        self, database: Database
    ) -> None:
        refused = RefusedRequests(database, lambda: NOW)
        for number in range(300):
            refused.note(1, "/batch", f"broken at byte {number}", status=400)
            refused.note(1, "/batch", f"reason {'x' * number}", status=400)
            if number % 50 == 0:
                refused.write()
        refused.write()
        rows = warnings(database)
        assert len(rows) == MAX_REASONS + 1
        assert sum(row.details["requests"] for row in rows) == 600
        assert sum(row.details["reason"] == "other reasons" for row in rows) == 1

    def test_a_project_does_not_crowd_out_others(self, database: Database) -> None:
        refused = RefusedRequests(database, lambda: NOW)
        for number in range(MAX_WAITING + 100):
            refused.note(1, "/batch", f"reason {'x' * number}", status=400)
            refused.note(1, "/batch", f"reason {'x' * number}", events=2)
        refused.note(2, "/batch", "bad", status=400)
        assert refused.write() == 2 * (MAX_REASONS + 1) + 1
        rows = warnings(database)
        assert [row.details["reason"] for row in rows if row.project_id == 2] == ["bad"]
        assert sum(row.details.get("requests", 0) for row in rows if row.project_id == 1) == MAX_WAITING + 100
        assert sum(row.details.get("events", 0) for row in rows) == 2 * (MAX_WAITING + 100)

    def test_the_next_hour_has_warnings_of_its_own(self, database: Database) -> None:
        moments = iter([NOW, NOW + timedelta(minutes=10), NOW + timedelta(minutes=40)])
        refused = RefusedRequests(database, lambda: next(moments))
        for _ in range(3):
            refused.note(1, "/batch", "bad", status=400)
            refused.write()
        assert [row.details["requests"] for row in warnings(database)] == [2, 1]

    def test_what_waits_is_bounded_and_projects_that_are_gone_are_left_out(self, database: Database) -> None:
        refused = RefusedRequests(database, lambda: NOW)
        for number in range(MAX_WAITING + 100):
            refused.note(1_000 + number, "/batch", "bad", status=400)
        assert refused.write() == MAX_WAITING
        assert warnings(database) == []

    @settings(deadline=None)
    @given(st.integers(0, 3 * SEARCHED_BYTES), st.integers(0, 3 * SEARCHED_BYTES))
    def test_tokens_are_looked_for_at_both_ends(self, before: int, after: int) -> None:
        text = b" " * before + b'"api_key":"phc_x"' + b" " * after
        is_near = (
            before + 20 < SEARCHED_BYTES or after < SEARCHED_BYTES - 20 or len(text) <= 2 * SEARCHED_BYTES
        )
        if is_near:
            assert tokens_in(text) == ("phc_x",)
        assert len(tokens_in(text * 3)) <= 1
