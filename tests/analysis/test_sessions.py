"""Filters and breakdowns by what is known of an event's session, against the oracle and for single properties."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed
from tests.analysis.oracle import Setting, channel
from tests.analysis.test_against_oracle import (
    ANYTHING,
    CHECKOUT,
    END,
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
from tests.analysis.test_against_oracle import START as ORACLE_START

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def of_session(node: dict[str, Any], key: str, value: Any, operator: str = "exact") -> dict[str, Any]:
    condition = {"key": key, "value": value, "operator": operator, "type": "session"}
    return {**node, "properties": [condition]}


METRICS = [
    mean(source=of_session(PURCHASE, "$entry_utm_source", "ad")),
    mean(source=of_session({**PURCHASE, "math": "sum", "math_property": "amount"}, "$end_pathname", "/b")),
    funnel(CHECKOUT, of_session(PURCHASE, "$pageview_count", 2)),
    funnel(of_session(CHECKOUT, "$entry_utm_source", "ad"), PURCHASE, funnel_order_type="unordered"),
    retention(0, 1, "day", start_event=of_session(ANYTHING, "$end_pathname", "/a")),
    quantile(0.5, source=of_session(PURCHASE, "$entry_utm_source", "mail")),
    mean(source=of_session(PURCHASE, "$urls", "https://h.example/a")),
    mean(source=of_session(PURCHASE, "$urls", "https://h.example/a", "is_not")),
    mean(source=of_session(ANYTHING, "$urls", None, "is_not_set")),
    mean(source=of_session(ANYTHING, "$start_timestamp", "2026-03-28T12:00:00Z", "is_date_before")),
    funnel(of_session(CHECKOUT, "$end_timestamp", "2026-03-29T12:00:00Z", "is_date_before"), PURCHASE),
    *(mean(source=of_session(ANYTHING, "$channel_type", name)) for name in ("Paid Search", "Direct")),
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
    ("session.$channel_type",),
    ("session.$start_timestamp",),
]


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


def in_sessions(events: list[Event], seed: int) -> list[Event]:
    """The same events, of few sessions (or not so few, of which some have no event that matters) and on few pages."""
    random = Random(seed)
    names = [f"s{number}" for number in range(random.choice([4, 4, 25]))]
    return [
        replace(
            event,
            properties={
                **event.properties,
                "$session_id": random.choice([*names, "", None]),
                "$pathname": random.choice(["/a", "/b", "", None, 7]),
                "utm_source": random.choice(["ad", "mail", None, None, ""]),
                "$current_url": random.choice(
                    ["https://h.example/a", "https://h.example/b", "", *[None] * 5]
                ),
                **origin(random),
            },
        )
        for event in events
    ]


def origin(random: Random) -> dict[str, Any]:
    """Seldom more than one thing that tells the channel of a session."""
    names = ["utm_campaign", "utm_medium", "$referring_domain", "gclid", "gad_source", "fbclid"]
    chosen = random.sample(names, random.choice([0, 0, 1, 2]))
    values = {
        "utm_campaign": ["Shop it", "workshop", "eshop", "cross-network", "a video", "Shopping"],
        "utm_medium": ["cpc", "CPM", "paid-x", "email", "Social", "web-push", "banner"],
        "$referring_domain": [
            "$direct",
            "$direct",
            "www.google.com",
            "m.facebook.com",
            "mail.google.com",
            "a.b",
        ],
        "gclid": ["g", ""],
        "gad_source": ["1", "2"],
        "fbclid": ["f"],
    }
    return {name: random.choice(values[name]) for name in chosen}


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
        ("$start_timestamp", "2026-03-08T08:55:00.000000Z"),
        ("$end_timestamp", "2026-03-08T09:04:00.000000Z"),
        ("$channel_type", "Paid Unknown"),
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
    ("properties", "name"),
    [
        ({}, "Unknown"),
        ({"$referring_domain": "$direct"}, "Direct"),
        ({"$referring_domain": "$direct", "utm_source": "(direct)"}, "Direct"),
        ({"$referring_domain": "$direct", "utm_source": "partner.example"}, "Direct"),
        ({"$referring_domain": "$direct", "fbclid": "f"}, "Organic Social"),
        ({"$referring_domain": "$direct", "utm_source": "Facebook"}, "Organic Social"),
        ({"$referring_domain": "google.com.br"}, "Organic Search"),
        ({"$referring_domain": "news.google.co.uk"}, "Organic Search"),
        ({"$referring_domain": "notgoogle.com"}, "Referral"),
        ({"$referring_domain": "google.com.example.org"}, "Referral"),
        ({"$referring_domain": "mail.google.com"}, "Email"),
        ({"$referring_domain": "shop.tiktok.com"}, "Organic Shopping"),
        ({"$referring_domain": "www.tiktok.com"}, "Organic Social"),
        ({"$referring_domain": "x.com"}, "Organic Social"),
        ({"$referring_domain": "box.com"}, "Referral"),
        ({"$referring_domain": "m.youtube.com"}, "Organic Video"),
        ({"$referring_domain": "www.amazon.de", "gclid": "g"}, "Paid Shopping"),
        ({"$referring_domain": "mail.google.com", "gclid": "g"}, "Paid Search"),
        ({"utm_source": "google", "utm_medium": "CPC"}, "Paid Search"),
        ({"utm_source": "google", "utm_medium": "cpc", "utm_campaign": "x cross-network"}, "Cross Network"),
        ({"utm_source": "mail", "utm_medium": "cpc", "utm_campaign": "spring-shop"}, "Paid Shopping"),
        ({"utm_medium": "cpc", "utm_campaign": "workshop"}, "Paid Unknown"),
        ({"utm_medium": "paid-social", "fbclid": "f"}, "Paid Social"),
        ({"utm_medium": "cpm"}, "Display"),
        ({"utm_medium": "social network"}, "Organic Social"),
        ({"utm_medium": "e mail"}, "Email"),
        ({"utm_medium": "partnership"}, "Affiliate"),
        ({"utm_medium": "web_push"}, "Push"),
        ({"utm_medium": "audio"}, "Audio"),
        ({"utm_medium": "link"}, "Referral"),
        ({"utm_source": "sms"}, "SMS"),
        ({"utm_campaign": "video-1"}, "Organic Video"),
        ({"gad_source": "1"}, "Paid Search"),
        ({"gad_source": "2", "utm_campaign": "video"}, "Paid Video"),
        ({"gclid": "null", "utm_source": "null", "$referring_domain": "$direct"}, "Direct"),
    ],
)
def test_the_channel_by_which_a_session_came(lab: Lab, properties: dict[str, str], name: str) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    shown = {"$feature_flag": "checkout", "$feature_flag_response": "test"}
    lab.send([visit(0, "$feature_flag_called", **shown, **properties)])
    by_channel = {"breakdownFilter": {"breakdowns": [{"property": "$channel_type", "type": "session"}]}}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE | by_channel}
    (cell,) = lab.query(query)["breakdown_results"]
    assert cell["breakdown_value"] == [name]


def test_sessions_are_told_by_events_that_ask_for_nothing_and_of_nobody_exposed(lab: Lab) -> None:
    """Only sessions in which somebody exposed bought are looked at, but all that happened in them."""
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), exposed("bob", "control", START)])
    came = {"utm_source": "ad"}
    lab.send(
        [Event("zoe", START - MINUTE, "$pageview", {"$session_id": "s", **came}), bought("zoe", START, 7)]
    )
    lab.send([Event("ann", START + MINUTE, "purchase", {"$session_id": "s", "amount": 5})])
    lab.send([Event("bob", START + MINUTE, "purchase", {"$session_id": "t", "amount": 3})])
    for value, sums in (("ad", (0, 5)), ("mail", (0, 0)), (None, (3, 0))):
        metric = REVENUE | {"source": of_session(REVENUE["source"], "$entry_utm_source", value)}
        answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric})
        assert (answer["baseline"]["sum"], answer["variant_results"][0]["sum"]) == sums


def test_channels_are_what_the_oracle_says_of_all_that_tells_them(bench: Bench) -> None:
    given = {
        "utm_campaign": [None, "eshop", "workshop", "cross-network", "a video"],
        "utm_medium": [None, "cpc", "paid-x", "Social", "web-push", "banner"],
        "utm_source": [None, "ad", "email"],
        "$referring_domain": [None, "$direct", "www.google.com", "mail.google.com", "a.b"],
        "gad_source": [None, "1", "2"],
        "fbclid": [None, "f"],
    }
    origins = [dict(zip(given, each, strict=True)) for each in product(*given.values())]
    shown = {"$feature_flag": "flag", "$feature_flag_response": "test"}
    events = [
        Event(
            f"p{number}", ORACLE_START, "$feature_flag_called", {**shown, "$session_id": f"s{number}", **each}
        )
        for number, each in enumerate(origins)
    ]
    metric = mean(breakdownFilter={"breakdowns": [{"property": "$channel_type", "type": "session"}]})
    question = bench.ask(Setting(ORACLE_START, END, now=END), events, metric)
    answer = bench.computer.result(question)
    found = {name: groups["test"].number_of_samples for (name,), groups in answer.cells.items()}
    assert found == Counter(channel(each.get) for each in origins)


@pytest.mark.parametrize(
    ("operator", "value", "total"),
    [
        *(("exact", "https://h.example/b", 5), ("exact", "https://h.example/c", 0)),
        *(("is_not", "https://h.example/b", 3), ("is_not", "https://h.example/c", 8)),
        *(("icontains", "/A", 5), ("not_icontains", "/a", 3), ("regex", "^https.*/b$", 5)),
        *(("is_set", None, 5), ("is_not_set", None, 3), ("exact", ["x", "https://h.example/a"], 5)),
    ],
)
def test_of_the_pages_of_a_session_any_may_meet_a_filter(
    lab: Lab, operator: str, value: Any, total: int
) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([*VISIT, exposed("bob", "control", START), exposed("cy", "test", START), bought("cy", START, 3)])
    metric = REVENUE | {"source": of_session(REVENUE["source"], "$urls", value, operator)}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
    assert lab.query(query)["variant_results"][0]["sum"] == total


@pytest.mark.parametrize(
    ("first", "second", "gap", "bounced"),
    [
        ("$pageview", "scroll", timedelta(seconds=10) - timedelta(microseconds=1), "true"),
        ("$pageview", "scroll", timedelta(seconds=10), "false"),
        ("$pageview", "$autocapture", timedelta(seconds=1), "false"),
        ("$pageview", "$pageview", timedelta(seconds=1), "false"),
        ("ping", "scroll", timedelta(seconds=1), "$$_posthog_breakdown_null_$$"),
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
