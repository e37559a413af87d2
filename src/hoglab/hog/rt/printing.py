"""Values as text: the printer, `toString`, and JavaScript's own String().  spec: hog-language 8.8, 8.9.

All three visit a value at most `MAX_NODES` parts wide and `MAX_DEPTH` levels deep, so that a small value
which contains itself many times over cannot keep the machine busy.
"""

from typing import Final

from hoglab.hog.errors import HogRuntimeError, quote
from hoglab.hog.rt.context import LONG, charge, grow
from hoglab.hog.rt.dates import date_text, datetime_text
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.sql_text import AST_KEY, is_node, query_text
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
    items_of,
    too_deep,
    too_large,
)

MAX_TEXT: Final = 64 * 1024 * 1024
"""Longest text that printing one value may give, in characters."""

FEW: Final = 100
"""Number of parts that are visited without a charge."""

MAX_KEY_PARTS: Final = 100
"""Maximum number of parts of a container that is used as a key of an object."""

MAX_KEY_TEXT: Final = 10_000
"""Longest key that a container may give."""


class PrintingState:
    """Progress of one printing: the open containers, the number of values, the length of the text."""

    __slots__ = ("above", "charged", "charged_text", "max_parts", "max_text", "parts", "text")

    def __init__(self, max_parts: int = MAX_NODES, max_text: int = MAX_TEXT) -> None:
        self.above: set[int] = set()
        self.parts = 0
        self.charged = 0
        self.text = 0
        self.charged_text = 0
        self.max_parts = max_parts
        self.max_text = max_text

    def enter(self, container: Value, parts: int, depth: int) -> bool:
        """Open a container; return False when it is already open, which makes a cycle."""
        if id(container) in self.above:
            return False
        if depth > MAX_DEPTH:
            raise too_deep()
        self.above.add(id(container))
        self.parts += parts
        if self.parts > self.max_parts:
            raise too_large(self.max_parts)
        if self.parts - self.charged > FEW:
            charge(self.parts - self.charged)
            self.charged = self.parts
        return True

    def leave(self, container: Value) -> None:
        """End a container."""
        self.above.discard(id(container))

    def add_text(self, length: int) -> None:
        """Account for text about to be added."""
        self.text += length
        if self.text - self.charged_text > LONG:
            charge((self.text - self.charged_text) >> 5)
            self.charged_text = self.text
        if self.text > self.max_text:
            raise HogRuntimeError(f"Text of a value is longer than {self.max_text} characters")


def to_string(value: Value) -> str:
    """Return the result of `toString`: texts unchanged, dates in ISO form, everything else as printed."""
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
    """Write one operand of `||`, `concat` or an f-string: like `to_string`, but empty for null."""
    return "" if value is None else to_string(value)


def repr_value(value: Value) -> str:
    """Print the value: as a Hog literal where there is one; cycles print as null.

    Raises:
        HogRuntimeError: too deep, too many parts or too long a text.
    """
    return _print(value, PrintingState())


def repr_key(value: Value) -> str:
    """Return the text under which a container is stored when it is used as a key of an object.

    Raises:
        HogRuntimeError: more than `MAX_KEY_PARTS` parts or `MAX_KEY_TEXT` characters.
    """
    return _print(value, PrintingState(MAX_KEY_PARTS, MAX_KEY_TEXT))


def _print(value: Value, extent: PrintingState) -> str:
    cls = value.__class__
    if cls is not list and cls is not HogTuple and cls is not dict and cls is not HogError:
        return quote(value) if cls is str else _scalar_text(value, cls)
    printer = _Printer(extent)
    printer.write(value, 0)
    if extent.text > LONG:
        grow(extent.text)
    return "".join(printer.out)


class _Printer:
    """One printing: the text so far and its extent."""

    __slots__ = ("extent", "out")

    def __init__(self, extent: PrintingState) -> None:
        self.extent = extent
        self.out: list[str] = []

    def write(self, value: Value, depth: int) -> None:
        cls = value.__class__
        if cls is list or cls is HogTuple or cls is dict or cls is HogError:
            self.container(value, cls, depth)
            return
        if cls is str:
            self.extent.add_text(len(value) + 2)
            self.out.append(quote(value))
        else:
            self.out.append(_scalar_text(value, cls))

    def container(self, value: Value, cls: type, depth: int) -> None:
        parts = 2 if cls is HogError else len(value)
        if not self.extent.enter(value, parts, depth):
            self.out.append("null")
            return
        if cls is dict:
            if AST_KEY in value and is_node(value):
                self.query(value, depth + 1)
            else:
                self.members(value, depth + 1)
        elif cls is HogError:
            self.error(value, depth + 1)
        elif cls is list:
            self.elements(value, "[", "]", depth + 1)
        else:
            self.elements(value, "tuple(" if len(value) < 2 else "(", ")", depth + 1)
        self.extent.leave(value)

    def elements(self, items: list[Value], opening: str, closing: str, depth: int) -> None:
        out = self.out
        out.append(opening)
        separator = ""
        for item in items:
            out.append(separator)
            self.write(item, depth)
            separator = ", "
        out.append(closing)

    def members(self, mapping: dict[object, Value], depth: int) -> None:
        out = self.out
        separator = "{"
        for key, item in items_of(mapping):
            out.append(separator)
            self.write(key, depth)
            out.append(": ")
            self.write(item, depth)
            separator = ", "
        out.append("}" if mapping else "{}")

    def query(self, node: dict[object, Value], depth: int) -> None:
        def value_text(value: Value) -> str:
            inner = _Printer(self.extent)
            inner.write(value, depth)
            return "".join(inner.out)

        self.out.append(f"sql({query_text(node, self.extent, depth, value_text)})")

    def error(self, error: HogError, depth: int) -> None:
        self.out.append(error.type)
        self.out.append("(")
        self.write(error.message, depth)
        if is_truthy(error.payload):
            self.out.append(", ")
            self.write(error.payload, depth)
        self.out.append(")")


def is_truthy(value: Value) -> bool:
    """Return whether a value is true: all but null, false, 0, NaN and the empty text are.  spec: hog-language 8.2."""
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
    """Convert a value as JavaScript's String does: arrays are joined with commas, objects have no text of their own."""
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
    """Join values as JavaScript's join does: null and cycles are empty, arrays inside are joined with commas.

    Raises:
        HogRuntimeError: too deep, too many parts or too long a text.
    """
    extent = PrintingState()
    text = _join(items, separator, extent, 0)
    if len(text) > LONG:
        grow(len(text))
    return text


def _join(items: list[Value], separator: str, extent: PrintingState, depth: int) -> str:
    if not extent.enter(items, len(items), depth):
        return ""
    extent.add_text(len(separator) * len(items))
    texts = []
    for item in items:
        if item.__class__ is str:
            extent.add_text(len(item))
            texts.append(item)
        elif item.__class__ is list or item.__class__ is HogTuple:
            texts.append(_join(item, ",", extent, depth + 1))
        elif item is not None:
            texts.append(js_string(item))
        else:
            texts.append("")
    extent.leave(items)
    return separator.join(texts)


_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
    HogTuple: "tuple",
    HogDateTime: "datetime",
    HogDate: "date",
    HogError: "error",
    HogFunction: "function",
}


def type_name(value: Value) -> str:
    """Return the name that `typeof` has for a value; integral numbers are integers.

    spec: hog-language 8.1.
    """
    cls = value.__class__
    if cls is float:
        return "integer" if value.is_integer() else "float"
    if cls is dict:
        return "sql" if AST_KEY in value else "object"
    return _TYPE_NAMES.get(cls, "unknown")
