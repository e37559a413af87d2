"""Library functions that convert values and tell what they are.  spec: hog-language 10.2."""

import math
from functools import partial

from hoglab.hog.rt.coerce import read_float_prefix, read_integer_prefix
from hoglab.hog.rt.dates import date_seconds
from hoglab.hog.rt.printing import js_string, to_string, type_name
from hoglab.hog.rt.values import HogDate, HogDateTime, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="conversion")


@declare(
    "typeof",
    "value: any",
    returns="string",
    infallible=True,
    doc="The name of the value's type: null, boolean, integer, float, string, array, tuple, object, "
    "datetime, date, error, function or sql.",
    examples=(
        ("typeof(1.0)", "'integer'"),
        ("typeof(1.5)", "'float'"),
        ("typeof((1, 2))", "'tuple'"),
        ("typeof(toDate('2024-12-18'))", "'date'"),
    ),
)
def _typeof(value: Value) -> str:
    return type_name(value)


@declare(
    "toString",
    "value: any",
    "ignored?: any",
    returns="string",
    cost="linear",
    doc="The value as text. Strings stay as they are, dates take their ISO form, containers look like "
    "literals.",
    examples=(
        ("toString(1.0)", "'1'"),
        ("toString(null)", "'null'"),
        ("toString([1, 'a'])", r"'[1, \'a\']'"),
        ("toString(toDateTime('2024-12-18T10:00:00Z'))", "'2024-12-18T10:00:00.000Z'"),
    ),
)
def _to_string(value: Value, _ignored: Value = None) -> str:
    return to_string(value)


@declare(
    "toUUID",
    "value: any",
    returns="string",
    cost="linear",
    doc="The value as text, like toString; the text is not checked to be a UUID.",
    examples=(
        (
            "toUUID('0190b2f5-5b0a-7000-8000-000000000000')",
            "'0190b2f5-5b0a-7000-8000-000000000000'",
        ),
        ("toUUID('not one')", "'not one'"),
        ("toUUID(5)", "'5'"),
    ),
)
def _to_uuid(value: Value) -> str:
    return to_string(value)


def _day_number(date: HogDate) -> int:
    return date_seconds(date) // 86_400


@declare(
    "toInt",
    "value: any",
    returns="number|null",
    cost="linear",
    doc="The integer that the value's text starts with, null when there is none. A datetime gives its "
    "Unix time in whole seconds, a date the number of days since 1970-01-01.",
    examples=(
        ("toInt('12abc')", "12"),
        ("toInt(-3.9)", "-3"),
        ("toInt('0x1F')", "31"),
        ("toInt('abc')", "null"),
        ("toInt(true)", "null"),
        ("toInt(toDate('1970-01-11'))", "10"),
    ),
)
def _to_int(value: Value) -> int | float | None:
    cls = value.__class__
    if cls is int and -(10**15) < value < 10**15:
        return value  # type: ignore[no-any-return]
    if cls is HogDateTime:
        return math.floor(value.seconds)  # type: ignore[no-any-return]
    if cls is HogDate:
        return _day_number(value)
    return read_integer_prefix(js_string(value))


@declare(
    "toFloat",
    "value: any",
    returns="number|null",
    cost="linear",
    doc="The number that the value's text starts with, null when there is none. A datetime gives its Unix "
    "time, a date the number of days since 1970-01-01.",
    examples=(
        ("toFloat('1.5x')", "1.5"),
        ("toFloat('2')", "2"),
        ("toFloat('-1e3')", "-1000"),
        ("toFloat('x')", "null"),
        ("toFloat(toDateTime(1.5))", "1.5"),
    ),
)
def _to_float(value: Value) -> int | float | None:
    cls = value.__class__
    if cls is int or (cls is float and value == value):
        return value  # type: ignore[no-any-return]
    if cls is HogDateTime:
        return value.seconds  # type: ignore[no-any-return]
    if cls is HogDate:
        return _day_number(value)
    return read_float_prefix(js_string(value))
