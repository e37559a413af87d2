"""Persons who are merged change stored points of the days on which that matters (spec experiment-results 11.5)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event, person_id
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed
from tests.analysis.test_background import stored, sums
from tests.analysis.test_late_events import DAYS, METRICS, START, WINSORIZED, computed, day, history
from tests.embedded import EmbeddedReader

from hoglab.analysis.query.changes import MERGED

__all__ = ["computed"]  # a fixture

UNIQUE = {**REVENUE, "source": {"kind": "EventsNode", "event": "purchase", "math": "dau"}}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the event store."""
    asked: list[str] = []
    execute = EmbeddedReader.execute

    def noted(reader: EmbeddedReader, sql: str, *args: Any, **options: Any) -> Any:
        asked.append(sql)
        return execute(reader, sql, *args, **options)

    monkeypatch.setattr(EmbeddedReader, "execute", noted)
    return asked


def look(lab: Lab, experiment: dict[str, Any]) -> list[float]:
    """What the variant ``test`` has each day, two minutes later."""
    lab.now += timedelta(minutes=2)
    return [sums(point)["test"] for point in lab.series(experiment)["timeseries"].values()]


def test_a_merge_changes_the_days_from_when_both_did_something(
    lab: Lab, computed: list[Sequence[int] | None]
) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", day(0), 5)])
    lab.send(
        [bought("phone", day(2), 7), bought("tablet", day(4), 1), Event("tablet", day(1), "page viewed")]
    )
    assert look(lab, experiment) == [5] * DAYS
    computed.clear()
    lab.send([], merges=[("phone", "ann")])
    assert look(lab, experiment) == [5, 5, 12, 12, 12, 12]
    assert computed == [[5], [4], [3], [2]]
    computed.clear()
    lab.send([], merges=[("ann", "tablet")])
    assert look(lab, experiment) == [5, 5, 12, 12, 13, 13]
    assert computed == [[5], [4], [3], [2]], "who was merged twice counts as two, once more"
    computed.clear()
    lab.send([], merges=[("nobody", "tablet")])
    assert look(lab, experiment) == [5, 5, 12, 12, 13, 13]
    assert computed == [[5]], "somebody who did nothing"


def test_days_before_the_exposure_are_left_alone(lab: Lab, computed: list[Sequence[int] | None]) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([bought("ann", day(0), 5), bought("phone", day(1), 7), exposed("phone", "test", day(3))])
    lab.send([bought("ann", day(3, hours=2), 9)])
    assert look(lab, experiment) == [0] * DAYS
    computed.clear()
    lab.send([], merges=[("phone", "ann")])
    assert look(lab, experiment) == [0, 0, 0, 9, 9, 9]
    assert computed == [[5], [4], [3]]


def test_merges_of_others_cost_next_to_nothing(
    lab: Lab, computed: list[Sequence[int] | None], statements: list[str]
) -> None:
    experiment = lab.experiment(metrics=[WINSORIZED], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", day(0), 5)])
    lab.send([bought("bob", day(1), 5), exposed("bob", "test", day(1), key="other"), bought("cy", day(2), 1)])
    look(lab, experiment)

    def work() -> tuple[list[Sequence[int] | None], int]:
        """The days that are computed, and how often events of merged persons are looked for."""
        computed.clear()
        statements.clear()
        look(lab, experiment)
        return list(computed), sum(MERGED in sql for sql in statements)

    assert work() == ([[5]], 0), "nothing came"
    lab.send([bought("cy", NOW, 1)])
    assert work() == ([[5]], 0), "nobody was merged"
    lab.send([], project_id=2, merges=[("ann", "bob")])
    assert work() == ([[5]], 0), "of another project"
    lab.send([], merges=[("bob", "cy")])
    assert work() == ([[5]], 1), "not exposed"
    assert work() == ([[5]], 0), "and not looked at again"
    lab.send([exposed("dee", "control", NOW)], merges=[("dee", "ann")])
    assert work() == ([[5]], 1), "who came today"


@pytest.mark.parametrize("metric", [REVENUE, WINSORIZED, PURCHASES], ids=["sum", "clamped", "funnel"])
@pytest.mark.parametrize("by", ["request", "schedule"])
def test_a_merge_after_the_end_counts(
    lab: Lab, metric: dict[str, Any], by: str, statements: list[str]
) -> None:
    def results() -> list[float]:
        if by == "request":
            return look(lab, experiment)
        lab.runner.run_once()
        return [sums(point.result)["test"] for point in stored(lab, experiment)]

    end = day(2)
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat(), end_date=end.isoformat())
    lab.send(
        [exposed("ann", "test", START), bought("phone", day(1), 7), bought("tablet", day(2, hours=2), 9)]
    )
    assert results() == [0, 0, 0]
    lab.now = NOW + timedelta(days=2)
    assert results() == [0, 0, 0]
    settled = stored(lab, experiment)
    lab.send([], merges=[("tablet", "ann"), ("dee", "eve")])
    lab.now += timedelta(days=1)
    for _ in range(2):
        statements.clear()
        assert results() == [0, 0, 0]
    assert stored(lab, experiment) == settled, "of another time, and of others, is no reason to compute"
    assert not any(MERGED in sql for sql in statements), "nor to look a second time"
    lab.send([], merges=[("phone", "ann")])
    lab.now += timedelta(days=1)
    counted = 1 if metric is PURCHASES else 7
    assert results() == [0, counted, counted]
    settled = stored(lab, experiment)
    lab.now += timedelta(days=1)
    assert results() == [0, counted, counted]
    assert stored(lab, experiment) == settled


def test_the_background_looks_at_ended_experiments_once_an_hour(lab: Lab, statements: list[str]) -> None:
    experiment = lab.experiment(
        metrics=[WINSORIZED, REVENUE], start_date=START.isoformat(), end_date=day(2).isoformat()
    )
    lab.send([exposed("ann", "test", START), bought("phone", day(1), 7)])
    lab.now = NOW + timedelta(days=2)
    lab.runner.run_once()
    lab.now += timedelta(days=1)
    looks = []
    for number in range(3):
        lab.send([bought("ann", lab.now, 1)], merges=[(f"a{number}", f"b{number}")])
        lab.now += timedelta(minutes=40)
        statements.clear()
        assert lab.runner.run_once() == 0
        looks.append(sum(MERGED in sql for sql in statements))
    assert looks == [2, 0, 2]
    lab.send([], merges=[("phone", "ann")])
    assert look(lab, experiment) == [0, 7, 7], "who asks sees it at once"


def test_who_was_exposed_after_the_end_does_not_count(lab: Lab) -> None:
    """Though events count until the windows of those who were exposed before are over."""
    end = day(2)
    metric = {**REVENUE, "conversion_window": 1, "conversion_window_unit": "day"}
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat(), end_date=end.isoformat())
    lab.send([exposed("dee", "test", day(2, hours=3)), bought("eve", day(2, hours=4), 5)])
    lab.send([exposed("ann", "test", day(2, hours=0)), bought("phone", day(2, hours=5), 7)])
    lab.now = NOW + timedelta(days=2)
    assert look(lab, experiment) == [0, 0, 0]
    settled = stored(lab, experiment)
    lab.send([], merges=[("dee", "eve")])
    assert look(lab, experiment) == [0, 0, 0]
    assert stored(lab, experiment) == settled
    lab.send([], merges=[("phone", "ann")])
    assert look(lab, experiment) == [0, 0, 7]


def test_a_list_of_people_sees_who_somebody_is_now(lab: Lab) -> None:
    """``ann`` is on the list: what others did counts from the day on that they did it, when they turn out to be her."""
    who = [{"key": f"person_id = '{person_id('ann')}'", "type": "hogql"}]
    source = {**REVENUE["source"], "properties": who}
    experiment = lab.experiment(metrics=[WINSORIZED | {"source": source}], start_date=START.isoformat())
    lab.send([exposed("phone", "test", START), bought("phone", day(1), 7)])
    assert look(lab, experiment) == [0] * DAYS
    lab.send([], merges=[("phone", "ann")])
    assert look(lab, experiment) == [0, *[7] * (DAYS - 1)]


def test_groups_count_their_members_as_they_are_now(lab: Lab) -> None:
    experiment = lab.experiment(
        metrics=[UNIQUE | {"upper_bound_percentile": 1}],
        start_date=START.isoformat(),
        parameters={"aggregation_group_type_index": 0},
    )
    acme = {0: "acme"}
    seen = exposed("ann", "test", START)
    lab.send([Event(seen.person, START, seen.event, {**seen.properties, "$group_0": "acme"}, groups=acme)])
    lab.send([Event(who, day(number), "purchase", groups=acme) for number, who in enumerate(["ann", "bob"])])
    assert look(lab, experiment) == [1, *[2] * (DAYS - 1)]
    lab.send([], merges=[("bob", "ann")])
    assert look(lab, experiment) == [1] * DAYS


def merge(people: dict[str, str], random_: random.Random) -> tuple[str, str]:
    """Let a person become another one, who may have become the first before. ``people`` says who is who."""
    old = random_.choice(sorted(set(people.values())))
    new = random_.choice([name for name in people if name != old])
    into = new if people[new] == old else people[new]
    for name, who in people.items():
        people[name] = into if who == old else who
    return old, new


EVERY = [*METRICS, REVENUE, PURCHASES]


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric["metric_type"])
@pytest.mark.parametrize("seed", range(2))
def test_a_series_after_merges_is_that_of_all_events(lab: Lab, metric: dict[str, Any], seed: int) -> None:
    """Of one or several merges at a time, in chains and rings, with events and without, before and after the end."""
    random_ = random.Random(seed)
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    stored_metric = experiment["metrics"][0]
    body = {"metric": stored_metric, "fingerprint": stored_metric["fingerprint"]}
    people = {name: name for name in (f"p{number}" for number in range(8))}
    events = history(random_)
    lab.send(events[:35])
    late, changed = events[35:], 0
    for step in range(5):
        if step == 3:
            lab.ok("POST", f"/experiments/{experiment['id']}/end/", {})
            lab.series(experiment)
            lab.now += timedelta(days=5)
        before = lab.series(experiment)["timeseries"]
        pairs = [merge(people, random_) for _ in range(random_.choice([1, 1, 3]))]
        lab.send(late[step * 3 : step * 3 + 3] if step % 2 else [], merges=pairs, captured_at=lab.now)
        lab.now += timedelta(minutes=2)
        resumed = lab.series(experiment)["timeseries"]
        changed += list(before.values())[:-1] != list(resumed.values())[:-1]
        lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
        lab.runner.run_once()
        assert lab.series(experiment)["timeseries"] == resumed, (step, pairs)
        lab.now += timedelta(minutes=2)
    assert changed, "merges changed past days"
