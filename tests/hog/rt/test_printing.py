"""Values as text.  spec: hog-language 8.8, 8.9."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt.context import Context, Limits, activate
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.printing import MAX_TEXT, concat_text, js_join, js_string, repr_value, to_string
from hoglab.hog.rt.values import MAX_DEPTH, MAX_NODES, HogDate, HogDateTime, HogError, HogFunction, HogTuple

LAMBDA = HogFunction("lambda", 1, 1, lambda x: x)


@pytest.mark.parametrize(
    ("value", "printed", "text"),
    [
        (None, "null", "null"),
        (True, "true", "true"),
        (False, "false", "false"),
        (12, "12", "12"),
        (1.0, "1", "1"),
        (-0.0, "0", "0"),
        (0.1 + 0.2, "0.30000000000000004", "0.30000000000000004"),
        (math.nan, "NaN", "NaN"),
        (-math.inf, "-Infinity", "-Infinity"),
        ("it's", r"'it\'s'", "it's"),
        ("\b\f\r\n\t\0\v\\", r"'\b\f\r\n\t\0\v\\'", "\b\f\r\n\t\0\v\\"),
        ([1, "a", None], "[1, 'a', null]", "[1, 'a', null]"),
        ([], "[]", "[]"),
        (HogTuple([1, "a"]), "(1, 'a')", "(1, 'a')"),
        (HogTuple(), "tuple()", "tuple()"),
        (HogTuple([1]), "tuple(1)", "tuple(1)"),
        ({"k": 1, 2: "x", None: 3}, "{'k': 1, 2: 'x', null: 3}", "{'k': 1, 2: 'x', null: 3}"),
        ({}, "{}", "{}"),
        ({dict_key(True): 1}, "{true: 1}", "{true: 1}"),
        (HogDateTime(1734480000), "DateTime(1734480000.0, 'UTC')", "2024-12-18T00:00:00.000Z"),
        (
            HogDateTime(1734480000.5, "America/New_York"),
            "DateTime(1734480000.5, 'America/New_York')",
            "2024-12-17T19:00:00.500-05:00",
        ),
        (HogDate(2024, 12, 8), "Date(2024, 12, 8)", "2024-12-08"),
        (HogError("Error", "it's"), r"Error('it\'s')", r"Error('it\'s')"),
        (HogError("MyErr", "m", {"a": 1}), "MyErr('m', {'a': 1})", "MyErr('m', {'a': 1})"),
        (HogError("E", "m", 0), "E('m')", "E('m')"),
        (LAMBDA, "fn<lambda(1)>", "fn<lambda(1)>"),
        (HogFunction("my fn", 2, 2, lambda: None), "fn<`my fn`(2)>", "fn<`my fn`(2)>"),
        (HogFunction("concat", 1, None, lambda: None, "stl"), "fn<concat(0)>", "fn<concat(0)>"),
    ],
)
def test_printed_forms(value: Any, printed: str, text: str) -> None:
    assert repr_value(value) == printed
    assert to_string(value) == text
    assert repr_value([value]) == f"[{printed}]"
    assert to_string([value]) == f"[{printed}]"
    assert concat_text(value) == ("" if value is None else text)


def test_cycles_print_as_null() -> None:
    items: list[Any] = [1]
    items.append(items)
    mapping: dict[Any, Any] = {"items": items}
    mapping["self"] = mapping
    assert repr_value(mapping) == "{'items': [1, null], 'self': null}"
    error = HogError("E", "m")
    error.payload = error
    assert repr_value(error) == "E('m', null)"


def test_shared_parts_that_are_no_cycle_print_in_full() -> None:
    shared = [1]
    assert repr_value([shared, shared]) == "[[1], [1]]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.0, "1"),
        ([1, None, [2, ["a"]], True], "1,,2,a,true"),
        ([], ""),
        (HogTuple([1, 2]), "1,2"),
        ({"a": 1}, "[object Map]"),
        (HogDate(2024, 1, 1), "[object Object]"),
        (LAMBDA, "[object Object]"),
    ],
)
def test_javascript_text(value: Any, text: str) -> None:
    assert js_string(value) == text


def test_joining_skips_cycles() -> None:
    items: list[Any] = [1]
    items.append(items)
    assert js_join(items, "-") == "1-"


def bomb(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize("show", [repr_value, to_string, js_string])
def test_nothing_prints_without_end(show: Any) -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    show(deep)
    with pytest.raises(HogRuntimeError, match="nested more than"):
        show([deep])
    with pytest.raises(HogRuntimeError, match=f"more than {MAX_NODES} parts"):
        show(bomb(60))
    with pytest.raises(HogRuntimeError, match=f"longer than {MAX_TEXT} characters"):
        show(["x" * 1_000_000] * 70)


def test_printing_large_values_is_charged() -> None:
    ctx = Context(Limits(max_steps=50_000))

    def print_often() -> None:
        former = activate(ctx)
        try:
            for _ in range(100):
                repr_value(list(range(2_000)))
        finally:
            activate(former)

    with pytest.raises(HogLimit, match="exceeded 50000 steps"):
        print_often()
    assert ctx.tripped is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_every_value_prints(value: Any) -> None:
    assert repr_value([value]) == f"[{repr_value(value)}]"
    js_string(value)
    to_string(value)
