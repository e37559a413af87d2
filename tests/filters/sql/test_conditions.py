"""What SQL conditions say about single properties, and that no text of a user becomes SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded import EmbeddedDialect
from tests.generated import examples

from hoglab.analysis.query.event_relation import RelationRow
from hoglab.filters import FilterError, parse_filters
from hoglab.filters.sql import OPERATORS, FilterScope, Parameters, group_condition

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
MISSING = object()


def holds(
    engine: duckdb.DuckDBPyConnection, condition: Any, properties: dict[str, Any], **columns: Any
) -> bool:
    """Whether a row with these event properties meets a filter, or a list or group of filters."""
    parameters = Parameters()
    scope = FilterScope(RelationRow(EmbeddedDialect(), parameters), NOW, ZoneInfo("Europe/Berlin"))
    raw = condition if isinstance(condition, list) or "values" in condition else [condition]
    sql = group_condition(parse_filters(raw), scope)
    row = {
        "properties": json.dumps(properties),
        "person_properties": json.dumps(columns.get("person", {})),
        "distinct_id": columns.get("distinct_id", "someone"),
        "event": columns.get("event", "pageview"),
        "group_0": columns.get("group_0"),
        "feature_flag": properties.get("$feature_flag"),
        "session_id": properties.get("$session_id"),
        "elements_chain": "",
    }
    names = ", ".join(f"${name}::VARCHAR AS {name}" for name in row)
    [statement] = engine.extract_statements(f"SELECT {sql} FROM (SELECT {names})")  # noqa: S608 - a test
    values = row | parameters.values
    found = engine.execute(statement, {name: values[name] for name in statement.named_parameters}).fetchall()
    assert found[0][0] in (True, False), "a condition is never NULL"
    return bool(found[0][0])


CASES: list[tuple[str, Any, Any, bool]] = [
    ("exact", "pro", "pro", True),
    ("exact", "pro", "Pro", False),
    ("exact", "10", 10, True),
    ("exact", 10, "10", True),
    ("exact", "10", 10.0, True),
    ("exact", "7", "007", False),
    ("exact", "7", "007 ", False),
    ("exact", ["free", "pro"], "pro", True),
    ("exact", ["free", 5], 5, True),
    ("exact", ["free", "pro"], "none", False),
    ("exact", [], "anything", True),
    ("exact", "true", True, True),
    ("exact", True, "true", True),
    ("exact", True, False, False),
    ("exact", "pro", MISSING, False),
    ("exact", "null", None, False),
    ("exact", None, None, True),
    ("exact", "[1,2]", [1, 2], True),
    ("is_not", "pro", "free", True),
    ("is_not", "pro", "pro", False),
    ("is_not", "pro", MISSING, True),
    ("is_not", ["a", "b"], "b", False),
    ("is_not", ["a", "b"], "c", True),
    ("in", ["a", "b"], "a", True),
    ("not_in", ["a", "b"], MISSING, True),
    ("is_set", None, "", True),
    ("is_set", None, False, True),
    ("is_set", None, None, False),
    ("is_set", None, MISSING, False),
    ("is_not_set", None, MISSING, True),
    ("is_not_set", "is_not_set", "x", False),
    ("icontains", "@EXAMPLE.com", "ann@example.com", True),
    ("icontains", "@example.com", "ann@other.com", False),
    ("icontains", "x", MISSING, False),
    ("not_icontains", "@example.com", MISSING, True),
    ("not_icontains", "@example.com", "ANN@EXAMPLE.COM", False),
    ("icontains", ["one", "two"], "xTWOx", True),
    ("not_icontains", ["one", "two"], "xTWOx", False),
    ("starts_with", "ab", "ABc", True),
    ("ends_with", "bc", "ABc", True),
    ("not_starts_with", "ab", "ABc", False),
    ("not_ends_with", "bc", "ABc", False),
    ("icontains_multi", ["one", "two"], "xONEx", True),
    ("not_icontains_multi", ["one", "two"], "three", True),
    ("like", "%shop%", "/shop/1", True),
    ("like", "%shop%", "/SHOP/1", False),
    ("like", "%shop%", MISSING, False),
    ("regex", "^a+$", "aaa", True),
    ("regex", "^a+$", "aab", False),
    ("regex", "a", MISSING, False),
    ("not_regex", "^(localhost|127\\.0\\.0\\.1)($|:)", "localhost:8000", False),
    ("not_regex", "^(localhost|127\\.0\\.0\\.1)($|:)", "example.com", True),
    ("not_regex", "x", MISSING, True),
    ("gt", 5, 6, True),
    ("gt", "5", "10", True),
    ("gt", 5, 5, False),
    ("gte", 5, 5.0, True),
    ("lt", 5, MISSING, False),
    ("lt", 5, "abc", False),
    ("lt", 5, True, False),
    ("lte", 5, -1, True),
    ("min", 5, 5, True),
    ("max", 5, 6, False),
    ("between", [1, 3], 3, True),
    ("between", [1, 3], 3.1, False),
    ("not_between", [1, 3], 4, True),
    ("not_between", [1, 3], MISSING, False),
    ("is_date_after", "-7d", "2026-03-04T00:00:00Z", True),
    ("is_date_before", "-7d", "2026-03-04T00:00:00Z", False),
    ("is_date_before", "2026-03-04", "2026-03-03T22:59:59Z", True),
    ("is_date_before", "2026-03-04", "2026-03-03T23:00:00Z", False),
    ("is_date_exact", "2026-03-04T00:00:00Z", 1772582400, True),
    ("is_date_after", "2020-01-01", "not a date", False),
]


@pytest.mark.parametrize(("operator", "value", "actual", "expected"), CASES)
def test_operators(
    engine: duckdb.DuckDBPyConnection, operator: str, value: Any, actual: Any, expected: bool
) -> None:
    properties = {} if actual is MISSING else {"plan": actual}
    condition = {"key": "plan", "type": "event", "operator": operator, "value": value}
    assert holds(engine, condition, properties) is expected
    assert holds(engine, {**condition, "negation": True}, properties) is not expected


def test_every_operator_is_tested() -> None:
    tested = {operator for operator, *_ in CASES}
    assert set(OPERATORS) == tested


def test_where_properties_are_found(engine: duckdb.DuckDBPyConnection) -> None:
    staff = {"key": "email", "type": "person", "operator": "icontains", "value": "@example.com"}
    assert holds(engine, staff, {}, person={"email": "ann@example.com"})
    assert not holds(engine, staff, {"email": "ann@example.com"})
    group = {"key": "$group_0", "type": "event_metadata", "value": "acme"}
    assert holds(engine, group, {}, group_0="acme")
    assert not holds(engine, group, {})
    assert holds(engine, {"key": "distinct_id", "type": "person", "value": "someone"}, {})
    assert holds(engine, {"key": "$session_id", "type": "event", "value": "s1"}, {"$session_id": "s1"})


def test_groups_nest(engine: duckdb.DuckDBPyConnection) -> None:
    def one(key: str) -> dict[str, Any]:
        return {"key": key, "value": 1}

    nested = {
        "type": "AND",
        "values": [one("a"), {"type": "OR", "values": [one("b"), one("c")]}],
    }
    assert holds(engine, nested, {"a": 1, "c": 1})
    assert not holds(engine, nested, {"a": 1})
    assert holds(engine, [], {})


@pytest.mark.parametrize(
    "condition",
    [
        {"key": "x", "operator": "semver_gt", "value": "1.0.0"},
        {"key": "x", "type": "session", "value": 1},
        {"key": "x", "operator": "regex", "value": "(?<=a)b"},
        {"key": "x", "operator": "regex", "value": "("},
        {"key": "x", "operator": "between", "value": [3, 1]},
        {"key": "x", "operator": "between", "value": 3},
        {"key": "x", "operator": "gte", "value": "abc"},
        {"key": "x", "operator": "gt", "value": "2026-01-01"},
        {"key": "x", "operator": "lt", "value": True},
        {"key": "x", "operator": "max", "value": None},
        {"key": "x", "operator": "min", "value": [1, "x"]},
        {"key": "x", "operator": "lte", "value": "inf"},
        {"key": "x", "operator": "icontains_multi", "value": []},
        {"key": "x", "operator": "not_icontains_multi", "value": []},
        {"key": "x", "operator": "is_date_after", "value": "not a date"},
        {"key": "x", "operator": "is_date_exact", "value": 17},
        {"key": "id", "type": "cohort", "value": 3},
        {"key": "nothing", "type": "event_metadata", "value": 3},
    ],
)
def test_what_cannot_be_answered_is_refused(
    engine: duckdb.DuckDBPyConnection, condition: dict[str, Any]
) -> None:
    with pytest.raises(FilterError):
        holds(engine, condition, {})


json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
nasty = st.one_of(
    st.text(),
    st.sampled_from(
        ["*", "", "'", '"', "\\", "a.b", "$", "$.*", "~1", "/", "[0]", "$v0", "';--", "%", "\x00", "?"]
    ),
)


@settings(max_examples=examples(200), deadline=None)
@given(key=nasty, other=nasty, value=st.one_of(nasty, st.integers(-(2**53), 2**53), st.booleans()))
def test_every_key_and_value_is_itself(
    engine: duckdb.DuckDBPyConnection, key: str, other: str, value: Any
) -> None:
    condition = {"key": key, "type": "person", "operator": "exact", "value": value}
    if key == "distinct_id":
        return
    assert holds(engine, condition, {}, person={key: value})
    if other != key:
        assert not holds(engine, condition, {}, person={other: value})


@settings(max_examples=examples(300), deadline=None)
@given(
    operator=st.sampled_from(OPERATORS),
    value=st.one_of(json_values, st.lists(json_values, max_size=3)),
    actual=json_values,
    key=nasty,
)
def test_any_filter_is_answered_or_refused(
    engine: duckdb.DuckDBPyConnection, operator: str, value: Any, actual: Any, key: str
) -> None:
    condition = {"key": key, "type": "event", "operator": operator, "value": value}
    try:
        found = holds(engine, condition, {key: actual})
    except FilterError:
        return
    assert found is not holds(engine, {**condition, "negation": True}, {key: actual})
