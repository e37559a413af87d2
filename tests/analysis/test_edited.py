"""Cohorts and actions that are edited change stored points of metrics that name them (spec experiment-results 11.5)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from tests.analysis import oracle
from tests.analysis.events import Event, person_id
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed
from tests.analysis.oracle import Setting
from tests.analysis.test_background import stored, sums
from tests.analysis.test_filters import set_test_accounts
from tests.analysis.test_late_events import DAYS, METRICS, START, WINSORIZED, computed, day, history
from tests.analysis.test_merges import look

from hoglab.storage.database.tables import cohort_person, person

__all__ = ["computed"]  # a fixture

EVERY_DAY = [[number] for number in reversed(range(DAYS))]
LAST_DAY = [[DAYS - 1]]


def meet(lab: Lab, names: Iterable[str]) -> None:
    """Have persons who can be members of cohorts."""
    values = {"project_id": 1, "properties": {}, "is_identified": True, "created_at": NOW}
    with lab.database.write() as tx:
        tx.execute(sa.insert(person), [{"uuid": str(person_id(name)), **values} for name in names])


def list_of(lab: Lab, *names: str) -> int:
    """A static cohort."""
    body = {"name": "Chosen", "is_static": True, "_create_static_person_ids": ids(names)}
    return int(lab.ok("POST", "/cohorts/", body, status=201)["id"])


def edit(lab: Lab, cohort: int, how: str, *names: str) -> None:
    path = f"/cohorts/{cohort}/{how}_persons_{'to' if how == 'add' else 'from'}_static_cohort/"
    lab.ok("PATCH", path, {"person_ids": ids(names)})


def ids(names: Iterable[str]) -> list[str]:
    return [str(person_id(name)) for name in names]


def inside(cohort: int) -> dict[str, Any]:
    return {"key": "id", "type": "cohort", "value": cohort, "operator": "in"}


def of(condition: dict[str, Any], metric: dict[str, Any]) -> dict[str, Any]:
    """A metric that only counts events for which the condition holds."""
    found = dict(metric)
    for name in ("source", "numerator", "denominator", "start_event", "completion_event"):
        if name in metric:
            found[name] = metric[name] | {"properties": [condition]}
    if "series" in metric:
        found["series"] = [step | {"properties": [condition]} for step in metric["series"]]
    return found


def buyers(lab: Lab) -> None:
    """Two in the same variant, who buy on different days for different amounts."""
    meet(lab, ["ann", "bob", "cy"])
    lab.send([exposed("ann", "test", START), bought("ann", day(1), 5)])
    lab.send([exposed("bob", "test", START), bought("bob", day(3), 7)])


def test_members_who_come_and_go_change_all_days(lab: Lab, computed: list[Sequence[int] | None]) -> None:
    buyers(lab)
    chosen = list_of(lab, "ann")
    experiment = lab.experiment(metrics=[of(inside(chosen), WINSORIZED)], start_date=START.isoformat())
    assert look(lab, experiment) == [0, 5, 5, 5, 5, 5]
    edit(lab, chosen, "add", "bob")
    computed.clear()
    assert look(lab, experiment) == [0, 5, 5, 12, 12, 12]
    assert computed == EVERY_DAY
    edit(lab, chosen, "remove", "ann")
    computed.clear()
    assert look(lab, experiment) == [0, 0, 0, 7, 7, 7]
    assert computed == EVERY_DAY
    computed.clear()
    assert look(lab, experiment) == [0, 0, 0, 7, 7, 7]
    assert computed == LAST_DAY, "and not once more"


def test_what_changes_no_members_changes_no_day(lab: Lab, computed: list[Sequence[int] | None]) -> None:
    buyers(lab)
    chosen, other = list_of(lab, "ann"), list_of(lab, "ann")
    metrics = [of(inside(chosen), WINSORIZED), WINSORIZED | {"name": "Of all"}]
    experiment = lab.experiment(metrics=metrics, start_date=START.isoformat())
    look(lab, experiment)
    lab.series(experiment, 1)
    edit(lab, chosen, "add", "ann")
    edit(lab, chosen, "add", "nobody")
    edit(lab, chosen, "remove", "bob")
    edit(lab, other, "add", "bob")
    lab.ok("PATCH", f"/cohorts/{chosen}/", {"name": "The chosen"})
    lab.ok("POST", "/actions/", {"name": "Bought", "steps": [{"event": "purchase"}]}, status=201)
    computed.clear()
    look(lab, experiment)
    assert computed == LAST_DAY
    edit(lab, chosen, "add", "bob")
    computed.clear()
    lab.now += timedelta(minutes=2)
    lab.series(experiment, 1)
    assert computed == LAST_DAY, "of a metric that does not name it"


def test_a_fresh_point_is_none_when_members_changed(lab: Lab) -> None:
    buyers(lab)
    chosen = list_of(lab, "ann")
    experiment = lab.experiment(metrics=[of(inside(chosen), REVENUE)], start_date=START.isoformat())
    assert look(lab, experiment) == [0, 5, 5, 5, 5, 5]
    edit(lab, chosen, "add", "bob")
    found = [sums(point)["test"] for point in lab.series(experiment)["timeseries"].values()]
    assert found == [0, 5, 5, 12, 12, 12], "at the same moment"
    before = stored(lab, experiment)
    lab.series(experiment)
    assert stored(lab, experiment) == before


def test_an_answer_that_is_kept_is_of_the_members_of_now(lab: Lab) -> None:
    buyers(lab)
    chosen = list_of(lab, "ann")
    metric = of(inside(chosen), REVENUE)
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    assert sums(lab.query(query))["test"] == 5
    edit(lab, chosen, "add", "ann")
    assert lab.query(query)["is_cached"]
    edit(lab, chosen, "add", "bob")
    answer = lab.query(query)
    assert (sums(answer)["test"], answer["is_cached"]) == (12, False)


@pytest.mark.parametrize("metric", [REVENUE, WINSORIZED, PURCHASES], ids=["sum", "clamped", "funnel"])
@pytest.mark.parametrize("by", ["request", "schedule"])
def test_members_count_after_the_end_too(lab: Lab, metric: dict[str, Any], by: str) -> None:
    buyers(lab)
    chosen = list_of(lab, "ann")
    experiment = lab.experiment(
        metrics=[of(inside(chosen), metric)],
        start_date=START.isoformat(),
        end_date=day(3, hours=2).isoformat(),
    )

    def results() -> list[float]:
        if by == "request":
            return look(lab, experiment)
        lab.runner.run_once()
        return [sums(point.result)["test"] for point in stored(lab, experiment)]

    one, both = (1, 2) if metric is PURCHASES else (5, 12)
    lab.now = NOW + timedelta(days=2)
    assert results() == [0, one, one, one]
    settled = stored(lab, experiment)
    edit(lab, chosen, "remove", "bob")
    lab.now += timedelta(days=1)
    assert results() == [0, one, one, one]
    assert stored(lab, experiment) == settled
    edit(lab, chosen, "add", "bob")
    lab.now += timedelta(days=1)
    assert results() == [0, one, one, both]
    settled = stored(lab, experiment)
    lab.now += timedelta(days=1)
    assert results() == [0, one, one, both]
    assert stored(lab, experiment) == settled


def test_lists_inside_of_other_cohorts_count(lab: Lab, computed: list[Sequence[int] | None]) -> None:
    buyers(lab)
    chosen = list_of(lab, "ann")
    rules = {"properties": {"type": "AND", "values": [inside(chosen)]}}
    outer = int(lab.ok("POST", "/cohorts/", {"name": "Outer", "filters": rules}, status=201)["id"])
    experiment = lab.experiment(metrics=[of(inside(outer), WINSORIZED)], start_date=START.isoformat())
    assert look(lab, experiment) == [0, 5, 5, 5, 5, 5]
    edit(lab, chosen, "add", "bob")
    assert look(lab, experiment) == [0, 5, 5, 12, 12, 12]
    others = {"properties": {"type": "AND", "values": [inside(chosen) | {"operator": "not_in"}]}}
    lab.ok("PATCH", f"/cohorts/{outer}/", {"filters": others})
    computed.clear()
    assert look(lab, experiment) == [0] * DAYS
    assert computed == EVERY_DAY


@pytest.mark.parametrize("filtering", [True, False])
def test_lists_of_test_accounts_count_where_they_are_left_out(
    lab: Lab, computed: list[Sequence[int] | None], filtering: bool
) -> None:
    buyers(lab)
    staff = list_of(lab, "cy")
    set_test_accounts(lab, [inside(staff) | {"operator": "not_in"}])
    experiment = lab.experiment(
        metrics=[WINSORIZED],
        start_date=START.isoformat(),
        exposure_criteria={"filterTestAccounts": filtering},
    )
    assert look(lab, experiment) == [0, 5, 5, 12, 12, 12]
    edit(lab, staff, "add", "bob")
    computed.clear()
    assert look(lab, experiment) == ([0, 5, 5, 5, 5, 5] if filtering else [0, 5, 5, 12, 12, 12])
    assert computed == (EVERY_DAY if filtering else LAST_DAY)


def test_a_merge_of_a_member_changes_only_the_days_it_changes(
    lab: Lab, computed: list[Sequence[int] | None]
) -> None:
    """Though who is on the list is another one then."""
    meet(lab, ["dee", "tablet"])
    chosen = list_of(lab, "tablet")
    experiment = lab.experiment(metrics=[of(inside(chosen), WINSORIZED)], start_date=START.isoformat())
    lab.send([exposed("dee", "test", day(3)), bought("dee", day(3), 7), bought("tablet", day(4), 3)])
    assert look(lab, experiment) == [0] * DAYS
    rows = {
        name: sa.select(person.c.id).where(person.c.uuid == str(person_id(name))).scalar_subquery()
        for name in ("dee", "tablet")
    }
    with lab.database.write() as tx:  # as ingestion does
        moved = sa.update(cohort_person).where(cohort_person.c.person_id == rows["tablet"])
        tx.execute(moved.values(person_id=rows["dee"]))
    lab.send([], merges=[("tablet", "dee")])
    computed.clear()
    assert look(lab, experiment) == [0, 0, 0, 7, 10, 10]
    assert computed == EVERY_DAY[:3]


def test_an_action_that_is_edited_changes_all_days(lab: Lab, computed: list[Sequence[int] | None]) -> None:
    buyers(lab)
    lab.send([Event("ann", day(2), "refund", {"amount": 2})])
    steps = [{"event": "purchase"}]
    action = int(lab.ok("POST", "/actions/", {"name": "Paid", "steps": steps}, status=201)["id"])
    source = {"kind": "ActionsNode", "id": action, "math": "sum", "math_property": "amount"}
    experiment = lab.experiment(metrics=[WINSORIZED | {"source": source}], start_date=START.isoformat())
    assert look(lab, experiment) == [0, 5, 5, 12, 12, 12]
    lab.ok("PATCH", f"/actions/{action}/", {"name": "Money", "description": "Whatever was paid"})
    computed.clear()
    assert look(lab, experiment) == [0, 5, 5, 12, 12, 12]
    assert computed == LAST_DAY
    lab.ok("PATCH", f"/actions/{action}/", {"steps": [*steps, {"event": "refund"}]})
    computed.clear()
    assert look(lab, experiment) == [0, 5, 7, 14, 14, 14]
    assert computed == EVERY_DAY


@pytest.mark.parametrize(
    "metric", [*METRICS, REVENUE, PURCHASES], ids=lambda metric: str(metric["metric_type"])
)
def test_a_series_after_edits_is_that_of_all_events(lab: Lab, metric: dict[str, Any]) -> None:
    """Of members who come and go, beside late events and merges."""
    random_ = random.Random(7)
    names = [f"p{number}" for number in range(8)]
    meet(lab, names)
    events = [replace(event, uuid=UUID(int=1 + number)) for number, event in enumerate(history(random_))]
    lab.send(events[:40])
    members = set(names[:3])
    chosen = list_of(lab, *members)
    experiment = lab.experiment(metrics=[of(inside(chosen), metric)], start_date=START.isoformat())
    stored_metric = experiment["metrics"][0]
    body = {"metric": stored_metric, "fingerprint": stored_metric["fingerprint"]}
    changed, sent = 0, 40
    for _ in range(4):
        before = lab.series(experiment)["timeseries"]
        some = random_.sample(names, 2)
        edit(lab, chosen, "add" if members.isdisjoint(some) else "remove", *some)
        members = members | set(some) if members.isdisjoint(some) else members - set(some)
        lab.send(events[sent : sent + 4])
        sent += 4
        lab.now += timedelta(minutes=2)
        edited = lab.series(experiment)["timeseries"]
        changed += list(before.values())[:-1] != list(edited.values())[:-1]
        if metric["metric_type"] == "mean" and "$session_duration" not in str(metric):
            assert_as_the_oracle_says(edited, of_members(events[:sent], members), metric, lab.now)
        lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
        lab.runner.run_once()
        assert lab.series(experiment)["timeseries"] == edited
        lab.now += timedelta(minutes=2)
    assert changed, "members changed past days"


def of_members(events: Iterable[Event], members: set[str]) -> list[Event]:
    """The events, those of members marked: the oracle knows no cohorts."""
    return [
        replace(event, properties={**event.properties, "chosen": event.person in members}) for event in events
    ]


def assert_as_the_oracle_says(
    series: dict[str, Any], events: list[Event], metric: dict[str, Any], now: datetime
) -> None:
    marked = of({"key": "chosen", "type": "event", "value": True}, metric)
    assert len(series) == DAYS
    for number, (text, point) in enumerate(series.items()):
        setting = Setting(START, now, now, flag="checkout")
        if number < DAYS - 1:
            end = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
            setting = replace(setting, end=end - timedelta(microseconds=1), capped=True)
        expected = oracle.statistics(setting, events, marked)
        for row in (point["baseline"], *point["variant_results"]):
            numbers = expected.get(row["key"], {"n": 0, "sum": 0, "sum_squares": 0})
            found = {"n": row["number_of_samples"], "sum": row["sum"], "sum_squares": row["sum_squares"]}
            assert found == pytest.approx(numbers, rel=1e-9), (text, row["key"])
