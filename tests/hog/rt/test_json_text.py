"""JSON text as JavaScript reads and writes it.  spec: hog-language 8.13."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hog.shapes import bomb, nested

from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt import json_text
from hoglab.hog.rt.context import Context, Limits, activate
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.json_text import parse, stringify
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.rt.values import MAX_DEPTH, MAX_NODES, HogDate, HogDateTime, HogError, HogFunction, HogTuple

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["1", "02", "10"]), inner)
    ),
    max_leaves=20,
)


# Reading


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{"b":1,"2":2,"1":3}', "{'1': 3, '2': 2, 'b': 1}"),
        ('{"k":{"3":1,"1":2}}', "{'k': {'1': 2, '3': 1}}"),
        ("[1.0,1e3,-0,0.1]", "[1, 1000, 0, 0.1]"),
        ("[1e400,-1e400]", "[Infinity, -Infinity]"),
        ("12345678901234567890", "12345678901234567890"),
        ("123456789012345678901", "123456789012345680000"),
        ("9007199254740993", "9007199254740993"),
        ("1" * 5_000, "Infinity"),
        ('"\\ud83d"', "'\ud83d'"),
        ('"\\ud83d\\ude00"', "'😀'"),
        ('{"a":1,"b":2,"a":3}', "{'a': 3, 'b': 2}"),
        (" [1 , 2 ]\n", "[1, 2]"),
        ("null", "null"),
        ('{"__hogDateTime__":true,"dt":1.5,"zone":"UTC"}', "DateTime(1.5, 'UTC')"),
        ('[{"__hogDate__":true,"year":2024,"month":2,"day":3}]', "[Date(2024, 2, 3)]"),
        ('{"__hogError__":true,"type":"T","message":"m"}', "T('m')"),
        ('{"__hogDate__":true}', "{'__hogDate__': true}"),
        ('"__hog"', "'__hog'"),
    ],
)
def test_reading(text: str, printed: str) -> None:
    assert repr_value(parse(text)) == printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nul",
        "{",
        "[1,]",
        "{'a':1}",
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "1.",
        "\ufeff1",
        '"\n"',
        "{a:1}",
        "1 2",
    ],
)
def test_what_is_not_json(text: str) -> None:
    with pytest.raises(HogRuntimeError, match="Invalid JSON"):
        parse(text)


def test_depth_is_limited() -> None:
    for brackets in ("[]", '{"a":}'):
        opening, closing = brackets[:-1], brackets[-1]
        core = "1" if opening != "[" else ""
        parse(opening * MAX_DEPTH + core + closing * MAX_DEPTH)
        for levels in (MAX_DEPTH + 2, 1_000, 100_000):
            with pytest.raises(HogRuntimeError, match=r"nested more than 200 levels|Invalid JSON"):
                parse(opening * levels + core + closing * levels)


def test_wide_documents_are_not_deep() -> None:
    assert len(parse("[" + ",".join(["[]"] * 1_000) + "]")) == 1_000


@given(JSON)
def test_reading_what_python_wrote(value: Any) -> None:
    assert parse(json.dumps(value)) == value


# Writing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.0, "1"),
        (1e21, "1e+21"),
        (1e16, "10000000000000000"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (-0.0, "0"),
        (2**53 + 1, "9007199254740993"),
        (2**64, "18446744073709552000"),
        (math.nan, "null"),
        (math.inf, "null"),
        (10**400, "null"),
        ("é😀", '"é😀"'),
        ('a"\\\n\x01\x7f', '"a\\"\\\\\\n\\u0001\x7f"'),
        ("\ud83d", '"\ufffd"'),
        ("\ud83d\ude00", '"😀"'),
        ([1, [], {}], "[1,[],{}]"),
        (HogTuple([1, 2]), "[1,2]"),
        ({"b": 1, "2": 2, "1": 3}, '{"1":3,"2":2,"b":1}'),
        ({dict_key(True): 1, None: 2, dict_key(3): 4, "1.5": 5}, '{"3":4,"true":1,"null":2,"1.5":5}'),
        (HogDateTime(1.5, "UTC"), '{"__hogDateTime__":true,"dt":1.5,"zone":"UTC"}'),
        (HogDate(2024, 1, 2), '{"__hogDate__":true,"year":2024,"month":1,"day":2}'),
        (HogError("T", "m"), '{"__hogError__":true,"type":"T","message":"m"}'),
        (HogError("T", "m", [1]), '{"__hogError__":true,"type":"T","message":"m","payload":[1]}'),
        (HogFunction("f", 2, 2, print), '"fn<f(2)>"'),
        ({"f": [HogFunction("f", 2, 2, print), 2.0]}, '{"f":["fn<f(2)>",2]}'),
    ],
)
def test_writing(value: Any, text: str) -> None:
    assert stringify(value) == text
    assert stringify([value]) == f"[{text}]"


def test_indentation() -> None:
    value = {"a": [1, {"b": []}], "c": {}}
    assert stringify(value, 2) == json.dumps(value, indent=2)
    assert stringify(value, 10) == json.dumps(value, indent=10)
    assert stringify(value, 50) == json.dumps(value, indent=10)
    assert stringify(value, 0) == stringify(value, -1) == '{"a":[1,{"b":[]}],"c":{}}'


def test_cycles_are_null_and_repetitions_are_not() -> None:
    items: list[Any] = [1]
    items.append({"items": items})
    assert stringify(items) == '[1,{"items":null}]'
    shared = [1]
    assert stringify([shared, shared]) == "[[1],[1]]"
    error = HogError("T", "m")
    error.payload = [error]
    assert stringify(error) == '{"__hogError__":true,"type":"T","message":"m","payload":[null]}'


def as_doubles(value: Any) -> Any:
    return json.loads(json.dumps(value), parse_int=float)


@given(JSON)
def test_written_values_read_back(value: Any) -> None:
    again = parse(stringify(value))
    # A double beyond 2^53 is written with as many digits as tell it from others, and read as the integer they write.
    assert as_doubles(again) == as_doubles(value)
    assert stringify(again) == stringify(value)
    assert parse(stringify(value, 2)) == again
    assert json.loads(stringify(value), parse_int=float) == value


@given(JSON)
def test_the_fast_way_writes_what_the_slow_way_writes(value: Any) -> None:
    if isinstance(value, list | dict) and json_text._plain_size(value):
        writer = json_text._Writer(0)
        writer.write(value, 0)
        assert orjson.dumps(value).decode() == "".join(writer.out)


def test_plain_values_take_the_fast_way() -> None:
    assert json_text._plain_size({"a": [1, 2.5, None, True, "x"], "b": {"c": {}}})
    for value in ([1.0], [1e-5], [1e300], [2**64], {"1": 1}, {dict_key(1): 1}, [HogDate(2024, 1, 1)]):
        assert not json_text._plain_size(value)


# Limits


def test_written_depth_and_size_are_limited() -> None:
    assert stringify(nested(MAX_DEPTH)) == "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    for levels in (300, 100_000):
        deep = nested(levels)
        with pytest.raises(HogRuntimeError, match="nested more than 200 levels"):
            stringify(deep)
        while deep:
            (deep,) = deep
    with pytest.raises(HogRuntimeError, match=f"more than {MAX_NODES} parts"):
        stringify(bomb(60))
    with pytest.raises(HogRuntimeError, match="longer than"):
        stringify(["x" * 1_000_000] * 70)


def charged(action: Any, limits: Limits) -> Context:
    ctx = Context(limits)
    former = activate(ctx)
    try:
        action()
    finally:
        activate(former)
    return ctx


def test_long_texts_are_charged() -> None:
    text = json.dumps([{"k": i} for i in range(10_000)])
    assert charged(lambda: parse(text), Limits()).steps > 1_000
    assert charged(lambda: stringify(list(range(100_000))), Limits()).steps > 10_000


def test_reading_is_refused_before_it_fills_the_memory() -> None:
    text = "[" + ",".join(["[]"] * 1_000_000) + "]"
    with pytest.raises(HogLimit, match="Memory limit"):
        charged(lambda: parse(text), Limits())
