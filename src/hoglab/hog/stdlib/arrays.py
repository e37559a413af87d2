"""Library functions for arrays, tuples and dicts.  None changes its arguments.  spec: hog-language 10.4."""

from functools import partial
from typing import Final

from hoglab.hog.rt.access import keys, values
from hoglab.hog.rt.coerce import member, same, text_key
from hoglab.hog.rt.context import LONG, Context
from hoglab.hog.rt.printing import js_join, js_string
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="arrays")


def is_array(value: Value) -> bool:
    """Return whether the value is an array or a tuple."""
    return value.__class__ is list or value.__class__ is HogTuple


def account(ctx: Context, count: int) -> None:
    """Account for an array of `count` elements about to be made."""
    ctx.grow(64 + 8 * count)


@declare(
    "tuple",
    "items...: any",
    returns="tuple",
    cost="linear",
    context=True,
    infallible=True,
    doc="The arguments as a tuple.",
    examples=(("tuple(1, 'a')", "(1, 'a')"), ("tuple(1)", "tuple(1)"), ("tuple()", "tuple()")),
)
def _tuple(ctx: Context, *items: Value) -> HogTuple:
    account(ctx, len(items))
    return HogTuple(items)


@declare(
    "keys",
    "container: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="The keys of an object, the positions of an array or tuple counted from 0; empty for everything "
    "else.",
    examples=(("keys({'a': 1, 'b': 2})", "['a', 'b']"), ("keys(['x', 'y'])", "[0, 1]"), ("keys(null)", "[]")),
)
def _keys(ctx: Context, container: Value) -> list[Value]:
    copied = keys(container)
    account(ctx, len(copied))
    return copied


@declare(
    "values",
    "container: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="The values of an object, or the elements of an array or tuple as a new array; empty for "
    "everything else.",
    examples=(("values({'a': 1, 'b': 2})", "[1, 2]"), ("values((1, 2))", "[1, 2]"), ("values(null)", "[]")),
)
def _values(ctx: Context, container: Value) -> list[Value]:
    copied = values(container)
    account(ctx, len(copied))
    return copied


@declare(
    "has",
    "items: any",
    "value: any",
    returns="boolean",
    cost="linear",
    infallible=True,
    doc="Whether an array or tuple has the value as an element; nothing is converted.",
    examples=(("has([1, 2], 2)", "true"), ("has([1], '1')", "false"), ("has('abc', 'a')", "false")),
)
def _has(items: Value, value: Value) -> bool:
    return is_array(items) and member(value, items)


@declare(
    "indexOf",
    "items: any",
    "value: any",
    returns="integer",
    cost="linear",
    weight=2,
    infallible=True,
    doc="The position of the first element that is the value, counting from 1; 0 when there is none.",
    examples=(("indexOf(['a', 'b'], 'b')", "2"), ("indexOf([1], '1')", "0"), ("indexOf('abc', 'a')", "0")),
)
def _index_of(items: Value, value: Value) -> int:
    if not is_array(items):
        return 0
    if value.__class__ is str and not member(value, items):
        return 0
    return next((position for position, item in enumerate(items, 1) if same(item, value)), 0)


# Adding and removing


@declare(
    "arrayPushBack",
    "items: any",
    "value: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="A new array with the value added at the end; anything that is no array counts as empty.",
    examples=(("arrayPushBack([1, 2], 3)", "[1, 2, 3]"), ("arrayPushBack(null, 1)", "[1]")),
)
def _push_back(ctx: Context, items: Value, value: Value) -> list[Value]:
    if not is_array(items):
        return [value]
    account(ctx, len(items) + 1)
    return [*items, value]


@declare(
    "arrayPushFront",
    "items: any",
    "value: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="A new array with the value added at the start; anything that is no array counts as empty.",
    examples=(("arrayPushFront([1, 2], 3)", "[3, 1, 2]"), ("arrayPushFront(null, 1)", "[1]")),
)
def _push_front(ctx: Context, items: Value, value: Value) -> list[Value]:
    if not is_array(items):
        return [value]
    account(ctx, len(items) + 1)
    return [value, *items]


@declare(
    "arrayPopBack",
    "items: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="A new array without the last element; empty for anything that is no array.",
    examples=(("arrayPopBack([1, 2, 3])", "[1, 2]"), ("arrayPopBack([])", "[]")),
)
def _pop_back(ctx: Context, items: Value) -> list[Value]:
    if not is_array(items):
        return []
    account(ctx, len(items))
    return list(items[:-1])


@declare(
    "arrayPopFront",
    "items: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="A new array without the first element; empty for anything that is no array.",
    examples=(("arrayPopFront([1, 2, 3])", "[2, 3]"), ("arrayPopFront(null)", "[]")),
)
def _pop_front(ctx: Context, items: Value) -> list[Value]:
    if not is_array(items):
        return []
    account(ctx, len(items))
    return list(items[1:])


# Order


@declare(
    "arrayReverse",
    "items: any",
    returns="array",
    cost="linear",
    context=True,
    infallible=True,
    doc="A new array with the elements in opposite order; empty for anything that is no array.",
    examples=(
        ("arrayReverse([1, 2, 3])", "[3, 2, 1]"),
        ("arrayReverse('abc')", "[]"),
    ),
)
def _reverse(ctx: Context, items: Value) -> list[Value]:
    if not is_array(items):
        return []
    account(ctx, len(items))
    return list(items[::-1])


def _sorted(ctx: Context, items: Value) -> list[Value]:
    """Return a sorted copy: by size when all elements are numbers, else by their text.  spec: hog-language 9 (D9)."""
    if not is_array(items):
        return []
    count = len(items)
    account(ctx, count)
    if count > LONG:
        ctx.charge(count * count.bit_length() >> 6)
    classes = set(map(type, items))
    if classes <= _NUMBERS:
        if float in classes and any(item != item for item in items):
            return sorted(items, key=_not_a_number_last)
        return sorted(items)
    texts = []
    for item in items:
        if count > LONG and item.__class__ is not str:
            ctx.charge(1)  # to write an element as text takes about as long as a step
        text = item if item.__class__ is str else js_string(item)
        ctx.grow(64 + len(text))  # also for shared texts: each may be compared to its end
        texts.append(text)
    if classes == _TEXTS and all(map(str.isascii, texts)):
        return sorted(items)
    keys_in_order = sorted(range(count), key=list(map(text_key, texts)).__getitem__)
    return [items[position] for position in keys_in_order]


_NUMBERS: Final = frozenset({int, float})
_TEXTS: Final = frozenset({str})


def _not_a_number_last(number: int | float) -> tuple[bool, int | float]:
    return (True, 0) if number != number else (False, number)


@declare(
    "arraySort",
    "items: any",
    "ignored...: any",
    returns="array",
    cost="linear",
    context=True,
    doc="A new array in ascending order: by size when all elements are numbers, else by their text.",
    examples=(
        ("arraySort([2, 10, 1])", "[1, 2, 10]"),
        ("arraySort(['b', 'a'])", "['a', 'b']"),
        ("arraySort([10, '9', 1])", "[1, 10, '9']"),
    ),
)
def _sort(ctx: Context, items: Value, *_ignored: Value) -> list[Value]:
    return _sorted(ctx, items)


@declare(
    "arrayReverseSort",
    "items: any",
    "ignored...: any",
    returns="array",
    cost="linear",
    context=True,
    doc="A new array in descending order, compared like arraySort.",
    examples=(
        ("arrayReverseSort([2, 10, 1])", "[10, 2, 1]"),
        ("arrayReverseSort(['b', 'B', 'a'])", "['b', 'a', 'B']"),
    ),
)
def _reverse_sort(ctx: Context, items: Value, *_ignored: Value) -> list[Value]:
    ordered = _sorted(ctx, items)
    ordered.reverse()
    return ordered


@declare(
    "arrayStringConcat",
    "items: any",
    "separator?: string",
    returns="string",
    cost="growing",
    context=True,
    doc="The elements joined as text, with the separator between them; null elements are empty.",
    examples=(
        ("arrayStringConcat(['a', 'b'], '-')", "'a-b'"),
        ("arrayStringConcat([1, null, 2])", "'12'"),
        ("arrayStringConcat('abc', '-')", "''"),
    ),
)
def _string_concat(ctx: Context, items: Value, separator: Value = None) -> str:
    if not is_array(items):
        return ""
    between = "" if separator is None else js_string(separator)
    ctx.grow(len(between) * len(items))
    text = js_join(items, between)
    ctx.grow(len(text))
    return text
