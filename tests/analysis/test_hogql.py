"""Queries of kind HogQLQuery: both engines against plain Python, guards, and what the endpoint says."""

# ruff: noqa: S608, DTZ001, ISC004 - queries are texts here, and local times have no zone

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.analysis.engines import Engine
from tests.analysis.events import Event, person_id
from tests.analysis.lab import NOW, Lab
from tests.embedded import EmbeddedDialect
from tests.waiting import wait_for

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.hogql import hogql_answer, read_hogql
from hoglab.analysis.hogql.answer import built
from hoglab.analysis.hogql.reading import DEFAULT_ROWS, MAX_COLUMNS, MAX_ROWS
from hoglab.analysis.hogql.translation import _FUNCTIONS
from hoglab.analysis.query.expressions import _OF_NUMBERS, _SPECIAL, _TO_NUMBER, Sql, Translation
from hoglab.hog import nodes
from hoglab.http.identity import Project
from hoglab.storage.event_store.dialects import Dialect
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse

START = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)
"""Two and a half hours before clocks change in Europe, on a Saturday."""
_projects = count(9_000)


def project_in(zone: str = "UTC") -> Project:
    return Project(next(_projects), "", "", "", "", zone, [], None, False, {}, {}, START, START)


EVENTS = [
    Event(
        person,
        START + timedelta(hours=hour, minutes=7 * hour),
        ("signed up", "purchase", "page")[hour % 3],
        {"amount": hour * 1.5, "plan": ("pro", "free", None)[hour % 3]} if hour % 4 else {"plan": "pro"},
        person_properties={"country": country},
    )
    for person, country in (("ann", "DE"), ("bob", "NP"), ("cem", "DE"))
    for hour in range(12)
]


def ask(engine: Engine, project: Project, text: str, **fields: Any) -> dict[str, Any]:
    query = {"kind": "HogQLQuery", "query": text, **fields}
    now = START + timedelta(days=2)
    return hogql_answer(engine.computer.runner, project, read_hogql(query), text, now)


@pytest.fixture
def rows(engine: Engine) -> Callable[..., list[list[Any]]]:
    project = project_in("Europe/Berlin")
    engine.add(EVENTS, project_id=project.id)
    engine.add([Event("ann", START, "other project")], project_id=project_in().id)

    def of(text: str, **fields: Any) -> list[list[Any]]:
        results: list[list[Any]] = ask(engine, project, text, **fields)["results"]
        return results

    return of


def local(event: Event) -> datetime:
    return event.timestamp.astimezone(ZoneInfo("Europe/Berlin"))


def by(key: Callable[[Event], Any]) -> dict[Any, list[Event]]:
    groups: defaultdict[Any, list[Event]] = defaultdict(list)
    for event in EVENTS:
        groups[key(event)].append(event)
    return dict(groups)


def amounts(events: list[Event]) -> list[float]:
    return [event.properties["amount"] for event in events if "amount" in event.properties]


Rows = Callable[..., list[list[Any]]]


class TestAgainstPython:
    def test_groups_and_aggregates(self, rows: Rows) -> None:
        found = rows(
            "select event, count(), count(properties.amount), sum(properties.amount), avg(properties.amount), "
            "min(toFloat(properties.amount)), max(toFloat(properties.amount)), median(properties.amount), "
            "uniq(person_id), count(distinct person.properties.country), "
            "countIf(properties.plan = 'pro'), sumIf(properties.amount, properties.plan = 'free') "
            "from events group by event order by event"
        )
        wanted = []
        for name, events in sorted(by(lambda event: event.event).items()):
            numbers = amounts(events)
            wanted.append(
                [
                    name,
                    len(events),
                    len(numbers),
                    sum(numbers),
                    sum(numbers) / len(numbers),
                    min(numbers),
                    max(numbers),
                    median(numbers),
                    3,
                    2,
                    sum(event.properties["plan"] == "pro" for event in events),
                    sum(amounts([event for event in events if event.properties["plan"] == "free"])),
                ]
            )
        assert found == [
            [pytest.approx(value) if isinstance(value, float) else value for value in row] for row in wanted
        ]

    @pytest.mark.parametrize(
        ("function", "shown"),
        [
            ("toDate", lambda moment: moment.date().isoformat()),
            ("toStartOfDay", lambda moment: moment.replace(hour=0, minute=0).isoformat()),
            (
                "toStartOfWeek",
                lambda moment: (moment.date() - timedelta(days=(moment.weekday() + 1) % 7)).isoformat(),
            ),
            ("toStartOfMonth", lambda moment: moment.date().replace(day=1).isoformat()),
            ("toHour", lambda moment: moment.hour),
            ("toDayOfWeek", lambda moment: moment.isoweekday()),
        ],
    )
    def test_parts_of_times_are_those_of_the_project(
        self, rows: Rows, function: str, shown: Callable[[datetime], Any]
    ) -> None:
        found = rows(
            f"select {function}(timestamp) as part, count() as c from events group by part order by part"
        )
        wanted = {key: len(events) for key, events in by(lambda event: shown(local(event))).items()}
        assert found == [[key, wanted[key]] for key in sorted(wanted)]

    def test_moments_have_the_offset_of_their_time(self, rows: Rows) -> None:
        [[least, most]] = rows("select min(timestamp), max(timestamp) from events")
        assert (datetime.fromisoformat(least), datetime.fromisoformat(most)) == (
            EVENTS[0].timestamp,
            EVENTS[11].timestamp,
        )
        assert (least[-6:], most[-6:]) == ("+01:00", "+02:00")

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [
            ("event = 'page'", lambda event: event.event == "page"),
            ("e.event != 'page'", lambda event: event.event != "page"),
            ("event in ('page', 'purchase')", lambda event: event.event != "signed up"),
            ("event not in ['page']", lambda event: event.event != "page"),
            ("event like 'p%'", lambda event: event.event[0] == "p"),
            ("event not ilike 'P%'", lambda event: event.event[0] != "p"),
            ("properties.amount > 4", lambda event: event.properties.get("amount", 0) > 4),
            ("properties['amount'] between 3 and 6", lambda event: 3 <= event.properties.get("amount", 0) <= 6),
            ("properties.plan is null", lambda event: event.properties["plan"] is None),
            ("isNotNull(properties.plan)", lambda event: event.properties["plan"] is not None),
            ("person.properties.country = 'NP'", lambda event: event.person == "bob"),
            ("not (event = 'page') and notEmpty(properties.plan)",
             lambda event: event.event != "page" and event.properties["plan"] is not None),
            ("event = 'page' or properties.plan = 'pro'",
             lambda event: event.event == "page" or event.properties["plan"] == "pro"),
            ("timestamp >= '2026-03-29'", lambda event: local(event).date().isoformat() >= "2026-03-29"),
            ("'2026-03-29 01:00:00' > timestamp",
             lambda event: local(event).replace(tzinfo=None) < datetime(2026, 3, 29, 1)),
            ("timestamp > now() - interval 40 hour", lambda event: event.timestamp > START + timedelta(hours=8)),
            ("timestamp < today() - interval 1 day", lambda event: local(event).date().isoformat() < "2026-03-30"),
            ("toDate(timestamp) = toDate('2026-03-29')", lambda event: local(event).day == 29),
            ("toDate(timestamp) != '2026-03-29'", lambda event: local(event).day != 29),
            ("toStartOfHour(timestamp) <= toDateTime('2026-03-29 05:00:00')",
             lambda event: local(event).replace(minute=0, tzinfo=None) <= datetime(2026, 3, 29, 5)),
            ("event = {name}", lambda event: event.event == "it's"),
            ("properties.amount > {least}", lambda event: event.properties.get("amount", 0) > 2),
            ("concat(lower(event), upper('x')) = 'pageX'", lambda event: event.event == "page"),
            ("JSONExtractFloat(properties, 'amount') > 4", lambda event: event.properties.get("amount", 0) > 4),
        ],
    )  # fmt: skip
    def test_conditions(self, rows: Rows, condition: str, holds: Callable[[Event], bool]) -> None:
        found = rows(f"select count() from events e where {condition}", values={"name": "it's", "least": 2})
        assert found == [[sum(map(holds, EVENTS))]]

    def test_a_property_that_is_missing_is_not_more_than_a_number(self, rows: Rows) -> None:
        assert rows("select count() from events where properties.amount <= 4")[0][0] == sum(
            amount <= 4 for amount in amounts(EVENTS)
        )

    def test_having_aliases_and_positions(self, rows: Rows) -> None:
        wanted = sorted(
            (
                [len(events), name]
                for name, events in by(lambda event: event.properties["plan"]).items()
                if name
            ),
            key=lambda row: (-row[0], row[1]),
        )
        for text in (
            "select count() as c, properties.plan as p from events where p is not null group by p having c > 0 "
            "order by c desc, p",
            "select count(), properties.plan from events where properties.plan is not null group by 2 "
            "having count() > 0 order by 1 desc, 2",
        ):
            assert rows(text) == wanted
        assert rows("select count() / 2 + 1 as half from events having half > 1000") == []

    def test_rows(self, rows: Rows, engine: Engine) -> None:
        found = rows(
            "select event, timestamp, person_id, properties.amount from events order by timestamp, person_id"
        )
        wanted = sorted(EVENTS, key=lambda event: (event.timestamp, str(person_id(event.person))))
        assert [row[0] for row in found] == [event.event for event in wanted]
        assert [datetime.fromisoformat(row[1]) for row in found] == [event.timestamp for event in wanted]
        assert [row[2] for row in found] == [str(person_id(event.person)) for event in wanted]
        assert len(rows("select distinct event from events")) == 3
        assert rows("select 1 + 1, 'x', null, true from events limit 1") == [[2, "x", None, True]]
        [everything] = rows("select * from events where event = 'page' order by timestamp limit 1")
        assert everything[1] == "page"
        assert '"plan"' in everything[2]


def test_pages_and_their_ends(engine: Engine) -> None:
    project = project_in()
    engine.add(
        EVENTS * 1 + [Event("dan", START + timedelta(seconds=n), "many") for n in range(80)],
        project_id=project.id,
    )
    first = ask(
        engine, project, "select timestamp from events where event = 'many' order by timestamp limit 50"
    )
    assert (len(first["results"]), first["hasMore"], first["limit"]) == (50, True, 50)
    rest = ask(
        engine,
        project,
        "select timestamp from events where event = 'many' order by timestamp limit 50 offset 50",
    )
    assert (len(rest["results"]), rest["hasMore"], rest["offset"]) == (30, False, 50)
    whole = ask(engine, project, "select event from events")
    assert (len(whole["results"]), whole["hasMore"], whole["limit"]) == (DEFAULT_ROWS, True, DEFAULT_ROWS)
    assert ask(engine, project, "select event from events limit 1000000")["limit"] == MAX_ROWS
    named = ask(
        engine, project, "select properties.$browser, count()  as  c, count( ) from events group by 1"
    )
    assert named["columns"] == ["$browser", "c", "count( )"]
    assert named["types"][1] == ["c", "Float64"]


REFUSED = {
    "": "text of a SELECT",
    "select": "one SELECT",
    "select event from": "cannot be read at character",
    "select event": "FROM events is missing",
    "select event from persons": "persons cannot be read",
    "select event from (select event from events)": "a subquery cannot be read",
    "select event from events join persons on 1 = 1": "JOIN cannot be used",
    "select event from events union all select event from events": "one SELECT",
    "with x as (select 1) select event from events": "WITH cannot be used",
    "select sleep(3) from events": "sleep",
    "select nothing from events": "nothing is not known",
    "select project_id from events": "project_id is not known",
    "select password from events.secret": "cannot be read",
    "select event from person_override": "cannot be read",
    "select file('/etc/passwd') from events": "file",
    "select event, count() from events": "neither in GROUP BY",
    "select count() from events group by count()": "aggregate",
    "select event from events where count() > 1": "aggregate",
    "select sum(count()) from events": "aggregate",
    "select event from events where event in (select event from events)": "IN needs a list",
    "select event from events limit -1": "LIMIT",
    "select event from events limit 1 by event": "LIMIT BY cannot be used",
    "select event from events order by 7": "there is no column 7",
    "select event from events where event = {missing}": "placeholder",
    "select event from events where timestamp > 'last tuesday'": "no date",
    "select count() from events where timestamp > now() - interval 'x' day": "",
    "select timestamp > 5 from events": "time",
    "select event over () from events": "",
    "select " + ", ".join(["event"] * (MAX_COLUMNS + 1)) + " from events": "at most",
    "select " + "(" * 200 + "1" + ")" * 200 + " from events where " + "not " * 100 + "true": "",
    "select " + " + ".join(["1"] * 300) + " from events": "at most",
    "select 'x" + "x" * 6_000 + "' from events": "at most 5,000 characters",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_what_cannot_be_answered_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        ask(engine, project_in(), text)
    assert REFUSED[text] in str(refused.value)


def test_aliases_of_aliases_do_not_explode(engine: Engine) -> None:
    for first in ("toFloat(properties.amount)", "count()"):
        parts = [f"{first} as a0", *(f"a{n} + a{n} as a{n + 1}" for n in range(40))]
        with pytest.raises(DefinitionError):
            ask(engine, project_in(), f"select {', '.join(parts)} from events")
    with pytest.raises(DefinitionError):
        ask(engine, project_in(), "select b as a, a as b from events")


@pytest.mark.parametrize(
    "text", ["it's", "a\\", "'; DROP TABLE events; --", "\x00", "\ud800", "$1", "{x:String}"]
)
def test_texts_are_values(engine: Engine, text: str) -> None:
    project = project_in()
    engine.add([Event("ann", START, "page", {"plan": "pro"})], project_id=project.id)
    answer = ask(
        engine,
        project,
        "select count() from events where event != {x} and properties.plan != {x}",
        values={"x": text},
    )
    assert answer["results"] == [[1]]


def test_names_are_values(engine: Engine) -> None:
    project = project_in()
    name = 'it\'s "a" `b` \\ ]'
    engine.add([Event("ann", START, "page", {name: "pro"})], project_id=project.id)
    text = "select properties['" + name.replace("\\", "\\\\").replace("'", "\\'") + "'] as x from events"
    assert ask(engine, project, text)["results"] == [["pro"]]


def test_an_answer_that_is_too_large_is_refused_before_it_is_fetched(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_in()
    texts = [f"{number:02}" + "x" * 1_000 for number in range(40)]
    engine.add(
        [
            Event("ann", START + timedelta(minutes=number), "page", {"text": text})
            for number, text in enumerate(texts)
        ],
        project_id=project.id,
    )
    monkeypatch.setattr("hoglab.analysis.hogql.answer.MAX_ANSWER_BYTES", 10_000)
    text = "select properties.text, timestamp from events order by timestamp desc"
    small = ask(engine, project, f"{text} limit 9")
    assert [row[0] for row in small["results"]] == texts[:-10:-1]
    assert small["hasMore"]
    with pytest.raises(DefinitionError, match="ask for fewer"):
        ask(engine, project, text)
    runner = engine.computer.runner
    query = read_hogql({"kind": "HogQLQuery", "query": text})
    statement = built(runner.dialect, project, query, START + timedelta(days=2))[2]
    with runner.reader() as reader:
        assert len(runner.executed(reader, statement)) == 10


@pytest.mark.parametrize("size", [2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**29, 10**300])
@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_numbers_of_any_size(
    engine: Engine, rows: Callable[..., list[list[Any]]], sign: str, size: int
) -> None:
    number = float(f"{sign}{size}")
    assert rows(f"select {sign}{size}, event from events limit 1")[0][0] == number
    compared = rows(f"select count() from events group by properties.amount > {sign}{size} limit 1")
    assert len(compared) == 1


def forms() -> list[str]:
    """Return every form of an expression with another one inside, ``@``, at each of its places."""
    operators = ("+", "-", "*", "/", "=", "!=", "<", ">=", "and", "or", "in", "like", "not ilike")
    calls = {(name, number) for table in (_FUNCTIONS, _SPECIAL) for name, number in table}
    calls |= {(name, 1) for name in _TO_NUMBER | _OF_NUMBERS.keys()} | {("concat", 2), ("concat", 3)}
    filled = [f"@ {operator} 1" for operator in operators] + [f"1 {operator} (@)" for operator in operators]
    filled += [
        "not @",
        "-(@)",
        "(@)",
        "@ ? 1 : 2",
        "1 ? @ : 2",
        "(@) between 1 and 2",
        "1 between (@) and 2",
        "@ is null",
    ]
    for name, number in sorted(calls):
        filled += [
            f"{name}({', '.join('@' if at == place else '1' for at in range(number))})"
            for place in range(number)
        ]
    return filled


@pytest.mark.parametrize("dialect", [EmbeddedDialect(), ClickHouse()], ids=["embedded", "ClickHouse"])
@pytest.mark.parametrize("base", ["properties.a", "timestamp", "toDate(timestamp)"])
def test_no_form_inside_itself_is_translated_more_than_once(
    dialect: Dialect, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is translated twice, or written twice, takes time and memory that double with each level."""
    calls = 0
    really = Translation.translated

    def counted(self: Translation, node: nodes.Expr) -> Sql:
        nonlocal calls
        calls += 1
        return really(self, node)

    monkeypatch.setattr(Translation, "translated", counted)
    depth, answered = 12, 0
    for form in forms():
        lengths = []
        for levels in (1, depth):
            text = base
            for _ in range(levels):
                text = form.replace("@", text, 1).replace("@", "1")
            calls = 0
            query = read_hogql({"kind": "HogQLQuery", "query": f"select {text} from events"})
            try:
                lengths.append(len(built(dialect, project_in("Europe/Berlin"), query, START)[2].sql))
            except DefinitionError:
                lengths.append(0)
            assert calls <= 8 * levels + 8, (form, levels, calls)
        assert lengths[1] <= depth * max(lengths[0], 1), form
        answered += lengths[1] > 0
    assert answered > 20


class TestEndpoint:
    def test_answer(self, lab: Lab) -> None:
        lab.send([Event("ann", NOW - timedelta(hours=1), "page", {"plan": "pro"})])
        text = (
            "select event, count() as views from events where properties.plan = 'pro' group by event limit 5"
        )
        query = {"kind": "HogQLQuery", "query": text, "explain": True, "modifiers": {}}
        answer = lab.query(query)
        assert (answer["results"], answer["columns"], answer["hasMore"]) == (
            [["page", 1]],
            ["event", "views"],
            False,
        )
        assert (answer["kind"], answer["query"], answer["is_cached"]) == ("HogQLQuery", text, False)
        assert "warnings" not in answer
        for kind in ("DataVisualizationNode", "InsightVizNode"):
            assert lab.query({"kind": kind, "source": query})["results"] == [["page", 1]]
        lab.send([Event("ann", NOW, "page", {"plan": "pro"})])
        assert lab.query(query)["results"] == [["page", 2]]

    @pytest.mark.parametrize(
        "query", [{}, {"query": 5}, {"query": "select x from events"}, {"query": "drop table x"}]
    )
    def test_refusals_are_errors_of_the_wire(self, lab: Lab, query: dict[str, Any]) -> None:
        asked_alone = {"kind": "HogQLQuery", **query}
        for asked in (asked_alone, {"kind": "DataVisualizationNode", "source": asked_alone}):
            answer = lab.call("POST", "/query/", {"query": asked})
            assert (answer.status_code, answer.json()["type"]) == (400, "validation_error"), answer.text
        lab.query({"kind": "DataVisualizationNode"}, status=400)
        lab.query({"kind": "DataVisualizationNode", "source": {"kind": "DataVisualizationNode"}}, status=400)

    def test_in_the_background(self, lab: Lab) -> None:
        lab.send([Event("ann", NOW - timedelta(hours=1), "page")])
        query = {"kind": "HogQLQuery", "query": "select count() from events"}
        begun = lab.ok("POST", "/query/", {"query": query, "refresh": "force_async"}, status=202)
        path = f"/query/{begun['query_status']['id']}/"
        wait_for(lambda: lab.call("GET", path).status_code == 200)
        assert lab.ok("GET", path)["query_status"]["results"]["results"] == [[1]]
