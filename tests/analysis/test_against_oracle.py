"""Statements against the slow oracle, on event logs full of ties, duplicates, gaps and wrong types."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis import oracle
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.oracle import Setting

from hoglab.analysis.definitions.metric_parser import MetricParser, Tables, no_tables
from hoglab.analysis.query.days import DayGrid, end_of_day, zone_of
from hoglab.analysis.query.model import Question, Span
from hoglab.analysis.query.statements import Answer, Groups, at_end_of_day
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.statistics import CupedConfig, StatisticsConfig

START = datetime(2026, 3, 27, 9, 30, tzinfo=UTC)  # the clocks of Europe change on the 29th
END = datetime(2026, 3, 31, 22, 0, tzinfo=UTC)  # midnight in Berlin
MICRO = timedelta(microseconds=1)

PURCHASE = {"kind": "EventsNode", "event": "purchase"}
CHECKOUT = {"kind": "EventsNode", "event": "checkout"}
BIG = {**PURCHASE, "properties": [{"key": "size", "value": "big", "operator": "exact", "type": "event"}]}
ANYTHING = {"kind": "EventsNode", "event": None}
EXPOSURE = {"kind": "EventsNode", "event": "$feature_flag_called"}
AMOUNT = {"math_property": "amount"}
NUMBERS: list[Any] = [
    *(3, 0, -2.5, 40, 1000, 2**53, "20.5", "-1e2", ".5", "7."),
    *("abc", "", " 5", "1_0", "inf", "nan", "1e400", 1e300, True, None, [1], {"a": 1}),
]


def mean(**fields: Any) -> dict[str, Any]:
    return {"metric_type": "mean", "source": PURCHASE, **fields}


def funnel(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"metric_type": "funnel", "series": list(steps), **fields}


def retention(first: int, last: int, unit: str, **fields: Any) -> dict[str, Any]:
    return {
        "metric_type": "retention",
        "start_event": PURCHASE,
        "completion_event": PURCHASE,
        "retention_window_start": first,
        "retention_window_end": last,
        "retention_window_unit": unit,
        "start_handling": "first_seen",
        **fields,
    }


def of_sessions(math: str, name: str) -> dict[str, Any]:
    return {**ANYTHING, "math": math, "math_property": name, "math_property_type": "session_properties"}


def quantile(level: float, **fields: Any) -> dict[str, Any]:
    return {
        "metric_type": "quantile",
        "source": {**PURCHASE, **AMOUNT, "math": "sum"},
        "quantile_level": level,
        **fields,
    }


def hogql(text: str) -> dict[str, Any]:
    return {**PURCHASE, "math": "hogql", "math_hogql": text}


def where(node: dict[str, Any], condition: str) -> dict[str, Any]:
    return {**node, "properties": [{"key": condition, "type": "hogql"}]}


METRICS = [
    mean(),
    mean(source=ANYTHING),
    mean(source=BIG),
    mean(source=where(ANYTHING, "event = 'purchase' and properties.size != 'small'")),
    *(mean(source={**PURCHASE, **AMOUNT, "math": name}) for name in ("sum", "avg", "min", "max")),
    *(mean(source={**PURCHASE, "math": name}) for name in ("sum", "unique_session", "dau")),
    mean(source={**ANYTHING, "math": "unique_group", "math_group_type_index": 0}),
    mean(threshold=2),
    mean(source={**PURCHASE, **AMOUNT, "math": "sum"}, threshold=0),
    mean(
        source={**PURCHASE, **AMOUNT, "math": "sum"}, lower_bound_percentile=0.2, upper_bound_percentile=0.7
    ),
    mean(source={**PURCHASE, **AMOUNT, "math": "max"}, upper_bound_percentile=0.5, ignore_zeros=True),
    mean(source={**PURCHASE, **AMOUNT, "math": "sum"}, lower_bound_percentile=1, threshold=1),
    funnel(PURCHASE),
    funnel(CHECKOUT, PURCHASE),
    funnel(PURCHASE, PURCHASE),
    funnel(CHECKOUT, BIG, PURCHASE),
    funnel(CHECKOUT, where(PURCHASE, "not (properties['size'] = 'big')")),
    funnel(EXPOSURE, PURCHASE),
    funnel(ANYTHING, PURCHASE, CHECKOUT),
    *(funnel(CHECKOUT, PURCHASE, funnel_order_type=order) for order in ("unordered", "strict")),
    funnel(ANYTHING, PURCHASE, PURCHASE, funnel_order_type="unordered"),
    funnel(CHECKOUT, ANYTHING, PURCHASE, funnel_order_type="strict"),
    {"metric_type": "ratio", "numerator": {**PURCHASE, **AMOUNT, "math": "sum"}, "denominator": PURCHASE},
    {
        "metric_type": "ratio",
        "numerator": {**PURCHASE, **AMOUNT, "math": "max"},
        "denominator": {**ANYTHING, **AMOUNT, "math": "min"},
    },
    {
        "metric_type": "ratio",
        "numerator": {**PURCHASE, **AMOUNT, "math": "avg"},
        "denominator": {**ANYTHING, "math": "unique_session"},
        "numerator_outlier_handling": {"upper_bound_percentile": 0.6},
    },
    *(
        mean(source=hogql(text))
        for text in (
            "sum(toFloat(properties.amount) * 2)",
            "max(if(properties.size = 'big', properties.amount, 1))",
            "count(distinct properties.size)",
            "count(properties['amount'])",
            "count()",
            "properties.amount",
            "uniq(properties.size)",
            "countIf(properties.size = 'big')",
            "sumIf(properties.amount, properties.size != 'big')",
            "quantile(0.9)(properties.amount)",
            "median(toFloat(properties.amount) / 2)",
            *(f"{name}If(properties.amount, properties.size = 'big')" for name in ("avg", "min", "max")),
            "quantileIf(0.9)(properties.amount, properties.size = 'big')",
            "medianIf(properties.amount, properties.size = 'big')",
            "uniqIf(properties.size, properties.$session_id != 's1')",
        )
    ),
    mean(source=of_sessions("sum", "$session_duration")),
    mean(source={**of_sessions("avg", "$session_duration"), "event": "purchase"}),
    mean(source=of_sessions("max", "$pageview_count"), upper_bound_percentile=0.6),
    *(mean(source=of_sessions(how, "$is_bounce")) for how in ("avg", "min")),
    {
        "metric_type": "ratio",
        "numerator": {**of_sessions("sum", "$session_duration"), "event": "purchase"},
        "denominator": PURCHASE,
    },
    {
        "metric_type": "ratio",
        "numerator": hogql("quantile(properties.amount)"),
        "denominator": hogql("avgIf(properties.amount, properties.size = 'big')"),
        "numerator_outlier_handling": {"upper_bound_percentile": 0.8},
    },
    quantile(0.5),
    quantile(0.9, source={**PURCHASE, **AMOUNT, "math": "max"}),
    quantile(0.25, source=PURCHASE, ignore_zeros=True),
    quantile(0.75, source=of_sessions("sum", "$session_duration")),
    quantile(0.5, quantile_unit="event"),
    quantile(0.6, source=hogql("avgIf(properties.amount, properties.size = 'big')"), quantile_unit="event"),
    quantile(0.8, quantile_unit="event", ignore_zeros=True),
    retention(0, 0, "day"),
    retention(1, 2, "day", completion_event=ANYTHING),
    retention(1, 30, "hour", start_event=CHECKOUT),
    retention(0, 1, "hour", start_handling="last_seen"),
    retention(0, 2, "day", start_handling="last_seen", completion_event=ANYTHING),
    retention(1, 5, "minute"),
    retention(0, 1, "week", start_event=ANYTHING),
    retention(0, 1, "month", completion_event=CHECKOUT),
]
WINDOWS = [(None, None), (1, "hour"), (1, "day"), (2, "day"), (5, None)]

PEOPLE = ["ann", "bob", "cy", "dee", "eve", "fay", "gus", ""]
MIDNIGHTS = [
    datetime(2026, 3, day, hour, tzinfo=UTC) for day, hour in ((27, 23), (29, 0), (28, 11), (29, 22))
]
LENGTHS = [timedelta(hours=1), timedelta(days=1), timedelta(days=2), timedelta(days=3)]


def moments(random: Random) -> list[datetime]:
    """Few moments that matter, so that events often meet exactly at an edge or at each other."""
    anywhere = [START + timedelta(seconds=random.randrange(4 * 86_400)) for _ in range(3)]
    edges = [START, END, random.choice(MIDNIGHTS), *anywhere]
    edges += [random.choice(anywhere) + random.choice(LENGTHS) for _ in range(4)]
    edges += [random.choice(anywhere) - random.choice(LENGTHS) for _ in range(2)]
    return [edge + random.choice([-MICRO, *[0 * MICRO] * 4, MICRO]) for edge in edges for _ in (1, 2)]


def an_event(random: Random, when: list[datetime], uuid: UUID) -> Event:
    event = random.choice(
        ["$feature_flag_called"] * 4 + ["purchase"] * 4 + ["checkout"] * 3 + ["saw"] * 2 + ["$pageview"]
    )
    properties: dict[str, Any] = {}
    variant = random.choices(
        ["control", "test", "holdout-1", True, False, None, "TEST"], weights=[12, 6, 1, 1, 1, 1, 1]
    )[0]
    if event == "$feature_flag_called":
        properties["$feature_flag"] = random.choice(["flag"] * 9 + ["other"])
        properties["$feature_flag_response"] = variant
    elif event == "saw":
        properties["$feature/flag"] = variant
    else:
        if random.random() < 0.8:
            properties["amount"] = random.choice(NUMBERS)
        properties["size"] = random.choice(["big", "big", "small", 7, None])
        properties["$session_id"] = random.choice(["s1", "s2", "s3", "", None])
    if event in ("$feature_flag_called", "saw"):
        properties["browser"] = random.choice(["Firefox", "Firefox", "Safari", 7, True, None])
        properties["os"] = random.choice(["Linux", ""])
    moment = (
        random.choice(when)
        if random.random() < 0.7
        else START + timedelta(seconds=random.randrange(-60 * 3600, 160 * 3600))
    )
    return Event(
        person=random.choice(PEOPLE),
        timestamp=moment,
        event=event,
        properties=properties,
        uuid=uuid,
        person_properties={"staff": random.choice([True, False, False, None])},
        groups=random.choice([{}, {0: "acme"}, {0: "umbrella"}, {0: "initech"}, {0: ""}, {1: "acme"}]),
    )


def a_log(seed: int, size: int) -> list[Event]:
    """Events in any order, with some repeated under another uuid, and some that share a uuid with others."""
    random = Random(seed)
    when = moments(random)
    uuids = [UUID(int=number + 1) for number in random.sample(range(2 * size), 2 * size)]
    events = [an_event(random, when, uuids.pop()) for _ in range(size)]
    events += [replace(event, uuid=uuids.pop()) for event in events if random.random() < 0.1]
    share = random.choice([0.0, 0.2, 0.9])
    return [
        shared if random.random() < share else event
        for event, shared in zip(events, sharing(events), strict=True)
    ]


def sharing(events: list[Event]) -> list[Event]:
    """The events, all with one uuid, but for those that would be another one then, or be first at the same time."""
    shared = UUID(int=0)
    known: set[Any] = set()
    result = []
    for event in events:
        identity = (event.event, event.person, event.timestamp.astimezone(UTC).date())
        if known.isdisjoint((identity, event.timestamp)):
            known |= {identity, event.timestamp}
            event = replace(event, uuid=shared)
        result.append(event)
    return result


seeds = st.integers(0, 2**32)
sizes = st.sampled_from([0, 10, 60, 120, 120])


@st.composite
def a_setting(draw: st.DrawFn) -> Setting:
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Auckland"]))
    filtering = draw(st.sampled_from([False, False, True]))
    setting = Setting(
        START,
        END,
        now=END + draw(st.sampled_from([timedelta(), timedelta(hours=12), timedelta(days=40)])),
        variants=draw(st.sampled_from([("control", "test"), ("test",), ("control", "test", "idle")])),
        first_seen=draw(st.booleans()),
        custom_event=draw(st.sampled_from([None, None, "saw"])),
        group=draw(st.sampled_from([None, None, None, 0])),
        matured_only=draw(st.booleans()),
        zone=zone,
        lookback=draw(st.sampled_from([None, None, timedelta(days=1), timedelta(days=3)])),
        breakdowns=draw(st.sampled_from([(), (), (), ("browser",), ("browser", "os")])),
        merged=draw(st.sampled_from([{}, {}, {"bob": "ann"}, {"bob": "ann", "cy": "ann", "gus": "fay"}])),
    )
    if setting.custom_event is None:
        setting.activation = draw(st.sampled_from([None, None, None, "saw", "checkout"]))
    if filtering:
        setting.counts = lambda event: event.person_properties.get("staff") is not True
    return setting


class Bench:
    """One engine for all examples: each gets a project of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.computer = engine.computer
        self.project = 100

    def ask(
        self, setting: Setting, events: list[Event], metric: dict[str, Any], tables: Tables = no_tables
    ) -> Question:
        self.project += 1
        self.engine.groups[self.project, 0] = list(setting.groups.items())
        merges = list((setting.merged or {}).items())
        self.engine.add(events, project_id=self.project, merges=merges)
        staff = {"key": "staff", "type": "person", "operator": "is_not", "value": "true"}
        criteria: dict[str, Any] = {
            "filterTestAccounts": not setting.counts(Event("", START, "", person_properties={"staff": True})),
            "multiple_variant_handling": "first_seen" if setting.first_seen else "exclude",
        }
        if setting.activation is not None:
            criteria["activation_config"] = {"event": setting.activation, "properties": []}
        if setting.custom_event is not None:
            criteria["exposure_config"] = {
                "kind": "ExperimentEventExposureConfig",
                "event": setting.custom_event,
                "properties": [],
            }
        calculation = Calculation(
            start_date=setting.start,
            feature_flag_key=setting.flag,
            variants=setting.variants,
            statistics=StatisticsConfig(),
            aggregation_group_type_index=setting.group,
            exposure_criteria=criteria,
            test_account_filters=[staff],
        )
        reader = MetricParser(lambda _identifier: None, tables)
        lookback = setting.lookback
        cuped = CupedConfig(enabled=lookback is not None, lookback_days=lookback.days if lookback else 14)
        return Question(
            reader.exposures(self.project, calculation, metric),
            Span(
                setting.start,
                setting.end,
                setting.now,
                DayGrid.between(setting.start, setting.end, zone_of(setting.zone)),
            ),
            reader.metric(metric, cuped=cuped),
            matured_only=setting.matured_only,
            zone=setting.zone,
        )


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


def assert_same(found: Groups, expected: dict[str, dict[str, Any]], what: str) -> None:
    shown = {}
    for variant, group in found.items():
        fields = asdict(group)
        fields |= fields.pop("outcome", {})
        numbers = {"n": fields.pop("number_of_samples")}
        for number, count in enumerate(fields.pop("step_counts", ()), 1):
            numbers[f"step_{number}"] = count
        numbers |= fields
        shown[variant] = numbers
    assert shown.keys() == expected.keys(), what
    for variant, numbers in expected.items():
        assert shown[variant] == pytest.approx(numbers, rel=1e-9, abs=1e-6, nan_ok=True), (what, variant)


def earlier(setting: Setting, question: Question, number: int) -> Setting:
    """The setting of one point of the series."""
    grid = question.span.days
    assert grid is not None
    if number == grid.count - 1:
        return setting
    end = end_of_day(grid.days[number], grid.zone) - MICRO
    return replace(setting, end=end, capped=True)


@pytest.mark.timeout(900)  # many examples, on machines that may be busy
@pytest.mark.parametrize("metric_type", ["mean", "funnel", "ratio", "retention", "quantile"])
def test_every_metric_on_every_day(bench: Bench, metric_type: str) -> None:
    some = st.sampled_from([each for each in METRICS if each["metric_type"] == metric_type])

    @settings(max_examples=bench.engine.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        metric=some,
        seed=seeds,
        size=sizes,
        setting=a_setting(),
        window=st.sampled_from(WINDOWS),
        day=st.integers(0, 4),
    )
    def example(
        metric: dict[str, Any],
        seed: int,
        size: int,
        setting: Setting,
        window: tuple[int | None, str | None],
        day: int,
    ) -> None:
        check_every_day(bench, {**metric, **in_window(window)}, a_log(seed, size), setting, day)

    example()


@pytest.mark.parametrize("metric_type", ["funnel", "retention"])
def test_events_of_one_person_that_share_a_uuid_are_several(bench: Bench, metric_type: str) -> None:
    """Each person has an exposure and one or two further events, all with one uuid."""
    random = Random(metric_type)
    for metric in [each for each in METRICS if each["metric_type"] == metric_type]:
        events = []
        for place, person in enumerate(PEOPLE):
            exposure = {"$feature_flag": "flag", "$feature_flag_response": random.choice(["control", "test"])}
            further = [
                ("purchase", 5),
                *random.choices([("purchase", 29), ("checkout", 5), ("checkout", 30)]),
            ]
            events += [
                Event(person, START + timedelta(hours=hours), name, properties, UUID(int=place))
                for name, hours, properties in [
                    ("$feature_flag_called", 1, exposure),
                    *((name, hours, {"amount": 3, "size": "big"}) for name, hours in further),
                ]
            ]
        check_every_day(bench, metric, events, Setting(START, END, now=END), 2)


def test_groups_whose_counts_are_not_zero(bench: Bench) -> None:
    """DuckDB 2.0.0 found none, as long as its optimizer took sums for 0."""
    metric = {**quantile(0.25, source=PURCHASE, ignore_zeros=True), **in_window((1, "day"))}
    check_every_day(bench, metric, a_log(0, 120), Setting(START, END, now=END, group=0), 2)


@pytest.mark.parametrize("large", [1e6, 2.0**31, 1e30, 1e99])
@pytest.mark.parametrize("math", ["sum", "avg", "max", "ratio"])
def test_a_large_value_that_leaves_its_variant_takes_only_itself(
    bench: Bench, math: str, large: float
) -> None:
    """Its owner sees the other variant some days later; what others did must not be lost in its rounding."""
    day = timedelta(days=1)
    seen = [(person, START, "control") for person in ("ann", "bob", "cy")]
    seen += [("gus", START, "test"), ("ann", START + 2 * day, "test")]
    paid = [("ann", 1, large), ("bob", 1, 20.5), ("cy", 2, 0.001), ("gus", 1, 3.25), ("ann", 3, 7)]
    paid += [("ann", -1, large), ("bob", -1, 0.5), ("cy", -1, 2)]
    events = [
        Event(
            person,
            moment,
            "$feature_flag_called",
            {"$feature_flag": "flag", "$feature_flag_response": variant},
            UUID(int=place),
        )
        for place, (person, moment, variant) in enumerate(seen, 1)
    ]
    events += [
        Event(person, START + days * day, "purchase", {"amount": amount}, UUID(int=place))
        for place, (person, days, amount) in enumerate(paid, 100)
    ]
    value = {**PURCHASE, **AMOUNT, "math": math}
    metric = mean(source=value)
    if math == "ratio":
        side = {**PURCHASE, **AMOUNT, "math": "sum"}
        metric = {"metric_type": "ratio", "numerator": side, "denominator": {**side, "math": "avg"}}
    check_every_day(bench, metric, events, Setting(START, END, now=END, lookback=2 * day), 4)


def in_window(window: tuple[int | None, str | None]) -> dict[str, Any]:
    return {"conversion_window": window[0], "conversion_window_unit": window[1]}


def check_every_day(
    bench: Bench,
    metric: dict[str, Any],
    events: list[Event],
    setting: Setting,
    day: int,
    tables: Tables = no_tables,
) -> None:
    """The whole span, one earlier day asked alone, and every day of the series."""
    metric = {**metric, "breakdownFilter": {"breakdowns": list(map(breakdown, setting.breakdowns))}}
    question = bench.ask(setting, events, metric, tables)
    compare_answers(bench.computer.result(question), setting, events, metric, "whole span")
    grid = question.span.days
    assert grid is not None
    number = min(day, grid.count - 1)
    alone = bench.computer.result(at_end_of_day(question, number))
    compare_answers(alone, earlier(setting, question, number), events, metric, f"day {number} alone")
    for number, point in bench.computer.points(question).items():
        then = earlier(setting, question, number)
        compare_answers(point, then, events, metric, f"day {number} of the series")


def breakdown(name: str) -> dict[str, Any]:
    if name.startswith("group_0."):
        return {"property": name.removeprefix("group_0."), "type": "group", "group_type_index": 0}
    if name.startswith("session."):
        return {"property": name.removeprefix("session."), "type": "session"}
    return {"property": name}


def compare_answers(
    answer: Answer, setting: Setting, events: list[Event], metric: dict[str, Any], what: str
) -> None:
    """Cell by cell; the whole is the sum of its cells."""
    if not setting.breakdowns:
        assert_same(answer.groups, oracle.statistics(setting, events, metric), what)
        assert not answer.cells
        return
    whole: dict[str, dict[str, Any]] = {}
    cells = {unit.cell for unit in oracle.units(setting, events).values()}
    for cell in cells:
        expected = oracle.statistics(replace(setting, only=cell), events, metric)
        assert_same(answer.cells.get(cell, {}), expected, f"{what}, {cell}")
        for variant, numbers in expected.items():
            if metric["metric_type"] == "quantile":
                continue
            total = whole.setdefault(variant, dict.fromkeys(numbers, 0))
            for name, each in numbers.items():
                total[name] += each
    assert answer.cells.keys() <= cells
    if metric["metric_type"] == "quantile":
        whole = oracle.statistics(setting, events, metric)
    assert_same(answer.groups, whole, what)


def test_new_exposures_of_every_day(bench: Bench) -> None:
    @settings(max_examples=bench.engine.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=seeds, size=sizes, setting=a_setting())
    def example(seed: int, size: int, setting: Setting) -> None:
        check_new_exposures(bench, seed, size, setting)

    example()


def check_new_exposures(bench: Bench, seed: int, size: int, setting: Setting) -> None:
    events = a_log(seed, size)
    question = bench.ask(setting, events, mean())
    grid = question.span.days
    assert grid is not None
    found = {
        variant: {day.isoformat(): new for day, new in zip(grid.days, counts, strict=True) if new}
        for variant, counts in bench.computer.exposures(question).items()
    }
    assert set(setting.variants) <= found.keys()
    assert {variant: days for variant, days in found.items() if days} == oracle.new_exposures(setting, events)
