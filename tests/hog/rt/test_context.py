"""Budget, clock, randomness, printing and calls of one execution.

spec: hog-language 8.11; hog-runtime 4.1.
"""

import gc
import time
import uuid
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from hoglab.hog.errors import HogLimit
from hoglab.hog.rt import context
from hoglab.hog.rt.context import (
    CHUNK,
    EXPRESSION_LIMITS,
    FIRST_CHUNK,
    UNMETERED,
    Context,
    Limits,
    activate,
)


class Timer:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def draw(ctx: Context) -> None:
    """A loop without an end of its own."""
    for _ in ctx.ticks:
        pass


def repeat(action: Callable[[int], None], argument: int, times: int) -> None:
    for _ in range(times):
        action(argument)


# Limits


def test_defaults_are_the_specified_ones() -> None:
    limits = Limits()
    assert (limits.time_s, limits.memory_bytes, limits.call_depth) == (5.0, 64 * 1024 * 1024, 1000)
    assert (limits.arguments, limits.async_steps) == (300, 100)
    assert EXPRESSION_LIMITS.time_s == 1.0


def test_ticks_are_counted_exactly() -> None:
    ctx = Context()
    assert ctx.steps == 0
    for drawn, _ in zip(range(1, 25_001), ctx.ticks, strict=False):
        if drawn in (1, 9_999, 10_000, 10_001):
            assert ctx.steps == drawn
    assert ctx.steps == 25_000 or ctx.steps == 25_001  # zip may have drawn one more
    ctx.charge(500)
    assert ctx.steps >= 25_500


def test_step_limit() -> None:
    for most in (3, CHUNK, CHUNK + 1):
        ctx = Context(Limits(max_steps=most))
        with pytest.raises(HogLimit) as failure:
            draw(ctx)
        assert ctx.steps == most
        assert failure.value.kind == "steps"
        assert str(failure.value) == f"Execution exceeded {most} steps"
        assert ctx.tripped is failure.value


def test_step_limit_for_charged_work() -> None:
    ctx = Context(Limits(max_steps=20_000))
    with pytest.raises(HogLimit, match="exceeded 20000 steps"):
        repeat(ctx.charge, 1_000, 100)
    with pytest.raises(HogLimit):
        ctx.charge(CHUNK)


def test_time_limit_in_loops() -> None:
    timer = Timer()
    ctx = Context(Limits(time_s=0.55), timer=timer)
    for _ in zip(range(12_345), ctx.ticks, strict=False):
        pass
    timer.seconds += 1
    with pytest.raises(HogLimit) as failure:
        draw(ctx)
    assert failure.value.kind == "time"
    assert str(failure.value) == f"Execution timed out after 0.55 seconds. Performed {ctx.steps} ops."
    assert 12_345 < ctx.steps < 12_345 + CHUNK
    assert ctx.tripped is failure.value


@pytest.mark.parametrize("tick_s", [0.0001, 0.001, 0.01])
def test_the_clock_is_looked_at_by_time(tick_s: float) -> None:
    """However long ticks take for which nothing is charged, the limit is seen soon after it was reached."""
    timer = Timer()
    began = timer.seconds
    ctx = Context(Limits(time_s=1.0), timer=timer)

    def tick_on() -> None:
        for _ in ctx.ticks:
            timer.seconds += tick_s

    with pytest.raises(HogLimit, match="timed out"):
        tick_on()
    assert timer.seconds - began <= 1.0 + max(0.01, FIRST_CHUNK * tick_s)


def test_time_limit_for_charged_work() -> None:
    timer = Timer()
    ctx = Context(Limits(time_s=1.0), timer=timer)
    ctx.charge(CHUNK)
    timer.seconds += 1.1
    with pytest.raises(HogLimit, match=r"timed out after 1 seconds"):
        ctx.charge(CHUNK)


def test_time_is_cumulative_over_turns_and_stands_still_between_them() -> None:
    timer = Timer()
    ctx = Context(Limits(time_s=1.0), timer=timer)
    timer.seconds += 0.6
    assert ctx.pause() == pytest.approx(0.6)
    timer.seconds += 1_000
    ctx.resume()
    ctx.charge(CHUNK)
    timer.seconds += 0.5
    with pytest.raises(HogLimit, match="timed out"):
        ctx.charge(CHUNK)


def test_time_used_by_earlier_turns_counts() -> None:
    timer = Timer()
    ctx = Context(Limits(time_s=1.0), timer=timer, used_s=0.9)
    ctx.charge(CHUNK)
    timer.seconds += 0.2
    with pytest.raises(HogLimit, match="timed out"):
        ctx.charge(CHUNK)


def test_real_time_runs_out() -> None:
    ctx = Context(Limits(time_s=0.02))
    with pytest.raises(HogLimit, match="timed out"):
        draw(ctx)


def test_a_turn_that_nobody_looks_at_is_measured_without_a_system_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []
    monkeypatch.setattr(time, "thread_time", lambda: read.append(1) or float(len(read)))
    ctx = Context(Limits(time_s=10), timer=time.thread_time)
    ctx.charge(1)
    short = ctx.pause()
    assert 0 < short < 1
    assert read == []
    ctx.resume()
    ctx.charge(CHUNK)  # by the exact timer, 1 s from one reading to the next
    assert len(read) == 2
    assert 2 <= ctx.pause() < 3


def test_a_finished_context_is_freed_at_once() -> None:
    """No reference cycles: short programs must not feed the garbage collector."""

    def clocks() -> tuple[Callable[[], float], Callable[[], float]]:
        return (lambda: 0.0), (lambda: 0.0)

    gc.disable()  # what a collection finds may be of other threads, so what is freed without one is looked at
    try:
        now, timer = clocks()
        ctx = Context(now=now, timer=timer)
        context_is_held, budget_is_held = weakref.ref(now), weakref.ref(timer)
        del now, timer
        next(ctx.ticks)
        ctx.charge(CHUNK)
        assert context_is_held() is not None
        assert budget_is_held() is not None
        del ctx
        assert context_is_held() is None
        assert budget_is_held() is None
    finally:
        gc.enable()


# Memory


def test_memory_limit_without_knowledge_of_live_values() -> None:
    ctx = Context(Limits(memory_bytes=1_000))
    ctx.grow(600)
    ctx.grow(400)
    assert ctx.memory == 1_000
    with pytest.raises(HogLimit) as failure:
        ctx.grow(1)
    assert str(failure.value) == "Memory limit of 1000 bytes exceeded. Tried to allocate 1001 bytes."
    assert failure.value.kind == "memory"
    assert ctx.tripped is failure.value


def test_garbage_does_not_count() -> None:
    ctx = Context(Limits(memory_bytes=10_000))
    live: list[Any] = ["x" * 1_000]  # 1,008 bytes
    ctx.budget.live_roots = lambda: live
    for _ in range(100):
        ctx.grow(1_000)
    assert ctx.memory <= 10_000
    live.extend(str(digit) * 1_000 for digit in range(9))
    with pytest.raises(HogLimit, match="Memory limit of 10000 bytes exceeded"):
        repeat(ctx.grow, 1_000, 100)


def test_measuring_stays_rare() -> None:
    calls = count()
    live = ["x" * 6_000]

    def roots() -> list[str]:
        next(calls)
        return live

    ctx = Context(Limits(memory_bytes=10_000))
    ctx.budget.live_roots = roots
    for _ in range(1_000):
        ctx.grow(100)
    assert next(calls) < 20


def test_one_huge_value_is_refused_without_measuring() -> None:
    def roots() -> list[str]:
        raise AssertionError("not needed")

    ctx = Context()
    ctx.budget.live_roots = roots
    with pytest.raises(HogLimit, match=f"Tried to allocate {10**15} bytes"):
        ctx.grow(10**15)


def test_ticks_can_stand_for_memory() -> None:
    ctx = Context(Limits(memory_bytes=1_000_000))
    ctx.budget.tick_bytes = 64
    with pytest.raises(HogLimit, match="Memory limit"):
        draw(ctx)
    assert ctx.steps <= 5 * CHUNK


# The active context


def test_charges_go_to_the_active_context() -> None:
    outer, inner = Context(), Context()
    assert activate(outer) is None
    assert activate(inner) is outer
    context.charge(5)
    context.grow(7)
    assert activate(None) is inner
    context.charge(5)
    context.grow(7)
    assert (outer.steps, inner.steps, inner.memory) == (0, 5, 7)


def test_unmetered() -> None:
    UNMETERED.charge(10**12)
    for _ in range(100):
        UNMETERED.grow(60_000_000)
    with pytest.raises(HogLimit, match="Memory limit of 67108864 bytes"):
        UNMETERED.grow(70_000_000)
    assert sum(1 for _, _ in zip(range(100_000), UNMETERED.ticks, strict=False)) == 100_000
    assert UNMETERED.tripped is None
    UNMETERED.print("nobody reads this")
    assert UNMETERED.lines == []


# Clock and randomness


def test_the_clock_is_the_one_passed_in() -> None:
    assert Context(now=lambda: 12.5).now() == 12.5


def test_randomness_depends_on_the_seed_alone() -> None:
    def draws(seed: Any) -> list[Any]:
        ctx = Context(seed=seed)
        return [ctx.random(), ctx.uuid4(), ctx.random(), ctx.uuid4()]

    for seed in (0, "invocation", b"bytes", "long" * 100):
        assert draws(seed) == draws(seed)
        assert len(set(draws(seed))) == 4
    assert draws(1) != draws(2)
    assert draws(None) != draws(None)
    # Journals hold no draws, so that these must never change.
    assert draws("invocation")[:2] == [0.3189282947684049, "36320ed0-88c3-491e-86e6-7d695f799915"]


def test_random_numbers_are_spread_over_the_unit_interval() -> None:
    ctx = Context(seed=1)
    numbers = [ctx.random() for _ in range(2_000)]
    assert all(0 <= number < 1 for number in numbers)
    assert 0.45 < sum(numbers) / len(numbers) < 0.55
    assert uuid.UUID(ctx.uuid4()).version == 4


# Printing


def test_lines_are_kept_cut_and_counted() -> None:
    ctx = Context(Limits(print_lines=2, print_chars=30))
    ctx.print("a")
    ctx.print("x" * 31)
    ctx.print("b")
    assert ctx.lines == ["a", "x" * 15 + "... (truncated)"]
    assert len(ctx.lines[1]) == 30
    assert ctx.dropped_lines == 1
    ctx.resume()
    ctx.print("c")
    assert ctx.lines[2:] == ["c"]


def test_lines_shown_before_are_skipped() -> None:
    ctx = Context(skip_lines=2)
    for line in "abc":
        ctx.print(line)
    assert ctx.lines == ["c"]
