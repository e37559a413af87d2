"""Keys, copies, the border to JSON and memory accounting.  spec: hog-language 8.1, 8.11."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hog.shapes import bomb, nested

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.conversion import dict_key, from_json, index_keys_first, to_json
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.rt.values import (
    FALSE_KEY,
    MAX_DEPTH,
    MAX_NODES,
    TRUE_KEY,
    HogDate,
    HogDateTime,
    HogError,
    HogFunction,
    HogTuple,
    copy_value,
    items_of,
    keys_of,
    live_size,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


# Keys


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("a", "a"),
        (None, None),
        (5, 5),
        (-3, -3),
        (2**53, 2**53),
        (1.0, 1),
        (-0.0, 0),
        (True, TRUE_KEY),
        (False, FALSE_KEY),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (1e300, "1e+300"),
        (2**61 - 1, "2305843009213693951"),
        (2**64, "18446744073709552000"),
        (10**400, "Infinity"),
        ([1, "a"], "[1, 'a']"),
        ({}, "{}"),
        (HogTuple([1, 2]), "(1, 2)"),
    ],
)
def test_keys_are_normalised(key: Any, stored: Any) -> None:
    assert dict_key(key) == stored
    assert type(dict_key(key)) is type(stored)


def test_booleans_numbers_and_texts_are_different_keys() -> None:
    mapping = {dict_key(key): key for key in (1, True, "1", 0, False, None, "null")}
    assert len(mapping) == 7
    assert keys_of(mapping) == [1, True, "1", 0, False, None, "null"]
    assert [type(key) for key in keys_of(mapping)][:2] == [int, bool]
    assert items_of(mapping) == [(key, key) for key in keys_of(mapping)]
    assert (
        repr_value(mapping) == "{1: 1, true: true, '1': '1', 0: 0, false: false, null: null, 'null': 'null'}"
    )


def test_numeric_keys_cannot_be_made_to_collide() -> None:
    """Multiples of 2^61-1 all have the hash 0 as integers."""
    mapping = {dict_key(i * (2**61 - 1)): i for i in range(1, 20_000)}
    assert len({hash(key) for key in mapping}) > 19_000


def test_huge_containers_are_no_keys() -> None:
    with pytest.raises(HogRuntimeError, match="more than 100 parts"):
        dict_key(list(range(101)))
    with pytest.raises(HogRuntimeError, match="longer than 10000 characters"):
        dict_key(["a" * 10_000])


def test_integer_like_keys_come_first() -> None:
    mapping = {"b": 1, "2": 2, "1": 3, "01": 4, "4294967295": 5, "4294967294": 6, "-1": 7, "٣": 8}
    assert list(index_keys_first(mapping)) == ["1", "2", "4294967294", "b", "01", "4294967295", "-1", "٣"]
    plain = {"b": 1, "a": 2}
    assert index_keys_first(plain) is plain


# From and to JSON


@given(JSON)
def test_json_values_survive_the_border(value: Any) -> None:
    back = to_json(from_json(value))
    assert back == value
    json.dumps(back)


def test_markers_become_values_and_back() -> None:
    markers = [
        {"__hogDateTime__": True, "dt": 1.5, "zone": "Europe/Paris"},
        {"__hogDate__": True, "year": 2024, "month": 2, "day": 29},
        {"__hogError__": True, "type": "T", "message": "m", "payload": {"a": 1}},
        {"__hogError__": True, "type": "T", "message": "m"},
    ]
    values = from_json(markers)
    assert [type(value) for value in values] == [HogDateTime, HogDate, HogError, HogError]
    assert (
        repr_value(values) == "[DateTime(1.5, 'Europe/Paris'), Date(2024, 2, 29), T('m', {'a': 1}), T('m')]"
    )
    assert to_json(values) == markers


@pytest.mark.parametrize(
    "marker",
    [
        {"__hogDateTime__": True},
        {"__hogDateTime__": True, "dt": "soon", "zone": "UTC"},
        {"__hogDateTime__": True, "dt": 1e18, "zone": "UTC"},
        {"__hogDateTime__": False, "dt": 1, "zone": "UTC"},
        {"__hogDate__": True, "year": 2024, "month": 13, "day": 1},
        {"__hogDate__": True, "year": 1.5, "month": 1, "day": 1},
        {"__hogDate__": True, "year": 10**30, "month": 1, "day": 1},
        {"__hogError__": True, "type": 1, "message": "m"},
    ],
)
def test_malformed_markers_stay_objects(marker: dict[str, Any]) -> None:
    assert from_json(marker) == marker


def test_to_json_of_values_json_does_not_have() -> None:
    value = {
        dict_key(True): HogTuple([1.0, 2.5]),
        dict_key(2): math.nan,
        "1": -math.inf,
        None: HogFunction("f", 1, 1, lambda x: x),
        "s": "a\ud83d",
        "big": 10**400,
    }
    assert to_json(value) == {
        "1": None,
        "2": None,
        "true": [1, 2.5],
        "null": "fn<f(1)>",
        "s": "a\ufffd",
        "big": None,
    }
    assert type(to_json(1.0)) is int


def test_to_json_cuts_cycles() -> None:
    items: list[Any] = [1]
    items.append(items)
    mapping: dict[Any, Any] = {"a": items}
    mapping["self"] = mapping
    assert to_json(mapping) == {"a": [1, None], "self": None}
    error = HogError("T", "m")
    error.payload = [error]
    assert to_json(error) == {"__hogError__": True, "type": "T", "message": "m", "payload": [None]}


def test_depth_is_limited() -> None:
    for convert in (from_json, to_json, copy_value):
        convert(nested(MAX_DEPTH))
        with pytest.raises(HogRuntimeError, match="nested more than 200 levels"):
            convert(nested(MAX_DEPTH + 1))


def test_shared_structure_is_not_blown_up() -> None:
    with pytest.raises(HogRuntimeError, match=f"more than {MAX_NODES} parts"):
        to_json(bomb(60))


def test_other_python_objects_are_refused() -> None:
    for convert in (from_json, to_json):
        with pytest.raises(TypeError, match="not a value of the Hog language"):
            convert([object()])


def test_host_keys_that_are_no_text_become_text() -> None:
    assert from_json({"b": 0, 2: "b", None: 0, 1.5: 2, False: 3}) == {
        "2": "b",
        "b": 0,
        "null": 0,
        "1.5": 2,
        "false": 3,
    }


# Copies


@given(JSON)
def test_copies_are_equal_and_separate(value: Any) -> None:
    copied = copy_value(value)
    assert copied == value
    if isinstance(value, list | dict) and value:
        assert copied is not value


def test_copies_keep_sharing_cycles_and_classes() -> None:
    shared = [1]
    value: dict[Any, Any] = {
        "a": shared,
        "b": shared,
        "t": HogTuple([shared]),
        "e": HogError("T", "m", shared),
    }
    value["self"] = value
    copied = copy_value(value)
    assert copied["a"] is copied["b"]
    assert copied["a"] is not shared
    assert copied["self"] is copied
    assert type(copied["t"]) is HogTuple
    assert copied["e"].payload is copied["a"]
    assert copy_value(bomb(100)) is not None


# Memory


def test_live_size_counts_values_and_texts() -> None:
    assert live_size([], 100) == 0
    assert live_size([None, 1, True, 1.5], 100) == 80
    assert live_size(["abc"], 100) == 11
    assert live_size([[None, 2]], 1000) == 8 + 64 + 8 + 32
    assert live_size([{"a": "bc"}], 1000) == 8 + 64 + 48 + 9 + 10
    assert live_size([{"a": "bc", None: None}], 1000) == 8 + 64 + 2 * (48 + 16) + 3


def test_live_size_counts_shared_objects_once() -> None:
    text = "x" * 1_000_000
    assert live_size([text] * 10, 10**9) < 1_001_000
    items = list(range(1000))
    assert live_size([items, items, items], 10**9) < 33_000
    cycle: list[Any] = []
    cycle.append(cycle)
    assert live_size([cycle, bomb(100)], 10**9) < 20_000


def test_live_size_looks_into_closures_and_errors() -> None:
    text = "x" * 100_000

    def call() -> str:
        return text

    assert live_size([HogFunction("f", 0, 0, call)], 10**9) > 100_000
    assert live_size([HogError("T", "m", [text])], 10**9) > 100_000
    assert live_size([HogFunction("f", 0, 0, print)], 10**9) < 100

    def unset() -> Any:
        return later

    if False:
        later = 1
    assert live_size([HogFunction("f", 0, 0, unset)], 10**9) < 100


def test_live_size_stops_soon_after_the_cap() -> None:
    assert live_size([list(range(10**6)), list(range(10**6))], 1_000) < 40_000_000
    deep = nested(100_000)
    assert live_size([deep], 10**9) > 100_000 * 64
    while deep:
        (deep,) = deep
