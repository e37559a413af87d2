"""Threads that those who use them share fairly."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from hoglab.fairness.fair_semaphore import Holder, TooManyWaitingError
from hoglab.fairness.fair_threads import WAITING_FOR_EACH_THREAD, FairThreads


class Work:
    """Work that ends when it is told to."""

    def __init__(self, threads: int) -> None:
        self.threads = FairThreads(threads, "test")
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.left: Counter[str] = Counter()

    def _run(self, owner: str) -> str:
        with self.changed:
            self.begun.append(owner)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.left[owner] > 0, PATIENCE_S)
            self.left[owner] -= 1
        return owner

    def _wait_for(self, expected: Counter[str]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: Counter(self.begun) == expected, 10), self.begun

    def ask(self, owner: str, times: int, member: str | None = None) -> list[asyncio.Task[str]]:
        return [
            asyncio.create_task(self.threads.run(Holder(owner, member), lambda: self._run(member or owner)))
            for _ in range(times)
        ]

    def end(self, owner: str, times: int) -> None:
        with self.changed:
            self.left[owner] += times
            self.changed.notify_all()

    async def at_work(self, **expected: int) -> None:
        """Wait until so much was begun of each, and no more."""
        await asyncio.to_thread(self._wait_for, Counter(expected))
        await asyncio.sleep(0.02)
        assert Counter(self.begun) == Counter(expected)


def run(work: Work, test: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(test)
    finally:
        for name in ("a", "b", "c", "d", "a1", "a2", "a3", "a4", "b1"):
            work.end(name, 1_000)
        work.threads.close()


def test_nobody_takes_all_threads() -> None:
    work = Work(4)

    async def test() -> None:
        tasks = work.ask("a", 10)
        await work.at_work(a=3)
        tasks += work.ask("b", 5)
        await work.at_work(a=3, b=1)
        work.end("a", 1)
        await work.at_work(a=3, b=1)  # the last one is for somebody else
        tasks += work.ask("c", 1)
        await work.at_work(a=3, b=1, c=1)
        for owner, times in (("a", 9), ("b", 5), ("c", 1)):
            work.end(owner, times)
        assert Counter(await asyncio.gather(*tasks)) == {"a": 10, "b": 5, "c": 1}

    run(work, test())


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_everything_is_done_whatever_the_number_of_threads(threads: int) -> None:
    work = Work(threads)

    async def test() -> None:
        for owner in "abc":
            work.end(owner, threads * 3)
        done = await asyncio.gather(*(task for owner in "abc" for task in work.ask(owner, threads * 3)))
        assert Counter(done) == dict.fromkeys("abc", threads * 3)

    run(work, test())


def test_too_much_of_one_is_refused() -> None:
    work = Work(1)

    async def test() -> None:
        tasks = work.ask("a", 1 + WAITING_FOR_EACH_THREAD)
        await work.at_work(a=1)
        with pytest.raises(TooManyWaitingError):
            await work.threads.run(Holder("a"), lambda: None)
        others = work.ask("b", 1)
        for owner in "ab":
            work.end(owner, 100)
        assert await asyncio.gather(*others) == ["b"]
        assert len(await asyncio.gather(*tasks)) == 1 + WAITING_FOR_EACH_THREAD

    run(work, test())


def test_a_member_leaves_threads_to_the_others_of_its_owner() -> None:
    work = Work(4)

    async def test() -> None:
        tasks = work.ask("a", 10, "a1")
        await work.at_work(a1=2)
        tasks += work.ask("a", 5, "a2")
        await work.at_work(a1=2, a2=1)
        tasks += work.ask("b", 1, "b1")
        await work.at_work(a1=2, a2=1, b1=1)
        for member in ("a1", "a2", "b1"):
            work.end(member, 10)
        assert Counter(await asyncio.gather(*tasks)) == {"a1": 10, "a2": 5, "b1": 1}

    run(work, test())


def test_members_that_flood_leave_room_to_wait() -> None:
    work = Work(1)
    refused = Counter[str]()

    async def flood(member: str) -> None:
        try:
            await asyncio.gather(*work.ask("a", 1, member))
        except TooManyWaitingError:
            refused[member] += 1

    async def test() -> None:
        tasks = [asyncio.create_task(flood("a1")) for _ in range(3 * WAITING_FOR_EACH_THREAD)]
        await work.at_work(a1=1)
        assert refused["a1"] > 0
        tasks += [asyncio.create_task(flood(member)) for member in ("a2", "a3", "a4")]
        await asyncio.sleep(0.02)
        for member in ("a1", "a2", "a3", "a4"):
            work.end(member, 100)
        await asyncio.gather(*tasks)
        assert set(refused) == {"a1"}

    run(work, test())


def test_who_goes_away_leaves_his_place() -> None:
    work = Work(1)

    async def test() -> None:
        first, waiting, last = work.ask("a", 3)
        await work.at_work(a=1)
        waiting.cancel()
        first.cancel()
        await asyncio.sleep(0.02)
        assert len(work.begun) == 1, "its thread is at work all the same"
        work.end("a", 2)
        assert await last == "a"

    run(work, test())


class Body:
    """Something large that work has in hand."""


def test_work_that_fails_leaves_nothing_in_memory() -> None:
    """A thousand refused requests would keep a thousand bodies until a collection of cycles."""
    bodies: list[weakref.ref[Body]] = []

    def refuse() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        raise ValueError("refused")

    async def go() -> None:
        threads = FairThreads(2, "test")
        for _ in range(5):
            with pytest.raises(ValueError, match="refused"):
                await threads.run(Holder("a"), refuse)
        threads.close(wait=True)
        await asyncio.sleep(0)  # callbacks of the last one

    gc.collect()
    gc.disable()
    try:
        asyncio.run(go())
        assert [body() for body in bodies] == [None] * 5
    finally:
        gc.enable()
