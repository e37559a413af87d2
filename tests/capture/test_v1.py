"""The v1 protocol: headers, results for every event, errors (spec: sdk-wire 1.15)."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import brotli
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.generated import examples

from hoglab.capture import CaptureLimits

pytestmark = pytest.mark.anyio

gzipped = partial(gzip.compress, mtime=0)  # the same in every process that collects tests
ONE = "phc_first_project"
PATH = "/i/v1/analytics/events"
REQUEST_ID = "0c0e7f2e-3a0e-4a07-8d0e-3f43b4a0a1b2"
HEADERS = {
    "Authorization": f"Bearer {ONE}",
    "Content-Type": "application/json",
    "User-Agent": "posthog-python/7.91.1",
    "PostHog-Sdk-Info": "posthog-python/7.91.1",
    "PostHog-Attempt": "1",
    "PostHog-Request-Id": REQUEST_ID,
    "PostHog-Request-Timestamp": "2026-01-01T00:00:10Z",
}


def event(number: int = 1, **fields: Any) -> dict[str, Any]:
    made = {
        "event": "e",
        "uuid": str(UUID(int=number)),
        "distinct_id": "u",
        "timestamp": "2026-01-01T00:00:00Z",
    } | fields
    return {name: value for name, value in made.items() if value is not ...}


def body(*events: Any, **fields: Any) -> bytes:
    made = {"created_at": "2026-01-01T00:00:00.000+00:00", "batch": list(events), **fields}
    return json.dumps(made).encode()


async def post(server: Any, content: bytes, **headers: Any) -> Any:
    changed = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await server.client.post(
        PATH, content=content, headers={name: value for name, value in changed.items() if value is not None}
    )


def stored(server: Any) -> list[Any]:
    return [each for record in server.records() for each in record.envelope.events]


async def test_a_batch_is_stored_as_its_v0_form(server: Any) -> None:
    options = {
        "process_person_profile": False,
        "cookieless_mode": True,
        "disable_skew_correction": True,
        "product_tour_id": "t",
    }
    full = event(
        session_id="s", window_id="w", options=options, properties={"$set": {"a": 1}, "$groups": {"c": "x"}}
    )
    answer = await post(server, body(full, event(2), historical_migration=True))
    assert answer.status_code == 200
    assert answer.json() == {
        "results": {str(UUID(int=1)): {"result": "ok"}, str(UUID(int=2)): {"result": "ok"}}
    }
    assert answer.headers["posthog-request-id"] == REQUEST_ID
    assert "retry-after" not in answer.headers
    [record] = server.records()
    assert record.envelope.sent_at == "2026-01-01T00:00:10Z"
    assert record.envelope.historical_migration
    first, second = record.envelope.events
    assert (first.event, first.distinct_id, first.timestamp) == ("e", "u", "2026-01-01T00:00:00Z")
    assert json.loads(bytes(first.properties)) == {
        "$lib": "posthog-python",
        "$lib_version": "7.91.1",
        "$session_id": "s",
        "$window_id": "w",
        "$cookieless_mode": True,
        "$ignore_sent_at": True,
        "$product_tour_id": "t",
        "$process_person_profile": False,
        "$set": {"a": 1},
        "$groups": {"c": "x"},
    }
    assert json.loads(bytes(second.properties)) == {"$lib": "posthog-python", "$lib_version": "7.91.1"}


async def test_changes_of_the_person_beside_the_properties_are_kept(server: Any) -> None:
    beside = {"$set": {"a": 1}, "$set_once": {"b": 2}, "$unset": ["c"]}
    answer = await post(server, body(event(1, **beside), event(2, **dict.fromkeys(beside))))
    assert {each["result"] for each in answer.json()["results"].values()} == {"ok"}
    first, second = stored(server)
    assert [json.loads(bytes(each)) for each in (first.set, first.set_once, first.unset)] == [
        *beside.values()
    ]
    assert not any(map(bytes, (second.set, second.set_once, second.unset)))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"event": ...}, "missing_event_name"),
        ({"event": ""}, "missing_event_name"),
        ({"event": "é" * 101}, "event_name_too_long"),
        ({"event": "$performance_event"}, "dropped_performance_event"),
        ({"distinct_id": ...}, "missing_distinct_id"),
        ({"distinct_id": "x" * 201}, "distinct_id_too_large"),
        ({"timestamp": ...}, "invalid_event_timestamp"),
        ({"timestamp": "2026-01-01"}, "invalid_event_timestamp"),
        ({"timestamp": "2026-01-01T00:00:00"}, "invalid_event_timestamp"),
        ({"timestamp": "2026-02-30T00:00:00Z"}, "invalid_event_timestamp"),
        ({"properties": []}, "malformed_event_properties"),
        ({"properties": "x"}, "malformed_event_properties"),
        ({"properties": None}, "malformed_event_properties"),
        ({"$set": []}, "malformed_event_properties"),
        ({"$set_once": 5}, "malformed_event_properties"),
        ({"$unset": "plan"}, "malformed_event_properties"),
        ({"properties": {"a": "x" * 20_000}}, "event_too_large"),
        ({"$unset": ["x" * 20_000]}, "event_too_large"),
        ({"options": {"cookieless_mode": "yes"}}, "invalid_options"),
        ({"options": 1}, "invalid_options"),
    ],
)
async def test_an_event_at_fault_is_dropped_alone(server: Any, fields: dict[str, Any], reason: str) -> None:
    answer = await post(server, body(event(1, **fields), event(2)))
    assert answer.status_code == 200
    assert answer.json()["results"] == {
        str(UUID(int=1)): {"result": "drop", "details": reason},
        str(UUID(int=2)): {"result": "ok"},
    }
    assert [each.uuid for each in stored(server)] == [str(UUID(int=2))]


async def test_names_of_nobody_are_stored_without_a_person(server: Any) -> None:
    given = {"$process_person_profile": True}
    answer = await post(server, body(event(1, distinct_id=" Anonymous ", properties=given)))
    assert answer.json()["results"] == {
        str(UUID(int=1)): {"result": "warning", "details": "person_processing_disabled"}
    }
    [only] = stored(server)
    assert json.loads(bytes(only.properties))["$process_person_profile"] is False


async def test_nothing_is_stored_when_every_event_is_dropped(server: Any) -> None:
    answer = await post(server, body(event(1, event="")))
    assert (answer.status_code, server.records()) == (200, [])


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("GZIP", gzip.compress),
        ("identity", bytes),
    ],
)
async def test_encodings(server: Any, encoding: str, compress: Any) -> None:
    answer = await post(server, compress(body(event())), Content_Encoding=encoding)
    assert answer.status_code == 200
    assert len(stored(server)) == 1


@pytest.mark.parametrize(
    ("content", "headers", "status", "tag"),
    [
        *(
            (body(event()), {name: None}, 400, "missing_required_headers")
            for name in HEADERS
            if name not in ("User-Agent", "Content-Type")
        ),
        (body(event()), {"User-Agent": ""}, 400, "missing_required_headers"),
        (body(event()), {"Content-Type": "text/plain"}, 415, "unsupported_content_type"),
        (body(event()), {"Content-Encoding": "compress"}, 415, "unsupported_encoding"),
        (body(event()), {"Authorization": "Basic x"}, 401, "invalid_api_token"),
        (body(event()), {"Authorization": "Bearer phc_of_nobody"}, 401, "invalid_api_token"),
        (body(event()), {"Authorization": "Bearer phx_personal"}, 401, "invalid_api_token"),
        (body(event()), {"PostHog-Sdk-Info": "python"}, 400, "invalid_header_value"),
        (body(event()), {"PostHog-Attempt": "0"}, 400, "invalid_header_value"),
        (body(event()), {"PostHog-Request-Id": "1"}, 400, "invalid_header_value"),
        (body(event()), {"PostHog-Request-Timestamp": "today"}, 400, "invalid_header_value"),
        (b"", {}, 400, "empty_body"),
        (body(), {}, 400, "empty_batch"),
        (body(event(), created_at="never"), {}, 400, "invalid_batch"),
        (body(event(uuid=...)), {}, 400, "missing_event_uuid"),
        (body(event(uuid="1")), {}, 400, "invalid_event_uuid"),
        (body(event(1), event(1)), {}, 400, "duplicate_event_uuid"),
        (b"{", {}, 400, "request_parsing_error"),
        (b"null", {}, 400, "request_parsing_error"),
        (b'{"batch":[{"event":1}]}', {}, 400, "request_parsing_error"),
        (b'{"batch":[{"event":"\xff"}]}', {}, 400, "request_parsing_error"),
        (b'{"batch":' + b"[" * 50_000, {}, 400, "request_parsing_error"),
        (b"x", {"Content-Encoding": "gzip"}, 400, "request_decoding_error"),
        (gzipped(bytes(300_000)), {"Content-Encoding": "gzip"}, 413, "payload_too_large"),
        (bytes(100_000), {}, 413, "payload_too_large"),
    ],
)
@pytest.mark.parametrize("limits", [CaptureLimits(batch_body=200_000, v1_wire_body=80_000)])
async def test_what_refuses_the_whole_batch(
    server: Any, content: bytes, headers: dict[str, Any], status: int, tag: str
) -> None:
    answer = await post(server, content, **headers)
    assert (answer.status_code, answer.json()["error"]) == (status, tag)
    assert set(answer.json()) == {"error", "error_description", "error_uri"}
    assert answer.json()["error_description"]
    assert "retry-after" not in answer.headers
    assert server.records() == []


async def test_a_closed_log_asks_to_come_back(server: Any) -> None:
    server.log.close()
    answer = await post(server, body(event()))
    assert (answer.status_code, answer.json()["error"]) == (503, "service_unavailable")
    assert int(answer.headers["retry-after"]) > 0


async def test_browsers_and_other_methods(server: Any) -> None:
    asked = {"Origin": "https://a.b", "Access-Control-Request-Headers": "authorization"}
    preflight = await server.client.options(PATH, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (
        200,
        "authorization",
    )
    refused = await server.client.get(PATH)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST, OPTIONS")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["event", "distinct_id", "timestamp", "properties", "options", "session_id"])


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.dictionaries(names, values, max_size=4), max_size=4))
async def test_every_event_gets_one_result_and_what_is_ok_is_stored(
    server: Any, changes: list[dict[str, Any]]
) -> None:
    before = len(stored(server))
    events = [event(uuid=str(uuid4()), **each) for each in changes]
    answer = await post(server, body(*events))
    if answer.status_code == 400:
        return
    results = answer.json()["results"]
    assert set(results) == {each["uuid"] for each in events}
    kept = [uuid for uuid, result in results.items() if result["result"] != "drop"]
    assert [each.uuid for each in stored(server)[before:]] == kept


fields = st.dictionaries(st.sampled_from(["batch", "created_at", "historical_migration"]), values, max_size=3)
contents = st.one_of(
    st.binary(max_size=300),
    values.map(json.dumps).map(str.encode),
    fields.map(lambda changes: body(event(), **changes)),
    st.lists(values, max_size=3).map(lambda events: body(*events)),
)
COMPRESSORS = {
    "gzip": gzipped,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}
damages = st.sampled_from(
    [lambda raw: raw, lambda raw: raw[:-3], lambda raw: raw[3:], lambda raw: raw + b"\0\1\2"]
)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(contents, st.sampled_from(sorted(COMPRESSORS)), st.sampled_from(sorted(COMPRESSORS)), damages)
async def test_any_body_has_a_proper_answer(
    server: Any, content: bytes, compressed: str, said: str, damage: Any
) -> None:
    before = len(stored(server))
    answer = await post(server, damage(COMPRESSORS[compressed](content)), Content_Encoding=said)
    assert answer.status_code in {200, 400}
    if answer.status_code == 400:
        assert set(answer.json()) == {"error", "error_description", "error_uri"}
        assert len(stored(server)) == before
    else:
        kept = [uuid for uuid, result in answer.json()["results"].items() if result["result"] != "drop"]
        assert [each.uuid for each in stored(server)[before:]] == kept
