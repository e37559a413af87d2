"""Functions that say how they want to be delivered: retries, order, rate limit (spec: hog-runtime 11)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from aiohttp import web
from tests.delivery.conftest import House, Receiver, stored
from tests.delivery.test_dead_letters import letters
from tests.waiting import wait_for

from hoglab.delivery.execution.retries import RetryPolicy
from hoglab.delivery.limits.rate_limit import LOOK_AGAIN_S, RateLimiter
from hoglab.delivery.outbound.fetch import FetchResponse
from hoglab.functions.configuration.delivery_policy import Retry

TELL = "let r := fetch(inputs.url, {'body': {'n': event.properties.n, 'who': event.distinct_id}})"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def refused(status: int = 503, **headers: str) -> FetchResponse:
    return FetchResponse(status, None, headers)


# --- retries


def test_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(random=lambda: 0.0).wanted_by(Retry(attempts=6, base_ms=100, max_ms=500))
    waits = [policy.delay_s(refused(), attempts, NOW) for attempts in range(1, 7)]
    assert waits == [0.1, 0.2, 0.4, 0.5, 0.5, None]


def test_what_is_not_said_stays_as_usual() -> None:
    usual = RetryPolicy(random=lambda: 0.5)
    assert usual.wanted_by(None) is usual
    policy = usual.wanted_by(Retry(max_age_s=60))
    assert (policy.max_attempts, policy.step_s, policy.max_backoff_s) == (3, 1.0, 30.0)
    assert policy.delay_s(refused(), 1, NOW) == 1.5
    assert usual.wanted_by(Retry(base_ms=40_000)).delay_s(refused(), 1, NOW) == 40.0


def test_nothing_is_tried_past_its_age() -> None:
    policy = RetryPolicy(random=lambda: 0.0).wanted_by(Retry(attempts=50, max_age_s=60))
    assert policy.delay_s(refused(), 1, NOW, 59.0) == 1.0
    assert policy.delay_s(refused(), 1, NOW, 59.5) is None
    assert policy.delay_s(refused(429, **{"retry-after": "30"}), 1, NOW, 40.0) is None


def test_a_long_retry_after_is_honoured_within_the_longest_wait() -> None:
    answer = refused(429, **{"retry-after": "3600"})
    usual = RetryPolicy(random=lambda: 0.0)
    assert usual.delay_s(answer, 1, NOW) == 300.0
    assert usual.wanted_by(Retry(max_ms=7_200_000)).delay_s(answer, 1, NOW) == 3600.0


def test_a_function_is_tried_as_often_as_it_wants(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number < 5 else 200)
    retry = {"attempts": 6, "base_ms": 10, "max_ms": 10}
    function = house.create(TELL, values={"url": receiver.url}, x_delivery={"retry": retry})
    house.run(stored())
    assert len(receiver.hits) == 6
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}
    assert len({hit.headers["idempotency-key"] for hit in receiver.hits}) == 1


# --- order


def test_runs_of_one_key_are_done_one_after_the_other(house: House, receiver: Receiver) -> None:
    failures = {"a": 2}

    def answer(_request: web.Request, number: int) -> web.Response:
        who = receiver.hits[number].json["who"]
        if failures.get(who, 0):
            failures[who] -= 1
            return web.Response(status=503)
        return web.Response()

    receiver.answer = answer
    function = house.create(
        TELL, values={"url": receiver.url}, x_delivery={"order_key": "{event.distinct_id}"}
    )
    house.run(*(stored(properties={"n": n}, distinct_id=who) for n in range(5) for who in ("a", "b")))
    order: dict[str, list[int]] = {"a": [], "b": []}
    for hit in receiver.hits:
        order[hit.json["who"]].append(hit.json["n"])
    assert order["a"] == [0, 0, 0, 1, 2, 3, 4]  # what comes later waits for the retries of what came first
    assert order["b"] == [0, 1, 2, 3, 4]
    assert house.metrics(function)["succeeded"] == 10


def keys(house: House) -> list[str | None]:
    return [row[0] for row in house.rows("invocation", "order_key", "rowid")]


def test_keys_may_read_inputs_and_be_empty_or_long(house: House) -> None:
    house.create(x_delivery={"order_key": "{inputs.to}"}, values={"to": "{event.properties.to}"})
    long = "x" * 401
    events = [stored(properties={"to": to}) for to in ("me", "", None, long, long, "a\nb")]
    house.dispatch(*events)
    found = keys(house)
    assert found[:3] == ["me", None, None]
    assert found[3] == found[4]
    assert len(str(found[3])) == 64
    assert "\n" not in str(found[5])


def test_an_event_whose_key_fails_is_put_aside(house: House) -> None:
    function = house.create(x_delivery={"order_key": "{jsonParse(event.properties.a)}"})
    house.dispatch(stored(properties={"a": "{"}), stored(properties={"a": '"k"'}))
    assert keys(house) == ["k"]
    [letter] = letters(house, function_id=function["id"])
    assert letter["step"] == "order"
    assert house.metrics(function) == {"inputs_failed": 1, "triggered": 1}


# --- rate limits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pace_allows_as_much_as_its_rate() -> None:
    clock = Clock()
    limiter = RateLimiter({"slow": 10.0, "free": None}.get, clock)
    assert limiter.allowance("slow", 5) == 0  # nothing is known of it yet
    assert limiter.wait_s() == 0.0
    begun = 0
    for _ in range(1000):
        limiter.look_up()
        allowed = limiter.allowance("slow", 5)
        limiter.began("slow", allowed)
        begun += allowed
        clock.now += 0.01
    assert begun in (100, 101)
    limiter.look_up()
    assert limiter.allowance("free", 5) in (0, 5)
    limiter.look_up()
    assert limiter.allowance("free", 5) == 5


def test_a_pace_says_how_long_to_wait_and_follows_changes() -> None:
    clock, limits = Clock(), {"f": 4.0}
    limiter = RateLimiter(limits.get, clock)
    limiter.allowance("f", 1)
    limiter.look_up()
    assert (limiter.allowance("f", 3), limiter.began("f", 1)) == (1, None)
    assert limiter.wait_s() == pytest.approx(0.25)
    assert limiter.wait_s() is None
    limits["f"] = 1000.0
    clock.now += LOOK_AGAIN_S
    limiter.look_up()
    assert limiter.allowance("f", 1000) == 1
    clock.now += 1.0
    assert (
        limiter.allowance("f", 1000) == 100
    )  # what is not used does not add up for longer than a tenth of a second


def test_a_slow_function_waits_and_nobody_else(house: House, receiver: Receiver) -> None:
    slow = house.create(
        TELL, name="Slow", values={"url": f"{receiver.url}/slow"}, x_delivery={"rate_limit": {"per_s": 0.001}}
    )
    house.create(TELL, values={"url": f"{receiver.url}/quick"})
    house.delivery.start()
    house.dispatch(*(stored(properties={"n": n}) for n in range(10)))
    wait_for(lambda: len(receiver.hits) == 11)
    assert [hit.path for hit in receiver.hits].count("/slow") == 1
    wait_for(lambda: house.queue.counts.backlog() == 9)
    house.change(slow, x_delivery=None)
    house.wait_idle()
    assert [hit.path for hit in receiver.hits].count("/slow") == 10
    assert house.metrics(slow)["succeeded"] == 10


def test_first_runs_of_a_claim_keep_to_the_allowance(house: House) -> None:
    house.create()
    house.dispatch(*(stored() for _ in range(5)))
    asked: list[int] = []
    left = 2

    class Two:
        def allowed(self, _project_id: int, _function_id: str, wanted: int) -> int:
            asked.append(wanted)
            return min(left, wanted)

        def took(self, _project_id: int, _function_id: str, number: int) -> None:
            nonlocal left
            left -= number

    assert len(house.queue.claim(limit=10, allowance=Two())) == 2
    assert max(asked) <= 10
