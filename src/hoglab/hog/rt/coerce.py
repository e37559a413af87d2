"""Conversions and operators between values of any class.

Truth, numbers, equality, order, membership, patterns.

Compiled programs handle the common cases inline and call these functions for the rest, so each function first checks
the most frequent classes.  Work that grows with the operands is charged to the active context.  spec:
hog-language 8.2-8.4.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt import utf16
from hoglab.hog.rt.context import LONG, charge
from hoglab.hog.rt.dates import date_seconds, read_instant
from hoglab.hog.rt.numbers import (
    INFINITY,
    MAX_SAFE_INTEGER,
    NAN,
    float_prefix,
    format_number,
    integer_prefix,
    number_from_text,
    tidy,
    to_double,
)
from hoglab.hog.rt.printing import concat_text, is_truthy, js_string, repr_value, to_string
from hoglab.hog.rt.regex import CACHE_SIZE, Matcher, build_matcher, compile_regex
from hoglab.hog.rt.values import HogDate, HogDateTime, HogTuple, Value

__all__ = [
    "add",
    "concat_text",
    "contains",
    "div",
    "eq",
    "format_number",
    "ge",
    "gt",
    "ilike",
    "iregex",
    "js_string",
    "le",
    "like",
    "lt",
    "mod",
    "mul",
    "ne",
    "neg",
    "read_float_prefix",
    "read_integer_prefix",
    "read_number",
    "regex",
    "repr_value",
    "same",
    "sub",
    "to_number",
    "to_string",
    "truthy",
]

truthy = is_truthy

# Numbers


def to_number(value: Value) -> int | float:
    """Return the value as a number by JavaScript's rules; NaN when it is none.

    null is 0, booleans are 1 and 0, text is read whole (empty text is 0), arrays go through their joined
    text.
    """
    cls = value.__class__
    if cls is int or cls is float:
        return value  # type: ignore[no-any-return]
    if cls is str:
        return read_number(value)
    if cls is bool:
        return 1 if value else 0
    if value is None:
        return 0
    if cls is list or cls is HogTuple:
        return read_number(js_string(value))
    return NAN


def read_number(text: str) -> int | float:
    """Return a text as a number by JavaScript's rules; NaN when it is none."""
    if len(text) > LONG:
        charge(len(text) >> 2)
    return number_from_text(text)


def read_integer_prefix(text: str) -> int | float | None:
    """Return the integer that a text starts with, as parseInt finds it; None when there is none."""
    if len(text) > LONG:
        charge(len(text) >> 3)
    return integer_prefix(text)


def read_float_prefix(text: str) -> int | float | None:
    """Return the number that a text starts with, as parseFloat finds it; None when there is none."""
    if len(text) > LONG:
        charge(len(text) >> 3)
    return float_prefix(text)


def add(left: Value, right: Value) -> int | float:
    """Compute `left + right`; never joins text."""
    return _sum(to_number(left), to_number(right))


def sub(left: Value, right: Value) -> int | float:
    """Compute `left - right`."""
    return _sum(to_number(left), -to_number(right))


def _sum(left: int | float, right: int | float) -> int | float:
    if left.__class__ is int and right.__class__ is int:
        total = left + right
        return total if -MAX_SAFE_INTEGER <= total <= MAX_SAFE_INTEGER else to_double(total)
    return to_double(left) + to_double(right)


def neg(value: Value) -> int | float:
    """Compute `-value`."""
    return -to_number(value)


def mul(left: Value, right: Value) -> int | float:
    """Compute `left * right`; products beyond ±2^53 are doubles, so that repeated squaring ends at infinity."""
    a = to_number(left)
    b = to_number(right)
    if a.__class__ is int and b.__class__ is int:
        if -MAX_SAFE_INTEGER <= a <= MAX_SAFE_INTEGER and -MAX_SAFE_INTEGER <= b <= MAX_SAFE_INTEGER:
            product = a * b
            return product if -MAX_SAFE_INTEGER <= product <= MAX_SAFE_INTEGER else to_double(product)
        return to_double(a) * to_double(b)
    try:
        return a * b
    except OverflowError:
        return to_double(a) * to_double(b)


def div(left: Value, right: Value) -> int | float:
    """Compute `left / right` as doubles: by zero gives an infinity or NaN, exact results are ints."""
    a = to_double(to_number(left))
    b = to_double(to_number(right))
    if b == 0:
        if a == 0 or a != a:
            return NAN
        return math.copysign(INFINITY, a) * math.copysign(1.0, b)
    return tidy(a / b)


def mod(left: Value, right: Value) -> int | float:
    """Compute the remainder with the sign of `left`; NaN when `right` is zero or `left` infinite."""
    a = to_number(left)
    b = to_number(right)
    if a.__class__ is int and b.__class__ is int and 0 <= a <= MAX_SAFE_INTEGER and b > 0:
        return a % b
    x = to_double(a)
    y = to_double(b)
    if y == 0 or x - x != 0 or y != y:
        return NAN
    return tidy(math.fmod(x, y))


# Equality and order


def _seconds(value: Value) -> int | float:
    return value.seconds if value.__class__ is HogDateTime else date_seconds(value)


def _unified(left: Value, right: Value) -> tuple[Value, Value]:
    """Make both operands comparable, for operands of different classes.

    Spec: hog-language 8.4, steps 1-5.
    """
    a = left.__class__
    b = right.__class__
    if a is HogDateTime or a is HogDate:
        if b is HogDateTime or b is HogDate:
            return _seconds(left), _seconds(right)
        if b is str:
            seconds = read_instant(right)
            if seconds is not None:
                return _seconds(left), seconds
        return left, right
    if b is HogDateTime or b is HogDate:
        if a is str:
            seconds = read_instant(left)
            if seconds is not None:
                return seconds, _seconds(right)
        return left, right
    if a is str:
        if b is int or b is float:
            return read_number(left), right
        if b is bool:
            return left == "true", right
    elif b is str:
        if a is int or a is float:
            return left, read_number(right)
        if a is bool:
            return left, right == "true"
    elif a is bool:
        if b is int or b is float:
            return int(left), right
    elif b is bool and (a is int or a is float):
        return left, int(right)
    return left, right


def _numeric_arrays(left: Value, right: Value) -> bool:
    """Return whether both are arrays or tuples of finite numbers only, which compare element by element."""
    return _is_array(left) and _is_array(right) and _all_finite(left) and _all_finite(right)


def _is_array(value: Value) -> bool:
    return value.__class__ is list or value.__class__ is HogTuple


def _all_finite(items: list[Value]) -> bool:
    if len(items) > LONG:
        charge(len(items) >> 2)
    for item in items:
        cls = item.__class__
        if cls is not int and (cls is not float or item - item != 0):
            return False
    return True


def eq(left: Value, right: Value) -> bool:
    """Compute `left = right`: the same number, text or truth value after conversion.

    Containers are equal to themselves only.

    Exceptions: arrays of finite numbers and temporal values compare by their contents.
    """
    a = left.__class__
    b = right.__class__
    if a is b:
        if a is str:
            return left == right if len(left) <= LONG else _same_text(left, right)
        if a is int or a is float or a is bool:
            return left == right  # type: ignore[no-any-return]
        if a is HogDateTime or a is HogDate:
            return _seconds(left) == _seconds(right)
    elif a in _PRIMITIVE and b in _PRIMITIVE:
        if left is None or right is None:
            return False
        x, y = _unified(left, right)
        return x == y  # type: ignore[no-any-return]
    else:
        left, right = _unified(left, right)
        if left.__class__ in _PRIMITIVE and right.__class__ in _PRIMITIVE:
            return left == right
    if left is right:
        return True
    return _numeric_arrays(left, right) and list.__eq__(left, right)


_PRIMITIVE: Final = frozenset({type(None), bool, int, float, str})


def ne(left: Value, right: Value) -> bool:
    """Compute `left != right`."""
    return not eq(left, right)


def primitive(value: Value) -> Value:
    """Return a value as JavaScript's relational operators see it: a number or a text."""
    cls = value.__class__
    if cls is int or cls is float or cls is str:
        return value
    if value is None:
        return 0
    if cls is bool:
        return 1 if value else 0
    return js_string(value)


def _compare(left: Value, right: Value) -> int:
    """Compare two values: -1, 0 or 1 for less, equal or greater, 2 when they have no order."""
    if left.__class__ is not right.__class__ or left.__class__ is HogDateTime or left.__class__ is HogDate:
        left, right = _unified(left, right)
    if _is_array(left) and _numeric_arrays(left, right):
        return -1 if list.__lt__(left, right) else int(list.__gt__(left, right))
    return compare_primitives(primitive(left), primitive(right))


def compare_primitives(left: Value, right: Value) -> int:
    """Compare two numbers or texts in JavaScript's order; 2 when there is none (NaN)."""
    if left.__class__ is str and right.__class__ is str:
        if _same_text(left, right):
            return 0
        return -1 if _text_before(left, right) else 1
    x = to_number(left)
    y = to_number(right)
    if x < y:
        return -1
    if x > y:
        return 1
    return 0 if x == y else 2


def text_key(text: str) -> bytes:
    """Return a sort key that orders texts by their UTF-16 units."""
    return utf16.encode(text, charge, "utf-16-be")


def _same_text(left: str, right: str) -> bool:
    if len(left) > LONG and len(left) == len(right):
        charge(len(left) >> 9)
    return left == right


def _text_before(left: str, right: str) -> bool:
    if left.isascii() or right.isascii():
        if len(left) > LONG and len(right) > LONG:
            charge(min(len(left), len(right)) >> 9)
        return left < right
    if len(left) + len(right) > LONG:
        charge((len(left) + len(right)) >> 5)
    return text_key(left) < text_key(right)


def lt(left: Value, right: Value) -> bool:
    """Compute `left < right`."""
    a = left.__class__
    b = right.__class__
    if (a is int or a is float) and (b is int or b is float):
        return bool(left < right)
    if a is str and b is str:
        return _text_before(left, right)
    return _compare(left, right) == -1


def le(left: Value, right: Value) -> bool:
    """Compute `left <= right`."""
    a = left.__class__
    b = right.__class__
    if (a is int or a is float) and (b is int or b is float):
        return bool(left <= right)
    return _compare(left, right) <= 0


def gt(left: Value, right: Value) -> bool:
    """Compute `left > right`."""
    return lt(right, left)


def ge(left: Value, right: Value) -> bool:
    """Compute `left >= right`."""
    return le(right, left)


def same(left: Value, right: Value) -> bool:
    """Return strict identity, JavaScript's ===: no conversion; a container is identical only to itself.

    NaN is not.
    """
    a = left.__class__
    if a is int or a is float:
        return (right.__class__ is int or right.__class__ is float) and left == right
    if a is str:
        return right.__class__ is str and _same_text(left, right)
    return left is right


# Membership and patterns


def contains(needle: Value, haystack: Value) -> bool:
    """Compute `needle in haystack`: strict membership in an array or tuple, part of a text.

    Raises:
        HogRuntimeError: the haystack is none of these.
    """
    cls = haystack.__class__
    if cls is list or cls is HogTuple:
        return member(needle, haystack)
    if cls is str:
        if len(haystack) > LONG:
            charge(len(haystack) >> 7)
        return (needle if needle.__class__ is str else js_string(needle)) in haystack
    kind = "null" if haystack is None else _KIND.get(cls, "object")
    raise HogRuntimeError(f"The right side of `in` must be an array, a tuple or a string, not {kind}")


_KIND: Final = {int: "integer", float: "float", bool: "boolean"}


def member(needle: Value, items: list[Value]) -> bool:
    """Return whether a value is a strict member; unlike `same`, NaN is found."""
    if len(items) > LONG:
        charge(len(items) >> 4)
    cls = needle.__class__
    if cls is str:
        if len(needle) > LONG:  # each comparison may take its time
            return any(item.__class__ is str and _same_text(item, needle) for item in items)
        return needle in items
    if cls is int or cls is float:
        if needle != needle:
            return any(item != item for item in items if item.__class__ is float)
        return needle in items and any(item == needle and item.__class__ is not bool for item in items)
    return any(item is needle for item in items)


def like(value: Value, pattern: Value) -> bool:
    """Compute `value like pattern`: `%` stands for any run, `_` for one character, neither for a line break.

    It may match anywhere in the value.
    """
    text = value if value.__class__ is str else js_string(value)
    if len(text) > LONG:
        charge(len(text) >> 6)
    wanted = like_matcher(pattern if pattern.__class__ is str else js_string(pattern), False)
    return wanted in text if wanted.__class__ is str else wanted.search(text)  # type: ignore[union-attr]


def ilike(value: Value, pattern: Value) -> bool:
    """Compute `value ilike pattern`: like `like`, without regard to case."""
    text = value if value.__class__ is str else js_string(value)
    if len(text) > LONG:
        charge(len(text) >> 5)
    wanted = like_matcher(pattern if pattern.__class__ is str else js_string(pattern), True)
    if wanted.__class__ is str:
        return wanted in text.lower()
    return wanted.search(text)  # type: ignore[union-attr]


MAX_LIKE_PATTERN: Final = 5_000
"""Longest like pattern with wildcards inside, in characters."""


def like_matcher(pattern: str, ignore_case: bool) -> str | Matcher:
    """Return the text to search for (in lower case if `ignore_case`), or a matcher.

    Matching is unanchored, so wildcards at either end mean nothing except that a `_` needs a character.
    """
    if len(pattern) > MAX_LIKE_PATTERN:
        return _like_matcher.__wrapped__(pattern, ignore_case)
    return _like_matcher(pattern, ignore_case)


@lru_cache(maxsize=CACHE_SIZE)
def _like_matcher(pattern: str, ignore_case: bool) -> str | Matcher:
    core = pattern.strip("%")
    if "%" not in core and "_" not in core:
        return core.lower() if ignore_case else core
    if len(core) > MAX_LIKE_PATTERN:
        raise HogRuntimeError(f"A like pattern with wildcards may have at most {MAX_LIKE_PATTERN} characters")
    translated = "".join(_LIKE_PARTS.get(character) or _escaped(character) for character in core)
    return build_matcher(translated, ignore_case)


_LIKE_PARTS: Final = {"%": ".*", "_": "."}


def _escaped(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\x{ord(character):02x}"


def regex(value: Value, pattern: Value) -> bool:
    """Compute `value =~ pattern`: an unanchored RE2 search; false when either side is null, false, 0 or empty.

    Raises:
        HogRuntimeError: the pattern is refused (see `hoglab.hog.rt.regex`).
    """
    return is_truthy(value) and is_truthy(pattern) and _search(value, pattern, False)


def iregex(value: Value, pattern: Value) -> bool:
    """Compute `value =~* pattern`: like `regex`, without regard to case.

    Here an empty pattern matches, and other false patterns are read as text: the official machine joins
    them to its own `(?i)` before it looks.
    """
    return is_truthy(value) and _search(value, pattern, True)


def _search(text: Value, pattern: Value, ignore_case: bool) -> bool:
    if text.__class__ is not str:
        text = js_string(text)
    return compile_regex(pattern if pattern.__class__ is str else js_string(pattern), ignore_case).search(
        text
    )


def between(value: Value, low: Value, high: Value) -> bool:
    """Compute `value between low and high`; false when anything is null (spec: hog-language 6.3)."""
    if value is None or low is None or high is None:
        return False
    return ge(value, low) and le(value, high)


def not_between(value: Value, low: Value, high: Value) -> bool:
    """Compute `value not between low and high`; false when anything is null."""
    if value is None or low is None or high is None:
        return False
    return lt(value, low) or gt(value, high)


ARITHMETIC: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": div,
    "%": mod,
}
"""The functions of arithmetic operators."""

COMPARISON: Final[dict[str, Callable[[Value, Value], bool]]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": contains,
    "like": like,
    "ilike": ilike,
    "=~": regex,
    "=~*": iregex,
}
"""Functions of comparison operators. `in` takes the element first; patterns come second."""

NEGATED: Final = {
    "not in": "in",
    "not like": "like",
    "not ilike": "ilike",
    "!~": "=~",
    "!~*": "=~*",
}
"""Operators that hold where another one does not hold."""
