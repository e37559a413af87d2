"""Throttles (spec: experiments-api 1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.http.errors import throttled
from hoglab.http.management.config import HttpConfig
from hoglab.http.management.throttling import BURST, SUSTAINED, Rate, Throttle

WIDGETS = "/api/projects/1/widgets/"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_numbers() -> None:
    assert (Rate(480, 60.0), Rate(4800, 3600.0)) == (BURST, SUSTAINED)


def test_window_slides() -> None:
    clock = Clock()
    throttle = Throttle((Rate(3, 60.0),), clock)
    for _ in range(3):
        assert throttle.admit("a") is None
        clock.now += 10
    # Three requests at 0, 10 and 20 s, now 30 s: the oldest is 30 s old.
    assert throttle.admit("a") == 30.0
    assert throttle.admit("b") is None
    clock.now += 29.9
    assert throttle.admit("a") == pytest.approx(0.1)
    clock.now += 0.1
    assert throttle.admit("a") is None
    assert throttle.admit("a") == pytest.approx(10.0)


def test_larger_wait_of_two_rates_and_refused_requests_do_not_count() -> None:
    clock = Clock()
    throttle = Throttle((Rate(2, 10.0), Rate(3, 100.0)), clock)
    assert [throttle.admit("a"), throttle.admit("a")] == [None, None]
    for _ in range(5):
        assert throttle.admit("a") == 10.0
    clock.now += 10
    assert throttle.admit("a") is None
    assert throttle.admit("a") == 90.0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=60))
def test_no_window_ever_holds_more(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    throttle = Throttle((Rate(3, 10.0), Rate(6, 60.0)), clock)
    admitted: dict[str, list[float]] = {"a": [], "b": []}
    for key, pause in steps:
        clock.now += pause
        wait = throttle.admit(key)
        times = admitted[key]
        recent = [sum(clock.now - period < moment for moment in times) for period in (10.0, 60.0)]
        assert (wait is None) == (recent[0] < 3 and recent[1] < 6)
        if wait is None:
            times.append(clock.now)
        else:
            assert 0 < wait <= 60


@pytest.mark.parametrize(
    ("wait_s", "header", "detail"),
    [(12.1, "13", "13 seconds"), (1.0, "1", "1 second"), (0.01, "1", "1 second"), (60.0, "60", "60 seconds")],
)
def test_refusal(wait_s: float, header: str, detail: str) -> None:
    error = throttled(wait_s)
    assert (error.status, error.headers) == (429, {"Retry-After": header})
    assert error.body == {
        "type": "throttled_error",
        "code": "throttled",
        "detail": f"Request was throttled. Expected available in {detail}.",
        "attr": None,
    }


def test_over_http(make_client: Any, new_key: Callable[..., str]) -> None:
    client = make_client(HttpConfig(rate_limit_enabled=True))
    statuses = [client.request("HEAD", WIDGETS).status_code for _ in range(BURST.requests + 1)]
    assert statuses == [200] * BURST.requests + [429]
    response = client.get("/api/environments/@current/widgets/")
    assert (response.status_code, response.json()["type"]) == (429, "throttled_error")
    assert 1 <= int(response.headers["Retry-After"]) <= 60
    # Throttling comes before the method and the body, after key, scope and project.
    assert client.request("PATCH", WIDGETS).status_code == 429
    assert client.get("/api/projects/99/widgets/").status_code == 404
    # Each key has its own window, the same in the query; keys in bodies do not count.
    nobody = client.with_key(None)
    assert nobody.get(WIDGETS, params={"personal_api_key": client.key}).status_code == 429
    assert nobody.post(WIDGETS, json={"personal_api_key": client.key, "name": "x"}).status_code == 201
    assert client.with_key(new_key()).get(WIDGETS).status_code == 200


def test_off_by_default(client: Any) -> None:
    assert all(client.request("HEAD", WIDGETS).status_code == 200 for _ in range(BURST.requests + 5))
