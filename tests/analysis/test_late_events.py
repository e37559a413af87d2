"""Days that cost a statement each, and events that come after they were computed (spec experiment-results 11.5)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from tests.analysis.events import Event
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed
from tests.analysis.test_background import stored, sums

from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.query.model import Question
from hoglab.storage.database.tables import metric_result

START = datetime(2026, 3, 5, 9, 0, tzinfo=UTC)
DAYS = 6
PURCHASE = REVENUE["source"]
WINSORIZED = REVENUE | {"upper_bound_percentile": 0.8}
METRICS = [
    WINSORIZED,
    REVENUE | {"lower_bound_percentile": 0.3, "conversion_window": 2, "conversion_window_unit": "day"},
    REVENUE | {"metric_type": "quantile", "quantile_level": 0.6},
    REVENUE | {"metric_type": "quantile", "quantile_level": 0.5, "quantile_unit": "event"},
    REVENUE | {"source": PURCHASE | {"math": "avg", "math_property": "$session_duration"}},
    {
        "kind": "ExperimentMetric",
        "metric_type": "ratio",
        "numerator": PURCHASE,
        "denominator": {"kind": "EventsNode", "event": "purchase"},
        "numerator_outlier_handling": {"upper_bound_percentile": 0.7},
    },
    {
        "kind": "ExperimentMetric",
        "metric_type": "retention",
        "start_event": {"kind": "EventsNode", "event": "page viewed"},
        "completion_event": PURCHASE,
        "retention_window_start": 0,
        "retention_window_end": 2,
        "retention_window_unit": "day",
        "start_handling": "last_seen",
    },
]


@pytest.fixture
def computed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int] | None]:
    """The days that were asked for, in the order of asking."""
    asked: list[Sequence[int] | None] = []
    points = Computer.points

    def counted(computer: Computer, question: Question, wanted: Sequence[int] | None = None) -> Any:
        asked.append(wanted)
        return points(computer, question, wanted)

    monkeypatch.setattr(Computer, "points", counted)
    return asked


def day(number: int, hours: float = 1) -> datetime:
    return START + timedelta(days=number, hours=hours)


def test_late_events_change_their_day_and_those_behind_it(
    lab: Lab, computed: list[Sequence[int] | None]
) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", day(0), 5)])

    def look() -> list[float]:
        computed.clear()
        lab.now += timedelta(minutes=2)
        return [sums(point)["test"] for point in lab.series(experiment)["timeseries"].values()]

    assert look() == [5] * DAYS
    assert computed == [[5], [4], [3], [2], [1], [0]]
    assert look() == [5] * DAYS
    assert computed == [[5]], "nothing came"
    lab.send([bought("ann", day(3), 7)])
    assert look() == [5, 5, 5, 12, 12, 12]
    assert computed == [[5], [4], [3]]
    assert look() == [5, 5, 5, 12, 12, 12]
    assert computed == [[5]]
    of_others = [
        Event("ann", day(1), "page viewed"),
        exposed("ann", "test", day(1), key="other"),
        bought("ann", START - timedelta(hours=1), 9),
        bought("ann", day(5), 1),
    ]
    lab.send(of_others)
    assert look() == [5, 5, 5, 12, 12, 13]
    assert computed == [[5]], "of no metric, of another flag, before the start, of today"
    lab.send([bought("nobody", day(4), 9)])
    before = {point.query_to: point.updated_at for point in stored(lab, experiment)[:-1]}
    assert look() == [5, 5, 5, 12, 12, 13]
    assert computed == [[5], [4]]
    after = {point.query_to: point.updated_at for point in stored(lab, experiment)[:-1]}
    assert before == after, "a result that is the same is left alone"
    look()
    assert computed == [[5]], "and is not doubted again"


def test_corrections_change_the_day_that_an_event_was_of(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    bought_twice = [replace(bought("ann", day(number), 5), uuid=UUID(int=number + 1)) for number in (1, 3)]
    lab.send([exposed("ann", "test", START), *bought_twice])

    def look() -> list[float]:
        lab.now += timedelta(minutes=2)
        return [sums(point)["test"] for point in lab.series(experiment)["timeseries"].values()]

    assert look() == [0, 5, 5, 10, 10, 10]
    lab.send([replace(bought_twice[0], properties={})])
    assert look() == [0, 0, 0, 5, 5, 5]
    lab.send([replace(bought_twice[1], properties=bought("ann", day(3), 8).properties)])
    assert look() == [0, 0, 0, 8, 8, 8]


def test_the_schedule_computes_late_days_too(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", day(0), 5)])
    lab.runner.run_once()
    lab.send([bought("ann", day(2), 7)])
    lab.now += timedelta(days=1)
    lab.runner.run_once()
    assert [sums(point.result)["test"] for point in stored(lab, experiment)] == [5, 5, 12, 12, 12, 12, 12]


@pytest.mark.parametrize("position", [None, 10**9])
def test_points_of_unknown_events_are_computed_anew(
    lab: Lab, computed: list[Sequence[int] | None], position: int | None
) -> None:
    """Those of an earlier version, and those of events that are not there any more."""
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", day(0), 5)])
    lab.series(experiment)
    with lab.database.write() as tx:
        tx.execute(sa.update(metric_result).values(log_offset=position))
    lab.now += timedelta(minutes=2)
    for expected in ([[5], [4], [3], [2], [1], [0]], [[5]]):
        computed.clear()
        lab.series(experiment)
        assert computed == expected
        lab.now += timedelta(minutes=2)


def history(random_: random.Random) -> list[Event]:
    """What eight people did in these days, and a little before."""
    events = []
    for number in range(8):
        person, variant = f"p{number}", random_.choice(["control", "test"])
        hours = [random_.randrange(100) for _ in range(random_.choice([0, 1, 1, 2]))]
        events += [exposed(person, variant, START + timedelta(hours=hour)) for hour in hours]
        for _ in range(random_.randrange(3, 9)):
            at = START + timedelta(hours=random_.randrange(-20, 24 * DAYS - 24))
            properties = {"amount": random_.randrange(1, 50), "$session_id": f"{person}-{at.day}"}
            events.append(Event(person, at, random_.choice(["purchase", "page viewed"]), properties))
    random_.shuffle(events)
    return events


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric["metric_type"])
@pytest.mark.parametrize("seed", range(2))
def test_a_series_of_events_in_any_order_is_that_of_all_events(
    lab: Lab, metric: dict[str, Any], seed: int
) -> None:
    random_ = random.Random(seed)
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    stored_metric = experiment["metrics"][0]
    body = {"metric": stored_metric, "fingerprint": stored_metric["fingerprint"]}
    events = history(random_)
    changed = 0
    while events:
        batch, events = events[:15], events[15:]
        before = lab.series(experiment)["timeseries"]
        lab.send(batch)
        lab.now += timedelta(minutes=2)
        resumed = lab.series(experiment)["timeseries"]
        changed += list(before.values())[:-1] != list(resumed.values())[:-1]
        lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
        lab.runner.run_once()
        assert lab.series(experiment)["timeseries"] == resumed
        lab.now += timedelta(minutes=2)
    assert changed > 1, "late events changed past days"
    assert lab.now.date() == NOW.date()
