"""Calls of function values (spec: hog-language 5.7, 10.1)."""

from collections.abc import Sequence
from typing import Any

import pytest

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.calls import callback
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.values import HogFunction


def call(ctx: Context, function: Any, args: Sequence[Any]) -> Any:
    return callback(ctx, function, len(args))(*args)


def test_closures_are_padded_with_null() -> None:
    ctx = Context()
    pair = HogFunction("pair", 2, 2, lambda a, b: [a, b])
    assert call(ctx, pair, [1, 2]) == [1, 2]
    assert call(ctx, pair, [1]) == [1, None]
    assert call(ctx, pair, ()) == [None, None]
    with pytest.raises(HogRuntimeError, match=r"^Too many arguments\. Passed 3, expected 2$"):
        call(ctx, pair, [1, 2, 3])


def test_library_functions_check_their_arity() -> None:
    ctx = Context()
    trim = HogFunction("trim", 1, 2, lambda *args: args, "stl")
    assert call(ctx, trim, ["a"]) == ("a",)
    with pytest.raises(HogRuntimeError, match=r"^Function trim requires at least 1 arguments$"):
        call(ctx, trim, [])
    with pytest.raises(HogRuntimeError, match=r"^Function trim requires at most 2 arguments$"):
        call(ctx, trim, [1, 2, 3])
    assert call(ctx, HogFunction("concat", 1, None, lambda *args: len(args), "stl"), [1] * 300) == 300


@pytest.mark.parametrize("value", [5, None, "upper", print, lambda x: x, [1]])
def test_only_function_values_can_be_called(value: Any) -> None:
    with pytest.raises((HogRuntimeError, TypeError), match=r"Invalid closure|not a value"):
        call(Context(), value, [])


def test_arguments_are_limited() -> None:
    many = HogFunction("many", 0, None, lambda *args: len(args), "stl")
    with pytest.raises(HogRuntimeError, match=r"^Too many arguments$"):
        call(Context(), many, [None] * 301)
