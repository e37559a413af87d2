"""Filters and inputs that compute as long as they may on every event hold up nobody for long, and lose nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.delivery.conftest import House, Receiver, stored

from hoglab.filters.hog.patience import GIVEN_UP

SLOW = "arrayExists(a -> arrayExists(b -> a + b = 0.5, range(99999)), range(99999))"
EVENTS = 60


def deliveries(house: House, receiver: Receiver) -> int:
    house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.run(*(stored() for _ in range(EVENTS)))
    return len(receiver.hits)


@pytest.mark.faults
def test_a_slow_filter(house: House, receiver: Receiver) -> None:
    slow = house.create(filters={"properties": [{"type": "hogql", "key": SLOW}]})
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow) == {"filtering_failed": EVENTS}
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert reasons.total() == EVENTS
    assert reasons[GIVEN_UP] >= EVENTS - 5  # the others were tried, a second each


@pytest.mark.faults
def test_a_slow_filter_of_a_mapping(house: House, receiver: Receiver) -> None:
    mapping = {"name": "m", "filters": {"properties": [{"type": "hogql", "key": SLOW}]}}
    slow = house.create(mappings=[mapping])
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow)["filtering_failed"] == EVENTS
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert reasons[GIVEN_UP] >= EVENTS - 5


@pytest.mark.faults
def test_slow_inputs(house: House, receiver: Receiver) -> None:
    slow = house.create(values={"a": f"{{{SLOW}}}"})
    assert deliveries(house, receiver) == EVENTS
    assert house.metrics(slow) == {"inputs_failed": EVENTS}
    failed = [result for result in house.results() if result["function_id"] == slow["id"]]
    assert {result["error_kind"] for result in failed} == {"inputs_failed"}
    given_up = [result for result in failed if result["error_message"].endswith(GIVEN_UP)]
    assert EVENTS > len(given_up) >= EVENTS - 5
    # The watcher is told: what is slow for long is stopped.
    assert house.delivery.states.statuses([slow["id"]])[slow["id"]]["tokens"] < 10_000
