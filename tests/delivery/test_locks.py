"""Locks of runs: a worker that stood still sends nothing for runs that another process has taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.runs.locks import SURE_FOR_S, ClockReading, Locks
from hoglab.delivery.worker import WorkerLimits
from hoglab.storage.database import tables
from hoglab.storage.invocations import ClaimedInvocation
from hoglab.storage.invocations.postgres.workers import WORKER_BEAT_EVERY_S, WORKER_DEAD_AFTER_S

START = datetime(2026, 1, 1, tzinfo=UTC)


def claimed(run_id: str, lock: str = "t") -> ClaimedInvocation:
    return ClaimedInvocation(run_id, 1, "f", None, "hog", 0, START, 0, b"", lock, START)


class Queue:
    """Says which runs are still this worker's, and counts how often it is asked."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.asked: list[dict[str, str]] = []
        self.failures = 0
        self.told: list[str] = []
        self.at = ClockReading(1_000.0, 5_000.0)
        self.locks = Locks(self.heartbeat, self.told.append, retry_s=0, now=lambda: self.at)

    async def heartbeat(self, tokens: dict[str, str]) -> frozenset[str]:
        self.asked.append(tokens)
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        return frozenset(tokens) - self.lost

    def take(self, *runs: ClaimedInvocation) -> None:
        for run in runs:
            self.locks.take(run, self.at)

    async def ensured(self, *runs: ClaimedInvocation) -> list[str]:
        """Return the ids of the runs that may go on."""
        answers = await asyncio.gather(*(self.locks.ensure(run) for run in runs), return_exceptions=True)
        assert all(answer is None or isinstance(answer, asyncio.CancelledError) for answer in answers)
        return [run.id for run, answer in zip(runs, answers, strict=True) if answer is None]


def ran(test: Callable[[Queue], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await test(Queue())

    return asyncio.run(main())


RUNS = [claimed(f"r{number}") for number in range(8)]


@pytest.mark.parametrize(
    "passed",
    [(0.0, 0.0), (SURE_FOR_S, SURE_FOR_S), (SURE_FOR_S + 1, 0.0), (0.0, 60.0), (60.0, 60.0), (60.0, -60.0)],
)
def test_the_queue_is_asked_once_for_all_runs_when_a_lock_may_have_ended(passed: tuple[float, float]) -> None:
    async def test(queue: Queue) -> None:
        queue.take(*RUNS)
        queue.lost = {"r1", "r5"}
        queue.at = ClockReading(queue.at.monotonic_s + passed[0], queue.at.wall_s + passed[1])
        in_doubt = max(passed) > SURE_FOR_S
        going_on = await queue.ensured(*RUNS)
        assert going_on == [run.id for run in RUNS if not in_doubt or run.id not in queue.lost]
        assert len(queue.asked) == int(in_doubt)
        assert queue.told == (["r1", "r5"] if in_doubt else [])
        assert await queue.ensured(*(run for run in RUNS if run.id in going_on)) == going_on
        assert len(queue.asked) == int(in_doubt), "the answer counts as a renewal"

    ran(test)


def test_a_later_claim_says_nothing_of_earlier_runs() -> None:
    async def test(queue: Queue) -> None:
        queue.take(RUNS[0])
        queue.lost = {"r0"}
        queue.at = ClockReading(queue.at.monotonic_s + 60, queue.at.wall_s + 60)
        queue.take(RUNS[1])
        assert await queue.ensured(RUNS[1]) == ["r1"]
        assert queue.asked == []
        assert await queue.ensured(RUNS[0]) == []

    ran(test)


def test_a_run_that_was_claimed_again_is_lost_to_its_earlier_turn() -> None:
    async def test(queue: Queue) -> None:
        queue.take(RUNS[0])
        again = claimed("r0", "another token")
        queue.take(again)
        assert await queue.ensured(RUNS[0], again) == ["r0"]
        queue.locks.drop(RUNS[0])
        assert await queue.ensured(again) == ["r0"], (
            "the end of the earlier turn does not touch the later one's lock"
        )
        assert queue.told == []

    ran(test)


@pytest.mark.logs_exceptions
def test_nothing_goes_on_while_the_queue_cannot_be_asked() -> None:
    async def test(queue: Queue) -> None:
        queue.take(*RUNS)
        queue.failures = 3
        queue.at = ClockReading(queue.at.monotonic_s + 60, queue.at.wall_s)
        assert await queue.ensured(*RUNS) == [run.id for run in RUNS]
        assert len(queue.asked) == 4

    ran(test)


def test_a_lock_is_doubted_before_another_process_may_take_the_run() -> None:
    assert SURE_FOR_S < WORKER_DEAD_AFTER_S - WORKER_BEAT_EVERY_S


def fenced() -> float:
    """Return the number of runs of this process that did not count, because another one had taken them over."""
    return REGISTRY.get_sample_value("hoglab_delivery_fenced_total") or 0.0


def test_runs_that_were_taken_over_while_the_worker_stood_still_are_not_sent(
    house: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0
    present = ClockReading.now
    monkeypatch.setattr(
        ClockReading,
        "now",
        lambda: ClockReading(present().monotonic_s + passed_s, present().wall_s + passed_s),
    )
    fenced_before = fenced()
    house.close()
    house.options["worker"] = WorkerLimits(per_destination=1, per_destination_slow=1, idle_s=0.05)
    house.open()
    release = asyncio.Event()

    async def hold(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    receiver.answer = lambda request, number: hold(request) if number == 0 else web.Response()
    house.create("fetch(inputs.url, {'body': event.uuid})", values={"url": receiver.url})
    house.dispatch(*[stored() for _ in range(8)])
    house.delivery.start()
    invocation = tables.invocation
    wait_for(lambda: len(receiver.hits) == 1)
    wait_for(lambda: {status for (status,) in house.rows("invocation", "status", "id")} == {"running"})
    with house.queue_database.write() as connection:  # another process takes all of them over
        connection.execute(invocation.update().values(lock_token="of another process"))
    passed_s = 60.0
    receiver.call(release.set)
    wait_for(lambda: fenced() - fenced_before == 8)
    assert len(receiver.hits) == 1
    with house.queue_database.write() as connection:  # which ends, and leaves them
        connection.execute(invocation.update().values(status="available", lock_token=None, heartbeat_at=None))
    house.wait_idle()
    assert len({hit.body for hit in receiver.hits}) == 8
    assert len(receiver.hits) == 9, "the one that was being sent is sent again, as nobody knows of its answer"
