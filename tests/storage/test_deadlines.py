"""Deadlines: what takes too long is interrupted, what ends in time never is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hoglab.storage.event_store.deadlines import QueryDeadlines


@pytest.fixture
def deadlines() -> Iterator[QueryDeadlines]:
    deadlines = QueryDeadlines()
    yield deadlines
    deadlines.close()


def test_what_takes_too_long_is_interrupted_in_the_order_of_the_deadlines(deadlines: QueryDeadlines) -> None:
    order: list[str] = []
    done = threading.Event()

    def last() -> None:
        order.append("late")
        done.set()

    with (
        deadlines.within(0.05, last) as late,
        deadlines.within(0.01, lambda: order.append("early")) as early,
        deadlines.within(1000, lambda: order.append("never")) as never,
    ):
        assert done.wait(20)
    assert order == ["early", "late"]
    assert [early.expired, late.expired, never.expired] == [True, True, False]


def test_nothing_is_interrupted_after_its_block(deadlines: QueryDeadlines) -> None:
    inside = threading.Event()
    outside: list[bool] = []

    def interrupt() -> None:
        outside.append(not inside.is_set())

    for _ in range(300):
        inside.set()
        with deadlines.within(0.0001, interrupt):
            pass
        inside.clear()
    assert not any(outside)


def test_threads_have_deadlines_of_their_own(deadlines: QueryDeadlines) -> None:
    expired: list[bool] = []

    def work(timeout_s: float) -> None:
        interrupted = threading.Event()
        with deadlines.within(timeout_s, interrupted.set) as deadline:
            interrupted.wait(0.2)
        expired.append(deadline.expired)

    threads = [threading.Thread(target=work, args=(0.01 if number % 2 else 1000,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(expired) == [False] * 5 + [True] * 5


def test_closing_without_ever_watching() -> None:
    QueryDeadlines().close()
