"""Library functions for numbers and chance.  spec: hog-language 10.2."""

import math
from functools import partial
from typing import Final

from hoglab.hog.rt.coerce import add, sub, to_number
from hoglab.hog.rt.context import LONG, Context
from hoglab.hog.rt.numbers import MAX_SAFE_INTEGER, tidy
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.values import NUMBER_COST, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="numbers")


def _joins(value: Value) -> bool:
    """Return whether JavaScript's + sees a text rather than a number."""
    return value.__class__ not in _NUMERIC


_NUMERIC: Final = frozenset({type(None), bool, int, float})


@declare(
    "plus",
    "left: any",
    "right: any",
    returns="number|string",
    cost="linear",
    context=True,
    doc="The sum of two numbers. When either side is a string or a container, both are joined as text "
    "instead.",
    examples=(("plus(1, 2)", "3"), ("plus(1, '2')", "'12'"), ("plus(null, 1)", "1")),
)
def _plus(ctx: Context, left: Value, right: Value) -> int | float | str:
    if _joins(left) or _joins(right):
        text = js_string(left), js_string(right)
        ctx.grow(len(text[0]) + len(text[1]))
        return text[0] + text[1]
    return add(left, right)


@declare(
    "minus",
    "left: any",
    "right: any",
    returns="number",
    cost="linear",
    doc="The difference of two values taken as numbers.",
    examples=(("minus('5', 2)", "3"), ("minus(1, 1.5)", "-0.5")),
)
def _minus(left: Value, right: Value) -> int | float:
    return sub(left, right)


def _floor(number: int | float) -> int | float:
    return tidy(float(math.floor(number))) if number - number == 0 else number


@declare(
    "floor",
    "value: any",
    "ignored?: any",
    returns="number",
    cost="linear",
    doc="The greatest integer that is not above the value.",
    examples=(("floor(2.9)", "2"), ("floor(-1.5)", "-2"), ("floor('7.2')", "7")),
)
def _floor_of(value: Value, _ignored: Value = None) -> int | float:
    number = to_number(value)
    return number if number.__class__ is int else _floor(number)


@declare(
    "round",
    "value: any",
    "ignored?: any",
    returns="number",
    cost="linear",
    doc="The nearest integer; halves go up, towards positive infinity.",
    examples=(("round(1.5)", "2"), ("round(2.5)", "3"), ("round(-1.5)", "-1"), ("round(2.4)", "2")),
)
def _round(value: Value, _ignored: Value = None) -> int | float:
    number = to_number(value)
    if number.__class__ is int or abs(number) >= 2**52 or number != number:
        return number
    below = math.floor(number)
    return below + 1 if number - below >= 0.5 else below


@declare(
    "range",
    "start_or_end: number",
    "end?: number",
    returns="array",
    cost="growing",
    context=True,
    doc="The integers from 0 up to, not including, the only argument, or from the first up to the second.",
    examples=(("range(3)", "[0, 1, 2]"), ("range(1, 4)", "[1, 2, 3]"), ("range(5, 2)", "[]")),
)
def _range(ctx: Context, start_or_end: Value, end: Value = None) -> list[int | float]:
    first = 0 if end is None else to_number(start_or_end)
    last = to_number(start_or_end if end is None else end)
    wanted = last - first
    if not wanted > 0:
        return []
    count = math.floor(min(wanted, MAX_SAFE_INTEGER))
    ctx.grow(NUMBER_COST * count)
    if count > LONG:
        ctx.charge(count >> 3)
    if first.__class__ is int:
        return list(range(int(first), int(first) + count))
    return [tidy(float(first + step)) for step in range(count)]


@declare(
    "randomFloat",
    returns="number",
    context=True,
    pure=False,
    infallible=True,
    doc="A random number from 0 up to, not including, 1.",
    examples=(("randomFloat() < 1", "true"), ("typeof(randomFloat() + 0.5)", "'float'")),
)
def _random_float(ctx: Context) -> float:
    return ctx.random()


@declare(
    "generateUUIDv4",
    returns="string",
    context=True,
    pure=False,
    infallible=True,
    doc="A random UUID of version 4 in lower case.",
    examples=(
        ("length(generateUUIDv4())", "36"),
        ("substring(generateUUIDv4(), 15, 1)", "'4'"),
    ),
)
def _generate_uuid(ctx: Context) -> str:
    return ctx.uuid4()
