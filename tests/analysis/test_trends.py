"""Series of events: both engines against plain Python, and what the endpoint says."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.lab import NOW, Lab

from hoglab.analysis.trends.answer import NO_VALUE, OTHERS, trends_answer
from hoglab.analysis.trends.query import MAX_BREAKDOWN_VALUES, MAX_POINTS, MAX_SERIES, read_trends
from hoglab.http.identity import Project
from hoglab.storage.database.tables import project as project_table

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati")
START = datetime(2026, 3, 28, tzinfo=UTC)
"""The day before clocks change in Europe."""
HOURS = 60
FORMS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00:00", "minute": "%Y-%m-%d %H:%M:00"}

_projects = count(7_000)


def project_in(zone: str) -> Project:
    return Project(next(_projects), "", "", "", "", zone, [], None, False, {}, {}, START, START)


def node(event: str | None = "a", **options: Any) -> dict[str, Any]:
    return {"kind": "EventsNode", "event": event, **options}


@st.composite
def _events(draw: st.DrawFn) -> list[Event]:
    return [
        Event(
            draw(st.sampled_from(["ann", "bob", "cem", ""])),
            START + timedelta(seconds=draw(st.integers(0, HOURS * 3600 - 1))),
            draw(st.sampled_from(["a", "b"])),
            draw(st.sampled_from([{}, {"plan": "pro"}, {"plan": "free"}, {"plan": None}, {"plan": 7}])),
            person_properties=draw(st.sampled_from([{}, {"country": "DE"}, {"country": "NP"}])),
        )
        for _ in range(draw(st.integers(0, 25)))
    ]


def _text(value: Any) -> str:
    return NO_VALUE if value is None else str(value)


def expected(
    events: list[Event], zone: str, interval: str, math: str, breakdown: str | None
) -> dict[str | None, dict[str, int]]:
    """The points that are not 0, by the value of the breakdown and the label of the interval."""
    found: defaultdict[tuple[str | None, str], list[str]] = defaultdict(list)
    for event in events:
        value = None
        if breakdown is not None:
            of = event.properties if breakdown == "plan" else event.person_properties
            value = _text(of.get(breakdown))
        label = event.timestamp.astimezone(ZoneInfo(zone)).strftime(FORMS[interval])
        found[value, label].append(event.person)
    points: defaultdict[str | None, dict[str, int]] = defaultdict(dict)
    for (value, label), people in found.items():
        points[value][label] = len(people) if math == "total" else len(set(people))
    return dict(points)


MINUTES_HOURS = 12
"""Of how many hours the minutes are looked at: more are too many points."""


@pytest.mark.parametrize("interval", ["day", "hour", "minute"])
def test_points_are_those_of_a_plain_count(engine: Engine, interval: str) -> None:
    @settings(max_examples=engine.examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        _events(),
        st.sampled_from(ZONES),
        st.sampled_from(["total", "dau"]),
        st.sampled_from([None, "plan", "country"]),
    )
    def check(events: list[Event], zone: str, math: str, breakdown: str | None) -> None:
        project = project_in(zone)
        engine.add(events, project_id=project.id)
        now = START + timedelta(hours=HOURS)
        query: dict[str, Any] = {
            "series": [node("a", math=math), node(None, math=math)],
            "dateRange": {"date_from": START.isoformat()},
            "interval": interval,
        }
        if interval == "minute":
            # Across the change of the clocks in Europe, at 01:00 UTC of the second day.
            since, until = START + timedelta(hours=20), START + timedelta(hours=20 + MINUTES_HOURS)
            query["dateRange"] = {"date_from": since.isoformat(), "date_to": until.isoformat()}
            events = [each for each in events if since <= each.timestamp < until]
        if breakdown is not None:
            kind = "event" if breakdown == "plan" else "person"
            query["breakdownFilter"] = {"breakdown": breakdown, "breakdown_type": kind}
        asked = read_trends(project, query, now, {})
        results = trends_answer(engine.computer.runner, project.id, asked, now)["results"]
        for name, wanted in (("a", [each for each in events if each.event == "a"]), ("All events", events)):
            shown = [each for each in results if each["label"] == name]
            found = {
                each["breakdown_value"]: {
                    day: number for day, number in zip(each["days"], each["data"], strict=True) if number
                }
                for each in shown
            }
            if breakdown is None and not wanted:
                assert found == {None: {}}
            else:
                assert found == expected(wanted, zone, interval, math, breakdown)
            for each in shown:
                assert each["count"] == sum(each["data"])
                assert len(set(each["days"])) == len(each["days"]) == len(each["data"])

    check()


def test_rare_values_share_a_series(engine: Engine) -> None:
    project = project_in("UTC")
    events = [
        Event("ann", START, "a", {"page": f"p{number:02}"})
        for number in range(MAX_BREAKDOWN_VALUES + 5)
        for _ in range(40 - number)
    ]
    engine.add(events, project_id=project.id)
    now = START + timedelta(days=1)
    query = {
        "series": [node()],
        "dateRange": {"date_from": "-24h"},
        "breakdownFilter": {"breakdown": "page"},
    }
    results = trends_answer(engine.computer.runner, project.id, read_trends(project, query, now, {}), now)[
        "results"
    ]
    values = [each["breakdown_value"] for each in results]
    assert values == [*(f"p{number:02}" for number in range(MAX_BREAKDOWN_VALUES)), OTHERS]
    assert results[-1]["count"] == sum(
        40 - number for number in range(MAX_BREAKDOWN_VALUES, MAX_BREAKDOWN_VALUES + 5)
    )


def ask(lab: Lab, status: int = 200, **query: Any) -> dict[str, Any]:
    return lab.query({"kind": "TrendsQuery", "series": [node("paid")], **query}, status=status)


def set_project(lab: Lab, **values: Any) -> None:
    with lab.database.write() as tx:
        tx.execute(sa.update(project_table).values(**values))
        tx.changed("project", 1)


def test_the_last_week_by_day(lab: Lab) -> None:
    lab.send(
        [Event("ann", NOW - timedelta(days=days), "paid", {"plan": "pro"}) for days in (0, 1, 1, 6, 7, 8)]
    )
    answer = ask(lab)
    (series,) = answer["results"]
    assert (answer["kind"], answer["interval"], series["label"], series["breakdown_value"]) == (
        "TrendsQuery",
        "day",
        "paid",
        None,
    )
    assert dict(zip(series["days"], series["data"], strict=True)) == {
        (NOW - timedelta(days=days)).date().isoformat(): number
        for days, number in ((7, 1), (6, 1), (5, 0), (4, 0), (3, 0), (2, 0), (1, 2), (0, 1))
    }
    assert ask(lab)["is_cached"]
    lab.send([Event("bob", NOW, "paid")])
    assert ask(lab)["results"][0]["count"] == 6


def test_minutes_are_of_the_clock_of_the_project(lab: Lab) -> None:
    """Also where clocks are 45 minutes off; the first minute counts as a whole."""
    set_project(lab, timezone="Asia/Kathmandu")
    moment = NOW - timedelta(minutes=3)
    lab.send([Event("ann", moment + timedelta(seconds=seconds), "paid") for seconds in (0, 20, 59, 60)])
    date = {"date_from": (moment + timedelta(seconds=30)).isoformat(), "date_to": NOW.isoformat()}
    answer = ask(lab, interval="minute", dateRange=date)
    (series,) = answer["results"]
    local = moment.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert answer["interval"] == "minute"
    assert series["days"] == [
        (local + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%M:00")
        for minute in range(len(series["days"]))
    ]
    assert series["data"] == [3, 1, 0]


def test_the_project_leaves_its_own_people_out(lab: Lab) -> None:
    own = {"key": "email", "value": "@example.com", "operator": "not_icontains", "type": "person"}
    set_project(lab, test_account_filters=[own])
    lab.send(
        [
            Event("ann", NOW - timedelta(hours=1), "paid", person_properties={"email": "ann@shop.test"}),
            Event("me", NOW - timedelta(hours=1), "paid", person_properties={"email": "me@example.com"}),
            Event("me", NOW - timedelta(hours=2), "paid", person_properties={"email": "me@example.com"}),
        ]
    )
    assert ask(lab)["results"][0]["count"] == 3
    assert ask(lab, filterTestAccounts=False)["results"][0]["count"] == 3
    assert ask(lab, filterTestAccounts=True)["results"][0]["count"] == 1
    set_project(lab, test_account_filters=[])  # what was kept of the other question is no answer
    assert ask(lab, filterTestAccounts=True)["results"][0]["count"] == 3


def test_filters_and_whole_days(lab: Lab) -> None:
    day = (NOW - timedelta(days=1)).date()
    late = datetime(day.year, day.month, day.day, 23, 59, tzinfo=UTC)
    lab.send(
        [
            Event("ann", late, "paid", {"plan": "pro"}),
            Event("ann", late, "paid", {"plan": "free"}),
            Event("me", late, "paid", {"plan": "pro"}, person_properties={"email": "me@example.com"}),
            Event("ann", NOW, "paid", {"plan": "pro"}),
        ]
    )
    dates = {"date_from": day.isoformat(), "date_to": day.isoformat()}
    pro = [{"key": "plan", "value": ["pro"], "operator": "exact", "type": "event"}]
    assert Counter(
        {
            "all": ask(lab, dateRange=dates)["results"][0]["count"],
            "pro": ask(lab, dateRange=dates, properties=pro)["results"][0]["count"],
            "series": ask(lab, dateRange=dates, series=[node("paid", properties=pro)])["results"][0]["count"],
        }
    ) == {"all": 3, "pro": 2, "series": 2}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no series": ({"series": []}, f"series must be a list of 1 to {MAX_SERIES} series"),
    "too many series": ({"series": [node()] * (MAX_SERIES + 1)}, "series must be"),
    "a series that is none": ({"series": [7]}, "series[0] must be an object"),
    "an action": ({"series": [{"kind": "ActionsNode"}]}, "series[0].kind must be 'EventsNode'"),
    "a name that is none": ({"series": [node(7)]}, "series[0].event"),  # type: ignore[arg-type]
    "another aggregation": ({"series": [node(math="sum")]}, "series[0].math must be one of 'total', 'dau'"),
    "another interval": ({"interval": "week"}, "interval must be one of 'minute', 'hour', 'day'"),
    "a list as interval": ({"interval": ["day"]}, "interval must be one of"),
    "too many points": (
        {"interval": "minute"},
        f"more than {MAX_POINTS}: take a longer interval or a shorter time",
    ),
    "a date that is none": ({"dateRange": {"date_from": "yesterday"}}, "dateRange.date_from must be"),
    "a time the wrong way round": ({"dateRange": {"date_from": "-1d", "date_to": "-2d"}}, "must be before"),
    "a time that is none": ({"dateRange": 7}, "dateRange must be an object"),
    "a breakdown that is none": ({"breakdownFilter": {"breakdown": 7}}, "must be the name of a property"),
    "a breakdown of a cohort": (
        {"breakdownFilter": {"breakdown": "1", "breakdown_type": "cohort"}},
        "must be 'event' or 'person'",
    ),
    "a filter that is none": ({"properties": [7]}, "properties"),
    "a filter that SQL cannot answer": (
        {"properties": [{"type": "cohort", "key": "id", "value": 99999}]},
        "",
    ),
}


@pytest.mark.parametrize(("query", "text"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_asked_is_told(lab: Lab, query: dict[str, Any], text: str) -> None:
    answer = ask(lab, 400, **query)
    assert answer["type"] == "validation_error"
    assert text in answer["detail"]
