"""``RetryError``: a program has its last call repeated later, whatever the answer's status was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from tests.delivery.conftest import NOW, House, Receiver, stored

from hoglab.delivery.execution.answers import Postponed
from hoglab.delivery.execution.retries import LASTING, POSTHOG, RetryPolicy, retriable

BUSY = """
let first := fetch(f'{inputs.url}/first')
let second := fetch(f'{inputs.url}/second', {'body': {'id': generateUUIDv4()}})
if (second.body.busy) {
  throw RetryError('They are busy', PAYLOAD)
}
print('done', first.status)
"""


def busy_until(number: int, status: int = 200) -> Any:
    def answer(request: web.Request, count: int) -> web.Response:
        is_busy = request.path != "/first" and count < number
        return web.json_response({"busy": is_busy}, status=status if is_busy else 200)

    return answer


@pytest.mark.parametrize("status", [200, 202, 302, 400, 401, 403])
def test_the_last_request_is_repeated(house: House, receiver: Receiver, status: int) -> None:
    receiver.answer = busy_until(3, status)
    function = house.create(BUSY.replace("PAYLOAD", "null"), values={"url": receiver.url})
    house.run(stored())
    assert [hit.path for hit in receiver.hits] == ["/first", "/second", "/second", "/second"]
    assert len({hit.headers["idempotency-key"] for hit in receiver.hits}) == 2
    assert len({hit.body for hit in receiver.hits[1:]}) == 1
    assert house.metrics(function)["succeeded"] == 1
    asked = [text for level, text in house.logs(function) if level == "error" and "asked" in text]
    assert [text.split(":")[0] for text in asked] == [
        f"The function asked to be run again on attempt {number}" for number in (1, 2)
    ]


def test_it_ends_with_the_attempts(house: House, receiver: Receiver) -> None:
    receiver.answer = busy_until(1_000)
    function = house.create(BUSY.replace("PAYLOAD", "0"), values={"url": receiver.url})
    house.run(stored())
    assert len(receiver.hits) == 1 + 3
    assert house.metrics(function)["failed"] == 1
    assert "They are busy" in house.results()[-1]["error_message"]


def test_a_program_without_a_call_is_run_again_from_its_start(house: House) -> None:
    function = house.create("throw RetryError('not yet')")
    house.run(stored())
    lines = [text for level, text in house.logs(function) if level == "error"]
    assert len(lines) == 3
    assert house.metrics(function) == {"triggered": 1, "failed": 1}


def test_a_caught_error_postpones_nothing(house: House) -> None:
    function = house.create("try { throw RetryError('a') } catch (e: RetryError) { print('caught') }")
    house.run(stored())
    assert house.metrics(function)["succeeded"] == 1


def test_the_payload_is_how_long_to_wait_at_least() -> None:
    policy = RetryPolicy(random=lambda: 0.0)
    assert policy.delay_s(Postponed("r", 60.0), 1, NOW) == 60.0
    assert policy.delay_s(Postponed("r", None), 1, NOW) == 1.0
    assert policy.delay_s(Postponed("r", 1e9), 1, NOW) == policy.max_retry_after_s
    assert POSTHOG.delay_s(Postponed("r", 60.0), 3, NOW) is None
    assert LASTING.delay_s(Postponed("r", None), 50, NOW, timedelta(days=1).total_seconds()) is None
    assert retriable(Postponed("r", None))


@pytest.mark.parametrize("payload", ["30", "0.5", "true", "'30'", "-1", "{'a': 1}", "null", "1 / 0"])
def test_only_seconds_are_a_time_to_wait(house: House, receiver: Receiver, payload: str) -> None:
    receiver.answer = busy_until(2)
    house.create(BUSY.replace("PAYLOAD", payload), values={"url": receiver.url})
    house.run(stored())
    assert house.results()[-1]["status"] == "succeeded"
