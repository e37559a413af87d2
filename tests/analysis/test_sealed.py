"""Results from sealed events: those of the same events before, from all of them and from what is kept."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.analysis.test_against_oracle import (
    CHECKOUT,
    END,
    METRICS,
    START,
    Bench,
    a_log,
    funnel,
)
from tests.analysis.test_sharing import numbers
from tests.analysis.test_state import (
    REVENUE,
    Stateful,
    assert_same_points,
    engine,
    plain,
)

from hoglab.analysis.incremental.aggregate_cache import BusyError
from hoglab.storage.event_store import EventsBefore
from hoglab.storage.event_store.sealed.sealing import SealingLimits

__all__ = ["engine"]  # a fixture

SMALL = SealingLimits(segment_rows=40, busy_rows=20, idle_rows=5, recent_rows=7)


def seal(engine: Stateful) -> int:
    rows = 0
    while some := engine.store.seal(SMALL, is_idle=True):
        rows += some
    return rows


@pytest.mark.parametrize("seed", range(2))
def test_results_are_those_of_events_that_are_not_sealed(engine: Stateful, seed: int) -> None:
    bench, chance = Bench(engine), random.Random(seed)
    setting = plain(merged={})
    events = a_log(seed, 120)
    metrics: list[dict[str, Any]] = [*chance.sample(METRICS, 6), REVENUE, funnel(series=[CHECKOUT])]
    questions = [bench.ask(setting, [], metric) for metric in metrics]
    project = questions[0].exposures.project_id
    questions = [replace(each, exposures=replace(each.exposures, project_id=project)) for each in questions]
    for first, last in ((0, 50), (50, 90), (90, 120)):
        engine.add(events[first:last], project_id=project)
        before = [engine.computer.points(each) for each in questions]
        assert seal(engine)
        for question, expected in zip(questions, before, strict=True):
            found = engine.computer.points(question)
            assert found.keys() == expected.keys()
            for day, answer in expected.items():
                assert numbers(found[day]) == pytest.approx(numbers(answer), rel=1e-9, nan_ok=True), (
                    question.metric
                )
            assert_same_points(engine, question, question.metric)


def test_what_is_kept_is_forgotten_with_events_that_it_was_made_of(engine: Stateful) -> None:
    bench = Bench(engine)
    question = bench.ask(plain(merged={}), [], REVENUE)
    engine.add(a_log(1, 120), project_id=question.exposures.project_id)
    assert_same_points(engine, question, "before")
    engine.state.forget(datetime(2000, 1, 1, tzinfo=UTC))
    engine.stateful.points(question)
    assert not engine.state.last.rebuilt
    middle = START + (END - START) / 2
    assert engine.store.erase(EventsBefore(question.exposures.project_id, middle))
    engine.state.forget(middle)
    engine.stateful.points(question)
    assert engine.state.last.rebuilt
    assert_same_points(engine, question, "after")
    engine.state.forget()
    engine.stateful.points(question)
    assert engine.state.last.rebuilt
    with engine.state.in_use(), pytest.raises(BusyError):
        engine.state.forget()
