"""The event endpoints over HTTP (spec: sdk-wire 1.1-1.10)."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.apps import app_of
from tests.embedded import EmbeddedEventLog
from tests.generated import examples

from hoglab.accounts.service import AccountService
from hoglab.capture import Capture, CaptureLimits, capture_routes
from hoglab.capture.decoding import NO_QUERY
from hoglab.capture.records import decode_record
from hoglab.capture.refusal import Refusal
from hoglab.capture.service import PathRules, Request
from hoglab.ingestion.normalise import events_of
from hoglab.storage.event_log.log import LogLimits

if TYPE_CHECKING:
    from pathlib import Path

gzipped = partial(gzip.compress, mtime=0)  # the same in every process that collects tests
ONE, TWO = "phc_first_project", "phc_second_project"
V0_PATHS = ["/batch", "/e", "/i/v0/e", "/capture", "/track", "/engage", "/i/v0/ai", "/i/v0/ai/batch"]
DISCARDING_PATHS = ["/s", "/i/v1/logs", "/i/v1/metrics", "/i/v1/traces"]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def event(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"event": f"e{number}", "distinct_id": f"u{number}", **fields}


def batch(*events: dict[str, Any], token: str = ONE) -> dict[str, Any]:
    return {"api_key": token, "batch": list(events)}


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


# --- acceptance


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", V0_PATHS)
async def test_every_path_takes_events(server: Any, path: str, slash: str) -> None:
    answer = await server.client.post(path + slash, content=dumps(batch(event(1), event(2))))
    assert (answer.status_code, answer.json()) == (200, {"status": "Ok"})
    assert server.events() == [(1, "e1", "u1"), (1, "e2", "u2")]


@pytest.mark.parametrize("path", V0_PATHS)
async def test_the_get_pixel(server: Any, path: str) -> None:
    data = base64.b64encode(dumps(event(token=TWO))).decode()
    answer = await server.client.get(path, params={"data": data, "_": "1672574410000"})
    assert answer.status_code == 200
    assert server.events() == [(2, "e1", "u1")]
    assert server.records()[0].header.sent_at_ms == 1672574410000


@pytest.mark.parametrize(
    ("headers", "content", "query"),
    [
        ({"Content-Type": "application/json"}, dumps(batch(event())), ""),
        (
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            gzipped(dumps(batch(event()))),
            "",
        ),
        ({"Content-Type": "text/plain"}, gzipped(dumps(batch(event()))), ""),
        ({"Content-Type": "text/plain"}, gzipped(dumps(batch(event()))), "?compression=gzip-js"),
        ({}, dumps([event(token=ONE)]), ""),
        ({}, dumps(event(api_key=ONE)), ""),
        (
            {"Content-Type": "application/x-www-form-urlencoded"},
            httpx.QueryParams({"data": base64.b64encode(dumps(event(api_key=ONE))).decode()}),
            "?compression=base64",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/e/", "/batch/"])
async def test_every_encoding_lands_as_the_same_event(
    server: Any, path: str, headers: dict[str, str], content: Any, query: str
) -> None:
    body = content if isinstance(content, bytes) else str(content).encode()
    answer = await server.client.post(path + query, content=body, headers=headers)
    assert (answer.status_code, answer.text) == (200, '{"status":"Ok"}')
    assert server.events() == [(1, "e1", "u1")]


async def test_engage_without_an_event_is_an_identify(server: Any) -> None:
    body = {"token": ONE, "distinct_id": "u", "$set": {"a": 1}}
    assert (await server.client.post("/engage/", content=dumps(body))).status_code == 200
    assert server.events() == [(1, "$identify", "u")]


@pytest.mark.parametrize("path", [*V0_PATHS, "/s"])
async def test_beacons_get_no_body(server: Any, path: str) -> None:
    answer = await server.client.post(path + "/?beacon=1", content=dumps(batch(event())))
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(server.events()) == (0 if path == "/s" else 1)


async def test_what_is_left_of_performance_events_is_accepted(server: Any) -> None:
    answer = await server.client.post("/e/", content=dumps(batch(event() | {"event": "$performance_event"})))
    assert answer.status_code == 200
    assert server.records() == []


@pytest.mark.parametrize("path", DISCARDING_PATHS)
async def test_other_products_are_accepted_and_forgotten(server: Any, path: str) -> None:
    answer = await server.client.post(path, content=b"\x00 anything")
    assert answer.status_code == 200
    assert answer.json() == ({"status": "Ok"} if path == "/s" else {})
    assert (await server.client.post(path, content=bytes(20_001))).status_code == 413
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = await server.client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
    assert server.records() == []


# --- what capture notes about a request


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, "127.0.0.1"),
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("unknown, 10.0.0.1", "127.0.0.1"),
        ("<script>", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
async def test_the_address_of_the_client(server: Any, header: str | None, expected: str) -> None:
    headers = {} if header is None else {"X-Forwarded-For": header}
    await server.client.post("/e/", content=dumps(batch(event())), headers=headers)
    assert server.records()[0].header.ip == expected


async def test_the_time_of_arrival(server: Any) -> None:
    before = datetime.now(UTC) - timedelta(microseconds=1)
    await server.client.post("/e/", content=dumps(batch(event())))
    assert before <= server.records()[0].header.received_at <= datetime.now(UTC)


# --- refusals


@pytest.mark.parametrize(
    ("path", "content", "status", "text"),
    [
        ("/e/", b"", 400, "the request has no payload"),
        ("/e/", b"nonsense!", 400, "the payload is not valid"),
        ("/e/", b"null", 400, "the payload is not valid: Expected `object`, got `null`"),
        ("/e/", b"1234", 400, "the payload is not valid: Expected `object`, got `int`"),
        ("/e/", dumps(batch()), 400, "request holds no event"),
        ("/e/", dumps(batch(event(), {"distinct_id": "u"})), 400, "event submitted without an event name"),
        ("/e/", dumps(batch(event(), event(event=""))), 400, "event submitted with an empty event name"),
        ("/e/", dumps(batch({"event": "e"})), 400, "event submitted without a distinct_id"),
        ("/e/", dumps(event()), 401, "event submitted without an api_key"),
        ("/e/", dumps([event(token=ONE), event(token=TWO)]), 401, "inconsistent api_key values"),
        ("/e/", dumps(batch(event(), token="phc_of_nobody")), 401, "API key is not valid: unknown"),
        ("/e/", dumps(batch(event(), token="phx_personal")), 401, "API key is not valid: personal_api_key"),
        ("/e/", dumps(batch(event(properties={"a": "x" * 60_000}))), 413, "exceeds the limit of 50000 bytes"),
        ("/batch", dumps(batch(event(properties={"a": "x" * 20_000}))), 413, "maximum event size exceeded"),
        ("/batch", gzipped(bytes(300_000)), 413, "exceeds the limit of 200000 bytes"),
        ("/batch?compression=lz64", b"AAAA", 400, "LZ64"),
    ],
)
async def test_refusals(server: Any, path: str, content: bytes, status: int, text: str) -> None:
    answer = await server.client.post(path, content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert text in answer.text
    assert "retry-after" not in answer.headers
    assert server.records() == []


async def test_ai_events_may_be_larger(server: Any) -> None:
    body = dumps(batch(event(properties={"a": "x" * 60_000})))
    assert (await server.client.post("/i/v0/ai/batch/", content=body)).status_code == 200
    assert server.records()[0].header.max_event_bytes == 80_000


async def test_a_large_event_does_not_refuse_its_batch(server: Any) -> None:
    body = dumps(batch(event(1, properties={"a": "x" * 30_000}), event(2)))
    assert (await server.client.post("/batch", content=body)).status_code == 200
    assert len(server.events()) == 2  # ingestion drops the large one, with a warning


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_other_methods(server: Any, method: str) -> None:
    answer = await server.client.request(method, "/batch/", content=dumps(batch(event())))
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST, OPTIONS")
    assert server.records() == []


@pytest.mark.parametrize("limits", [CaptureLimits(unknown_projects="drop")])
async def test_unknown_tokens_may_be_dropped(server: Any) -> None:
    answer = await server.client.post("/e/", content=dumps(batch(event(), token="phc_of_nobody")))
    assert (answer.status_code, answer.json()) == (200, {"status": "Ok"})
    assert server.records() == []


# --- CORS


@pytest.mark.parametrize("path", [*V0_PATHS, *DISCARDING_PATHS])
async def test_browsers_may_call(server: Any, path: str) -> None:
    asked = {"Origin": "https://shop.example", "Access-Control-Request-Headers": "content-type, x-any"}
    answer = await server.client.options(path + "/", headers=asked)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["access-control-allow-headers"] == "content-type, x-any"
    refused = await server.client.post(path + "/", content=bytes(300_000), headers={"Origin": "https://a.b"})
    assert refused.status_code in {400, 413}
    assert refused.headers["access-control-allow-origin"] == "https://a.b"
    assert refused.headers["vary"] == "Origin"


# --- durability


async def test_a_full_log_asks_to_come_back(server: Any, folder: Path) -> None:
    log = EmbeddedEventLog(folder / "queue.db", limits=LogLimits(max_backlog_bytes=3_000))
    capture = Capture(log, lambda _: type("Project", (), {"id": 1}))
    request = Request(dumps(batch(event(properties={"a": "x" * 500}))), NO_QUERY, b"", b"", None)
    rules = PathRules(10_000, 10_000)
    results = await asyncio.gather(
        *(capture.accept(request, rules) for _ in range(10)), return_exceptions=True
    )
    refusals = [each for each in results if isinstance(each, Refusal)]
    assert {(each.status, each.reason) for each in refusals} == {(503, "transient error, please retry")}
    assert all(each.retry_after_s for each in refusals)
    assert 0 < results.count(1) == log.stats().records == 10 - len(refusals)
    log.commit("ingestion", log.stats().last_offset)  # room again
    assert await capture.accept(request, PathRules(10_000, 10_000)) == 1
    capture.close()
    log.close()


async def test_a_closed_log_is_a_503_with_retry_after(server: Any) -> None:
    server.log.close()
    answer = await server.client.post("/e/", content=dumps(batch(event())))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("limits", [CaptureLimits()])
async def test_large_bodies_are_decoded_beside_the_loop(server: Any) -> None:
    many = [event(number, properties={"a": "é" * 300}) for number in range(300)]
    body = gzipped(dumps(batch(*many)))
    answers = await asyncio.gather(*(server.client.post("/batch", content=body) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(server.events()) == 1500


# --- nothing that clients send is an internal error

texts = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
fields = st.sampled_from(
    [
        "event",
        "distinct_id",
        "properties",
        "uuid",
        "timestamp",
        "offset",
        "token",
        "$set",
        "$set_once",
        "batch",
    ]
)
some_events = st.dictionaries(fields, json_values | st.sampled_from(["e", ONE]), max_size=6)
bodies = st.one_of(
    st.binary(max_size=300),
    json_values.map(dumps),
    st.lists(some_events, max_size=3).map(lambda events: dumps({"api_key": ONE, "batch": events})),
    some_events.map(lambda each: dumps({"event": "e", "distinct_id": "u", "token": ONE} | each)),
)
wrappings = st.sampled_from(
    [
        bytes,
        gzip.compress,
        base64.b64encode,
        lambda body: b"data=" + base64.b64encode(body),
        lambda body: b"data=" + base64.b64encode(gzip.compress(body)) + b"&compression=gzip",
        lambda body: base64.b64encode(base64.b64encode(body)),
        lambda body: gzip.compress(gzip.compress(body)),
        lambda body: gzip.compress(body)[:-3],
        lambda body: body[:-3],
    ]
)
queries = st.sampled_from(
    [
        "",
        "?compression=gzip",
        "?compression=b64",
        "?compression=lz64",
        "?data=e30=",
        "?_=1&beacon=1",
        "?%ff=%00",
    ]
)
types = st.sampled_from(["", "application/json", "application/x-www-form-urlencoded", "\xff"])


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bodies, wrappings, queries, types, st.sampled_from(V0_PATHS))
async def test_any_request_has_a_proper_answer(
    server: Any, body: bytes, wrap: Any, query: str, content_type: str, path: str
) -> None:
    headers = {b"content-type": content_type.encode("latin-1")}
    before = server.log.last_offset()
    answer = await server.client.post(path + query, content=wrap(body), headers=headers)
    assert answer.status_code in {200, 204, 400, 401, 413}
    for each in server.log.read(before, max_records=2, max_bytes=2**20):
        assert answer.status_code in {200, 204}
        assert events_of(decode_record(each.payload), each.offset, [])  # ingestion can read what was accepted


@pytest.mark.parametrize("several", [True, False])
async def test_a_project_that_fills_the_log_keeps_no_other_out(
    database: Any, folder: Any, several: bool
) -> None:
    """``several``: a project that is alone may fill it."""
    accounts = AccountService(database)
    log = EmbeddedEventLog(folder / "queue.db", limits=LogLimits(max_backlog_bytes=20_000))
    capture = Capture(log, accounts.project_by_token, has_several_projects=lambda: several)
    app = app_of(accounts, hot=capture_routes(capture))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://hoglab.test") as client:

        async def send(token: str) -> httpx.Response:
            return await client.post("/batch/", content=dumps(batch(event(text="x" * 1000), token=token)))

        taken = 0
        while (answer := await send(ONE)).status_code == 200:
            taken += 1
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert taken in (range(6, 10) if several else range(14, 20))
        assert (await send(TWO)).status_code == (200 if several else 503)
    capture.close()
    app.close()
    log.close()
