"""Waits that share a timer do what `asyncio.timeout` does for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from hoglab.delivery.outbound.deadlines import SharedTimeout


async def late(deadlines: SharedTimeout) -> str:
    try:
        with deadlines.limit():
            await asyncio.Event().wait()
    except TimeoutError:
        return "late"
    return "in time"


def run(story: Callable[[], Awaitable[None]], factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        await story()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_all_that_take_too_long_are_ended_and_their_tasks_go_on(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        deadlines = SharedTimeout(0.05)

        async def quick() -> str:
            with deadlines.limit():
                await asyncio.sleep(0)
            return "in time"

        waits = [late(deadlines), quick(), late(deadlines)]
        assert await asyncio.gather(*waits) == ["late", "in time", "late"]
        assert await late(deadlines) == "late"  # the timer was set again
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        deadlines.close()

    run(story, factory)


def test_who_is_cancelled_by_others_is_not_late() -> None:
    async def story() -> None:
        deadlines = SharedTimeout(60)
        task = asyncio.create_task(late(deadlines))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadlines.close()

    run(story, uvloop.new_event_loop)


def test_errors_pass_through() -> None:
    async def story() -> None:
        deadlines = SharedTimeout(60)
        with pytest.raises(ValueError, match="wrong"), deadlines.limit():
            raise ValueError("wrong")
        deadlines.close()

    run(story, uvloop.new_event_loop)


def test_one_that_goes_on_is_asked_once() -> None:
    """It does not keep the timer from those that come after it."""

    async def story() -> None:
        deadlines = SharedTimeout(0.02)
        asked = 0

        async def stubborn() -> None:
            nonlocal asked
            with deadlines.limit():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    asked += 1
                    assert await late(deadlines) == "late"

        await stubborn()
        assert asked == 1
        deadlines.close()

    run(story, uvloop.new_event_loop)
