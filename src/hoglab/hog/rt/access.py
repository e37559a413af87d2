"""Reading and writing members: `a.b`, `a[i]`, `a.b := v`.  spec: hog-language 8.5."""

from sys import getsizeof
from typing import Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import LONG, Context, charge, grow
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.text import utf16_length
from hoglab.hog.rt.values import (
    HogDate,
    HogDateTime,
    HogError,
    HogTuple,
    Value,
    copy_parts,
    items_of,
    keys_of,
)

_FIRST_INDEX: Final = "Hog arrays start from index 1"


def get_property(obj: Value, key: Value) -> Value:
    """Return the member of a value, null when there is none.

    Arrays count from 1, negative positions from the end.  Datetimes, dates and errors have their parts;
    arrays and strings have a `length`; everything else has no members.

    Raises:
        HogRuntimeError: position 0 of an array.
    """
    cls = obj.__class__
    if cls is dict:
        if key.__class__ is not str:
            key = dict_key(key)
        return obj.get(key)
    if cls is list or cls is HogTuple:
        return _element(obj, key)
    if key.__class__ is str:
        parts = _PARTS.get(cls)
        if parts is not None and key in parts:
            return getattr(obj, parts[key])
        if cls is str and key == "length":
            return utf16_length(obj)
    return None


_PARTS: Final[dict[type, dict[str, str]]] = {
    HogDateTime: {"dt": "seconds", "zone": "zone"},
    HogDate: {"year": "year", "month": "month", "day": "day"},
    HogError: {"type": "type", "message": "message", "payload": "payload"},
}


def _element(items: list[Value], key: Value) -> Value:
    position = _position(key)
    if position is None:
        return len(items) if key == "length" and key.__class__ is str else None
    if position > 0:
        return items[position - 1] if position <= len(items) else None
    if position == 0:
        raise HogRuntimeError(_FIRST_INDEX)
    return items[position] if -position <= len(items) else None


def _position(key: Value) -> int | None:
    """Return an array position as an int; None for any value but an integral number."""
    if key.__class__ is int:
        return key
    if key.__class__ is float and key.is_integer():
        return int(key)
    return None


def set_property(ctx: Context, obj: Value, key: Value, value: Value) -> None:
    """Store a member.

    A write past the end of an array fills the gap with null.  spec: hog-language 9 (D10).

    Raises:
        HogRuntimeError: a position below 1, or a value that has no members to set.
        HogLimit: the filled array would not fit into memory.
    """
    cls = obj.__class__
    if cls is dict:
        key = key if key.__class__ is str else dict_key(key)
        if key not in obj:
            ctx.grow(_MEMBER_BYTES + (len(key) if key.__class__ is str else 0))
        obj[key] = value
    elif cls is list or cls is HogTuple:
        position = _position(key)
        if position is None:
            raise HogRuntimeError(f"Can not set {_shown(key)} on element of type object")
        if position <= 0:
            raise HogRuntimeError(_FIRST_INDEX)
        missing = position - len(obj)
        if missing > 0:
            ctx.grow(8 * missing)
            obj.extend([None] * missing)
        obj[position - 1] = value
    elif cls is HogError or cls is HogDateTime or cls is HogDate:
        raise HogRuntimeError(f"Can not set {_shown(key)} on element of type object")
    else:
        raise HogRuntimeError(f"Can not set {_shown(key)} on non-object: {_TYPE_NAMES.get(cls, 'object')}")


_MEMBER_BYTES: Final = 64
_TYPE_NAMES: Final[dict[type, str]] = {str: "string", int: "number", float: "number", bool: "boolean"}


def _shown(key: Value) -> str:
    from hoglab.hog.rt.printing import to_string

    return to_string(key)[:100]


def copied(ctx: Context, value: Value) -> Value:
    """Copy a container that belongs to the globals, accounted for.

    Raises:
        HogRuntimeError: nested deeper than `MAX_DEPTH`.
        HogLimit: there is no room or no time left for it.
    """
    copy, parts = copy_parts(value)
    ctx.grow(sum(map(getsizeof, parts)))
    ctx.charge(1 + sum(len(part) for part in parts if part.__class__ is not HogError) // 4)
    return copy


def items(value: Value) -> list[tuple[Value, Value]]:
    """Return the pairs that `for (let k, v in value)` iterates over: a snapshot of keys and values.

    Arrays have positions from 0 as keys; null and values without members have none.
    """
    cls = value.__class__
    if cls is dict:
        _account(value)
        return items_of(value)
    if cls is list or cls is HogTuple:
        _account(value)
        return list(enumerate(value))
    return []


def keys(value: Value) -> list[Value]:
    """Return the keys of a dict, the positions (from 0) of an array or tuple, nothing for other values."""
    cls = value.__class__
    if cls is dict:
        _account(value)
        return keys_of(value)
    if cls is list or cls is HogTuple:
        _account(value)
        return list(range(len(value)))
    return []


def values(value: Value) -> list[Value]:
    """Return the values of a dict, the elements of an array or tuple (a copy), nothing for other values."""
    cls = value.__class__
    if cls is dict:
        _account(value)
        return list(value.values())
    if cls is list or cls is HogTuple:
        _account(value)
        return list(value)
    return []


def _account(container: list[Value] | dict[object, Value]) -> None:
    if len(container) > LONG:
        grow(8 * len(container))
        charge(len(container) >> 6)
