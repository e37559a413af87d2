"""What Prometheus learns about how long deliveries take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.replay.reruns import RerunFilter, rerun
from hoglab.delivery.runs.latency import MAX_SERIES, OTHERS, Latencies

ACCEPTED = "hoglab_delivery_accepted_to_request_seconds"
RUNS = "hoglab_delivery_run_seconds"


def count(name: str, function: str) -> float:
    return REGISTRY.get_sample_value(f"{name}_count", {"function": function}) or 0.0


def test_a_delivery_is_timed_from_its_acceptance_once(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, number: web.Response(status=200 if number else 503)
    twice = "fetch(inputs.url); fetch(inputs.url)"
    function = house.create(twice, values={"url": receiver.url})
    house.run(stored())
    assert len(receiver.hits) == 3  # of which one was a second attempt
    assert count(ACCEPTED, function["id"]) == count(RUNS, function["id"]) == 1
    age_s = REGISTRY.get_sample_value(f"{ACCEPTED}_sum", {"function": function["id"]})
    assert age_s == pytest.approx(
        (datetime.now(UTC) - datetime(2026, 1, 1, 10, tzinfo=UTC)).total_seconds(), rel=1e-3
    )


def test_what_is_run_again_is_no_delivery_of_a_new_event(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda _request, _number: web.Response(status=400)
    function = house.create("fetch(inputs.url)", values={"url": receiver.url})
    house.run(stored())
    assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 1
    house.wait_idle()
    assert len(receiver.hits) == 2
    assert count(ACCEPTED, function["id"]) == 1
    assert count(RUNS, function["id"]) == 2


def test_only_so_many_functions_have_series_of_their_own() -> None:
    known, others = [str(uuid4()) for _ in range(2)], [str(uuid4()) for _ in range(3)]
    before = count(ACCEPTED, OTHERS)
    latencies = Latencies(max_series=2)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for function in [*known, *others, *known]:
        latencies.first_request(function, now - timedelta(seconds=1), now)
        latencies.run_ended(function, 0.5)
    assert [count(ACCEPTED, function) for function in known] == [2, 2]
    assert [count(RUNS, function) for function in others] == [0, 0, 0]
    assert count(ACCEPTED, OTHERS) == before + 3
    assert MAX_SERIES == 200


def test_the_queue_is_measured(house: House) -> None:
    house.delivery.start()
    house.create("print(1)")
    wait_for(lambda: REGISTRY.get_sample_value("hoglab_delivery_waiting") is not None)
    house.dispatch(stored())
    house.wait_idle()
    stats = house.queue.counts.stats()
    assert (stats.available, stats.running, stats.oldest_due_at, stats.dead_letters) == (0, 0, None, 0)
