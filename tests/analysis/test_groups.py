"""Properties of groups in filters and breakdowns: those that the groups have now, on both engines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.lab import NOW, Lab, bought, exposed
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    BIG,
    CHECKOUT,
    PURCHASE,
    START,
    Bench,
    a_log,
    a_setting,
    check_every_day,
    funnel,
    mean,
    quantile,
    retention,
    seeds,
    sizes,
)

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution import computer
from hoglab.storage.database import tables

PLANS = ["free", "pro", 'o\'neill "x" \\', 7, True, None]


def of_plan(value: Any) -> dict[str, Any]:
    return {"key": "plan", "value": value, "operator": "exact", "type": "group", "group_type_index": 0}


METRICS = [
    mean(),
    *(mean(source={**PURCHASE, "properties": [of_plan(value)]}) for value in ("pro", 'o\'neill "x" \\')),
    *(
        mean(source={**PURCHASE, "math": "hogql", "math_hogql": text})
        for text in (
            "count(distinct group_0.properties.plan)",
            "sum(if(group_0.properties['plan'] = 'pro', 2, 1))",
        )
    ),
    funnel(CHECKOUT, {**PURCHASE, "properties": [of_plan("free")]}),
    {
        "metric_type": "ratio",
        "numerator": {**PURCHASE, "properties": [of_plan("pro")]},
        "denominator": PURCHASE,
    },
    retention(0, 1, "day", start_event={**PURCHASE, "properties": [of_plan("free")]}),
    quantile(0.5, source={**BIG, "properties": [*BIG["properties"], of_plan("free")]}),
]


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


@pytest.mark.timeout(900)  # many examples, on machines that may be busy
def test_every_metric_on_every_day(bench: Bench) -> None:
    @settings(max_examples=bench.engine.examples // 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        metric=st.sampled_from(METRICS),
        seed=seeds,
        size=sizes,
        setting=a_setting(),
        day=st.integers(0, 4),
        breakdowns=st.sampled_from([(), ("group_0.plan",), ("browser", "group_0.plan")]),
    )
    def example(
        metric: dict[str, Any],
        seed: int,
        size: int,
        setting: Setting,
        day: int,
        breakdowns: tuple[str, ...],
    ) -> None:
        random = Random(seed)
        setting.breakdowns = breakdowns
        setting.groups = {
            key: {"plan": random.choice(PLANS), "other": "x" * 100} for key in ("acme", "umbrella", "nobody")
        }
        check_every_day(bench, metric, a_log(seed, size), setting, day)

    example()


SETTING = Setting(START, START + timedelta(days=2), START + timedelta(days=2))


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (
            mean(source={**PURCHASE, "properties": [{**of_plan("pro"), "group_type_index": None}]}),
            "filters of type group are not supported in metrics",
        ),
        (
            mean(source={**PURCHASE, "properties": [{**of_plan("pro"), "group_type_index": 5}]}),
            "filters of type group are not supported in metrics",
        ),
        (
            mean(breakdownFilter={"breakdowns": [{"property": "plan", "type": "group"}]}),
            "needs a group_type_index",
        ),
    ],
)
def test_groups_of_no_type(bench: Bench, metric: dict[str, Any], reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason):
        bench.computer.result(bench.ask(SETTING, [], metric))


def test_how_many_groups_there_may_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = mean(source={**PURCHASE, "properties": [of_plan("pro")]})
    setting = replace(SETTING, groups={"acme": {"plan": "pro"}, "umbrella": {}})
    bench.computer.result(bench.ask(setting, [], metric))
    monkeypatch.setattr(computer, "MAX_GROUPS", 1)
    with pytest.raises(DefinitionError, match="at most 1 of them"):
        bench.computer.result(bench.ask(setting, [], metric))


# -- over the API --------------------------------------------------------------------------------------------------


def test_a_breakdown_by_the_plan_of_companies(lab: Lab) -> None:
    start = NOW - timedelta(days=2)
    events: list[Event] = []
    for number in range(40):
        name, variant = f"p{number}", "control" if number % 2 else "test"
        groups = {0: "acme" if number < 30 else "umbrella"}
        events += [
            replace(exposed(name, variant, start + timedelta(hours=1)), groups=groups),
            replace(bought(name, start + timedelta(hours=2), 5), groups=groups),
        ]
    lab.send(events)
    with lab.database.write() as tx:
        for key, plan in (("acme", "free"), ("umbrella", "pro")):
            tx.connection.execute(
                tables.group.insert().values(
                    project_id=1,
                    group_type_index=0,
                    group_key=key,
                    properties={"plan": plan},
                    created_at=start,
                )
            )
    metric = {
        "kind": "ExperimentMetric",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "purchase"},
        "breakdownFilter": {"breakdowns": [{"property": "plan", "type": "group", "group_type_index": 0}]},
    }
    experiment = lab.experiment(start_date=start.isoformat())
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    found = {
        row["breakdown_value"][0]: row["baseline"]["number_of_samples"]
        for row in lab.query(query)["breakdown_results"]
    }
    assert found == {"free": 15, "pro": 5}
    paying = {**metric, "breakdownFilter": None}
    paying["source"] = {**metric["source"], "properties": [of_plan("pro")]}  # type: ignore[dict-item]
    assert lab.query({**query, "metric": paying})["baseline"]["sum"] == 5
