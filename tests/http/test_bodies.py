"""Bodies: types, limits and everything that can be wrong with JSON (spec: experiments-api 1.1, 1.5)."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.http.errors import ApiError
from hoglab.http.management.config import HttpConfig
from hoglab.http.requests.body import (
    MAX_FORM_FIELDS,
    MAX_JSON_DEPTH,
    ClientGoneError,
    ContentType,
    decode,
    decode_json,
    read_body,
)
from hoglab.http.responses import encode_json

WIDGETS = "/api/projects/1/widgets/"
ECHO = WIDGETS + "echo/"
JSON = {"Content-Type": "application/json"}


def parse_error(response: Any) -> str:
    body = response.json()
    assert response.status_code == 400
    assert (body["type"], body["code"], body["attr"]) == ("invalid_request", "parse_error", None)
    return str(body["detail"])


@contextmanager
def allowed(code: str) -> Iterator[None]:
    """The block may be refused with 400 and that code, with nothing else."""
    try:
        yield
    except ApiError as error:
        if (error.status, error.code) != (400, code):
            raise


REFUSED = {
    "no end": (b'"' + b"a" * 2_000_000, "application/json"),
    "too deep": (b"[" * 2_000_000, "application/json"),
    "not a number": (b'{"a":"' + b"a" * 2_000_000 + b'","b":NaN}', "application/json"),
    "no UTF-8": (b'"' + b"\xff" * 2_000_000 + b'"', "application/json"),
    "another type": (b"a" * 2_000_000, "text/plain"),
    "a long form": (b"a=" + b"a" * 4_000_000, "application/x-www-form-urlencoded"),
    "no parts": (b"a" * 2_000_000, "multipart/form-data; boundary=b"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_of_a_refused_body_is_left_after_its_answer(client: Any, name: str) -> None:
    """No reference in a circle keeps it: until the next collection such bodies would add up."""
    text, media_type = REFUSED[name]

    def refuse() -> None:
        assert client.post(ECHO, content=text, headers={"Content-Type": media_type}).status_code in (
            400,
            413,
            415,
        )

    refuse()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(5):
            refuse()
        # The thread that decoded the last one may still let go of it.
        assert tracemalloc.get_traced_memory()[0] < 2 * len(text)
    finally:
        tracemalloc.stop()
        gc.enable()


class TestJson:
    @pytest.mark.parametrize("value", [[], [1, "a", None], "text", 5, 1.5, True, None, {"a": {"b": []}}])
    def test_any_value_is_read(self, client: Any, value: Any) -> None:
        assert client.post(ECHO, content=json.dumps(value), headers=JSON).json() == value

    @pytest.mark.parametrize(
        ("value", "name"),
        [([], "list"), ("a", "str"), (5, "int"), (1.5, "float"), (True, "bool"), (None, "NoneType")],
    )
    def test_bodies_that_are_no_objects(self, client: Any, value: Any, name: str) -> None:
        response = client.post(WIDGETS, content=json.dumps(value), headers=JSON)
        assert response.status_code == 400
        assert response.json() == {
            "type": "validation_error",
            "code": "invalid_input",
            "detail": f"Invalid data. Expected a dictionary, but got {name}.",
            "attr": None,
        }

    @pytest.mark.parametrize(
        "content_type", ["application/json", "text/plain", "application/octet-stream", ""]
    )
    def test_an_empty_body_is_an_empty_object(self, client: Any, content_type: str) -> None:
        response = client.post(ECHO, content=b"", headers={"Content-Type": content_type})
        assert response.json() == {}

    @pytest.mark.parametrize(
        "text",
        [
            b'{"a": }',
            b"{",
            b"[1,]",
            b"nul",
            b"{'a': 1}",
            b"NaN",
            b'{"a": NaN}',
            b'{"a": Infinity}',
            b'{"a": -Infinity}',
            b'{"a": 1e999}',
            b"1" * 400,
            b'{"a": "\xff"}',
            b"\xff\xfe",
            b'{"a": "\\ud800"}',
            b'{"a": "\\udc00\\ud800"}',
            b'{"a": "\xed\xa0\x80"}',
            b'"line\nbreak"',
            b"\xef\xbb\xbf{}",
            b"{}{}",
            b" ",
            b"01",
        ],
    )
    def test_what_is_no_json(self, client: Any, text: bytes) -> None:
        response = client.post(ECHO, content=text, headers=JSON)
        assert parse_error(response).startswith("JSON parse error - ")

    def test_position_is_told(self, client: Any) -> None:
        response = client.post(ECHO, content=b'{"a": }', headers=JSON)
        assert parse_error(response).endswith("line 1 column 7 (char 6)")

    @pytest.mark.parametrize("opening", [b"[", b'{"a":'])
    def test_depth(self, client: Any, opening: bytes) -> None:
        closing = b"]" if opening == b"[" else b"}"

        def nested(depth: int) -> bytes:
            return opening * depth + b"1" + closing * depth

        assert client.post(ECHO, content=nested(MAX_JSON_DEPTH), headers=JSON).status_code == 200
        for depth in (MAX_JSON_DEPTH + 1, 1023, 1024, 1025, 10_000, 1_000_000):
            parse_error(client.post(ECHO, content=nested(depth), headers=JSON))

    def test_many_shallow_brackets_are_fine(self, client: Any) -> None:
        value = [[] for _ in range(10_000)]
        assert client.post(ECHO, json=value).json() == value
        assert client.post(ECHO, json="[" * 10_000).json() == "[" * 10_000

    def test_large_bodies_are_read_in_a_thread(self, client: Any) -> None:
        value = {"a": "x" * 200_000}
        assert client.post(ECHO, json=value).json() == value
        parse_error(client.post(ECHO, content=b'{"a": "' + b"x" * 200_000, headers=JSON))

    def test_huge_integers_become_floats(self, client: Any) -> None:
        response = client.post(ECHO, content=b"[123456789012345678901234567890]", headers=JSON)
        assert response.json() == [1.2345678901234568e29]

    def test_nul_characters_pass_inside_free_json(self, client: Any) -> None:
        assert client.post(ECHO, content=b'{"a\\u0000": "\\u0000"}', headers=JSON).json() == {"a\0": "\0"}

    @pytest.mark.parametrize("charset", ["latin-1", "utf-16", "utf-8", "UTF8", "no-such-thing"])
    def test_charsets(self, client: Any, charset: str) -> None:
        encoding = "utf-8" if charset == "no-such-thing" else charset
        text = '{"a": "é"}'.encode(encoding)
        headers = {"Content-Type": f'application/json; charset="{charset}"'}
        assert client.post(ECHO, content=text, headers=headers).json() == {"a": "é"}

    def test_wrong_charset(self, client: Any) -> None:
        headers = {"Content-Type": "application/json; charset=ascii"}
        parse_error(client.post(ECHO, content='{"a": "é"}'.encode(), headers=headers))
        for charset in (
            "rot13",
            "zlib",
            "idna",
            "punycode",
        ):  # codecs that are no text encodings, or odd ones
            headers = {"Content-Type": f"application/json; charset={charset}"}
            assert client.post(ECHO, content=b"{}", headers=headers).status_code in (200, 400)

    @given(st.binary(max_size=80))
    def test_any_bytes_are_a_value_or_a_parse_error(self, raw: bytes) -> None:
        with allowed("parse_error"):
            value = decode_json(raw)
            assert orjson.loads(encode_json(value)) == value

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.floats(allow_nan=False)
            | st.text(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=20,
        )
    )
    def test_what_json_can_say_comes_through(self, value: Any) -> None:
        text = json.dumps(value)
        if "Infinity" in text:
            return
        assert decode_json(text.encode()) == value


class TestForms:
    def test_urlencoded(self, client: Any) -> None:
        data = {"name": "a b", "big": "on", "size": "5", "tags": ["x", "y"], "parts": '{"a": 1}'}
        assert client.post(WIDGETS, data=data).json() == {
            "name": "a b",
            "big": True,
            "size": 5,
            "tags": ["x", "y"],
            "parts": {"a": 1},
        }

    def test_the_last_of_a_repeated_field_counts(self, client: Any) -> None:
        assert client.post(WIDGETS, data={"name": ["a", "b"]}).json() == {"name": "b"}

    def test_a_list_may_be_one_field_or_json(self, client: Any) -> None:
        assert client.post(WIDGETS, data={"name": "a", "tags": "x"}).json()["tags"] == ["x"]
        assert client.post(WIDGETS, data={"name": "a", "tags": '["x", "y"]'}).json()["tags"] == ["x", "y"]

    def test_json_fields_must_be_json(self, client: Any) -> None:
        response = client.post(WIDGETS, data={"name": "a", "parts": "{"})
        assert (response.status_code, response.json()["code"]) == (400, "not_a_dict")

    def test_multipart(self, client: Any) -> None:
        files = {"name": (None, "é"), "size": (None, "5"), "photo": ("a.png", b"\x89PNG", "image/png")}
        assert client.post(WIDGETS, files=files).json() == {"name": "é", "size": 5}

    @pytest.mark.parametrize(
        "content_type",
        ["multipart/form-data", "multipart/form-data; boundary=x", "multipart/form-data; boundary="],
    )
    def test_broken_multipart(self, client: Any, content_type: str) -> None:
        body = b'--y\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--y--\r\n'
        response = client.post(WIDGETS, content=body, headers={"Content-Type": content_type})
        assert response.status_code == 400

    @given(st.binary(max_size=60))
    def test_any_bytes_are_a_form_or_a_parse_error(self, raw: bytes) -> None:
        body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n' + raw + b"\r\n--x--\r\n"
        with allowed("parse_error"):
            decode(body, ContentType.of("multipart/form-data; boundary=x"))

    def test_fields_are_counted(self, client: Any) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        fields = "&".join(["a=1"] * (MAX_FORM_FIELDS + 1))
        assert "1000" in parse_error(client.post(WIDGETS, content=fields, headers=headers))

    def test_invalid_utf8(self, client: Any) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        for text in (b"name=%ff", b"name=\xff"):
            parse_error(client.post(WIDGETS, content=text, headers=headers))


class TestTypes:
    @pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/json5", ""])
    def test_unknown_types(self, client: Any, content_type: str) -> None:
        response = client.post(WIDGETS, content=b"{}", headers={"Content-Type": content_type})
        assert response.status_code == 415
        assert response.json() == {
            "type": "invalid_request",
            "code": "unsupported_media_type",
            "detail": f'Unsupported media type "{content_type}" in request.',
            "attr": None,
        }

    @pytest.mark.parametrize(
        "content_type", ["APPLICATION/JSON", "application/json;charset=utf-8;x", " application/json "]
    )
    def test_spellings_of_json(self, client: Any, content_type: str) -> None:
        assert client.post(ECHO, content=b"[1]", headers={"Content-Type": content_type}).json() == [1]

    @given(st.text(st.characters(codec="latin-1"), max_size=40))
    def test_any_header_is_parsed(self, text: str) -> None:
        parsed = ContentType.of(text)
        assert parsed.media_type == parsed.media_type.strip().lower()


class TestSize:
    @pytest.fixture
    def small(self, make_client: Any) -> Any:
        return make_client(HttpConfig(max_body_bytes=100))

    def test_announced_length(self, small: Any) -> None:
        assert small.post(ECHO, content=b" " * 98 + b"[]", headers=JSON).status_code == 200
        response = small.post(ECHO, content=b" " * 99 + b"[]", headers=JSON)
        assert response.status_code == 413
        assert response.json() == {
            "type": "invalid_request",
            "code": "payload_too_large",
            "detail": "The request body exceeds the limit of 100 bytes.",
            "attr": None,
        }

    def test_unannounced_length(self, small: Any) -> None:
        async def chunks() -> Any:
            for _ in range(20):
                yield b" " * 10

        assert small.post(ECHO, content=chunks(), headers=JSON).status_code == 413

    def test_strangers_are_told_nothing_of_it(self, small: Any) -> None:
        headers = {**JSON, "Authorization": "Bearer phx_wrong"}
        assert small.post(ECHO, content=b" " * 200, headers=headers).status_code == 401


class TestReading:
    @staticmethod
    def read(
        messages: list[dict[str, Any]], headers: Sequence[tuple[bytes, bytes]] = (), **options: Any
    ) -> bytes:
        async def go() -> bytes:
            remaining = iter(messages)

            async def receive() -> Any:
                message = next(remaining, None)
                if message is None:
                    await asyncio.Event().wait()
                return message

            return await read_body({"headers": headers}, receive, **options)

        return asyncio.run(go())

    def test_parts_are_joined(self) -> None:
        parts = [
            {"type": "http.request", "body": b"a", "more_body": True},
            {"type": "http.request", "more_body": True},
            {"type": "http.request", "body": b"b"},
        ]
        assert self.read(parts) == b"ab"

    def test_the_announced_bytes_are_all_that_is_waited_for(self) -> None:
        parts = [
            {"type": "http.request", "body": b"a", "more_body": True},
            {"type": "http.request", "body": b"b", "more_body": True},
        ]
        assert self.read(parts, [(b"content-length", b"2")]) == b"ab"

    def test_a_body_in_chunks_ends_where_they_end(self) -> None:
        parts = [
            {"type": "http.request", "body": b"a", "more_body": True},
            {"type": "http.request", "body": b"b"},
        ]
        assert self.read(parts, [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")]) == b"ab"

    def test_half_sent_body_times_out(self) -> None:
        with pytest.raises(ApiError) as caught:
            self.read([{"type": "http.request", "body": b"a", "more_body": True}], timeout_s=0.01)
        assert (caught.value.status, caught.value.code) == (408, "request_timeout")

    def test_client_that_hangs_up(self) -> None:
        with pytest.raises(ClientGoneError):
            self.read(
                [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]
            )
