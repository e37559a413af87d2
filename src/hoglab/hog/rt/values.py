"""The values a Hog program works with, and the border between them and JSON.

A Hog value is one of None, bool, int, float, str, list (array), dict (object, insertion ordered) and the
classes of this module.  spec: hog-language 8.1.

Dictionary keys are normalised by `dict_key`, because Python would take 1, 1.0 and True for one key and
because arbitrary numbers as keys allow hash flooding.  Every store and every lookup goes through it;
`keys_of` and `items_of` give the keys back as Hog values.
"""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias, final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt import utf16
from hoglab.hog.rt.numbers import MAX_SAFE_INTEGER, format_number, to_double

Value: TypeAlias = Any
"""Any Hog value.  The type checker cannot say more: Hog is dynamically typed."""

MAX_DEPTH: Final = 200
"""Deepest nesting that copying, converting, printing and serialising accept."""

FIRST_INSTANT: Final = -62_135_596_800
"""0001-01-01T00:00:00Z in Unix seconds; instants before have no calendar date here."""

LAST_INSTANT: Final = 253_402_300_799.999
"""9999-12-31T23:59:59.999Z in Unix seconds."""

MAX_NODES: Final = 1_000_000
"""Most values one conversion visits; shared containers count each time they are met."""


@final
class HogTuple(list[Any]):
    """An array with the tuple mark: it prints with parentheses and `typeof` says tuple."""

    __slots__ = ()


@final
class HogDateTime:
    """An instant and the zone it is shown in.  `seconds` is the Unix time, `zone` an IANA zone name."""

    __slots__ = ("seconds", "zone")

    def __init__(self, seconds: float, zone: str = "UTC") -> None:
        self.seconds = seconds
        self.zone = zone

    def __repr__(self) -> str:
        return f"HogDateTime({self.seconds!r}, {self.zone!r})"


@final
class HogDate:
    """A calendar day.  As an instant it stands for its midnight in UTC."""

    __slots__ = ("day", "month", "year")

    def __init__(self, year: int, month: int, day: int) -> None:
        self.year = year
        self.month = month
        self.day = day

    def __repr__(self) -> str:
        return f"HogDate({self.year}, {self.month}, {self.day})"


@final
class HogError:
    """An error as a value:

    what `Error(...)` makes, `throw` throws and `catch` binds.  Not a Python exception.
    """

    __slots__ = ("message", "payload", "type")

    def __init__(self, type: str, message: str, payload: Value = None) -> None:  # noqa: A002
        self.type = type
        self.message = message
        self.payload = payload

    def __repr__(self) -> str:
        return f"HogError({self.type!r}, {self.message!r}, {self.payload!r})"


@final
class HogFunction:
    """A function as a value.

    `kind` is "local" for a closure of the program, "stl" for a library function and "async" for one the host
    performs.  `arity` is the least number of arguments of a library function and the number of parameters of
    a closure (missing ones are null).  `max_arity` is None when the number is unbounded.  `call` takes Hog
    values: for a closure exactly `arity` of them, for a library function as many as were given.  Use
    `Context.call` to have the argument rules applied.
    """

    __slots__ = ("arity", "call", "kind", "max_arity", "name")

    def __init__(
        self,
        name: str,
        arity: int,
        max_arity: int | None,
        call: Callable[..., Value],
        kind: str = "local",
    ) -> None:
        self.name = name
        self.arity = arity
        self.max_arity = max_arity
        self.call = call
        self.kind = kind

    def __repr__(self) -> str:
        return f"HogFunction({self.name!r}, {self.arity}, {self.max_arity}, kind={self.kind!r})"


_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def function_text(function: HogFunction) -> str:
    """How a function prints:

    its name and its number of parameters, 0 when unbounded.  spec: hog-language 8.6.
    """
    name = function.name
    if not _PLAIN_NAME.fullmatch(name):
        name = "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    return f"fn<{name}({function.max_arity or 0})>"


NoneType: Final = type(None)

SCALARS: Final = frozenset({NoneType, bool, int, float, str, HogDateTime, HogDate, HogFunction})
"""Classes of values that cannot be changed in place, so that reading one needs no copy."""


# Dictionary keys


@final
class _BooleanKey:
    """Stands for a boolean among the keys of a dict, where Python would mistake it for 0 or 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "true" if self.value else "false"


TRUE_KEY: Final = _BooleanKey(True)
FALSE_KEY: Final = _BooleanKey(False)


def dict_key(key: Value) -> Any:
    """The form under which `key` is stored in a dict.

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
        return _printed(key) if cls is list or cls is dict or cls is HogTuple else key
    return format_number(key)


def _printed(value: Value) -> str:
    from hoglab.hog.rt.printing import repr_key  # the printer builds on this module

    return repr_key(value)


def keys_of(mapping: dict[Any, Value]) -> list[Value]:
    """The keys of a dict as Hog values, in order."""
    if TRUE_KEY in mapping or FALSE_KEY in mapping:
        return [k.value if k.__class__ is _BooleanKey else k for k in mapping]
    return list(mapping)


def items_of(mapping: dict[Any, Value]) -> list[tuple[Value, Value]]:
    """The (key, value) pairs of a dict as Hog values, in order; a snapshot."""
    if TRUE_KEY in mapping or FALSE_KEY in mapping:
        return [(k.value if k.__class__ is _BooleanKey else k, v) for k, v in mapping.items()]
    return list(mapping.items())


def key_text(key: Any) -> str:
    """A stored key as the name of a JSON member."""
    cls = key.__class__
    if cls is str:
        return str(key)
    if key is None:
        return "null"
    if cls is int:
        return str(key)
    if cls is _BooleanKey:
        return "true" if key.value else "false"
    return _printed(key)


def _array_index(key: str) -> int | None:
    """The number an object key stands for if JavaScript orders it before the other keys, else None."""
    if len(key) <= 10 and key.isascii() and key.isdigit() and (key == "0" or key[0] != "0"):
        number = int(key)
        if number < 2**32 - 1:
            return number
    return None


def index_keys_first(mapping: dict[str, Value]) -> dict[str, Value]:
    """The mapping with integer-like keys first in ascending order, as JavaScript objects have them.

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


def too_deep() -> HogRuntimeError:
    """The failure for values nested beyond `MAX_DEPTH`."""
    return HogRuntimeError(f"Value is nested more than {MAX_DEPTH} levels deep")


def too_large(most: int = MAX_NODES) -> HogRuntimeError:
    """The failure for values with too many parts."""
    return HogRuntimeError(f"Value has more than {most} parts")


def copy_value(value: Value) -> Value:
    """A deep copy.  Scalars are returned as they are; sharing and cycles inside the value are kept.

    Raises:
        HogRuntimeError: nested deeper than `MAX_DEPTH`.
    """
    return value if value.__class__ in SCALARS else copy_parts(value)[0]


def copy_parts(value: Value) -> tuple[Value, Collection[Value]]:
    """A deep copy of a container, and all containers in it. Raises as `copy_value`."""
    memo: dict[int, Value] = {}
    return _copy(value, memo, 0), memo.values()


def _copy(value: Value, memo: dict[int, Value], depth: int) -> Value:
    known = memo.get(id(value))
    if known is not None:
        return known
    if depth > MAX_DEPTH:
        raise too_deep()
    cls = value.__class__
    result: Value
    if cls is dict:
        memo[id(value)] = result = value.copy()
        for key, item in result.items():
            if item.__class__ not in SCALARS:
                result[key] = _copy(item, memo, depth + 1)
        return result
    if cls is list or cls is HogTuple:
        memo[id(value)] = result = cls(value)
        for position, item in enumerate(result):
            if item.__class__ not in SCALARS:
                result[position] = _copy(item, memo, depth + 1)
        return result
    if cls is HogError:
        memo[id(value)] = result = HogError(value.type, value.message)
        result.payload = _copy(value.payload, memo, depth + 1)
    else:
        result = value
    return result


def from_json(value: Value) -> Value:
    """A JSON value of the host as a Hog value, always with new containers.

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
    """The temporal value or error that a marker object stands for; None when it is no well-formed marker."""
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
    """A Hog value as plain JSON data: None, bool, int, float, str, list and dict with text keys.

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
    """A value that takes the careful way."""


def _plain(value: Value, room: list[int]) -> Value:
    """A copy of a small value that is JSON as it stands. Raises `_UnusualError` for every other."""
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
    if value is None or cls is bool or (cls is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER):
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
            return value if -(2**63) <= value < 2**64 else json_float(value)
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
    """A number as JSON has it: an int when integral and exact, None for NaN and the infinities."""
    number = to_double(number)
    if number.is_integer() and -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
        return int(number)
    return number if number - number == 0 else None


def marker_of(value: Value) -> dict[str, Value] | None:
    """The marker object of a temporal value or error, None for every other value.  spec: hog-language 8.1."""
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
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD.

    Spec: hog-language 9 (D15).
    """
    return text if text.isascii() else utf16.clean(text)


# Memory accounting

VALUE_COST: Final = 8
NUMBER_COST: Final = 32
CONTAINER_COST: Final = 64
ENTRY_COST: Final = 48


def live_size(roots: Iterable[Value], cap: int, charge: Callable[[int], None] | None = None) -> int:
    """Bytes the values reachable from `roots` account for; counting stops soon after `cap`.

    A shared container or long text counts once.  8 bytes per value and the length of a text, as
    spec: hog-language 8.11 has it, plus what a Python container or number really needs.  `charge` is told
    about the work, a unit for about a tick of the budget, and may end it.
    """
    seen: set[int] = set()
    first = list(roots)
    total = VALUE_COST * len(first)
    pending: list[Collection[Value]] = [first]
    while pending and total <= cap:
        values = pending.pop()
        if charge is not None:
            charge(1 + (len(values) >> 1))
        classes = set(map(type, values))
        if classes <= _WEIGHTLESS:
            continue
        if classes <= _NUMBERS:
            total += (NUMBER_COST - VALUE_COST) * len(values)
            continue
        for value in values:
            cls = value.__class__
            if cls is str:
                size = len(value)
                if size > _LONG_TEXT:
                    if id(value) in seen:
                        continue
                    seen.add(id(value))
                total += size
            elif cls is int or cls is float:
                total += NUMBER_COST - VALUE_COST
            elif cls not in _WEIGHTLESS and id(value) not in seen:
                seen.add(id(value))
                contents, size = _parts(value, cls)
                total += size
                pending.append(contents)
                if total > cap:
                    break
    return total


_LONG_TEXT: Final = 256
_WEIGHTLESS: Final = frozenset({NoneType, bool, HogDateTime, HogDate})
_NUMBERS: Final = frozenset({int, float})


def _parts(value: Value, cls: type) -> tuple[Collection[Value], int]:
    """What a container holds, and what the container and its places cost."""
    if cls is list or cls is HogTuple:
        return value, CONTAINER_COST + VALUE_COST * len(value)
    if cls is dict:
        try:
            names = sum(map(len, value))
        except TypeError:  # some keys are no texts
            names = sum(len(key) for key in value if key.__class__ is str)
        return value.values(), CONTAINER_COST + (ENTRY_COST + 2 * VALUE_COST) * len(value) + names
    if cls is HogError:
        return (value.message, value.payload), CONTAINER_COST
    if cls is HogFunction:
        return list(_captured(value.call)), CONTAINER_COST
    return (), 0


def _captured(call: Callable[..., Value]) -> Iterator[Value]:
    """The Hog values that a closure keeps alive."""
    for cell in getattr(call, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # declared, not yet assigned
            continue
    yield from getattr(call, "__defaults__", None) or ()
    yield from (getattr(call, "__kwdefaults__", None) or {}).values()
