"""Bodies of evaluation requests: what SDKs send, in every wrapping, and rubbish (spec: sdk-wire 2.1, 2.6)."""

from __future__ import annotations

import base64
import gzip
import json
import time
import zlib
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hoglab.flags.evaluation.decoding import MAX_DECODED_BYTES, MAX_WIRE_BYTES, decode_body
from hoglab.flags.evaluation.request import read_call, read_query, read_subject
from hoglab.http.errors import ApiError

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def recorded(server) -> dict[str, dict]:
    """Bodies as three SDKs sent them, with the project's token."""
    return {
        "python": {
            "distinct_id": "u1",
            "groups": {"company": "acme"},
            "person_properties": {"plan": "pro"},
            "group_properties": {"company": {"$group_key": "acme", "size": 3}},
            "geoip_disable": True,
            "device_id": None,
            "flag_keys_to_evaluate": ["multi"],
            "sent_at": "2026-11-21T01:03:39.948626+00:00",
            "api_key": server.token,
        },
        "node": {
            "token": server.token,
            "distinct_id": "u1",
            "groups": {"company": "acme"},
            "person_properties": {"plan": "pro"},
            "group_properties": {"company": {"$group_key": "acme", "size": "3"}},
            "geoip_disable": True,
            "flag_keys_to_evaluate": ["multi"],
            "evaluation_runtime": "server",
        },
        "js": {
            "token": server.token,
            "distinct_id": "user-1",
            "groups": {},
            "$anon_distinct_id": "01a1fba3-0000-7000-8000-000000000001",
            "person_properties": {
                "$initial_referrer": "$direct",
                "$initial_utm_source": None,
                "plan": "pro",
                "first": "x",
                "$lib": "web",
                "$lib_version": "1.449.2",
            },
            "group_properties": {"company": {"name": "Acme"}},
            "timezone": "UTC",
            "$device_id": "01a1fba3-0000-7000-8000-000000000001",
            "sent_at": "2026-11-21T01:06:00.305Z",
        },
    }


@pytest.fixture
def project(server):
    plan = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
    variants = [{"key": "control", "rollout_percentage": 0}, {"key": "test", "rollout_percentage": 100}]
    server.create(
        "multi",
        {
            "groups": [{"properties": [plan]}],
            "multivariate": {"variants": variants},
            "payloads": {"test": '{"x": 2}'},
        },
    )
    null_counts = {"key": "$initial_utm_source", "type": "person", "operator": "is_set", "value": "is_set"}
    server.create("null-is-set", {"groups": [{"properties": [null_counts]}]})
    return server


def answer_of(server, content: bytes, query: str = "?v=2", **headers: str) -> dict:
    answer = server.sdk.post(f"/flags/{query}", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["flags"]


def test_recorded_python_request(project):
    body = json.dumps(recorded(project)["python"]).encode()
    headers = {"User-Agent": "posthog-python/7.91.1", "Content-Type": "application/json"}
    flags = answer_of(project, body, "?v=4", **headers)
    assert set(flags) == {"multi"}
    assert (flags["multi"]["value"], flags["multi"]["metadata"]["variant_key"]) == ("test", "test")
    zipped = answer_of(project, gzip.compress(body), "?v=4", **headers, **{"Content-Encoding": "gzip"})
    assert zipped == flags


def test_recorded_node_request(project):
    body = json.dumps(recorded(project)["node"]).encode()
    flags = answer_of(
        project, body, **{"User-Agent": "posthog-node/5.70.0", "Content-Type": "application/json"}
    )
    assert (set(flags), flags["multi"]["variant"]) == ({"multi"}, "test")


def test_recorded_browser_request(project):
    body = gzip.compress(json.dumps(recorded(project)["js"]).encode())
    flags = answer_of(project, body, "?v=2&ip=0&_=1795226760305&ver=1.449.2&compression=gzip-js", **TEXT)
    assert flags["multi"]["variant"] == "test"
    assert flags["null-is-set"]["enabled"] is True


def wrappings(body: bytes) -> dict[str, tuple[bytes, str, dict[str, str]]]:
    encoded = base64.b64encode(body)
    return {
        "json": (body, "", {"Content-Type": "application/json; charset=utf-8"}),
        "no content type": (body, "", {}),
        "text": (body, "", TEXT),
        "sniffed gzip": (gzip.compress(body), "", TEXT),
        "announced gzip": (gzip.compress(body), "", {"Content-Encoding": "GZIP"}),
        "gzip by query": (gzip.compress(body), "&compression=gzip", {}),
        "announced but plain": (body, "&compression=gzip", {}),
        "zlib": (zlib.compress(body), "&compression=gzip", {}),
        "base64": (encoded, "", TEXT),
        "base64 by query": (encoded, "&compression=base64", TEXT),
        "base64 without padding": (encoded.rstrip(b"="), "", TEXT),
        "base64 url alphabet": (base64.urlsafe_b64encode(body), "", TEXT),
        "base64 percent-encoded": (quote(encoded.decode()).encode(), "", TEXT),
        "base64 with blanks for plus": (encoded.replace(b"+", b" "), "", TEXT),
        "base64 of gzip": (base64.b64encode(gzip.compress(body)), "", TEXT),
        "form": (b"data=" + quote_plus(encoded).encode(), "", FORM),
        "form after another field": (b"ip=1&data=" + quote_plus(encoded).encode() + b"&ver=1", "", FORM),
        "form without quoting": (b"data=" + encoded, "", FORM),
        "form of json": (b"data=" + quote_plus(body).encode(), "", FORM),
        "bare base64 form": (encoded, "", FORM),
        "byte order mark": (b"\xef\xbb\xbf" + body, "", {}),
    }  # fmt: skip


@pytest.mark.parametrize("name", wrappings(b"{}"))
def test_wrappings(project, name):
    # ">>>???" makes both characters appear that differ between the base64 alphabets
    body = json.dumps({**recorded(project)["node"], "note": ">>>???ÿÿ~~~"}, ensure_ascii=False).encode()
    content, query, headers = wrappings(body)[name]
    flags = answer_of(project, content, f"?v=2{query}", **headers)
    assert flags["multi"]["variant"] == "test"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": NaN, "b": Infinity, "c": [-Infinity]}', {"a": None, "b": None, "c": [None]}),
        (b'{"a": "\xff\xfe!"}', {"a": "\ufffd\ufffd!"}),
        (b'{"a\\ud800": "\\udc00x"}', {"a\ufffd": "\ufffdx"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": 1e400}', {"a": float("inf")}),
    ],
)
def test_lenient_json(text, value):
    decoded = decode_body(text)
    assert decoded == value
    json.dumps(decoded).encode()


@pytest.mark.parametrize(
    ("content", "headers", "query"),
    [
        (b"", {}, ""),
        (b"not json", {}, ""),
        (b"{", {}, ""),
        (b'{"a": 1', TEXT, ""),
        (b"\x1f\x8b\x08rubbish", {}, ""),
        (gzip.compress(b"{}", mtime=0)[:-9], {}, ""),
        (gzip.compress(b"rubbish", mtime=0), {}, ""),
        (b"data=%%%", FORM, ""),
        (b"", FORM, ""),
        (b"{}", {"Content-Type": "application/xml"}, ""),
        (b"{}", {"Content-Type": "multipart/form-data; boundary=x"}, ""),
        (b"{}", {}, "?compression=lz64"),
        (b"[" * 100_000, {}, ""),
        (b"[" * 100_000 + b"]" * 100_000, {}, ""),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, {}, ""),
        (base64.b64encode(b"[" * 50_000 + b"]" * 50_000), {}, ""),
        (b"9" * 100_000, {}, ""),
    ],
    ids=lambda value: str(value[:12]) if isinstance(value, bytes) else "",
)
def test_undecodable_bodies(server, content, headers, query):
    answer = server.sdk.post(f"/flags/{query}", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed_data"


def test_bodies_have_a_size_limit(server):
    too_long = b" " * (MAX_WIRE_BYTES + 1)
    assert server.sdk.post("/flags/?v=2", content=too_long).status_code == 413
    bomb = gzip.compress(b" " * (MAX_DECODED_BYTES + 1))
    assert len(bomb) < 10_000
    answer = server.sdk.post("/flags/?v=2", content=bomb)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    inside = base64.b64encode(bomb)
    assert server.sdk.post("/flags/?v=2", content=inside).status_code == 413


def test_a_body_may_come_in_pieces(project):
    body = json.dumps(recorded(project)["node"]).encode()

    async def pieces():
        for start in range(0, len(body), 50):
            yield body[start : start + 50]

    assert answer_of(project, pieces())["multi"]["variant"] == "test"

    async def endless():
        while True:
            yield b" " * 65536

    assert project.sdk.post("/flags/?v=2", content=endless()).status_code == 413


def test_a_large_body_is_read(project):
    body = recorded(project)["node"]
    body["person_properties"] |= {f"key-{number}": "x" * 100 for number in range(5_000)}
    assert answer_of(project, json.dumps(body).encode())["multi"]["variant"] == "test"


def test_query_parameters_are_limited():
    with pytest.raises(ApiError, match="too many parameters"):
        read_query(b"&".join(b"a=%d" % number for number in range(100)))
    assert read_query(b"v=2&" + b"x" * 500).version == 2


@pytest.mark.parametrize(
    ("query", "version"),
    [(b"v=2", 2), (b"version=3", 3), (b"v=", 1), (b"v=-1", 1), (b"v=2.0", 1), (b"v=99999999", 9999)],
)
def test_version_numbers(query, version):
    assert read_query(query).version == version


def test_reading_of_fields():
    body = {
        "distinct_id": 1.5,
        "$properties": {"$device_id": 12, "a": None},
        "$groups": {"company": 5, "team": None, "x": 1.0},
        "$group_properties": {"company": {"size": 1}, "team": None},
        "anon_distinct_id": "a" * 300,
        "device_id": "",
    }
    subject = read_subject(body, read_query(b"only_use_override_person_properties=true"))
    assert subject.distinct_id == "1.5"
    assert subject.device_id == "12"
    assert subject.groups == {"company": "5", "team": "", "x": "1.0"}
    assert subject.group_properties == {"company": {"size": 1}}
    assert subject.anon_distinct_id == "a" * 200
    assert subject.only_use_overrides is True
    assert (
        read_subject({"distinct_id": "a\0b" + "x" * 300}, read_query(b"")).distinct_id
        == "a\ufffdb" + "x" * 197
    )
    assert read_subject({"distinct_id": ""}, read_query(b"")).distinct_id == ""
    assert (
        read_subject({"distinct_id": "u", "person_properties": [], "groups": []}, read_query(b"")).groups
        == {}
    )
    assert (
        read_subject({"distinct_id": "u", "device_id": "d", "$device_id": "e"}, read_query(b"")).device_id
        == "d"
    )


FIELDS = [
    "token",
    "api_key",
    "distinct_id",
    "person_properties",
    "groups",
    "group_properties",
    "$anon_distinct_id",
    "device_id",
    "flag_keys_to_evaluate",
    "evaluation_contexts",
    "evaluation_runtime",
    "disable_flags",
    "other",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON)
def test_any_json_is_read_or_refused(body):
    try:
        read_call(body)
        read_subject(body, read_query(b""))
    except ApiError as error:
        assert (error.status, error.code) == (400, "malformed_data")  # noqa: PT017


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "text/plain", FORM["Content-Type"]]),
    st.booleans(),
)
def test_any_bytes_are_decoded_or_refused(data, content_type, zipped):
    body = gzip.compress(data) if zipped else data
    try:
        value = decode_body(body, content_type=content_type)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017
    else:
        orjson.dumps(value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    distinct_id=st.text(max_size=20) | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    person=st.dictionaries(st.sampled_from(["plan", "$initial_utm_source", "utm_source", "x"]), JSON),
    groups=st.dictionaries(st.text(max_size=4), JSON),
    query=st.sampled_from(["", "?v=1", "?v=2", "?v=3", "?v=2&config=1", "?v=" + "9" * 50]),
    path=st.sampled_from(["/flags/", "/decide/"]),
)
def test_any_request_of_the_right_shape_is_answered(project, distinct_id, person, groups, query, path):
    body = {
        "token": project.token,
        "distinct_id": distinct_id,
        "person_properties": person,
        "groups": groups,
        "$anon_distinct_id": "anonymous",
    }
    answer = project.sdk.post(path + query, content=json.dumps(body).encode())
    assert answer.status_code == 200, answer.text
    assert answer.json().get("errorsWhileComputingFlags", False) is False


def test_endless_patterns_of_a_flag_hold_up_nobody(server):
    """Each ends after 20 ms, but there may be a thousand in a flag, and all flags are evaluated on one thread."""
    endless = {"key": "a", "type": "person", "operator": "regex", "value": r"^(?=(a|a)*b)(.*)\1$"}
    server.create("slow", {"groups": [{"properties": [{**endless}], "rollout_percentage": 100}] * 500})
    started = time.process_time()
    answer = server.flags(person_properties={"a": "a" * 5_000})
    assert answer["flags"]["slow"]["enabled"] is False
    assert time.process_time() - started < 4, "it would be 10 s"
