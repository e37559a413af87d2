"""One timer for the deadlines of many waits."""

from __future__ import annotations

import asyncio

from hoglab.http.requests.deadlines import Deadlines


def wait(forever: asyncio.Event, timeout_s: float) -> asyncio.Task[bool]:
    """A task that waits under a deadline; True when it was cancelled by that."""

    async def work() -> bool:
        task = asyncio.current_task()
        assert task is not None
        Deadlines.here().begin(task, timeout_s)
        try:
            await forever.wait()
        except asyncio.CancelledError:
            return Deadlines.here().end(task)
        return Deadlines.here().end(task)

    return asyncio.create_task(work())


def test_only_those_who_are_late_are_cancelled():
    async def main() -> list[bool]:
        forever = asyncio.Event()
        late, patient = wait(forever, 0.01), wait(forever, 30)
        also_late = wait(forever, 0.02)
        assert await late
        assert await also_late
        forever.set()
        return [patient.done(), await patient]

    assert asyncio.run(main()) == [False, False]


def test_a_cancellation_by_others_is_not_a_deadline():
    async def main() -> bool:
        task = wait(asyncio.Event(), 30)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) is False


def test_each_loop_has_its_own():
    async def main() -> Deadlines:
        assert Deadlines.here() is Deadlines.here()
        return Deadlines.here()

    assert asyncio.run(main()) is not asyncio.run(main())
