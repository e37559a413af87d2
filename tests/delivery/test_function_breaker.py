"""Slow functions are slowed down, then stopped (spec: hog-runtime 6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored

from hoglab.delivery.limits.function_breaker import BreakerWatch, FunctionBreakers, cost_of
from hoglab.delivery.runs.state import Timing
from hoglab.storage.database import Database, tables
from hoglab.storage.invocations.sql.breakers import BreakerStates


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "queue.db", tables.queue_metadata)
    yield database
    database.dispose()


def untold(_function_id: str, _before: int, _after: int) -> None:
    """Take a change of state that nobody is told."""


@pytest.fixture
def breakers(database: Database, clock: Clock) -> FunctionBreakers:
    return FunctionBreakers(BreakerStates(database), untold, clock)


@rule("F12.2")
@pytest.mark.parametrize(
    ("kind", "milliseconds", "cost"),
    [
        ("hog", 50, 0), ("hog", 100, 10), ("hog", 300, 50), ("hog", 550, 100),
        ("async_function", 80, 0), ("async_function", 1_000, 4), ("async_function", 3_000, 12),
        ("async_function", 10_000, 40),
    ],
)  # fmt: skip
@rule("H6.1")
def test_what_runs_cost(kind: str, milliseconds: float, cost: int) -> None:
    assert cost_of([Timing(kind, milliseconds)]) == cost
    assert cost_of([Timing(kind, milliseconds), Timing("hog", 300)]) == cost + 50


@rule("F12.2")
@rule("H6.2")
def test_ten_slow_calls_a_second_degrade_then_disable(breakers: FunctionBreakers, clock: Clock) -> None:
    """Each costs 40, so the bucket loses 390 a second."""
    states: dict[int, float] = {}
    for tick in range(1000):
        breakers.observe({"f": 40})
        state = breakers.statuses(["f"])["f"]["state"]
        states.setdefault(state, tick / 10)
        clock.tick(0.1)
    assert states[1] == 0
    assert states[2] == pytest.approx(5.1, abs=0.2)
    # Below nothing after 25.6 s, but a new state stays for 60 s.
    assert states[3] == pytest.approx(65.1, abs=0.3)
    assert breakers.statuses(["f"])["f"]["tokens"] >= -1


def test_the_bucket_fills_between_runs_that_follow_closely(breakers: FunctionBreakers, clock: Clock) -> None:
    breakers.observe({"f": 1_000})
    for _ in range(1_000):
        clock.tick(0.01)
        breakers.observe({"f": 1})
    assert breakers.statuses(["f"])["f"]["tokens"] == pytest.approx(9_000 + 100 - 1_000, abs=1)


def test_a_degraded_function_recovers(breakers: FunctionBreakers, clock: Clock) -> None:
    breakers.observe({"f": 3_000})
    assert breakers.statuses(["f"]) == {"f": {"state": 2, "tokens": 7_000}}
    assert breakers.is_degraded("f")
    clock.tick(59)
    breakers.observe({"f": 0})
    assert breakers.is_degraded("f")
    clock.tick(2)
    assert breakers.statuses(["f"]) == {"f": {"state": 2, "tokens": 7_610}}
    breakers.observe({"f": 0})
    assert breakers.is_degraded("f"), "it has four fifths of its tokens at most"
    clock.tick(60)
    breakers.observe({"f": 0})
    assert breakers.statuses(["f"]) == {"f": {"state": 1, "tokens": 8_210}}


def test_a_clock_that_is_set_back_neither_stops_nor_locks_anybody(
    breakers: FunctionBreakers, clock: Clock
) -> None:
    breakers.observe({"f": 1_000, "g": 3_000})
    assert breakers.is_degraded("g")
    clock.tick(-86_400)
    assert breakers.statuses(["f"])["f"]["tokens"] == 9_000
    breakers.observe({"f": 10})
    assert breakers.statuses(["f"]) == {"f": {"state": 1, "tokens": 8_990}}
    breakers.observe({"g": 0})
    clock.tick(200)
    breakers.observe({"g": 0})
    assert not breakers.is_degraded("g"), "its state is not locked for a day"


@rule("H6.4")
def test_a_disabled_function_stays_disabled_until_it_is_saved(
    breakers: FunctionBreakers, clock: Clock
) -> None:
    changes: list[tuple[str, int, int]] = []
    breakers._on_change = lambda *change: changes.append(change)
    breakers.observe({"f": 20_000})
    assert breakers.statuses(["f"]) == {"f": {"state": 3, "tokens": -1}}
    assert breakers.is_disabled("f")
    clock.tick(100_000)
    breakers.observe({"f": 0})
    assert breakers.is_disabled("f")
    breakers.function_saved("f")
    assert breakers.statuses(["f"]) == {"f": {"state": 2, "tokens": 8_000}}
    breakers.observe({"f": 20_000})
    assert breakers.is_degraded("f"), "a state that was just set does not change"
    assert changes == [("f", 1, 3), ("f", 3, 2)]


@rule("F4.17")
def test_saving_changes_no_other_state(breakers: FunctionBreakers) -> None:
    breakers.function_saved("f")
    assert breakers.statuses(["f"]) == {}
    breakers.force("f", 12)
    breakers.function_saved("f")
    assert breakers.statuses(["f"])["f"]["state"] == 12


@rule("H6.3")
def test_forced_states_are_sticky(breakers: FunctionBreakers, clock: Clock) -> None:
    breakers.force("f", 11)
    assert breakers.is_degraded("f")
    clock.tick(3_600)
    breakers.observe({"f": 20_000})
    assert breakers.statuses(["f"])["f"]["state"] == 11


def test_automatic_disabling_can_be_turned_off(database: Database, clock: Clock) -> None:
    breakers = FunctionBreakers(BreakerStates(database), untold, clock, auto_disable=False)
    breakers.observe({"f": 20_000})
    assert breakers.statuses(["f"]) == {"f": {"state": 2, "tokens": -1}}


def test_states_survive_a_restart(breakers: FunctionBreakers, database: Database, clock: Clock) -> None:
    breakers.observe({"f": 3_000, "g": 10})
    breakers.save()
    again = FunctionBreakers(BreakerStates(database), untold, clock)
    assert again.statuses(["f", "g", "h"]) == {
        "f": {"state": 2, "tokens": 7_000},
        "g": {"state": 1, "tokens": 9_990},
    }
    clock.tick(2 * 86_400)
    assert again.statuses(["g"])["g"]["tokens"] == 10_000


def test_degraded_functions_go_to_the_overflow_queue_and_still_run(house: House, receiver: Receiver) -> None:
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.delivery.function_breakers.force(function["id"], 11)
    house.dispatch(stored())
    assert house.rows("invocation", "queue, priority", "id") == [("hogoverflow", 2)]
    house.run()
    assert len(receiver.hits) == 1


@rule("F4.17")
def test_saving_a_function_that_was_stopped_lets_it_run_again(
    house: House, receiver: Receiver, clock: Clock
) -> None:
    house.close()
    house.now = clock
    house.open()
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.delivery.function_breakers.observe({function["id"]: 20_000})
    house.dispatch(stored())
    assert house.metrics(function) == {"disabled_permanently": 1}
    status = house.functions.get(house.project, function["id"])["status"]
    assert status["state"] == 3
    assert status["tokens"] == -1
    changed = house.change(function, enabled=True)
    assert changed["status"]["state"] == 2
    house.run(stored())
    assert len(receiver.hits) == 1


def test_processes_that_share_breakers_add_up_what_functions_cost(database: Database, clock: Clock) -> None:
    """None of them alone would have slowed the function down; all know what any of them found."""
    told: list[tuple[str, int, int]] = []
    processes = [
        FunctionBreakers(BreakerStates(database), lambda *move: told.append(move), clock) for _ in range(3)
    ]
    for one in processes:
        one.observe({"f": 900})
        assert not one.is_degraded("f")
        BreakerWatch(one).round()
    for one in processes:
        one.refresh()
        assert one.statuses(["f"])["f"] == {"state": 2, "tokens": 7_300}
    assert told == [("f", 1, 2)]
    processes[0].force("f", 12)
    processes[1].observe({"f": 10_000})
    processes[1].save()
    assert [one.is_disabled("f") for one in processes] == [True, True, False]
    processes[2].refresh()
    assert processes[2].is_disabled("f")
    processes[2].force("f", 3)
    for one in processes:
        one.refresh()
    processes[1].function_saved("f")
    processes[0].function_saved("f")  # which does not know yet that another was told
    assert processes[0].statuses(["f"])["f"]["state"] == 2
    assert told[1:] == [("f", 2, 12), ("f", 12, 3), ("f", 3, 2)]


def test_parts_of_tokens_are_kept_however_often_they_are_stored(database: Database, clock: Clock) -> None:
    breakers = FunctionBreakers(BreakerStates(database), untold, clock)
    breakers.observe({"f": 1_000})
    for _ in range(150):
        clock.tick(0.15)
        breakers.observe({"f": 1})
        breakers.save()
    assert breakers.statuses(["f"])["f"]["tokens"] == 9_000 + 225 - 150
