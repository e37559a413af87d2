"""JSON text to Hog values and back, as JavaScript's JSON.parse and JSON.stringify do it.  spec.

Hog-language 8.13.

orjson does the work whenever its answer is known to be JavaScript's; a look at the text or at the value
decides that.  Everything else (marker objects, keys that look like integers, integral floats, cycles, lone
surrogates) takes the slower way through this module.
"""

import json
from collections.abc import Collection
from operator import itemgetter
from typing import Any, Final, NoReturn

import orjson

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import LONG, charge, grow
from hoglab.hog.rt.conversion import from_json, index_keys_first, key_text, marker_of
from hoglab.hog.rt.numbers import LEAST_STORED, MOST_STORED, format_number, integer_prefix, number_from_text
from hoglab.hog.rt.printing import MAX_TEXT, PrintingState
from hoglab.hog.rt.regex import build_matcher
from hoglab.hog.rt.text import clean
from hoglab.hog.rt.values import (
    CONTAINER_COST,
    ENTRY_COST,
    MAX_DEPTH,
    HogFunction,
    HogTuple,
    Value,
    function_text,
)

# What makes parsed values differ from JavaScript's: markers and integer-like keys.
_SPECIAL: Final = build_matcher(r'__hog|"[0-9]{1,10}"[ \t\r\n]*:', False)

_NOT_JSON: Final = "Invalid JSON"


def parse(text: str) -> Value:
    """Return the value of a JSON text.

    Marker objects become datetimes, dates and errors; integer-like keys come first; integers of 64 bits stay exact, all
    other numbers are doubles.

    Raises:
        HogRuntimeError: not JSON, or nested deeper than `MAX_DEPTH`.
    """
    openings = text.count("{") + text.count("[")
    if len(text) > LONG:
        charge(len(text) >> 5)
    grow(len(text) + CONTAINER_COST * openings + ENTRY_COST * text.count(":") + 8 * text.count(","))
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        charge(len(text) >> 5)
        value = _parse_slowly(text)
    if value.__class__ is str or value is None:
        return value
    if openings > MAX_DEPTH or _SPECIAL.search(text):
        charge(text.count(",") + openings)
        return from_json(value)
    return value


def _parse_slowly(text: str) -> Value:
    """Parse a text that orjson refuses and JavaScript accepts: lone surrogates, numbers beyond the doubles."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise HogRuntimeError(_NOT_JSON) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _number(text: str) -> int | float:
    charge(1)
    return number_from_text(text)


def _integer(text: str) -> int | float:
    charge(1)
    number = integer_prefix(text)
    assert number is not None  # noqa: S101 - the decoder has found digits
    return number


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer, parse_float=_number)


def stringify(value: Value, indent: int = 0) -> str:
    """Write the JSON text of a value: compact, or over several lines indented by `indent` (at most 10) spaces.

    Temporal values and errors are marker objects, functions their printed form; NaN, infinities and cycles
    are null; integer-like keys come first.

    Raises:
        HogRuntimeError: too deep, too many parts or too long a text.
    """
    cls = value.__class__
    if cls is str and value.isascii():
        grow(2 * len(value))
        if len(value) > LONG:
            charge(len(value) >> 6)
        return orjson.dumps(value).decode()
    if indent <= 0 and (cls is dict or cls is list or cls is HogTuple):
        size = _plain_size(value)
        if size:
            grow(size)
            if size > LONG:
                charge(size >> 5)
            try:
                return orjson.dumps(value).decode()
            except (TypeError, RecursionError):  # lone surrogates, more than 254 levels
                pass
    writer = _Writer(min(indent, 10))
    writer.write(value, 0)
    grow(writer.extent.text)
    return "".join(writer.out)


def _plain_size(value: Value) -> int:
    """Return the approximate length of a value's text, if orjson writes it as JavaScript would; else 0.

    Plain values are trees of objects whose keys are texts without a leading digit, arrays, texts,
    integers of 64 bits and ordinary fractions.
    """
    pending = [value]
    seen = set()
    size, charged = 1, 0
    while pending:
        if size - charged > LONG:  # each container is looked into, and each part of it
            charge((size - charged) >> 3)
            charged = size
        container = pending.pop()
        if id(container) in seen:
            return 0
        seen.add(id(container))
        size += 8 * len(container)
        items: Collection[Value] = container
        if container.__class__ is dict:
            try:
                size += sum(map(len, container))
                numbered = not _DIGITS.isdisjoint(map(_first, container))
            except (TypeError, IndexError):  # a key that is no text, or empty
                return 0
            if numbered:
                return 0
            items = container.values()
        classes = set(map(type, items))
        if classes == _TEXTS:
            size += sum(map(len, items))
        elif not classes <= _SIMPLE:
            for item in items:
                added = _plain_item(item, pending)
                if added < 0:
                    return 0
                size += added
    return size if size <= MAX_TEXT else 0


_first: Final = itemgetter(0)
_DIGITS: Final = frozenset("0123456789")
_TEXTS: Final = frozenset({str})
_SIMPLE: Final = frozenset({bool, type(None)})


def _plain_item(item: Value, pending: list[Any]) -> int:
    """Return the length that a member adds; -1 when orjson might write it otherwise. Containers wait in `pending`."""
    cls = item.__class__
    if cls is str:
        return len(item)
    if cls is dict or cls is list or cls is HogTuple:
        pending.append(item)
    elif cls is int:
        if not LEAST_STORED <= item <= MOST_STORED:
            return -1
    elif item is not None and cls is not bool and (cls is not float or not _ordinary_fraction(item)):
        return -1
    return 0


def _ordinary_fraction(number: float) -> bool:
    """Return whether orjson and JavaScript write the number alike: not integral, no exponent."""
    return (0.001 <= number < 1e15 or -1e15 < number <= -0.001) and not number.is_integer()


class _Writer:
    """One serialisation in JavaScript's way."""

    __slots__ = ("extent", "indent", "out")

    def __init__(self, indent: int) -> None:
        self.extent = PrintingState()
        self.indent = indent
        self.out: list[str] = []

    def write(self, value: Value, depth: int) -> None:
        cls = value.__class__
        if cls is dict:
            if self.extent.enter(value, 2 * len(value), depth):
                self.members(value, depth)
                self.extent.leave(value)
            else:
                self.put("null")
        elif cls is list or cls is HogTuple:
            if self.extent.enter(value, len(value), depth):
                self.elements(value, depth)
                self.extent.leave(value)
            else:
                self.put("null")
        else:
            self.scalar(value, cls, depth)

    def scalar(self, value: Value, cls: type, depth: int) -> None:
        if cls is str:
            self.extent.add_text(len(value) + 2)
            self.out.append(_quoted(value))
        elif value is None:
            self.put("null")
        elif cls is bool:
            self.put("true" if value else "false")
        elif cls is int or cls is float:
            text = format_number(value)
            self.put("null" if text in _NOT_FINITE else text)
        elif cls is HogFunction:
            self.put(_quoted(function_text(value)))
        else:
            marker = marker_of(value)
            if marker is None:
                raise TypeError(f"{cls.__name__} is not a value of the Hog language")
            if self.extent.enter(value, len(marker), depth):
                self.members(marker, depth)
                self.extent.leave(value)
            else:
                self.put("null")

    def members(self, mapping: dict[Any, Value], depth: int) -> None:
        named = index_keys_first({key_text(key): item for key, item in mapping.items()})
        if not named:
            self.put("{}")
            return
        opening, between, closing = self.breaks(depth)
        colon = ": " if self.indent else ":"
        separator = "{" + opening
        for key, item in named.items():
            self.put(f"{separator}{_quoted(key)}{colon}")
            self.write(item, depth + 1)
            separator = between
        self.put(closing + "}")

    def elements(self, items: list[Value], depth: int) -> None:
        if not items:
            self.put("[]")
            return
        opening, between, closing = self.breaks(depth)
        separator = "[" + opening
        for item in items:
            self.put(separator)
            self.write(item, depth + 1)
            separator = between
        self.put(closing + "]")

    def breaks(self, depth: int) -> tuple[str, str, str]:
        """Return the separators after an opening bracket, between parts and before the closing bracket."""
        if self.indent <= 0:
            return "", ",", ""
        inner = "\n" + " " * (self.indent * (depth + 1))
        return inner, "," + inner, "\n" + " " * (self.indent * depth)

    def put(self, text: str) -> None:
        self.extent.add_text(len(text))
        self.out.append(text)


_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def _quoted(text: str) -> str:
    return orjson.dumps(clean(text)).decode()
