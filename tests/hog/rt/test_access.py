"""Members of values.  spec: hog-language 8.5, 9 (D10, D14)."""

from typing import Any

import pytest

from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt.access import get_property, items, keys, set_property, values
from hoglab.hog.rt.context import Context, activate
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.values import HogDate, HogDateTime, HogError, HogFunction, HogTuple

ARRAY = ["a", "b", "c"]
MAPPING = {"k": 1, 2: "two", dict_key(True): "yes", None: "nothing"}


@pytest.mark.parametrize(
    ("obj", "key", "value"),
    [
        (None, "a", None),
        (None, 0, None),
        ("abc", 1, None),
        ("abc", "x", None),
        (5, "a", None),
        (True, "a", None),
        (MAPPING, "k", 1),
        (MAPPING, 2, "two"),
        (MAPPING, 2.0, "two"),
        (MAPPING, "2", None),
        (MAPPING, True, "yes"),
        (MAPPING, 1, None),
        (MAPPING, None, "nothing"),
        (MAPPING, [1], None),
        (ARRAY, 1, "a"),
        (ARRAY, 3, "c"),
        (ARRAY, 4, None),
        (ARRAY, -1, "c"),
        (ARRAY, -3, "a"),
        (ARRAY, -4, None),
        (ARRAY, 1.0, "a"),
        (ARRAY, 1.5, None),
        (ARRAY, float("nan"), None),
        (ARRAY, 10**30, None),
        (ARRAY, "1", None),
        (ARRAY, True, None),
        (ARRAY, None, None),
        (HogTuple(ARRAY), 2, "b"),
        (ARRAY, "length", 3),
        ("h😀", "length", 3),
        (HogError("T", "m", [1]), "type", "T"),
        (HogError("T", "m", [1]), "message", "m"),
        (HogError("T", "m"), "payload", None),
        (HogError("T", "m"), "args", None),
        (HogDateTime(1.5, "UTC"), "dt", 1.5),
        (HogDateTime(1.5, "UTC"), "zone", "UTC"),
        (HogDateTime(1.5, "UTC"), "seconds", None),
        (HogDate(2024, 2, 3), "month", 2),
        (HogFunction("f", 1, 1, print), "name", None),
        ({}, "__class__", None),
        ([], "append", None),
        ("", "__class__", None),
        ({}, "constructor", None),
    ],
)
def test_reading(obj: Any, key: Any, value: Any) -> None:
    assert get_property(obj, key) == value


@pytest.mark.parametrize("container", [ARRAY, HogTuple(ARRAY), []])
@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_position_zero_is_a_failure(container: Any, zero: Any) -> None:
    with pytest.raises(HogRuntimeError, match=r"^Hog arrays start from index 1$"):
        get_property(container, zero)


def test_writing_to_objects() -> None:
    mapping: dict[Any, Any] = {"a": 1}
    ctx = Context()
    for key in ("b", 1, True, 1.0, None):
        set_property(ctx, mapping, key, key)
    assert items(mapping) == [("a", 1), ("b", "b"), (1, 1.0), (True, True), (None, None)]


def test_writing_to_arrays_fills_gaps_with_null() -> None:
    array = [1]
    set_property(Context(), array, 1, "x")
    set_property(Context(), array, 4.0, "y")
    assert array == ["x", None, None, "y"]
    pair = HogTuple([1, 2])
    set_property(Context(), pair, 3, 3)
    assert pair == [1, 2, 3]


@pytest.mark.parametrize(
    ("obj", "key", "message"),
    [
        ([1], 0, "Hog arrays start from index 1"),
        ([1], -1, "Hog arrays start from index 1"),
        ([1], "x", "Can not set x on element of type object"),
        ([1], 1.5, "Can not set 1.5 on element of type object"),
        ("abc", "x", "Can not set x on non-object: string"),
        (None, "x", "Can not set x on non-object: object"),
        (5, "x", "Can not set x on non-object: number"),
        (True, 1, "Can not set 1 on non-object: boolean"),
        (HogDate(2024, 1, 1), "day", "Can not set day on element of type object"),
        (HogError("T", "m"), "message", "Can not set message on element of type object"),
    ],
)
def test_refused_writes(obj: Any, key: Any, message: str) -> None:
    with pytest.raises(HogRuntimeError) as failure:
        set_property(Context(), obj, key, 1)
    assert str(failure.value) == message


def test_far_positions_do_not_fill_the_memory() -> None:
    array: list[Any] = []
    with pytest.raises(HogLimit, match="Memory limit"):
        set_property(Context(), array, 10**15, 1)
    assert array == []


def test_new_members_are_accounted_for() -> None:
    ctx = Context()

    def write_without_end() -> None:
        for i in range(10**7):
            set_property(ctx, {}, f"key {i}", i)

    with pytest.raises(HogLimit, match="Memory limit"):
        write_without_end()


def test_walking_over_containers() -> None:
    assert items({"a": 1, 2: None}) == [("a", 1), (2, None)]
    assert items(["x", "y"]) == [(0, "x"), (1, "y")]
    assert keys(HogTuple(["x", "y"])) == [0, 1]
    assert values({"a": 1}) == [1]
    assert values(["x"]) == ["x"]
    for empty in (None, 5, "abc", True, HogDate(2024, 1, 1), HogError("T", "m")):
        assert items(empty) == keys(empty) == values(empty) == []


def test_walks_are_snapshots() -> None:
    mapping = {"a": 1}
    found = items(mapping), keys(mapping), values(mapping)
    mapping["b"] = 2
    assert [len(part) for part in found] == [1, 1, 1]
    array = [1]
    copied = values(array)
    copied.append(2)
    assert array == [1]


def test_walks_over_long_containers_are_charged() -> None:
    ctx = Context()
    former = activate(ctx)
    try:
        items(list(range(1_000_000)))
    finally:
        activate(former)
    assert ctx.steps > 10_000
    assert ctx.memory >= 8_000_000
