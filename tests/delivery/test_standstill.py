"""Whatever functions compute, and whatever a server dies of: deliveries go on, or it is told that they do not."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from tests.delivery.conftest import House, stored

from hoglab.delivery.dispatch.dispatcher import EventDispatcher, stored_subscribers
from hoglab.delivery.dispatch.plan import DispatchPlan
from hoglab.delivery.dispatch.restarts import MOST_STARTS, REASON
from hoglab.delivery.runs.dead_letters import dead_id
from hoglab.delivery.runs.progress import STILL_S, Heartbeat
from hoglab.delivery.runs.state import key_of
from hoglab.fairness.compute_quota import SHARE_SPENT
from hoglab.fairness.compute_shares import ComputeShares, ShareRules

SPACES = "trim(event.properties.spaces) = '{}'"
AGAIN = f"arrayExists(x -> {SPACES}, range(100000))"
IN_FILTERS = AGAIN.replace("event.properties", "properties")
LONG = {"spaces": " " * 300_000}


def hogql(text: str) -> dict[str, Any]:
    return {"properties": [{"type": "hogql", "key": text}]}


HOSTILE: dict[str, dict[str, Any]] = {
    "filter": {"filters": hogql(IN_FILTERS)},
    "filter without a loop": {
        "filters": hogql(" or ".join(SPACES[:].replace("event.", "").format(n) for n in range(1_500)))
    },
    "input": {"values": {"a": f"{{{AGAIN}}}"}},
    "mapping": {"mappings": [{"name": "m", "filters": hogql(IN_FILTERS)}]},
    "masking": {"masking": {"ttl": 60, "hash": f"{{{AGAIN}}}"}},
    "order key": {"x_delivery": {"order_key": f"{{{AGAIN}}}"}},
    "Liquid": {
        "inputs_schema": [{"key": "a", "type": "string", "templating": "liquid"}],
        "inputs": {
            "a": {"value": "{% if (1..1000000000) contains 'x' %}y{% endif %}", "templating": "liquid"}
        },
    },
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_what_one_function_computes_on_an_event_ends(house: House, body: dict[str, Any]) -> None:
    """The work of each call was not accounted for once, so that the limit of a second was reached after minutes."""
    inputs = {name: body[name] for name in ("inputs_schema", "inputs") if name in body}
    function = house.create(**{"filters": {}, **body, **inputs})
    other = house.create()
    started = time.thread_time()
    house.dispatch(stored(properties=LONG))
    assert time.thread_time() - started < 1.0 + 2.0  # the limit, and what one operation and the rest may take
    assert house.metrics(other) == {"triggered": 1}
    assert house.metrics(function)


def test_the_functions_of_a_project_have_a_share_of_dispatch(house: House) -> None:
    shares = ComputeShares(ShareRules(event_s=0.0, burst_s=0.2, share=0.0))
    shares.allowed_s(2, 1)  # somebody else waits, too
    parts = house.delivery
    dispatcher = EventDispatcher(
        house.stores,
        parts.context,
        parts.function_breakers,
        parts.backpressure,
        stored_subscribers(parts.context.new_event_globals()),
        shares,
    )
    slow = [house.create(filters=hogql(f"{IN_FILTERS} or {number} > 5")) for number in range(4)]
    quick = house.create()
    dispatcher.dispatch([stored(properties=LONG), stored(properties=LONG)], log_offset=1)
    reasons = Counter(reason for (reason,) in house.rows("dead_event", "reason", "id"))
    assert reasons.total() == 8
    assert reasons[SHARE_SPENT] == 7, "one took what all of them have"
    assert house.metrics(quick) == {"triggered": 2}
    assert [house.metrics(one) for one in slow] == [{"filtering_failed": 2}] * 4
    tokens = house.delivery.states.statuses([one["id"] for one in slow])
    assert len(tokens) == 1, "only the one that was slow is blamed"
    assert tokens.popitem()[1]["tokens"] < 9_900
    assert shares.allowed_s(1, 100) <= 0.0


class Died(BaseException):
    """Stands for the end of the process."""


def test_an_event_that_the_server_does_not_survive_is_put_aside(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = house.create()
    plan = EventDispatcher.plan

    def dying(self: EventDispatcher, events: Any) -> DispatchPlan:
        if any(event.row.event == "deadly" for event in events):
            raise Died
        return plan(self, events)

    monkeypatch.setattr(EventDispatcher, "plan", dying)
    events = [stored(), stored("deadly"), stored(), stored("deadly"), stored()]
    deaths = 0
    while True:
        try:
            house.delivery.dispatcher.dispatch(events, log_offset=7)
            break
        except Died:
            deaths += 1
            assert deaths < 10
            house.restart()
    assert deaths == MOST_STARTS + 2, "and once for each event that is found"
    assert house.delivery.dispatcher.position() == 7
    assert house.metrics(function) == {"triggered": 3} or house.queue.counts.backlog() == 3
    wanted = {dead_id("events", key_of(event.row), None) for event in events if event.row.event == "deadly"}
    kept = house.rows("dead_event", "id, step, reason", "id")
    assert {one for one, _step, _reason in kept} == wanted
    assert {(step, reason) for _one, step, reason in kept} == {("process", REASON)}
    house.restart()
    house.delivery.dispatcher.dispatch([stored()], log_offset=8)
    assert len(house.rows("dead_event", "id", "id")) == 2, "what comes later is dispatched as usual"


def test_starts_that_get_on_are_not_counted(house: House) -> None:
    for offset in range(1, MOST_STARTS + 4):
        house.delivery.dispatcher.dispatch([stored()], log_offset=offset)
        house.restart()
    assert house.rows("dead_event", "id", "id") == []


def test_what_stands_still_is_told() -> None:
    now = 0.0
    progress = Heartbeat(clock=lambda: now)
    assert progress.stands_still_s() is None
    progress.beat()
    now = STILL_S
    assert progress.stands_still_s() is None
    now = STILL_S + 5
    assert progress.stands_still_s() == STILL_S + 5
    progress.beat()
    assert progress.stands_still_s() is None
    now *= 3
    progress.rest()
    assert progress.stands_still_s() is None


def test_deliveries_that_stand_still_are_a_problem(house: House) -> None:
    assert house.delivery.problems() == []
    house.delivery.start()
    assert house.delivery.problems() == []
    house.delivery.dispatcher.progress.__init__(still_s=-1.0)  # type: ignore[misc]
    house.delivery.dispatcher.progress.beat()
    [problem] = house.delivery.problems()
    assert problem.startswith("functions are not asked about events for 0 s")
    house.dispatch(stored())
    assert house.delivery.problems() == [], "the batch is done"
    house.delivery.worker.progress.__init__(still_s=-1.0)  # type: ignore[misc]
    house.delivery.worker.progress.beat()
    [problem] = house.delivery.problems()
    assert problem.startswith("no runs are begun or ended for 0 s")
