"""The worker among failures: killed processes, slow functions, shutdown (spec: hog-runtime 4.9)."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import PATIENCE_S, wait_for

from hoglab.delivery.worker import WorkerLimits
from hoglab.storage.database import tables
from hoglab.storage.invocations import ClaimedInvocation
from hoglab.storage.invocations.janitor import MAX_RESETS


class Child:
    """A process that works off a house's queue."""

    def __init__(self, house: House, step_s: float) -> None:
        command = [sys.executable, "-m", "tests.delivery.child", str(house.folder), house.key, str(step_s)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate("", timeout=PATIENCE_S)
        assert self.process.returncode == 0


def finals(house: House) -> dict[str, str]:
    """Status by invocation id, of those that are over."""
    rows = house.rows("invocation_result", "invocation_id, status", "version")
    return {name: status for name, status in rows if status != "running"}


@pytest.mark.faults
@rule("H4.1")
def test_killed_between_request_and_save_the_same_request_is_sent_again(
    house: House, receiver: Receiver
) -> None:
    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    receiver.answer = lambda request, number: hang(request) if number == 0 else web.Response()
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    house.dispatch(stored())
    child = Child(house, 0.01)
    wait_for(lambda: len(receiver.hits) == 1)
    child.kill()

    child = Child(house, 0.01)
    wait_for(lambda: list(finals(house).values()) == ["succeeded"])
    child.end()
    first, second = receiver.hits
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert second.headers["idempotency-key"] == f"{next(iter(finals(house)))}-0"


@pytest.mark.faults
@rule("H4.2")
def test_killed_during_back_off_it_goes_on_after_the_restart(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=503 if number == 1 else 200)
    function = house.create(
        "print('a') let r := fetch(inputs.url, {'body': 'one'}) "
        "print('b', fetch(inputs.url, {'body': 'two'}).status)",
        values={"url": receiver.url},
    )
    house.dispatch(stored())
    child = Child(house, 1.5)
    wait_for(lambda: len(receiver.hits) == 2 and len(house.logs(function)) == 2)
    child.kill()

    child = Child(house, 1.5)
    wait_for(lambda: list(finals(house).values()) == ["succeeded"])
    child.end()
    assert [hit.body for hit in receiver.hits] == [b"one", b"two", b"two"]
    keys = [hit.headers["idempotency-key"][-2:] for hit in receiver.hits]
    assert keys == ["-0", "-1", "-1"]
    assert receiver.hits[2].at - receiver.hits[1].at >= 1.4
    assert [text for level, text in house.logs(function) if level == "info"] == ["a", "b, 200"]


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again_under_load_nothing_is_lost(house: House, receiver: Receiver) -> None:
    def answer(_request: web.Request, number: int) -> web.Response:
        return web.Response(status=503 if number % 7 == 0 else 200)

    receiver.answer = answer
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    expected: set[str] = set()
    chance = random.Random(5)
    for _ in range(2):
        for _ in range(3):  # the fourth time would make poison pills
            events = [stored() for _ in range(60)]
            expected |= {str(event.row.uuid) for event in events}
            house.dispatch(*events)
            child = Child(house, 0.05)
            time.sleep(chance.uniform(0.0, 0.12))  # the moment of the kill is what varies here
            child.kill()
        child = Child(house, 0.05)
        goal = len(expected)
        wait_for(lambda goal=goal: len(finals(house)) == goal)  # type: ignore[misc]
        child.end()
    assert {hit.body.decode() for hit in receiver.hits} == expected
    by_key: dict[str, set[bytes]] = {}
    for hit in receiver.hits:
        by_key.setdefault(hit.headers["idempotency-key"], set()).add(hit.body)
    assert len(by_key) == len(expected)
    assert all(len(bodies) == 1 for bodies in by_key.values())
    assert set(finals(house).values()) <= {"succeeded", "failed"}
    # One in seven answers is a failure; three in a row for one invocation are rare.
    assert Counter(finals(house).values())["failed"] <= len(expected) * 0.05
    assert {result["error_kind"] for result in house.results()} <= {"", "http_5xx"}


@rule("H4.5")
def test_what_loses_its_worker_again_and_again_is_given_up(house: House, receiver: Receiver) -> None:
    house.close()
    house.options["worker"] = WorkerLimits(idle_s=0.05, sweep_s=0.05)
    house.open()
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(stored())
    invocation = tables.invocation
    with house.queue_database.write() as connection:  # so that this worker does not take it
        connection.execute(invocation.update().values(scheduled_at=datetime(2100, 1, 1, tzinfo=UTC)))
    house.delivery.start()
    with house.queue_database.write() as connection:  # as another worker leaves it that died over and over
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        connection.execute(
            invocation.update().values(status="running", heartbeat_at=long_ago, reset_count=MAX_RESETS)
        )
    house.wait_idle()
    assert receiver.hits == []
    [result] = house.results()
    assert (result["status"], result["error_kind"]) == ("failed", "poison_pill")
    assert house.metrics(function) == {"triggered": 1, "failed": 1}
    assert [level for level, _ in house.logs(function)] == ["error"]


STOP_S = 3.0
"""Seven tenths of it are for the turns at hand; the rest, for writing, is plenty on a busy machine. A request that
hangs lasts longer: until its limit of five seconds."""


@rule("H4.7")
def test_stopping_puts_back_what_takes_too_long(house: House, receiver: Receiver) -> None:
    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    receiver.answer = lambda request, number: hang(request) if number == 0 else web.Response()
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: receiver.hits)
    as_long = threading.Event()
    plain_wait = threading.Timer(STOP_S, as_long.set)
    plain_wait.start()
    assert house.delivery.stop(STOP_S)
    assert not as_long.is_set(), "it took longer than it was given"
    plain_wait.cancel()
    assert house.results() == [], "the request was given up, not waited for"
    assert house.rows("invocation", "status, reset_count", "id") == [("available", 0)]
    house.restart()
    house.run()
    assert len(receiver.hits) == 2
    assert receiver.hits[0].headers["idempotency-key"] == receiver.hits[1].headers["idempotency-key"]


def test_stopping_lets_quick_turns_end(house: House, receiver: Receiver) -> None:
    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.Response()

    receiver.answer = lambda request, _number: slow(request)
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: receiver.hits)
    assert house.delivery.stop(5.0)
    assert list(finals(house).values()) == ["succeeded"]


def test_a_function_that_hangs_does_not_hold_up_another(house: House, receiver: Receiver) -> None:
    house.close()
    house.options = {"worker": WorkerLimits(in_flight=20, per_function=5, claim=5, idle_s=0.05)}
    house.open()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    receiver.answer = lambda request, _: hang(request) if request.path == "/slow" else web.Response()
    house.create("fetch(inputs.url)", values={"url": f"{receiver.url}/slow"}, name="slow")
    house.dispatch(*[stored() for _ in range(60)])
    house.create("fetch(inputs.url)", values={"url": f"{receiver.url}/quick"}, name="quick")
    house.dispatch(*[stored() for _ in range(10)])
    house.delivery.start()
    wait_for(lambda: sum(hit.path == "/quick" for hit in receiver.hits) == 10)
    assert sum(hit.path == "/slow" for hit in receiver.hits) <= 10
    assert house.delivery.stop(0.5)


def two_at_a_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function may have two runs at work, and nobody looks again by himself whether it has fewer."""
    monkeypatch.setattr("hoglab.delivery.worker.PASSED_OVER_S", 60)
    house.close()
    house.options = {"worker": WorkerLimits(per_function=2, claim_each=2)}
    house.open()


def deliver_twenty(house: House, receiver: Receiver) -> None:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(*[stored() for _ in range(20)])
    house.delivery.start()
    house.wait_idle()
    assert len(receiver.hits) == 20


def test_a_function_that_had_all_it_may_goes_on_as_soon_as_a_run_ends(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_at_a_time(house, monkeypatch)
    deliver_twenty(house, receiver)


def test_a_run_that_ends_just_before_a_claim_makes_room_for_the_next_one(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim leaves out the function, which had all it may, and must not sleep over what has ended since."""
    two_at_a_time(house, monkeypatch)
    claim, wake, ended = house.queue.claim, house.queue.arrivals.wake, threading.Event()

    def late(**options: Any) -> list[ClaimedInvocation]:
        if options["exclude_functions"]:
            assert ended.wait(20)
        return claim(**options)

    def noted() -> None:
        wake()
        ended.set()

    monkeypatch.setattr(house.queue, "claim", late)
    monkeypatch.setattr(house.queue.arrivals, "wake", noted)
    deliver_twenty(house, receiver)


def test_a_flood_is_taken_in_portions(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, portions = house.queue.claim, []

    def noted(**options: Any) -> list[ClaimedInvocation]:
        claimed = claim(**options)
        portions.append(len(claimed))
        return claimed

    monkeypatch.setattr(house.queue, "claim", noted)
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(*[stored() for _ in range(200)])
    house.delivery.start()
    house.wait_idle()
    assert (sum(portions), max(portions)) == (200, WorkerLimits().claim_each)


@rule("H9.2")
def test_a_host_gets_a_limited_number_of_requests_at_a_time(house: House, receiver: Receiver) -> None:
    house.close()
    house.options = {"worker": WorkerLimits(per_destination=3, idle_s=0.05)}
    house.open()
    now, most = 0, 0

    async def count(_request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return web.Response()

    receiver.answer = lambda request, _number: count(request)
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.run(*[stored() for _ in range(30)])
    assert len(receiver.hits) == 30
    assert most <= 3


def test_endless_programs_do_not_stop_requests_of_others(house: House, receiver: Receiver) -> None:
    house.create("while (true) {}", name="endless")
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: receiver.hits)
    house.wait_idle()
    assert sorted(finals(house).values()) == ["failed", "succeeded"]


@pytest.mark.logs_exceptions
def test_a_full_disk_delays_results_and_loses_none(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    finish = house.queue.finish
    calls = 0

    def failing(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise OSError("no space left on device")
        return finish(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(house.queue, "finish", failing)
    house.run(*[stored() for _ in range(5)])
    assert len(receiver.hits) == 5
    assert list(finals(house).values()) == ["succeeded"] * 5


def test_work_left_by_an_earlier_process_is_taken_up(
    house: House, receiver: Receiver, tmp_path: Path
) -> None:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.dispatch(stored())
    assert len(house.queue.claim()) == 1
    house.restart()
    house.run()
    assert len(receiver.hits) == 1


@rule("H9.1")
def test_hanging_destinations_leave_room_for_the_others(house: House, receiver: Receiver) -> None:
    """Five functions with long lines whose destination never answers, and one that comes after all of them."""
    house.close()
    house.options = {"worker": WorkerLimits(in_flight=32, per_function=32, per_destination=32, idle_s=0.05)}
    house.open()
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path != "/quick":
            await release.wait()
        return web.Response()

    receiver.answer = lambda request, _number: answer(request)
    for number in range(5):
        house.create(
            "fetch(inputs.url)",
            values={"url": f"http://127.0.0.{number + 2}:{receiver.port}/hang"},
            filters={"events": [{"id": "hang", "type": "events"}]},
        )
    house.create(
        "fetch(inputs.url)",
        values={"url": f"{receiver.url}/quick"},
        filters={"events": [{"id": "quick", "type": "events"}]},
    )
    house.dispatch(*(stored("hang") for _ in range(40)))
    house.delivery.start()
    wait_for(lambda: len(receiver.hits) >= 20)
    house.dispatch(*(stored("quick") for _ in range(30)))
    wait_for(lambda: sum(hit.path == "/quick" for hit in receiver.hits) == 30)
    assert sum(hit.path == "/hang" for hit in receiver.hits) < 32
    receiver.call(release.set)
    house.wait_idle()
    assert Counter(finals(house).values()) == {"succeeded": 230}


def test_stopping_does_not_wait_for_work(house: House) -> None:
    house.options["worker"] = WorkerLimits(idle_s=600)
    house.restart()
    house.delivery.start()
    assert house.delivery.stop(60)
