"""The values a Hog program works with, and the border between them and JSON.

A Hog value is one of None, bool, int, float, str, list (array), dict (object, insertion ordered) and the
classes of this module.  spec: hog-language 8.1.

Dictionary keys are normalised by `dict_key`, because Python would take 1, 1.0 and True for one key and
because arbitrary numbers as keys allow hash flooding.  Every store and every lookup goes through it;
`keys_of` and `items_of` give the keys back as Hog values.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias, final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.patterns import anchored

Value: TypeAlias = Any
"""Any Hog value.  The type checker cannot say more: Hog is dynamically typed."""

MAX_DEPTH: Final = 200
"""Deepest nesting that copying, converting, printing and serialising accept."""

FIRST_INSTANT: Final = -62_135_596_800
"""0001-01-01T00:00:00Z in Unix seconds; instants before have no calendar date here."""

LAST_INSTANT: Final = 253_402_300_799.999
"""9999-12-31T23:59:59.999Z in Unix seconds."""

MAX_NODES: Final = 1_000_000
"""Maximum number of values that one conversion visits; shared containers count each time they are met."""


@final
class Ended:
    """Type of `ENDED`."""

    __slots__ = ()


ENDED: Final = Ended()
"""Result of a program that came to its end, or to a `return`, without a value. It is no Hog value: hosts read null."""


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
    """An error as a value: `Error(...)` makes it, `throw` throws it and `catch` binds it.  Not a Python exception."""

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
    values: for a closure exactly `arity` of them, for a library function any number.  Use
    `hoglab.hog.rt.calls.callback` to have the argument rules applied.
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


_PLAIN_NAME = anchored(r"[A-Za-z_$][A-Za-z0-9_$]*")


def function_text(function: HogFunction) -> str:
    """Print a function: its name and its number of parameters, 0 when unbounded.  spec: hog-language 8.6."""
    name = function.name
    if not _PLAIN_NAME.fullmatch(name):
        name = "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
    return f"fn<{name}({function.max_arity or 0})>"


NoneType: Final = type(None)

SCALARS: Final = frozenset({NoneType, bool, int, float, str, HogDateTime, HogDate, HogFunction})
"""Classes of values that cannot be changed in place, so that reading one needs no copy."""


# Dictionary keys


@final
class BooleanKey:
    """The key of a boolean in a dict, where Python would mistake it for 0 or 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "true" if self.value else "false"


TRUE_KEY: Final = BooleanKey(True)
FALSE_KEY: Final = BooleanKey(False)


def keys_of(mapping: dict[Any, Value]) -> list[Value]:
    """Return the keys of a dict as Hog values, in order."""
    if TRUE_KEY in mapping or FALSE_KEY in mapping:
        return [k.value if k.__class__ is BooleanKey else k for k in mapping]
    return list(mapping)


def items_of(mapping: dict[Any, Value]) -> list[tuple[Value, Value]]:
    """Return the (key, value) pairs of a dict as Hog values, in order; a snapshot."""
    if TRUE_KEY in mapping or FALSE_KEY in mapping:
        return [(k.value if k.__class__ is BooleanKey else k, v) for k, v in mapping.items()]
    return list(mapping.items())


def too_deep() -> HogRuntimeError:
    """Return the failure for values nested beyond `MAX_DEPTH`."""
    return HogRuntimeError(f"Value is nested more than {MAX_DEPTH} levels deep")


def too_large(most: int = MAX_NODES) -> HogRuntimeError:
    """Return the failure for values with too many parts."""
    return HogRuntimeError(f"Value has more than {most} parts")


def copy_value(value: Value) -> Value:
    """Return a deep copy.  Scalars are returned unchanged; sharing and cycles inside the value are kept.

    Raises:
        HogRuntimeError: nested deeper than `MAX_DEPTH`.
    """
    return value if value.__class__ in SCALARS else copy_parts(value)[0]


def copy_parts(value: Value) -> tuple[Value, Collection[Value]]:
    """Copy a container, and all containers in it. Raises the errors of `copy_value`."""
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


# Memory accounting

VALUE_COST: Final = 8
NUMBER_COST: Final = 32
CONTAINER_COST: Final = 64
ENTRY_COST: Final = 48


def live_size(roots: Iterable[Value], cap: int, charge: Callable[[int], None] | None = None) -> int:
    """Return the bytes of all values reachable from `roots`; counting stops soon after `cap`.

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
    """Return the contents of a container, and the memory cost in bytes of the container and its places."""
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
    """Yield the Hog values that a closure keeps alive."""
    for cell in getattr(call, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # declared, not yet assigned
            continue
    yield from getattr(call, "__defaults__", None) or ()
    yield from (getattr(call, "__kwdefaults__", None) or {}).values()
