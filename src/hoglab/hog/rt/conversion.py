"""Values in other forms: keys of dicts, and JSON.

Conversion stands above printing, for what is no text or small whole number is a key by its printed form.
"""

import datetime as dt
from typing import Any, Final

from hoglab.hog.rt import utf16
from hoglab.hog.rt.numbers import LEAST_STORED, MAX_SAFE_INTEGER, MOST_STORED, format_number, to_double
from hoglab.hog.rt.printing import repr_key
from hoglab.hog.rt.values import (
    FALSE_KEY,
    FIRST_INSTANT,
    LAST_INSTANT,
    MAX_DEPTH,
    MAX_NODES,
    SCALARS,
    TRUE_KEY,
    BooleanKey,
    HogDate,
    HogDateTime,
    HogError,
    HogFunction,
    HogTuple,
    Value,
    function_text,
    too_deep,
    too_large,
)


def dict_key(key: Value) -> Any:
    """Return the form under which `key` is stored in a dict.

    Strings, null and integers within ±2^53 stand for themselves, booleans for a marker.  Numbers that are not
    such integers become their text, so that their hashes cannot be chosen; containers become their printed
    form.  spec: hog-language 8.1, 9 (D1); hog-perf 3.2.
    """
    cls = key.__class__
    if cls is str or key is None:
        return key
    if cls is int:
        if -MAX_SAFE_INTEGER <= key <= MAX_SAFE_INTEGER:
            return key
    elif cls is bool:
        return TRUE_KEY if key else FALSE_KEY
    elif cls is float:
        if key.is_integer() and -MAX_SAFE_INTEGER <= key <= MAX_SAFE_INTEGER:
            return int(key)
    else:
        return repr_key(key) if cls is list or cls is dict or cls is HogTuple else key
    return format_number(key)


def key_text(key: Any) -> str:
    """Write a stored key as the name of a JSON member."""
    cls = key.__class__
    if cls is str:
        return str(key)
    if key is None:
        return "null"
    if cls is int:
        return str(key)
    if cls is BooleanKey:
        return "true" if key.value else "false"
    return repr_key(key)


def _array_index(key: str) -> int | None:
    """Return the number of an object key that JavaScript orders before the other keys, else None."""
    if len(key) <= 10 and key.isascii() and key.isdigit() and (key == "0" or key[0] != "0"):
        number = int(key)
        if number < 2**32 - 1:
            return number
    return None


def index_keys_first(mapping: dict[str, Value]) -> dict[str, Value]:
    """Return the mapping with integer-like keys first in ascending order, as JavaScript objects have them.

    Returns the same mapping when nothing changes.  spec: hog-language 8.1, 8.13.
    """
    numbered: list[tuple[int, str]] | None = None
    for key in mapping:
        if key[:1].isdigit():
            index = _array_index(key)
            if index is not None:
                if numbered is None:
                    numbered = []
                numbered.append((index, key))
    if numbered is None:
        return mapping
    numbered.sort()
    ordered = {key: mapping[key] for _, key in numbered}
    for key, value in mapping.items():
        if key not in ordered:
            ordered[key] = value
    return ordered


# Copies and conversions


def from_json(value: Value) -> Value:
    """Convert a JSON value of the host to a Hog value, always with new containers.

    Marker objects become datetimes, dates and errors; integer-like keys come first; Hog values pass through.

    Raises:
        HogRuntimeError: nested deeper than `MAX_DEPTH`.
        TypeError: not a JSON value (a mistake of the host).
    """
    if value.__class__ in SCALARS:
        return value
    return _from_json(value, 0)


def _from_json(value: Value, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise too_deep()
    cls = value.__class__
    if cls is dict:
        if "__hogDateTime__" in value or "__hogDate__" in value or "__hogError__" in value:
            marked = _from_marker(value, depth)
            if marked is not None:
                return marked
        members = {}
        ordered = True
        for key, item in value.items():
            if key.__class__ is not str:
                return _from_json({key_text(dict_key(k)): v for k, v in value.items()}, depth)
            if key[:1].isdigit():
                ordered = False
            members[key] = item if item.__class__ in SCALARS else _from_json(item, depth + 1)
        return members if ordered else index_keys_first(members)
    if cls is list:
        return [item if item.__class__ in SCALARS else _from_json(item, depth + 1) for item in value]
    if cls is HogTuple or cls is tuple:
        return HogTuple(item if item.__class__ in SCALARS else _from_json(item, depth + 1) for item in value)
    if cls in SCALARS or cls is HogError:
        return value
    raise TypeError(f"{cls.__name__} is not a value of the Hog language")


def _from_marker(members: dict[str, Value], depth: int) -> Value | None:
    """Return the temporal value or error that a marker object stands for; None when it is no well-formed marker."""
    if members.get("__hogDateTime__"):
        seconds, zone = members.get("dt"), members.get("zone", "UTC")
        if (
            isinstance(seconds, int | float)
            and FIRST_INSTANT <= seconds <= LAST_INSTANT
            and isinstance(zone, str)
        ):
            return HogDateTime(seconds, zone or "UTC")
        return None
    if members.get("__hogDate__"):
        return _day(members.get("year"), members.get("month"), members.get("day"))
    if members.get("__hogError__"):
        kind, message = members.get("type"), members.get("message")
        if isinstance(kind, str) and isinstance(message, str):
            return HogError(kind, message, _from_json(members.get("payload"), depth + 1))
    return None


def _day(year: Value, month: Value, day: Value) -> HogDate | None:
    if not (year.__class__ is month.__class__ is day.__class__ is int):
        return None
    try:
        dt.date(year, month, day)
    except (ValueError, OverflowError):
        return None
    return HogDate(year, month, day)


def to_json(value: Value) -> Value:
    """Convert a Hog value to plain JSON data: None, bool, int, float, str, list and dict with text keys.

    Temporal values and errors become their marker objects, functions their printed form, tuples lists, NaN,
    infinities and repeated parents (cycles) null, lone surrogates U+FFFD.

    Raises:
        HogRuntimeError: nested deeper than `MAX_DEPTH` or more than `MAX_NODES` parts.
    """
    try:
        return _plain(value, [_PLAIN_PARTS])
    except _UnusualError:
        return _ToJson().convert(value, 0)


_PLAIN_PARTS: Final = 1_000


class _UnusualError(Exception):
    """A value that the quick conversion does not handle."""


def _plain(value: Value, room: list[int]) -> Value:
    """Copy a small value that is JSON already. Raises `_UnusualError` for every other value."""
    cls = value.__class__
    if cls is str and value.isascii():
        return value
    if cls is dict:
        room[0] -= len(value) + 10
        if room[0] < 0:
            raise _UnusualError
        members = {}
        for key, item in value.items():
            if key.__class__ is not str or not key.isascii() or key[:1].isdigit():
                raise _UnusualError
            members[key] = item if item is None else _plain(item, room)
        return members
    if cls is list:
        room[0] -= len(value) + 10
        if room[0] < 0:
            raise _UnusualError
        return [item if item is None else _plain(item, room) for item in value]
    if value is None or cls is bool or (cls is int and LEAST_STORED <= value <= MOST_STORED):
        return value
    raise _UnusualError


class _ToJson:
    """One conversion to JSON: the containers on the way down and the number of values seen."""

    __slots__ = ("above", "nodes")

    def __init__(self) -> None:
        self.above: set[int] = set()
        self.nodes = 0

    def convert(self, value: Value, depth: int) -> Value:
        cls = value.__class__
        if cls is str:
            return clean_text(value)
        if value is None or cls is bool:
            return value
        if cls is int:
            return value if LEAST_STORED <= value <= MOST_STORED else json_float(value)
        if cls is float:
            return json_float(value)
        identity = id(value)
        if identity in self.above:
            return None
        if depth > MAX_DEPTH:
            raise too_deep()
        self.above.add(identity)
        try:
            return self.container(value, cls, depth)
        finally:
            self.above.discard(identity)

    def container(self, value: Value, cls: type, depth: int) -> Value:
        if cls is dict:
            self.count(len(value))
            return index_keys_first(
                {clean_text(key_text(k)): self.convert(v, depth + 1) for k, v in value.items()}
            )
        if cls is list or cls is HogTuple:
            self.count(len(value))
            return [self.convert(item, depth + 1) for item in value]
        marker = marker_of(value)
        if marker is not None:
            return {key: self.convert(item, depth) for key, item in marker.items()}
        if cls is HogFunction:
            return function_text(value)
        raise TypeError(f"{cls.__name__} is not a value of the Hog language")

    def count(self, parts: int) -> None:
        self.nodes += parts
        if self.nodes > MAX_NODES:
            raise too_large()


def json_float(number: float) -> int | float | None:
    """Return a number as JSON has it: an int when integral and exact, None for NaN and the infinities."""
    number = to_double(number)
    if number.is_integer() and -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
        return int(number)
    return number if number - number == 0 else None


def marker_of(value: Value) -> dict[str, Value] | None:
    """Return the marker object of a temporal value or error, None for every other value.  spec: hog-language 8.1."""
    cls = value.__class__
    if cls is HogDateTime:
        return {"__hogDateTime__": True, "dt": value.seconds, "zone": value.zone}
    if cls is HogDate:
        return {"__hogDate__": True, "year": value.year, "month": value.month, "day": value.day}
    if cls is HogError:
        members = {"__hogError__": True, "type": value.type, "message": value.message}
        if value.payload is not None:
            members["payload"] = value.payload
        return members
    return None


def clean_text(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD.

    Spec: hog-language 9 (D15).
    """
    return text if text.isascii() else utf16.clean(text)
