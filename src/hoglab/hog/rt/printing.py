"""Values as text: the printer, `toString`, and JavaScript's own String().  spec: hog-language 8.8, 8.9.

All three visit a value at most `MAX_NODES` parts wide and `MAX_DEPTH` levels deep, so that a small value
which contains itself many times over cannot keep the machine busy.
"""

from typing import Final

from hoglab.hog.errors import HogRuntimeError, quote
from hoglab.hog.rt.dates import date_text, datetime_text
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.values import (
    MAX_DEPTH,
    MAX_NODES,
    HogDate,
    HogDateTime,
    HogError,
    HogFunction,
    HogTuple,
    Value,
    function_text,
    keys_of,
    too_deep,
    too_large,
)

MAX_TEXT: Final = 64 * 1024 * 1024
"""Longest text that printing one value may give, in characters."""


def to_string(value: Value) -> str:
    """What `toString` gives: texts as they are, dates in ISO form, everything else as the printer has it."""
    cls = value.__class__
    if cls is str:
        return value  # type: ignore[no-any-return]
    if cls is int or cls is float:
        return format_number(value)
    if value is None:
        return "null"
    if cls is bool:
        return "true" if value else "false"
    if cls is HogDateTime:
        return datetime_text(value)
    if cls is HogDate:
        return date_text(value)
    return repr_value(value)


def concat_text(value: Value) -> str:
    """The text of one operand of `||`, `concat` or an f-string: as `to_string`, but nothing for null."""
    return "" if value is None else to_string(value)


def repr_value(value: Value) -> str:
    """The value as the printer shows it: like a Hog literal where there is one; cycles print as null.

    Raises:
        HogRuntimeError: too deep, too many parts or too long a text.
    """
    printer = _Printer()
    printer.write(value, 0)
    return "".join(printer.parts)


class _Printer:
    """One printing: the text so far, the containers on the way down, and how much was visited."""

    __slots__ = ("above", "nodes", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.above: set[int] = set()
        self.nodes = 0
        self.size = 0

    def write(self, value: Value, depth: int) -> None:
        cls = value.__class__
        if cls is str:
            text = quote(value)
            self.size += len(text)
            if self.size > MAX_TEXT:
                raise HogRuntimeError(f"Printed value is longer than {MAX_TEXT} characters")
            self.parts.append(text)
        elif cls is list or cls is HogTuple or cls is dict or cls is HogError:
            self.container(value, cls, depth)
        else:
            self.parts.append(_scalar_text(value, cls))

    def container(self, value: Value, cls: type, depth: int) -> None:
        identity = id(value)
        if identity in self.above:
            self.parts.append("null")
            return
        if depth > MAX_DEPTH:
            raise too_deep()
        self.above.add(identity)
        if cls is dict:
            self.members(value, depth + 1)
        elif cls is HogError:
            self.error(value, depth + 1)
        elif cls is list:
            self.elements(value, "[", "]", depth + 1)
        else:
            self.elements(value, "tuple(" if len(value) < 2 else "(", ")", depth + 1)
        self.above.discard(identity)

    def elements(self, items: list[Value], opening: str, closing: str, depth: int) -> None:
        self.count(len(items))
        parts = self.parts
        parts.append(opening)
        separator = ""
        for item in items:
            parts.append(separator)
            self.write(item, depth)
            separator = ", "
        parts.append(closing)

    def members(self, mapping: dict[object, Value], depth: int) -> None:
        self.count(2 * len(mapping))
        parts = self.parts
        separator = "{"
        for key, item in zip(keys_of(mapping), mapping.values(), strict=True):
            parts.append(separator)
            self.write(key, depth)
            parts.append(": ")
            self.write(item, depth)
            separator = ", "
        parts.append("}" if mapping else "{}")

    def error(self, error: HogError, depth: int) -> None:
        self.parts.append(error.type)
        self.parts.append("(")
        self.write(error.message, depth)
        if is_truthy(error.payload):
            self.parts.append(", ")
            self.write(error.payload, depth)
        self.parts.append(")")

    def count(self, parts: int) -> None:
        self.nodes += parts
        if self.nodes > MAX_NODES:
            raise too_large()


def is_truthy(value: Value) -> bool:
    """Hog's notion of true:

    everything but null, false, 0, NaN and the empty text.  spec: hog-language 8.2.
    """
    cls = value.__class__
    if cls is bool:
        return value  # type: ignore[no-any-return]
    if cls is str or cls is int:
        return bool(value)
    if cls is float:
        return bool(value > 0 or value < 0)
    return value is not None


def _scalar_text(value: Value, cls: type) -> str:
    if cls is int or cls is float:
        return format_number(value)
    if value is None:
        return "null"
    if cls is bool:
        return "true" if value else "false"
    if cls is HogDateTime:
        seconds = format_number(value.seconds)
        return f"DateTime({seconds if '.' in seconds else seconds + '.0'}, {quote(value.zone)})"
    if cls is HogDate:
        return f"Date({value.year}, {value.month}, {value.day})"
    if cls is HogFunction:
        return function_text(value)
    raise TypeError(f"{cls.__name__} is not a value of the Hog language")


def js_string(value: Value) -> str:
    """What JavaScript's String(value) gives:

    arrays are joined with commas, objects have no text of their own.
    """
    cls = value.__class__
    if cls is str:
        return value  # type: ignore[no-any-return]
    if cls is int or cls is float:
        return format_number(value)
    if value is None:
        return "null"
    if cls is bool:
        return "true" if value else "false"
    if cls is list or cls is HogTuple:
        return js_join(value, ",")
    return "[object Map]" if cls is dict else "[object Object]"


def js_join(items: list[Value], separator: str) -> str:
    """What JavaScript's join gives: null and cycles are empty, arrays inside are joined with commas.

    Raises:
        HogRuntimeError: too deep, too many parts or too long a text.
    """
    return _Joiner().join(items, separator, 0)


class _Joiner:
    """One joining of nested arrays."""

    __slots__ = ("above", "nodes", "size")

    def __init__(self) -> None:
        self.above: set[int] = set()
        self.nodes = 0
        self.size = 0

    def join(self, items: list[Value], separator: str, depth: int) -> str:
        if id(items) in self.above:
            return ""
        if depth > MAX_DEPTH:
            raise too_deep()
        self.nodes += len(items)
        if self.nodes > MAX_NODES:
            raise too_large()
        self.above.add(id(items))
        parts = [self.text(item, depth) for item in items]
        self.above.discard(id(items))
        self.size += sum(map(len, parts)) + len(separator) * len(parts)
        if self.size > MAX_TEXT:
            raise HogRuntimeError(f"Joined text is longer than {MAX_TEXT} characters")
        return separator.join(parts)

    def text(self, item: Value, depth: int) -> str:
        if item is None:
            return ""
        if item.__class__ is list or item.__class__ is HogTuple:
            return self.join(item, ",", depth + 1)
        return js_string(item)
