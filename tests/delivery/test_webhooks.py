"""Requests from elsewhere, and what functions make of them (spec: hog-runtime 7.5)."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import pytest
import zstandard
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver
from tests.delivery.sender import Sender
from tests.waiting import PATIENCE_S

from hoglab.delivery.execution.capturing import CaptureRefusedError
from hoglab.delivery.webhooks.incoming import WebhookLimits

GUARDED = """
if (request.headers.authorization != inputs.token) {
  return {'httpResponse': {'status': 401, 'body': 'no'}}
}
postHogCapture({
  'event': request.body.type,
  'distinct_id': request.body.user,
  'properties': request.body,
})
"""


@pytest.fixture
def sender(house: House) -> Iterator[Sender]:
    sender = Sender(house)
    yield sender
    sender.close()


def webhook(house: House, hog: str, **body: Any) -> dict[str, Any]:
    return house.create(hog, type="source_webhook", **body)


def lines(house: House, function: dict[str, Any], level: str) -> list[str]:
    return [text for one, text in house.logs(function) if one == level]


@rule("H8.5")
def test_a_function_captures_what_the_right_sender_sends(house: House, sender: Sender) -> None:
    function = webhook(house, GUARDED, secrets={"token": "Bearer s3cr3t"})
    wrong = sender.send(function, json={"type": "paid"}, headers={"Authorization": "Bearer guess"})
    assert (wrong.status_code, wrong.text) == (401, "no")
    assert wrong.headers["content-type"] == "text/plain; charset=utf-8"
    assert wrong.headers["content-security-policy"] == "default-src 'none'; sandbox; form-action 'none'"
    assert wrong.headers["x-content-type-options"] == "nosniff"
    assert house.captured == []
    assert house.metrics(function) == {"triggered": 1, "succeeded": 1}

    body = {"type": "paid", "user": "u7", "amount": 12.5}
    right = sender.send(function, json=body, headers={"Authorization": "Bearer s3cr3t"})
    assert (right.status_code, right.json()) == (200, {"status": "ok"})
    [(project_id, event)] = house.captured
    assert project_id == 1
    assert (event["event"], event["distinct_id"]) == ("paid", "u7")
    assert event["properties"] == {**body, "$hog_function_execution_count": 1}
    assert house.metrics(function) == {"triggered": 2, "succeeded": 2}
    assert lines(house, function, "warn") == ["Responded with response status - 401, reason: no"]
    assert house.queue.counts.backlog() == 0


@rule("H8.2")
def test_a_program_sees_the_request(house: House, sender: Sender) -> None:
    function = webhook(
        house, "return {'httpResponse': {'status': 200, 'body': [request, event, project, source]}}"
    )
    answer = sender.send(
        function,
        params=[("a", "1"), ("b", ""), ("a", "2")],
        content=b'{"distinct_id": "d9", "deep": [{"x": null}]}',
        headers=[
            ("Content-Type", "application/json"),
            ("X-Twice", "first"),
            ("X-Twice", "second"),
            ("X-Forwarded-For", "198.51.100.7, 10.0.0.1"),
            ("X-Real-IP", "10.0.0.1"),
            ("Cookie", "session=1"),
            ("Referer", "https://example.com/"),
            ("Forwarded", "for=10.0.0.1"),
        ],
    )
    assert answer.headers["content-type"] == "application/json"
    request, event, project, source = answer.json()
    assert {name: request[name] for name in ("method", "query", "body", "stringBody", "ip")} == {
        "method": "POST",
        "query": {"a": "1,2", "b": ""},
        "body": {"distinct_id": "d9", "deep": [{"x": None}]},
        "stringBody": '{"distinct_id": "d9", "deep": [{"x": null}]}',
        "ip": "198.51.100.7",
    }
    assert request["headers"]["x-twice"] == "first"
    assert not {"cookie", "referer", "forwarded", "x-real-ip", "x-forwarded-for"} & set(request["headers"])
    assert (event["event"], event["distinct_id"], event["properties"]) == ("$incoming_webhook", "d9", {})
    assert project == {"id": 1, "name": "", "url": ""}
    assert source == {"name": "Test", "url": f"https://h.example/project/1/functions/{function['id']}"}
    assert sender.send(function, "GET").json()[0]["ip"] == "203.0.113.9"


PACKED = gzip.compress(b"{oops", mtime=0)
ECHO = "return {'httpResponse': {'status': 200, 'body': {'body': request.body, 'text': request.stringBody}}}"


@pytest.mark.parametrize(
    ("content_type", "content", "body"),
    [
        ("application/json; charset=utf-8", b"[1]", [1]),
        ("application/vnd.api+json", b'{"a": 1}', {"a": 1}),
        ("application/x-www-form-urlencoded", b"a=1&b=x%20y&a=2", {"a": ["1", "2"], "b": "x y"}),
        ("text/plain", b'{"Type": "Notification"}', {"Type": "Notification"}),
        ("text/plain", b"hello", {}),
        ("application/xml", b"<a/>", {}),
        ("application/json", b"", {}),
    ],
)
def test_bodies_are_read_by_their_type(
    house: House, sender: Sender, content_type: str, content: bytes, body: Any
) -> None:
    function = webhook(house, ECHO)
    answer = sender.send(function, content=content, headers={"Content-Type": content_type})
    assert answer.json() == {"body": body, "text": content.decode()}


@rule("H8.8")
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.compress),
        ("identity", bytes),
    ],
)
def test_compressed_bodies_are_unpacked(
    house: House, sender: Sender, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    """A signature that a program checks is one of the unpacked text."""
    function = webhook(house, ECHO)
    content = b'{"Type": "Notification"}'
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = sender.send(function, content=compress(content), headers=headers)
    assert answer.json() == {"body": {"Type": "Notification"}, "text": content.decode()}


@rule("H8.8")
def test_a_compressed_body_counts_unpacked(house: House, sender: Sender) -> None:
    function = webhook(house, "return {'httpResponse': {'status': 200, 'body': length(request.stringBody)}}")
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    for size, status in ((512_000, 200), (512_001, 413), (50_000_000, 413)):
        answer = sender.send(function, content=gzip.compress(b"x" * size), headers=headers)
        assert answer.status_code == status, size
    assert sender.send(function, content=b"", headers=headers).json() == 0


@rule("H8.8")
@pytest.mark.parametrize("encoding", ["compress", "gzip, br", "aes128gcm"])
def test_other_encodings_are_refused_with_those_that_are_known(
    house: House, sender: Sender, encoding: str
) -> None:
    answer = sender.send(webhook(house, ECHO), content=b"x", headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, deflate, br, zstd")


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"{oops", {"Content-Type": "application/json"}),
        (b"[" * 200 + b"]" * 200, {"Content-Type": "application/json"}),
        (b"\xff=1", {"Content-Type": "application/x-www-form-urlencoded"}),
        (b"\x1f\x8b", {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
        (PACKED[:-1], {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
        (b"{}", {"Content-Type": "application/json", "Content-Encoding": "br"}),
        (PACKED, {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(
    house: House, sender: Sender, content: bytes, headers: dict[str, str]
) -> None:
    function = webhook(house, ECHO)
    answer = sender.send(function, content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert house.metrics(function) == {}


@pytest.mark.parametrize(
    ("wanted", "status", "content_type", "content"),
    [
        ("{'status': 201, 'body': 'made'}", 201, "text/plain; charset=utf-8", b"made"),
        (
            "{'status': 200, 'body': 'a,b', 'contentType': 'text/csv'}",
            200,
            "text/csv; charset=utf-8",
            b"a,b",
        ),
        (
            "{'status': 200, 'body': '<p>', 'contentType': 'text/html'}",
            200,
            "text/plain; charset=utf-8",
            b"<p>",
        ),
        ("{'status': 200, 'body': {'a': [1, null]}}", 200, "application/json", b'{"a":[1,null]}'),
        ("{'status': 204}", 204, None, b""),
        ("{'status': 204, 'body': 'not allowed here'}", 204, None, b""),
        (
            "{'status': 200, 'body': 'R0lG', 'contentType': 'image/gif', 'isBase64Encoded': true}",
            200,
            "image/gif",
            b"GIF",
        ),
        (
            "{'status': 200, 'body': '%%', 'contentType': 'image/gif', 'isBase64Encoded': true}",
            500,
            None,
            b"",
        ),
        ("{'status': 'fine', 'body': 'x'}", 500, "text/plain; charset=utf-8", b"x"),
        ("{'body': 'x'}", 500, "text/plain; charset=utf-8", b"x"),
        ("{'status': 101, 'body': 'x'}", 500, "text/plain; charset=utf-8", b"x"),
        ("{'status': 200.5, 'body': 'x'}", 500, "text/plain; charset=utf-8", b"x"),
    ],
)
@rule("H8.1", "H8.10")
def test_the_program_decides_the_answer(
    house: House, sender: Sender, wanted: str, status: int, content_type: str | None, content: bytes
) -> None:
    function = webhook(house, f"return {{'httpResponse': {wanted}}}")
    answer = sender.send(function)
    assert (answer.status_code, answer.headers.get("content-type"), answer.content) == (
        status,
        content_type,
        content,
    )
    level = "info" if status < 400 else "warn"
    assert lines(house, function, level)[-1].startswith(f"Responded with response status - {status}")


@rule("H8.4")
def test_what_is_no_enabled_webhook_is_not_found(house: House, sender: Sender) -> None:
    function = webhook(house, "return 1")
    destination = house.create()
    for address in ("0199a3d4-1f2e-7000-9c55-7d3a51c0ffee", "dwh/x", "x", "", destination["id"]):
        answer = sender.send(address)
        assert (answer.status_code, answer.json()) == (404, {"error": "Not found"})
    assert sender.send(function, suffix=".json").status_code == 200
    assert sender.send(function, suffix="/").status_code == 200
    house.change(function, enabled=False)
    assert sender.send(function).status_code == 404
    house.change(function, enabled=True)
    assert sender.send(function).status_code == 200
    house.change(function, deleted=True)
    assert sender.send(function).status_code == 404


@rule("H8.4")
def test_other_methods_are_refused(house: House, sender: Sender) -> None:
    answer = sender.send(webhook(house, "return 1"), "PUT")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


@rule("H8.3")
def test_a_body_that_is_too_large_is_refused(house: House, sender: Sender) -> None:
    function = webhook(house, "return {'httpResponse': {'status': 200, 'body': length(request.stringBody)}}")
    limit = WebhookLimits().body
    assert sender.send(function, content=b"x" * limit).json() == limit == 512_000
    answer = sender.send(function, content=b"x" * (limit + 1))
    assert (answer.status_code, answer.json()) == (413, {"error": "Request entity too large"})


@rule("H8.5")
def test_errors_are_told_to_the_log_not_to_the_sender(house: House, sender: Sender) -> None:
    function = webhook(house, "throw Error(f'bad {request.query.why}')")
    answer = sender.send(function, params={"why": "luck"})
    assert (answer.status_code, answer.json()) == (500, {"status": "Unhandled error"})
    assert lines(house, function, "error")[0].endswith("Error('bad luck')")
    assert house.metrics(function) == {"triggered": 1, "failed": 1}


def test_an_endless_program_ends_at_its_limit(house: House, sender: Sender) -> None:
    function = webhook(house, "while (true) {}")
    assert sender.send(function).status_code == 500
    assert "timed out" in lines(house, function, "error")[0]


@rule("H8.5")
def test_a_program_that_calls_out_goes_on_in_the_worker(
    house: House, sender: Sender, receiver: Receiver
) -> None:
    function = webhook(
        house,
        """
        postHogCapture({'event': 'order', 'distinct_id': request.body.user})
        let answer := fetch(inputs.url, {'body': {'order': request.body.order, 'key': request.headers['x-api-key']}})
        print('answered', answer.status)
        return {'httpResponse': {'status': 418}}
        """,
        values={"url": receiver.url},
    )
    answer = sender.send(
        function, json={"order": 7, "user": "u1"}, headers={"X-Api-Key": "very-secret-value"}
    )
    assert (answer.status_code, answer.json()) == (201, {"status": "queued"})
    [(_, first)] = house.captured
    assert first["event"] == "order"
    assert receiver.hits == []
    dump = (house.folder / "queue.db").read_bytes() + (house.folder / "queue.db-wal").read_bytes()
    assert b"very-secret-value" not in dump, "what waits in the queue is sealed"

    house.restart()
    house.run()
    [hit] = receiver.hits
    assert hit.json == {"order": 7, "key": "very-secret-value"}
    assert lines(house, function, "info") == ["answered, 200"]
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}
    assert {event["uuid"] for _, event in house.captured} == {first["uuid"]}, (
        "stored once, however often it comes"
    )


@rule("H8.6")
def test_a_stopped_function_answers_429(house: House, sender: Sender) -> None:
    function = webhook(house, "return 1")
    house.delivery.function_breakers.force(function["id"], 12)
    answer = sender.send(function)
    assert (answer.status_code, answer.json()) == (429, {"error": "Disabled"})
    assert house.metrics(function) == {"disabled_permanently": 1}


@rule("H8.6")
def test_a_slow_function_runs_later(house: House, sender: Sender) -> None:
    function = webhook(
        house, "postHogCapture({'event': 'late', 'distinct_id': 'd', 'properties': request.body})"
    )
    house.delivery.function_breakers.force(function["id"], 11)
    answer = sender.send(function, json={"n": 1})
    assert (answer.status_code, answer.content) == (200, b"")
    assert house.captured == []
    assert lines(house, function, "warn") == ["Function scheduled for future execution due to degraded state"]
    house.run()
    [(_, event)] = house.captured
    assert event["properties"]["n"] == 1
    assert house.metrics(function) == {"triggered": 1, "succeeded": 1}


@rule("H8.9")
def test_credentials_of_the_sender_are_kept_out_of_the_log(house: House, sender: Sender) -> None:
    function = webhook(
        house, "print(request.headers, request.query)\nthrow Error(request.headers.authorization)"
    )
    sender.send(
        function,
        params={"token": "t0ken-in-query", "page": "2"},
        headers={"Authorization": "Bearer sender-key", "X-Shop-Access-Token": "shop-key"},
    )
    text = "\n".join(message for _, message in house.logs(function))
    assert "page" in text
    for secret in ("t0ken-in-query", "sender-key", "shop-key"):
        assert secret not in text
    assert all(secret not in str(house.results()) for secret in ("t0ken-in-query", "sender-key", "shop-key"))


@rule("H8.7")
def test_an_event_that_cannot_be_stored_is_asked_for_again(house: House, sender: Sender) -> None:
    function = webhook(house, "postHogCapture({'event': 'e', 'distinct_id': 'd'})")
    held = house.captured

    async def full(_project_id: int, _event: dict[str, Any]) -> None:
        raise OSError("the log is full")

    house.capture = full
    answer = sender.send(function)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert house.metrics(function) == {"triggered": 1, "failed": 1}
    house.capture = None
    assert sender.send(function).status_code == 200
    assert len(held) == 1


def test_an_event_that_can_never_be_stored_is_told_to_the_log(house: House, sender: Sender) -> None:
    """Its sender is not asked to send the same thing again and again."""
    function = webhook(house, "postHogCapture({'event': 'e', 'distinct_id': 'd'})")

    async def refuse(_project_id: int, _event: dict[str, Any]) -> None:
        raise CaptureRefusedError("it is too large")

    house.capture = refuse
    assert sender.send(function).status_code == 200
    assert ("error", "The captured event was not stored: it is too large.") in house.logs(function)


@rule("H8.7")
def test_work_is_refused_when_too_much_waits(house: House, sender: Sender) -> None:
    function = webhook(house, "fetch('https://example.com')")
    backpressure = house.delivery.backpressure
    most, backpressure.max_waiting = backpressure.max_waiting, 0
    assert sender.send(function).status_code == 503
    backpressure.max_waiting = most
    assert sender.send(function).status_code == 201


@pytest.mark.parametrize(("waiting", "taken"), [(2, 2), (4, 3)])
def test_too_many_requests_at_a_time_are_asked_to_come_again(house: House, waiting: int, taken: int) -> None:
    """Of one project fewer than there are places."""
    house.close()
    house.options["webhooks"] = WebhookLimits(waiting=waiting)
    house.open()
    sender = Sender(house)
    function = webhook(house, "postHogCapture({'event': 'e', 'distinct_id': 'd'})")
    assert sender.send(function).status_code == 200  # now it is known whose it is
    refused: list[int] = []
    enough = asyncio.Event()

    async def slow(_project_id: int, _event: dict[str, Any]) -> None:
        await asyncio.wait_for(enough.wait(), PATIENCE_S)

    house.capture = slow
    real = house.delivery.webhooks.answer

    async def noting(address: str, request: Any) -> Any:
        reply = await real(address, request)
        if reply.status == 503:
            refused.append(reply.status)
            if len(refused) == 5 - taken:
                enough.set()
        return reply

    house.delivery.webhooks.answer = noting  # type: ignore[method-assign]
    try:
        assert sorted(sender.send_together(function, 5)) == [200] * taken + [503] * (5 - taken)
    finally:
        sender.close()


def test_a_burst_of_requests_is_taken(house: House, sender: Sender) -> None:
    """Many more than there are threads wait for one."""
    function = webhook(house, "return {'httpResponse': {'status': 200, 'body': 'x'}}")
    assert set(sender.send_together(function, 100)) == {200}


@pytest.mark.parametrize("distinct_id", [5, None, {"a": 1}, True, "x"])
def test_distinct_ids_of_any_kind_may_be_sent(house: House, sender: Sender, distinct_id: Any) -> None:
    function = webhook(house, "return {'httpResponse': {'status': 200, 'body': [event.distinct_id]}}")
    assert sender.send(function, json={"distinct_id": distinct_id}).json() == [distinct_id]


@pytest.mark.parametrize(
    "value",
    [
        "100000000000000000000000",
        "1 / 0",
        "jsonParse('\"\\\\ud800\"')",
        "x -> x",
        "now()",
        f"jsonParse('{'[' * 120}{']' * 120}')",
    ],
)
def test_an_answer_of_odd_values_is_an_answer(house: House, sender: Sender, value: str) -> None:
    function = webhook(house, f"return {{'httpResponse': {{'status': 200, 'body': {{'v': {value}}}}}}}")
    answer = sender.send(function)
    assert answer.status_code == 200, house.logs(function)
    assert "v" in answer.json()
    text = webhook(house, f"return {{'httpResponse': {{'status': 200, 'body': toString({value})}}}}")
    assert sender.send(text).status_code == 200, house.logs(text)
