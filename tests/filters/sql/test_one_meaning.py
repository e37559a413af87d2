"""One condition has one meaning in flags, metrics and functions.

Differences that PostHog's documents demand are listed by rule, with their reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from posthog.feature_flags import InconclusiveMatchError, match_property
from tests.embedded import EmbeddedDialect
from tests.filters.hog.events import filter_globals

from hoglab.analysis.query.event_relation import RelationRow
from hoglab.filters import parse_filters
from hoglab.filters.evaluate import OPERATORS as FLAG_OPERATORS
from hoglab.filters.evaluate import EvaluationContext, compile_group, number_of, text_of
from hoglab.filters.hog import CompiledFilter, FilterContext, build_filter
from hoglab.filters.hog.operators import OPERATORS as FUNCTION_OPERATORS
from hoglab.filters.operands import operand_problem
from hoglab.filters.sql import OPERATORS as METRIC_OPERATORS
from hoglab.filters.sql import FilterScope, group_condition
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse

NOW = datetime.now(UTC).replace(microsecond=0)
MISSING = object()

VALUES: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "integer": 10,
    "negative": -3,
    "fraction": 5.5,
    "zero": 0,
    "number text": "10",
    "fraction text": "5.50",
    "signed text": "+7",
    "exponent text": "1e1",
    "point text": "5.",
    "padded text": " 10 ",
    "hexadecimal text": "0x10",
    "infinite text": "inf",
    "no number text": "nan",
    "empty text": "",
    "text": "abc",
    "true": True,
    "false": False,
    "true text": "true",
    "one-element list": [10],
    "list": [1, "a"],
    "empty list": [],
    "object": {"k": 1},
    "date": "2026-05-01",
    "moment": "2026-05-01T12:00:00Z",
    "moment with offset": "2026-05-01T12:00:00+02:00",
    "moment of no zone": "2026-05-01 12:00:00",
    "moment in small letters": "2026-05-01t12:00:00z",
    "moment with a blank": "2026-05-01 12:00:00 +02:00",
    "moment of an hour that comes twice": "2026-10-25 02:30:00",
    "moment of hour 25": "2026-05-01 25:00:00",
    "second 60": "2026-05-01 12:00:60",
    "day that is none": "2026-02-30",
    "year 0": "0000-01-01",
    "epoch": 1772582400,
    "fraction of epoch": 1772582400.5,
    "epoch text": "1772582400",
    "compact date": "20260501",
    "relative date": "-1d",
    "version": "1.2.3",
    "one": 1,
    "one as a fraction": 1.0,
    "one as text": "1",
    "one as text of a fraction": "1.0",
    "zero text": "0",
    "negative zero": -0.0,
    "long integer": 2**53 + 1,
    "neighbour of the long integer": 2**53,
    "long integer text": str(2**53 + 1),
    "text of its neighbour": str(2**53),
    "large number": 1e300,
    "huge text": "1e400",
    "infinity": "Infinity",
    "capital true text": "True",
    "capital false text": "FALSE",
    "null text": "null",
    "list of true": [True],
    "list of null": [None],
    "list of a text": ["abc"],
    "text of a list": '["abc"]',
    "accented text": "É",
    "accented text in small letters": "é",
    "text with wildcards": "a_b 100%",
    "text without wildcards": "axb 1000",
    "text with a line break": "abc\n",
    "text with backslashes": "a\\_b",
}


def in_flags(condition: dict[str, Any], zone: str = "UTC") -> list[bool]:
    test = compile_group(parse_filters([condition]), EvaluationContext(lambda: NOW, ZoneInfo(zone)))
    return [test(properties_of(value)) for value in VALUES.values()]


def in_functions(condition: dict[str, Any], zone: str = "UTC") -> list[bool]:
    compiled = CompiledFilter(build_filter({"properties": [condition]}, FilterContext(timezone=zone)))
    return [compiled.matches(filter_globals(properties=properties_of(value))) for value in VALUES.values()]


def in_metrics(engine: duckdb.DuckDBPyConnection, condition: dict[str, Any], zone: str = "UTC") -> list[bool]:
    dialect = EmbeddedDialect()
    parameters = dialect.parameters()
    row = RelationRow(dialect, parameters)
    sql = group_condition(parse_filters([condition]), FilterScope(row, NOW, ZoneInfo(zone)))
    events = json.dumps([json.dumps(properties_of(value)) for value in VALUES.values()])
    statement = f"SELECT {sql} FROM (SELECT unnest(from_json($events, '[\"VARCHAR\"]')) AS properties)"  # noqa: S608
    [extracted] = engine.extract_statements(statement)
    bound = {"events": events, **parameters.values}
    rows = engine.execute(extracted, {name: bound[name] for name in extracted.named_parameters}).fetchall()
    return [bool(holds) for (holds,) in rows]


def in_metrics_of_clickhouse(conditions: list[dict[str, Any]], zone: str = "UTC") -> list[list[bool]]:
    """Return the answers of ClickHouse's engine to each condition, in this process, or skip the test without it."""
    chdb = pytest.importorskip("chdb")
    dialect = ClickHouse()
    parameters = dialect.parameters()
    row = RelationRow(dialect, parameters)
    scope = FilterScope(row, NOW, ZoneInfo(zone))
    columns = ", ".join(group_condition(parse_filters([condition]), scope) for condition in conditions)
    events = SEPARATOR.join(json.dumps(properties_of(value)) for value in VALUES.values())
    statement = f"SELECT {columns} FROM (SELECT arrayJoin(splitByChar('{SEPARATOR}', {{events:String}})) AS properties)"  # noqa: S608
    bound = {"events": events, **parameters.values}
    texts = {name: escaped(value) if isinstance(value, str) else value for name, value in bound.items()}
    lines = chdb.query(statement, "TabSeparated", params=texts).data().splitlines()
    answers = zip(*(line.split("\t") for line in lines), strict=True)
    return [[answer in ("1", "true") for answer in column] for column in answers]


SEPARATOR = "\x01"


def escaped(text: str) -> str:
    """Return a text as the engine reads parameters."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t")


def properties_of(value: Any) -> dict[str, Any]:
    return {} if value is MISSING else {"p": value}


ORDERS = ("gt", "gte", "lt", "lte", "min", "max")
NUMBERS = (0, 2**53, 5, "5", 10, "10", "+9", "1e1", "100", -5, "-5", "5.5", "1772582400", ["5", "10"])
TEXTS = (
    *("10", "B", "1", "2026", "", "null", "true", "É", "a_b", "100%", "%", "_", "\\_", "\\", "c\n"),
    ["10", "b"],
)
EQUALS = (
    *("10", 10, "abc", "ABC", "5.5", "true", True, ["10", "abc"], ["10"], [10, "ABC"]),
    *(
        None,
        "",
        "null",
        ["null"],
        [None, "abc"],
        False,
        "false",
        "True",
        [True],
        ["true", "abc"],
        [False, "abc"],
    ),
    *(1, "1", "1.0", [1, "10"], 0, "0", 2**53 + 1, str(2**53 + 1), [2**53 + 1, "x"], 2**53, 1e300),
    *("nan", "Infinity", "1e400", "É", "a_b 100%", '["abc"]', '[1,"a"]'),
)
OPERANDS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(ORDERS, NUMBERS),
    **dict.fromkeys(("between", "not_between"), ([5, 10], ["5", "10"], [-1, 1])),
    **dict.fromkeys(
        ("is_date_before", "is_date_after", "is_date_exact"),
        ("2026-03-04", "2026-05-01T12:00:00Z", "2026-05-01", "-7d"),
    ),
    **dict.fromkeys(("exact", "is_not"), EQUALS),
    **dict.fromkeys(("icontains", "not_icontains"), TEXTS[:-1]),
    **dict.fromkeys(("icontains_multi", "not_icontains_multi"), TEXTS),
    **dict.fromkeys(("starts_with", "not_starts_with", "ends_with", "not_ends_with"), TEXTS[:-1]),
    **dict.fromkeys(("regex", "not_regex"), ("^1", "b", "a.c", "^$", "", ".*", "^$|abc", "null", "a_b", "é")),
    **dict.fromkeys(("is_set", "is_not_set"), (None,)),
}


def differs_in_functions(operator: str, operand: Any, kind: str) -> bool:
    """Say whether a function's filter answers something else than a flag.

    Programs write lists and numbers as the language does (``['a']``, ``1``), compare long integers exactly, and read no
    relative date in a property, and no date with a blank before its offset.
    """
    match operator:
        case "exact" | "is_not" if isinstance(VALUES[kind], list) and operand == text_of(VALUES[kind]):
            return True
        case "is_date_before" | "is_date_after" | "is_date_exact" if kind == "moment with a blank":
            return True
        case "gt" | "gte" | "min" | "lt" | "lte" | "max" if kind == "long integer":
            return operand == 2**53
    return (operator in SEARCHES and is_spelt_in_ways(kind)) or differs_everywhere(operator, operand, kind)


def differs_in_clickhouse(operator: str, operand: Any, kind: str) -> bool:
    """Say whether ClickHouse answers something else than a flag: it spells numbers its own way."""
    return (operator in SEARCHES and is_spelt_in_ways(kind)) or differs_everywhere(operator, operand, kind)


def is_spelt_in_ways(kind: str) -> bool:
    value = VALUES[kind]
    return isinstance(value, float | list | dict)


def differs_everywhere(operator: str, operand: Any, kind: str) -> bool:
    """Say whether metrics and functions alike answer something else than flags.

    Null counts as missing, and letters keep their case. Flags compare with true and false by truth (of all that is
    not true they say that it is false, as PostHog's SDKs do), where metrics and functions compare texts; these take
    numbers of one size for equal, whatever their spelling. Where the case of letters does not count, flags mean those
    of ASCII only.
    """
    value = VALUES[kind]
    operands = operand if isinstance(operand, list) else [operand]
    texts = [text_of(member) for member in operands]
    match operator:
        case "exact" | "is_not" if all(text.lower() in {"true", "false", "[true]"} for text in texts):
            return (value not in ("true", "false") and not isinstance(value, bool)) or "True" in texts
        case "exact" | "is_not" if kind in ("null", "missing", "null text"):
            return "null" in texts
        case "exact" | "is_not":
            spelling = text_of(value) if value is not MISSING else ""
            same_letters = spelling.lower() in [text.lower() for text in texts] and spelling not in texts
            is_number = isinstance(value, float | int) and not isinstance(value, bool)
            return same_letters or (is_number and value in [number_of(text) for text in texts])
        case "not_between":
            return kind in {"missing", "huge text"}
        case "gt" | "gte" | "min" | "lt" | "lte" | "max" | "between":
            return kind == "huge text"  # which is infinite there, and no number in flags
        case "is_date_before" | "is_date_after":
            return kind == "relative date"
        case "is_set" | "is_not_set":
            return kind == "null"
    if operator in SEARCHES:
        if kind == "null":
            return True
        if not operator.endswith("regex"):
            return (
                isinstance(value, str) and not value.isascii() and not all(text.isascii() for text in texts)
            )
    return False


SEARCHES = (
    *(f"{negation}{way}" for negation in ("", "not_") for way in ("icontains", "icontains_multi", "regex")),
    *(f"{negation}{way}" for negation in ("", "not_") for way in ("starts_with", "ends_with")),
)


@pytest.mark.parametrize("operator", OPERANDS)
def test_one_condition_has_one_meaning(engine: duckdb.DuckDBPyConnection, operator: str) -> None:
    for operand in OPERANDS[operator]:
        condition = {"key": "p", "type": "event", "operator": operator, "value": operand}
        wanted = any_of_flags(condition)
        check(condition, wanted, in_metrics(engine, condition), differs_everywhere)
        if operator in FUNCTION_OPERATORS:
            check(condition, wanted, in_functions(condition), differs_in_functions)


@pytest.mark.parametrize("operator", OPERANDS)
def test_one_condition_has_one_meaning_on_clickhouse(operator: str) -> None:
    conditions = [
        {"key": "p", "type": "event", "operator": operator, "value": operand}
        for operand in OPERANDS[operator]
    ]
    for condition, answer in zip(conditions, in_metrics_of_clickhouse(conditions), strict=True):
        check(condition, any_of_flags(condition), answer, differs_in_clickhouse)


def check(
    condition: dict[str, Any],
    wanted: list[bool],
    answer: list[bool],
    may_differ: Callable[[str, Any, str], bool],
) -> None:
    """Raise `AssertionError` if answers differ for a kind of value for which they may not."""
    operator, operand = condition["operator"], condition["value"]
    different = {kind for kind, flag, other in zip(VALUES, wanted, answer, strict=True) if flag is not other}
    unlisted = {kind for kind in different if not may_differ(operator, operand, kind)}
    assert not unlisted, (operator, operand, may_differ.__name__)


DATES = [
    *(
        f"2026-{day}T{hour}:00{offset}"
        for day in ("04-30", "05-01")
        for hour in ("22:00", "12:00")
        for offset in ("", "Z")
    ),
    *("2026-05-01", "2026-04-30", "2026-10-25T00:45:00Z", "2026-10-25 02:30:00", "2026-10-26", "-30d"),
]  # fmt: skip
"""Operands on both sides of what values without an offset mean in UTC and in the zones below."""


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "UTC"])
def test_dates_without_an_offset_are_in_the_projects_zone_everywhere(
    engine: duckdb.DuckDBPyConnection, zone: str
) -> None:
    conditions = [
        {"key": "p", "type": "event", "operator": f"is_date_{way}", "value": operand}
        for way in ("before", "after", "exact")
        for operand in DATES
    ]
    on_clickhouse = in_metrics_of_clickhouse(conditions, zone)
    for condition, of_clickhouse in zip(conditions, on_clickhouse, strict=True):
        wanted = in_flags(condition, zone)
        for answer in (in_metrics(engine, condition, zone), in_functions(condition, zone), of_clickhouse):
            check(condition, wanted, answer, differs_in_functions)


@pytest.mark.parametrize("operator", OPERANDS)
def test_flags_mean_what_posthog_s_sdk_says(operator: str) -> None:
    """Compare with the evaluator in posthog-python, wherever it does not ask the server."""
    compared = 0
    for operand in OPERANDS[operator]:
        if operand_problem(operator, operand) is not None:
            continue  # no flag can have it
        condition = {"key": "p", "type": "person", "operator": operator, "value": operand}
        for kind, ours in zip(VALUES, in_flags(condition), strict=True):
            try:
                theirs = match_property(condition, properties_of(VALUES[kind]))
            except InconclusiveMatchError:
                continue
            compared += 1
            if kind == "compact date" and operator.startswith("is_date"):
                continue  # digits are seconds since 1970 for the server
            assert theirs is ours, (operator, operand, kind)
    assert (compared > 0) is (operator not in SERVER_ONLY)


SERVER_ONLY = (
    *("min", "max", "between", "not_between", "is_date_exact"),
    *("icontains_multi", "not_icontains_multi"),
)


@pytest.mark.parametrize(("operator", "alike"), [("in", "exact"), ("not_in", "is_not")])
def test_lists_of_values_are_compared_as_one_value_is(
    engine: duckdb.DuckDBPyConnection, operator: str, alike: str
) -> None:
    for operand in EQUALS:
        condition = {"key": "p", "type": "event", "operator": operator, "value": operand}
        for answer in (in_functions, partial(in_metrics, engine)):
            assert answer(condition) == answer({**condition, "operator": alike}), operand


def any_of_flags(condition: dict[str, Any]) -> list[bool]:
    """Return the answers of a flag; an order has one operand there, and metrics and functions take any of several."""
    operand = condition["value"]
    if condition["operator"] not in ORDERS or not isinstance(operand, list):
        return in_flags(condition)
    answers = [in_flags({**condition, "value": value}) for value in operand]
    return [any(of_one_value) for of_one_value in zip(*answers, strict=True)]


def test_every_shared_operator_is_tested() -> None:
    shared = set(FLAG_OPERATORS) & (set(METRIC_OPERATORS) | set(FUNCTION_OPERATORS))
    assert shared - set(OPERANDS) == {name for name in FLAG_OPERATORS if name.startswith("semver_")}
