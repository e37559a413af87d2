"""Kill -9 of the processes that run bodies, and bodies that mean harm: every invocation reaches its end.

``make soak`` kills 200 times.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from tests.delivery.conftest import House, Receiver, stored
from tests.generated import SEED
from tests.waiting import wait_for

from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.execution.retries import RetryPolicy

KILLS = int(os.environ.get("HOGLAB_TEST_BODY_KILLS", "12"))
LOAD = 80
RETRIES = int(os.environ.get("HOGLAB_TEST_RETRIES", "2000"))

HOSTILE = {
    "loops": "while (true) {}",
    "recurses": "fn f(n) { return f(n + 1) } return f(0)",
    "allocates": "let a := [] while (true) { a := arrayPushBack(a, concat('some text of its own ', length(a))) }",
    "doubles": "let s := 'x' while (true) { s := concat(s, s) }",
    "catches": "while (true) { try { throw Error('again') } catch { } }",
    "floods": "while (true) { print(range(3000)) }",
}


def finals(house: House) -> dict[str, str]:
    """Status by invocation id, of those that are over."""
    rows = house.rows("invocation_result", "invocation_id, status", "version")
    return {name: status for name, status in rows if status != "running"}


def keys_by_body(receiver: Receiver) -> dict[str, set[str]]:
    keys: dict[str, set[str]] = {}
    for hit in receiver.hits:
        keys.setdefault(hit.body.decode(), set()).add(hit.headers["idempotency-key"])
    return keys


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900 + 10 * KILLS)
def test_killed_processes_lose_nothing(house: House, receiver: Receiver) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    receiver.answer = lambda _request, number: web.Response(status=503 if number % 11 == 0 else 200)
    house.create(
        "print('a') fetch(inputs.url, {'body': event.uuid}) print('b')", values={"url": receiver.url}
    )
    pool = house.bodies
    assert pool is not None
    expected: set[str] = set()
    house.delivery.start()
    for _ in range(KILLS):
        events = [stored() for _ in range(LOAD)]
        expected |= {str(event.row.uuid) for event in events}
        before = len(receiver.hits)
        house.dispatch(*events)
        goal = before + dice.randrange(LOAD)
        wait_for(lambda goal=goal: len(receiver.hits) >= goal)  # type: ignore[misc]
        wait_for(pool.processes)  # those that were killed before may be on their way still
        processes = pool.processes()
        for process in dice.sample(processes, dice.randint(1, len(processes))):
            os.kill(process, signal.SIGKILL)
    wait_for(lambda: house.queue.counts.backlog() == 0)
    over = finals(house)
    assert len(over) == len(expected)
    assert set(over.values()) <= {"succeeded", "failed"}
    keys = keys_by_body(receiver)
    assert keys.keys() == expected
    assert all(len(names) == 1 for names in keys.values())
    # What fails, fails of the destination's answers, not of the kills.
    assert {result["error_kind"] for result in house.results()} <= {"", "http_5xx"}


@pytest.mark.faults
def test_hostile_bodies_end_and_cost_no_one_else(house: House, receiver: Receiver) -> None:
    hostile = {name: house.create(source, name=name) for name, source in HOSTILE.items()}
    good = house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    events = [stored() for _ in range(2)]
    house.dispatch(*events)
    house.delivery.start()
    wait_for(lambda: house.queue.counts.backlog() == 0)
    statuses: dict[str, Counter[str]] = {}
    for result in house.results():
        statuses.setdefault(result["function_id"], Counter())[result["status"]] += 1
    assert statuses[good["id"]] == {"succeeded": 2}
    assert keys_by_body(receiver).keys() == {str(event.row.uuid) for event in events}
    for name, function in hostile.items():
        assert statuses[function["id"]] == {"failed": 2}, name
    kinds = {result["error_kind"] for result in house.results() if result["function_id"] != good["id"]}
    assert kinds <= {"timeout", "oom", "hog_error"}


@pytest.mark.faults
def test_processes_give_back_what_hostile_bodies_took(house: House, receiver: Receiver) -> None:
    """After the storm, no process is larger than one that has only just run something harmless."""
    pool = BodyPool(BodyLimits(processes=1))
    house.close()
    house.bodies = pool
    house.open()
    try:
        house.create("return 1")
        house.create(HOSTILE["allocates"])
        house.create(HOSTILE["doubles"])
        house.dispatch(stored())
        house.delivery.start()
        wait_for(lambda: house.queue.counts.backlog() == 0)
        assert all(_resident(process) < 384 << 20 for process in pool.processes())
    finally:
        house.close()
        pool.close(1.0)
        house.bodies = None
        house.open()


def _resident(process: int) -> int:
    try:
        with open(f"/proc/{process}/statm") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pytest.skip("there is no /proc here")


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_retries_that_are_due_at_once(house: House, receiver: Receiver) -> None:
    down = True

    def answer(_request: Any, _number: int) -> web.Response:
        return web.Response(status=503 if down else 200)

    receiver.answer = answer
    house.close()
    house.options["retries"] = RetryPolicy(step_s=3600.0, jitter_s=0.0, max_backoff_s=3600.0)
    house.open()
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    house.delivery.start()
    for _ in range(RETRIES // 500):
        house.dispatch(*(stored() for _ in range(500)))
    wait_for(lambda: house.queue.counts.stats().running == 0 and len(house.results()) == RETRIES)
    assert {result["status"] for result in house.results()} == {"running"}
    assert house.delivery.stop(10)  # and a restart while all of them wait
    down = False
    house.restart()
    with house.queue_database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE invocation SET scheduled_at = 0 WHERE status = 'available'")
    first = len(receiver.hits)
    house.delivery.start()
    wait_for(lambda: house.queue.counts.backlog() == 0)
    assert Counter(finals(house).values()) == {"succeeded": RETRIES}
    assert len(receiver.hits) - first == RETRIES
    keys = keys_by_body(receiver)
    assert len(keys) == RETRIES
    assert all(len(names) == 1 for names in keys.values())
