"""Destinations that are away for hours: retries over a day, circuit breakers, and what the others have of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.delivery.conftest import NOW, House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.execution.retries import LASTING, POSTHOG, RetryPolicy, parse_policy
from hoglab.delivery.execution.retries import LONGEST_S as LONGEST_PATIENCE_S
from hoglab.delivery.limits.backpressure import PROJECT_PART
from hoglab.delivery.limits.destination_breaker import FAILURES, LEAST_WAIT_S, LONGEST_S, DestinationBreakers
from hoglab.delivery.outbound.fetch import FetchFailure, FetchResponse
from hoglab.delivery.runs.streaks import QUIET_S, Streaks
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.functions.configuration.delivery_policy import MAX_AGE_S, Retry
from hoglab.settings import SettingsError, load
from hoglab.storage.invocations import InvocationResult

AWAY = FetchFailure("network", "ConnectionRefusedError", "The connection was refused")
SOON = replace(LASTING, step_s=0.01, max_backoff_s=0.02)


def schedule(policy: RetryPolicy) -> list[float]:
    """After how many seconds each attempt but the first is made at a destination that stays away."""
    at, moments = 0.0, []
    while (delay_s := policy.delay_s(AWAY, len(moments) + 1, NOW, at)) is not None:
        at += delay_s
        moments.append(at)
    return moments


# --- the schedule


def test_requests_are_repeated_for_a_day() -> None:
    slowest = schedule(replace(LASTING, random=lambda: 1.0))
    assert slowest[:4] == [2.0, 6.0, 14.0, 30.0]
    assert (len(slowest), 23 * 3600 < slowest[-1] <= 86_400) == (56, True)
    middle = schedule(replace(LASTING, random=lambda: 0.5))
    assert 90 <= len(middle) <= 120
    assert max(after - before for before, after in pairwise(middle)) <= 1800
    quickest = LASTING.delay_s(AWAY, 12, NOW, 0.0)
    assert quickest is not None
    assert quickest >= 1.0


@pytest.mark.parametrize("attempts", [1, 5, 12, 2_000])
def test_those_who_failed_together_do_not_come_back_together(attempts: int) -> None:
    delays = [LASTING.delay_s(AWAY, attempts, NOW) or 0.0 for _ in range(2_000)]
    longest = min(2.0**attempts if attempts < 50 else 1e9, 1800.0)
    width = (longest - 1.0) / 10
    tenths = [sum(1.0 + n * width <= delay < 1.0 + (n + 1) * width for delay in delays) for n in range(10)]
    assert sum(tenths) >= 1_999
    assert max(tenths) < 300


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_repeated(status: int) -> None:
    assert LASTING.delay_s(FetchResponse(status, "", {}), 50, NOW) is not None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 501])
def test_what_stays_is_not(status: int) -> None:
    assert LASTING.delay_s(FetchResponse(status, "", {}), 1, NOW) is None


def test_a_destination_may_say_when_to_come_again() -> None:
    answer = FetchResponse(429, "", {"retry-after": "1800"})
    assert 1800 <= (LASTING.delay_s(answer, 1, NOW) or 0) <= 1801
    assert LASTING.delay_s(FetchResponse(503, "", {"retry-after": "86400"}), 1, NOW) == 3600


def test_a_function_may_ask_for_less() -> None:
    three = LASTING.wanted_by(Retry(attempts=3))
    assert len(schedule(three)) == 2
    short = schedule(LASTING.wanted_by(Retry(max_age_s=60)))
    assert short[-1] <= 60


def test_the_operator_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().retries == LASTING
    monkeypatch.setenv("HOGLAB_DELIVERY_RETRIES", "PostHog")
    assert load().retries == POSTHOG
    monkeypatch.setenv("HOGLAB_DELIVERY_RETRIES", "90m")
    assert load().retries.max_age_s == 5400
    for wrong in ("", "3", "0h", "30s", "8d", "1.5h", "-1h", "forever"):
        monkeypatch.setenv("HOGLAB_DELIVERY_RETRIES", wrong)
        with pytest.raises(SettingsError, match=r"HOGLAB_DELIVERY_RETRIES: .*posthog.*24h"):
            load()
    assert parse_policy("7d").max_age_s == LONGEST_PATIENCE_S == MAX_AGE_S


# --- a run that waits


@pytest.fixture
def patient(house: House) -> House:
    house.close()
    house.options = {"retries": SOON}
    house.open()
    return house


def test_many_attempts_end_well(patient: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number < 8 else 200)
    function = patient.create("fetch(inputs.url)", values={"url": receiver.url})
    patient.run(stored())
    assert len(receiver.hits) == 9
    assert patient.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}
    keys = {hit.headers["idempotency-key"] for hit in receiver.hits}
    assert len(keys) == 1


def test_the_log_says_when_the_next_attempt_is(house: House) -> None:
    house.close()
    house.options = {"retries": replace(LASTING, step_s=600.0)}
    house.open()
    function = house.create("fetch('http://127.0.0.1:1/')")
    house.dispatch(stored())
    house.delivery.start()
    [line] = wait_for(lambda: [text for level, text in house.logs(function) if level == "error"])
    assert (
        "The connection was refused: nothing accepts connections at 127.0.0.1:1. Retrying. Next attempt at "
        in line
    )
    due = datetime.fromisoformat(line.rpartition(" ")[2].rstrip("."))
    assert timedelta(minutes=9) < due - datetime.now(due.tzinfo) <= timedelta(minutes=20)
    [result] = house.results()
    assert result["status"] == "running"
    assert "The connection was refused" in result["error_message"]


# --- the circuit breaker


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock, patience_s: float = 86_400.0) -> DestinationBreakers:
    breakers = DestinationBreakers(clock, lambda: 1.0)
    for number in range(FAILURES):
        assert breakers.allowed("f", 5) == 5, number
        breakers.note("f", "h:80", patience_s, failed=True)
    return breakers


def test_a_probe_that_finds_no_run_is_not_looked_for_without_a_pause() -> None:
    """All runs may wait for an earlier one of their order key: then nothing begins, however often it is asked."""
    clock = Clock()
    breakers = DestinationBreakers(clock, lambda: 1.0)
    for _ in range(FAILURES):
        breakers.note("f", "a:443", 3600.0, failed=True)
    clock.now += LONGEST_S
    for _ in range(3):
        assert breakers.allowed("f", 5) == 1
        assert breakers.wait_s() == LEAST_WAIT_S
    assert breakers.allowed("f", 1) == 1
    assert breakers.wait_s() is None


def test_a_breaker_lets_probes_through_that_become_rare() -> None:
    clock = Clock()
    breakers = opened(clock)
    assert breakers.is_open("f")
    probes = []
    while clock.now < 3600:
        if breakers.allowed("f", 5):
            assert breakers.allowed("f", 5) == 1
            breakers.began("f")
            assert breakers.allowed("f", 5) == 0
            probes.append(clock.now)
            clock.now += 0.01
            breakers.note("f", "h:80", 86_400.0, failed=True)
        else:
            clock.now += breakers.wait_s() or 0.0
    assert probes[0] <= 1.0
    assert 60 <= len(probes) <= 75
    assert max(after - before for before, after in pairwise(probes)) <= 1.1 * LONGEST_S
    assert breakers.note("f", "h:80", 86_400.0, failed=False)
    assert (breakers.allowed("f", 5), breakers.is_open("f"), breakers.wait_s()) == (5, False, None)


def test_a_success_between_failures_keeps_it_closed() -> None:
    breakers = DestinationBreakers(Clock())
    for number in range(20 * FAILURES):
        breakers.note("f", "h:80", 86_400.0, failed=number % FAILURES > 0)
    assert breakers.allowed("f", 5) == 5


def test_a_function_with_several_destinations_has_none() -> None:
    clock = Clock()
    breakers = opened(clock)
    breakers.note("f", "other:80", 86_400.0, failed=True)
    assert breakers.allowed("f", 5) == 5
    for _ in range(5 * FAILURES):
        breakers.note("f", "h:80", 86_400.0, failed=True)
    assert breakers.allowed("f", 5) == 5


def test_runs_of_few_attempts_are_not_held_back_and_old_ones_may_fail() -> None:
    clock = Clock()
    assert opened(clock, 0.0).allowed("f", 5) == 5
    breakers = opened(clock, 3600.0)
    assert breakers.allowed("f", 5) == 0
    clock.now += 3601.0
    assert breakers.allowed("f", 5) == 5


def test_an_outage_costs_few_attempts_and_nothing_is_lost(
    patient: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = True
    receiver.answer = lambda request, _number: web.Response(
        status=503 if away and request.path == "/away" else 200
    )
    function = patient.create("fetch(inputs.url)", values={"url": f"{receiver.url}/away"})
    patient.dispatch(*[stored() for _ in range(5)])
    patient.delivery.start()
    wait_for(lambda: patient.delivery.breakers.is_open(function["id"]))
    patient.dispatch(*[stored() for _ in range(500)])
    patient.create(
        "fetch(inputs.url)", values={"url": f"{receiver.url}/well"}, name="well", filters=ONLY_WELL
    )
    patient.dispatch(*[stored("well") for _ in range(20)])
    wait_for(lambda: sum(hit.path == "/well" for hit in receiver.hits) == 20)
    assert sum(hit.path == "/away" for hit in receiver.hits) < 100
    patient.delivery.backpressure.max_backlog = 100
    assert patient.delivery.backpressure.for_any(), "whose destination is away holds up nobody"
    away = False
    patient.wait_idle()
    assert patient.metrics(function)["succeeded"] == 525


ONLY_WELL = {"events": [{"id": "well", "type": "events"}]}


# --- a share of the queue for each project


def test_a_project_with_much_that_is_due_does_not_stop_the_events_of_others(house: House) -> None:
    organization = house.accounts.project(1)
    assert organization is not None
    other = house.accounts.create_project(organization.organization_id, "Other")
    backpressure = house.delivery.backpressure
    backpressure.max_backlog, backpressure.now = 40, lambda: NOW + timedelta(days=400)
    house.create("print(1)")
    house.dispatch(*[stored() for _ in range(60)])
    assert not backpressure.for_any(), "who is alone waits for his own"
    wanted = {"type": "destination", "name": "quiet", "enabled": True, "hog": "print(1)"}
    function = house.functions.create(other, None, FunctionPatch(wanted))
    assert backpressure.for_any()
    house.dispatch(*[stored(project_id=other.id) for _ in range(40 // PROJECT_PART)])
    assert not backpressure.for_any(), "two projects have more than there is"
    assert backpressure.left_to(function["id"]) > 0


def test_functions_of_a_project_together_have_so_many_waiting_at_most(house: House) -> None:
    backpressure = house.delivery.backpressure
    backpressure.max_waiting_of_project = 10
    one, another = house.create("print(1)", name="one"), house.create("print(1)", name="another")
    house.dispatch(*[stored() for _ in range(6)])
    backpressure.now = lambda: datetime.now(NOW.tzinfo) + timedelta(days=1)
    assert backpressure.left_to(one["id"]) <= 0
    assert backpressure.left_to(another["id"]) <= 0
    house.dispatch(stored())
    assert {result["error_kind"] for result in house.results() if result["status"] == "failed"} == {
        "queue_full"
    }


# --- what the server's log says


def result(status: Any, error: str | None = None, function_id: str = "f") -> InvocationResult:
    return InvocationResult("i", 1, function_id, status, 1, 1, error_message=error)


def test_a_streak_of_failures_is_told_when_it_begins_grows_and_ends() -> None:
    clock = Clock()
    streaks = Streaks(clock)
    with capture_logs() as lines:
        streaks.note(result("succeeded"))
        for _ in range(150):
            streaks.note(result("failed", "no"))
        streaks.note(result("succeeded"))
        streaks.note(result("cancelled"))
    told = [(line["event"], line["failures"]) for line in lines]
    expected = [
        ("function_fails", 1),
        ("function_fails", 10),
        ("function_fails", 100),
        ("function_recovered", 150),
    ]
    assert told == expected
    assert lines[0]["error"] == "no"


def test_a_function_that_fails_now_and_then_is_told_of_once_a_minute() -> None:
    clock = Clock()
    streaks = Streaks(clock)
    with capture_logs() as lines:
        for _ in range(100):
            streaks.note(result("running", "not yet"))
            streaks.note(result("running"))
            streaks.note(result("succeeded"))
            clock.now += QUIET_S / 10
    assert sum(line["event"] == "function_fails" for line in lines) == 10
