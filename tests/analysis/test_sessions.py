"""Filters and breakdowns by what is known of an event's session, against the oracle and for single properties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    ANYTHING,
    CHECKOUT,
    PURCHASE,
    Bench,
    a_log,
    a_setting,
    check_every_day,
    funnel,
    mean,
    quantile,
    retention,
    seeds,
)

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def of_session(node: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    condition = {"key": key, "value": value, "operator": "exact", "type": "session"}
    return {**node, "properties": [condition]}


METRICS = [
    mean(source=of_session(PURCHASE, "$entry_utm_source", "ad")),
    mean(source=of_session({**PURCHASE, "math": "sum", "math_property": "amount"}, "$end_pathname", "/b")),
    funnel(CHECKOUT, of_session(PURCHASE, "$pageview_count", 2)),
    funnel(of_session(CHECKOUT, "$entry_utm_source", "ad"), PURCHASE, funnel_order_type="unordered"),
    retention(0, 1, "day", start_event=of_session(ANYTHING, "$end_pathname", "/a")),
    quantile(0.5, source=of_session(PURCHASE, "$entry_utm_source", "mail")),
    {
        "metric_type": "ratio",
        "numerator": of_session(PURCHASE, "$is_bounce", False),
        "denominator": of_session(ANYTHING, "$entry_utm_source", "ad"),
    },
]
BREAKDOWNS = [
    (),
    (),
    ("session.$entry_utm_source",),
    ("session.$is_bounce", "browser"),
    ("session.$end_pathname",),
]


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


def in_sessions(events: list[Event], seed: int) -> list[Event]:
    """The same events, of few sessions and on few pages."""
    random = Random(seed)
    return [
        replace(
            event,
            properties={
                **event.properties,
                "$session_id": random.choice(["s1", "s2", "s3", "s4", "", None]),
                "$pathname": random.choice(["/a", "/b", "", None, 7]),
                "utm_source": random.choice(["ad", "mail", None, None, ""]),
            },
        )
        for event in events
    ]


@pytest.mark.timeout(900)  # many examples, on machines that may be busy
def test_sessions_are_what_the_oracle_says_on_every_day(bench: Bench) -> None:
    @settings(max_examples=bench.engine.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        metric=st.sampled_from(METRICS),
        seed=seeds,
        setting=a_setting(),
        names=st.sampled_from(BREAKDOWNS),
        day=st.integers(0, 4),
    )
    def example(
        metric: dict[str, Any], seed: int, setting: Setting, names: tuple[str, ...], day: int
    ) -> None:
        events = in_sessions(a_log(seed, 60), seed)
        setting = replace(setting, breakdowns=names, log=events)
        if metric["metric_type"] not in ("mean", "funnel") or metric.get("funnel_order_type"):
            setting = replace(setting, lookback=None)
        check_every_day(bench, metric, events, setting, day)

    example()


def visit(minutes: int, event: str, **properties: Any) -> Event:
    return Event("ann", START + minutes * MINUTE, event, {"$session_id": "s", **properties})


VISIT = [
    visit(-5, "$pageview", **{"$referring_domain": "example.com", "gclid": ""}),
    visit(0, "$feature_flag_called", **{"$feature_flag": "checkout", "$feature_flag_response": "test"}),
    visit(1, "$pageview", **{"$current_url": "https://h.example/a", "$pathname": "/a", "$host": "h.example"}),
    visit(2, "$autocapture", **{"$current_url": "https://h.example/a", "gclid": "x1"}),
    visit(3, "$screen", **{"$current_url": "https://h.example/b", "$pathname": "/b", "$host": "i.example"}),
    visit(4, "purchase", amount=5),
]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("$session_duration", "540"), ("$pageview_count", "2"), ("$autocapture_count", "1")),
        *(("$screen_count", "1"), ("$num_uniq_urls", "2"), ("$is_bounce", "false")),
        *(("$entry_current_url", "https://h.example/a"), ("$end_current_url", "https://h.example/b")),
        *(("$entry_pathname", "/a"), ("$end_pathname", "/b"), ("$entry_referring_domain", "example.com")),
        *(("$entry_hostname", "h.example"), ("$end_hostname", "i.example"), ("$entry_gclid", "x1")),
        ("$entry_utm_campaign", "$$_posthog_breakdown_null_$$"),
    ],
)
def test_what_is_known_of_a_session(lab: Lab, key: str, value: str) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([*VISIT, exposed("bob", "control", START)])
    missing = value.startswith("$$")
    source = of_session(REVENUE["source"], key, None if missing else value)
    metric = REVENUE | {
        "source": source,
        "breakdownFilter": {"breakdowns": [{"property": key, "type": "session"}]},
    }
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    answer = lab.query(query)
    assert answer["variant_results"][0]["sum"] == 5
    cells = {
        tuple(each["breakdown_value"]): each["variants"][0]["sum"] for each in answer["breakdown_results"]
    }
    assert cells == {(value,): 5} | {("$$_posthog_breakdown_null_$$",): 5 if missing else 0}


def test_exposures_may_ask_for_sessions_and_past_days_know_no_more_than_then(lab: Lab) -> None:
    config = {"kind": "ExperimentEventExposureConfig", "event": "$feature_flag_called", "properties": []}
    config = of_session(config, "$pageview_count", "2")
    metric = {**REVENUE, "source": of_session(REVENUE["source"], "$screen_count", 1)}
    experiment = lab.experiment(
        start_date=(START - timedelta(days=1)).isoformat(),
        exposure_criteria={"filterTestAccounts": False, "exposure_config": config},
        metrics=[metric, {**metric, "goal": "decrease"}, {**metric, "goal": "increase"}],
    )
    lab.send([*VISIT, exposed("bob", "control", START), exposed("cy", "test", START), bought("cy", START, 3)])
    later = visit(24 * 60, "$screen")
    lab.send([later])

    def sums() -> list[list[tuple[int, float]]]:
        answers = lab.series(experiment)["timeseries"]
        return [
            [(row["number_of_samples"], row["sum"]) for row in (point["baseline"], *point["variant_results"])]
            for _, point in sorted(answers.items())
        ]

    assert sums()[0] == [(0, 0), (0, 0)]
    assert sums()[1] == [(0, 0), (1, 5)]
    assert sums()[2:] == [[(0, 0), (1, 0)]] * (len(sums()) - 2), "a second screen"
    lab.send([visit(5, "$pageview")])
    lab.now = NOW + timedelta(minutes=5)
    assert {row for point in sums() for row in point} == {(0, 0)}, "a third view changes the days it touches"


@pytest.mark.parametrize(
    ("first", "second", "gap", "bounced"),
    [
        ("$pageview", "scroll", timedelta(seconds=10) - timedelta(microseconds=1), "true"),
        ("$pageview", "scroll", timedelta(seconds=10), "false"),
        ("$pageview", "$autocapture", timedelta(seconds=1), "false"),
        ("$pageview", "$pageview", timedelta(seconds=1), "false"),
        ("ping", "scroll", timedelta(seconds=1), "false"),
    ],
)
def test_a_bounce_is_one_view_soon_over(
    lab: Lab, first: str, second: str, gap: timedelta, bounced: str
) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    moments = [("$feature_flag_called", 1), (first, 0), (second, 1)]
    shown = {"$feature_flag": "checkout", "$feature_flag_response": "test", "$session_id": "s"}
    lab.send([Event("ann", START + number * gap, name, shown) for name, number in moments])
    by_bounce = {"breakdownFilter": {"breakdowns": [{"property": "$is_bounce", "type": "session"}]}}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE | by_bounce}
    (cell,) = lab.query(query)["breakdown_results"]
    assert cell["breakdown_value"] == [bounced]


def test_bounces_are_counted_where_nobody_was_merged(lab: Lab) -> None:
    """DuckDB 2.0.0 takes a sum over a join with an empty table for 0, as long as it reasons with statistics."""
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), exposed("bob", "control", START)])
    lab.send([Event("ann", START, "$pageview", {"$session_id": name}) for name in ("s1", "s2", "s3", "s3")])
    source = {
        "kind": "EventsNode",
        "event": "$pageview",
        "math": "sum",
        "math_property": "$is_bounce",
        "math_property_type": "session_properties",
    }
    query = {
        "kind": "ExperimentQuery",
        "experiment_id": experiment["id"],
        "metric": REVENUE | {"source": source},
    }
    assert lab.query(query)["variant_results"][0]["sum"] == 2
