"""The event endpoints behind the real server: bodies that are too long, too slow, or never end."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from hoglab.capture import CaptureLimits
from hoglab.http.requests.body import BODY_TIMEOUT_S
from hoglab.http.server import Address

ONE = "phc_first_project"
BODY = json.dumps({"api_key": ONE, "batch": [{"event": "e", "distinct_id": "u"}]}).encode()


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> CaptureLimits:
    """The usual ones, but for the tests that wait until the time for a body is over."""
    return CaptureLimits(body_timeout_s=getattr(request, "param", BODY_TIMEOUT_S))


impatient = pytest.mark.parametrize("limits", [0.5], indirect=True, ids=["impatient"])


def post(address: Address, body: Any, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        # A server that has refused a body may close before all of it is sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", "/batch/", body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def still_works(address: Address) -> bool:
    return post(address, BODY)[0] == 200


def test_a_batch_over_the_wire(address: Address, server: Any) -> None:
    assert post(address, BODY) == (200, '{"status":"Ok"}')
    assert server.events() == [(1, "e", "u")]
    assert server.records()[0].header.ip == "127.0.0.1"


def test_an_announced_large_body_is_refused_before_it_is_sent(address: Address) -> None:
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        connection.sendall(b"POST /batch/ HTTP/1.1\r\nHost: x\r\nContent-Length: 52428800\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert still_works(address)


def test_a_large_body_of_unknown_length_is_refused_while_it_arrives(address: Address, server: Any) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(50):
            sent += 1
            yield b"x" * 1_000_000

    status, _ = post(address, chunks())
    assert status == 413
    assert 20 <= sent <= 50
    assert still_works(address)


@impatient
def test_a_half_sent_body_does_not_hold_anything(address: Address, server: Any) -> None:
    half = f"POST /batch/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:20]
    with socket.create_connection((address.host, address.port), timeout=10) as slow:
        slow.sendall(half)
        with socket.create_connection((address.host, address.port), timeout=10) as gone:
            gone.sendall(half)
        assert still_works(address)
        answer = b"".join(iter(lambda: slow.recv(4096), b""))  # until the server hangs up
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"retry-after" in answer.lower()
    assert len(server.events()) == 1


@impatient
def test_a_half_sent_body_of_the_newer_protocol_may_be_sent_again(address: Address, server: Any) -> None:
    request_id = "0c0e7f2e-3a0e-4a07-8d0e-3f43b4a0a1b2"
    head = (
        f"POST /i/v1/analytics/events HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\nAuthorization: Bearer {ONE}\r\n"
        "Content-Type: application/json\r\nUser-Agent: posthog-go/1.0\r\nPostHog-Sdk-Info: posthog-go/1.0\r\n"
        f"PostHog-Attempt: 1\r\nPostHog-Request-Id: {request_id}\r\n"
        'PostHog-Request-Timestamp: 2026-01-01T00:00:10Z\r\n\r\n{"batch":'
    )
    with socket.create_connection((address.host, address.port), timeout=10) as slow:
        slow.sendall(head.encode())
        answer = http.client.HTTPResponse(slow)
        answer.begin()
        assert answer.status == 408
        assert json.loads(answer.read())["error"] == "body_read_timeout"
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["posthog-request-id"] == request_id
    assert server.events() == []
    assert still_works(address)


@impatient
def test_a_body_that_is_never_begun_does_not_hold_anything(address: Address, server: Any) -> None:
    head = f"POST /batch/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    waiting = [socket.create_connection((address.host, address.port), timeout=10) for _ in range(20)]
    for connection in waiting:
        connection.sendall(head)
    assert still_works(address)
    for connection in waiting:
        with connection:
            answer = b"".join(iter(lambda open_=connection: open_.recv(4096), b""))
            assert answer.startswith(b"HTTP/1.1 408 ")


def test_deep_json_is_refused(address: Address) -> None:
    deep = b'{"a":' * 10_000 + b"1" + b"}" * 10_000
    body = BODY.replace(b'"event"', b'"properties":' + deep + b',"event"')
    status, reason = post(address, body)
    assert (status, reason) == (400, "the payload is nested more than 100 levels deep")
    assert still_works(address)


def test_many_clients_at_once(address: Address, server: Any) -> None:
    def client() -> None:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            for _ in range(25):
                connection.request("POST", "/batch/", body=BODY)
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)

    statuses: list[int] = []
    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 200
    assert len(server.events()) == 200
