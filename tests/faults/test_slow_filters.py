"""Filters and inputs that compute as long as they may on every event hold up nobody for long, and lose nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.delivery.conftest import House, Receiver, stored
from tests.delivery.test_function_breaker import Clock

from hoglab.delivery.limits import function_breaker
from hoglab.delivery.limits.function_breaker import FORCEFULLY_DEGRADED, FORCEFULLY_DISABLED
from hoglab.fairness import compute_quota
from hoglab.fairness.compute_quota import QUOTA_EXCEEDED
from hoglab.functions.status import DEGRADED_STATE, DISABLED_STATE

SLOW = "arrayExists(a -> arrayExists(b -> a + b = 0.5, range(99999)), range(99999))"
EVENTS = 60


def deliveries(house: House, receiver: Receiver) -> int:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.run(*(stored() for _ in range(EVENTS)))
    return len(receiver.hits)


def tokens(house: House, function: dict[str, Any]) -> int:
    return house.delivery.states.statuses([function["id"]])[function["id"]]["tokens"]


def slow_filters() -> dict[str, Any]:
    return {"properties": [{"type": "hogql", "key": SLOW}]}


@pytest.mark.faults
def test_a_slow_filter(house: House, receiver: Receiver) -> None:
    slow = house.create(filters=slow_filters())
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow) == {"filtering_failed": EVENTS}
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert reasons.total() == EVENTS
    assert reasons[QUOTA_EXCEEDED] >= EVENTS - 5  # the others were tried, a second each
    assert tokens(house, slow) < 10_000
    [warning] = [text for level, text in house.logs(slow) if level == "warn"]
    assert "s too long on a batch of events and were given up" in warning


@pytest.mark.faults
def test_a_slow_filter_of_a_mapping(house: House, receiver: Receiver) -> None:
    mapping = {"name": "m", "filters": {"properties": [{"type": "hogql", "key": SLOW}]}}
    slow = house.create(mappings=[mapping])
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow)["filtering_failed"] == EVENTS
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert reasons[QUOTA_EXCEEDED] >= EVENTS - 5


@pytest.mark.faults
def test_slow_inputs(house: House, receiver: Receiver) -> None:
    slow = house.create(values={"a": f"{{{SLOW}}}"})
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow) == {"inputs_failed": EVENTS}
    failed = [result for result in house.results() if result["function_id"] == slow["id"]]
    assert {result["error_kind"] for result in failed} == {"inputs_failed"}
    given_up = [result for result in failed if result["error_message"].endswith(QUOTA_EXCEEDED)]
    assert EVENTS > len(given_up) >= EVENTS - 5
    # The circuit breaker is told: what is slow for long is stopped.
    assert tokens(house, slow) < 10_000


@pytest.mark.faults
def test_what_was_slow_for_long_is_given_up_earlier_and_not_asked_once_it_is_stopped(house: House) -> None:
    slow = house.create(filters=slow_filters())
    house.delivery.function_breakers.force(slow["id"], FORCEFULLY_DEGRADED)
    house.dispatch(*(stored() for _ in range(EVENTS)))
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert (reasons.total(), reasons[QUOTA_EXCEEDED]) == (EVENTS, EVENTS - 1)
    house.delivery.function_breakers.force(slow["id"], FORCEFULLY_DISABLED)
    before = tokens(house, slow)
    house.dispatch(*(stored() for _ in range(EVENTS)))
    assert house.metrics(slow) == {"filtering_failed": EVENTS, "disabled_permanently": EVENTS}
    assert len(house.rows("dead_event", "id", "id")) == EVENTS, "those of the first batch"
    assert tokens(house, slow) >= before


@pytest.mark.faults
@pytest.mark.parametrize("with_mapping", [False, True])
def test_inputs_and_mappings_of_what_is_stopped_are_not_computed(house: House, with_mapping: bool) -> None:
    mapping = {"name": "m", "filters": slow_filters()}
    slow = house.create(mappings=[mapping]) if with_mapping else house.create(values={"a": f"{{{SLOW}}}"})
    house.delivery.function_breakers.force(slow["id"], FORCEFULLY_DISABLED)
    house.dispatch(*(stored() for _ in range(EVENTS)))
    assert house.metrics(slow) == {"disabled_permanently": EVENTS}
    assert house.results() == []
    assert tokens(house, slow) == 10_000


@pytest.mark.faults
def test_a_filter_that_is_slow_in_batch_after_batch_stops_its_function(house: House) -> None:
    clock, changes = Clock(), []
    house.close()
    house.now, house.on_state_change = clock, lambda *change: changes.append(change)
    house.open()
    slow = house.create(filters=slow_filters())
    house.delivery.function_breakers.observe({slow["id"]: 9_900})  # as many batches did
    clock.tick(60)
    batches = 0
    while not house.delivery.function_breakers.is_disabled(slow["id"]):
        batches += 1
        assert batches < 10
        house.dispatch(stored(), stored())
    assert changes == [
        (slow["id"], 1, DEGRADED_STATE),
        (slow["id"], DEGRADED_STATE, DISABLED_STATE),
    ]
    assert house.metrics(slow) == {"filtering_failed": 2 * batches}


SLOW_BUT_SOUND = "arrayMap(a -> arrayMap(b -> a * b, range(200)), range(200))"
"""Ends within its limits, after a tenth of a second or more."""


@pytest.mark.faults
@pytest.mark.parametrize("batch", [None, {"max_events": 5, "max_wait_ms": 10}])
def test_slow_inputs_count_when_runs_begin_too(
    house: House, batch: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_quota, "SLOW_RUN_S", 0.0)  # however quick the machine is
    monkeypatch.setitem(function_breaker.COSTS, "hog", (100, 0.0, 1.0))
    options = {} if batch is None else {"x_delivery": {"batch": batch}}
    house.close()
    house.now = Clock()  # so that no tokens come back
    house.open()
    slow = house.create(values={"a": f"{{{SLOW_BUT_SOUND}}}"}, **options)
    house.dispatch(*(stored() for _ in range(5)))
    before = tokens(house, slow)
    house.run()
    assert house.metrics(slow)["succeeded"] == 5
    assert tokens(house, slow) <= before - 5 * 100
