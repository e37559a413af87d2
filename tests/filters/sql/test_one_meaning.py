"""One condition has one meaning in flags, metrics and functions.

Differences that PostHog's documents demand are listed by rule, with their reason.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from tests.embedded import EmbeddedDialect
from tests.filters.hog.events import filter_globals

from hoglab.analysis.query.event_relation import RelationRow
from hoglab.filters import parse_filters
from hoglab.filters.evaluate import OPERATORS as FLAG_OPERATORS
from hoglab.filters.evaluate import EvaluationContext, compile_group
from hoglab.filters.hog import CompiledFilter, FilterContext, build_filter
from hoglab.filters.hog.operators import OPERATORS as FUNCTION_OPERATORS
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


def in_metrics_of_clickhouse(condition: dict[str, Any], zone: str) -> list[bool]:
    """Return the answers of ClickHouse's engine, in this process. Skips the test where it is not installed."""
    chdb = pytest.importorskip("chdb")
    dialect = ClickHouse()
    parameters = dialect.parameters()
    row = RelationRow(dialect, parameters)
    sql = group_condition(parse_filters([condition]), FilterScope(row, NOW, ZoneInfo(zone)))
    events = "|".join(json.dumps(properties_of(value)) for value in VALUES.values())
    statement = f"SELECT {sql} FROM (SELECT arrayJoin(splitByChar('|', {{events:String}})) AS properties)"  # noqa: S608
    answer = chdb.query(statement, "TabSeparated", params={"events": events, **parameters.values})
    return [line == "1" for line in answer.data().split()]


def properties_of(value: Any) -> dict[str, Any]:
    return {} if value is MISSING else {"p": value}


ORDERS = ("gt", "gte", "lt", "lte", "min", "max")
NUMBERS = (5, "5", 10, "10", "+9", "1e1", "100", -5, "-5", "5.5", "1772582400", ["5", "10"])
TEXTS = ("10", "B", "1", "2026", ["10", "b"])
EQUALS = ("10", 10, "abc", "ABC", "5.5", "true", True, ["10", "abc"], ["10"], [10, "ABC"])
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
    **dict.fromkeys(("regex", "not_regex"), ("^1", "b", "a.c", "^$")),
    **dict.fromkeys(("is_set", "is_not_set"), (None,)),
}


def differs_in_functions(operator: str, operand: Any, kind: str) -> bool:
    """Say whether PostHog's documents give a function's filter another answer than a flag.

    A missing property is in no range and outside of none (hog-runtime 2.4), and equality is that of programs
    (hog-language 8.4): no text but "true" is true, any number of the same size equals a number, and letters keep their
    case. Programs find no pattern in an empty text, know no difference between missing and null, and read no relative
    date or infinite number in a property, and no date with a blank before its offset.
    """
    listed = operand if isinstance(operand, list) else [operand]
    match operator:
        case "exact" | "is_not" if kind == "false":
            return any(isinstance(value, str) and value != "true" for value in listed)
        case "exact" | "is_not" if kind in {"exponent text", "padded text"}:
            return 10 in listed
        case "regex" | "not_regex":
            return kind == "empty text" and operand == "^$"
        case "is_date_before" | "is_date_after" | "is_date_exact" if kind == "moment with a blank":
            return True
    return differs_everywhere(operator, operand, kind)


def differs_everywhere(operator: str, operand: Any, kind: str) -> bool:
    """Say whether PostHog's documents give metrics and functions alike another answer than flags."""
    listed = operand if isinstance(operand, list) else [operand]
    match operator:
        case "exact" | "is_not" if kind == "empty list":  # of which flags say that all of it is true
            return operand in ("true", True)
        case "exact" | "is_not" if kind == "text":
            return "ABC" in listed and "abc" not in listed
        case "not_between":
            return kind in {"missing", "infinite text"}
        case "gt" | "gte" | "min":
            return kind == "infinite text"
        case "is_date_before" | "is_date_after":
            return kind == "relative date"
        case "is_set" | "is_not_set":
            return kind == "null"
    return False


@pytest.mark.parametrize("operator", OPERANDS)
def test_one_condition_has_one_meaning(engine: duckdb.DuckDBPyConnection, operator: str) -> None:
    for operand in OPERANDS[operator]:
        condition = {"key": "p", "type": "event", "operator": operator, "value": operand}
        wanted = any_of_flags(condition)
        answers = [(in_metrics(engine, condition), differs_everywhere)]
        if operator in FUNCTION_OPERATORS:
            answers.append((in_functions(condition), differs_in_functions))
        for answer, may_differ in answers:
            different = {
                kind for kind, flag, other in zip(VALUES, wanted, answer, strict=True) if flag is not other
            }
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
    for way in ("before", "after", "exact"):
        for operand in DATES:
            condition = {"key": "p", "type": "event", "operator": f"is_date_{way}", "value": operand}
            wanted = in_flags(condition, zone)
            answers = {
                "DuckDB": in_metrics(engine, condition, zone),
                "ClickHouse": in_metrics_of_clickhouse(condition, zone),
                "functions": in_functions(condition, zone),
            }
            for name, answer in answers.items():
                pairs = zip(VALUES, wanted, answer, strict=True)
                different = [kind for kind, flag, other in pairs if flag is not other]
                unlisted = {
                    kind
                    for kind in different
                    if not differs_in_functions(condition["operator"], operand, kind)
                }
                assert not unlisted, (name, condition["operator"], operand)


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
