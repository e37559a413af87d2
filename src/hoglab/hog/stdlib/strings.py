"""Library functions that make strings from strings.  Positions and lengths count UTF-16 units.

spec: hog-language 10.3, 9 (D4, D15).
"""

import math
from functools import partial
from typing import Final

from hoglab.hog.rt.coerce import to_number
from hoglab.hog.rt.context import LONG, Context
from hoglab.hog.rt.numbers import to_double
from hoglab.hog.rt.printing import concat_text, js_string
from hoglab.hog.rt.text import joined, units, utf16_length, utf16_reversed, utf16_slice
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import expect_string, function

declare = partial(function, category="strings")


def built(ctx: Context, text: str) -> str:
    """Account for a text that a function made."""
    ctx.grow(len(text))
    return text


@declare(
    "concat",
    "value: any",
    "others...: any",
    returns="string",
    cost="linear",
    context=True,
    doc="All arguments joined as text. null gives nothing, dates their ISO form, containers look like "
    "literals.",
    examples=(
        ("concat('a', 1, null, 2.5, true)", "'a12.5true'"),
        ("concat('tags: ', ['x', 1])", r"'tags: [\'x\', 1]'"),
    ),
)
def _concat(ctx: Context, *values: Value) -> str:
    texts = [value if value.__class__ is str else concat_text(value) for value in values]
    ctx.grow(sum(map(len, texts)))
    return "".join(texts)


@declare(
    "length",
    "value: any",
    returns="integer|null",
    cost="linear",
    infallible=True,
    doc="The number of UTF-16 units of a string or of elements of an array or tuple; null for everything "
    "else.",
    examples=(
        ("length('héllo😀')", "7"),
        ("length([1, 2])", "2"),
        ("length(null)", "null"),
        ("length({'a': 1})", "null"),
    ),
)
def _length(value: Value) -> int | None:
    cls = value.__class__
    if cls is str:
        return utf16_length(value)
    if cls is list or cls is HogTuple:
        return len(value)
    return None


@declare(
    "lower",
    "text: string|null",
    returns="string|null",
    cost="linear",
    context=True,
    doc="The text in lower case; null stays null.",
    examples=(("lower('ÀB')", "'àb'"), ("lower(null)", "null")),
)
def _lower(ctx: Context, text: Value) -> str | None:
    return None if text is None else built(ctx, expect_string("lower", text).lower())


@declare(
    "upper",
    "text: string|null",
    returns="string|null",
    cost="linear",
    context=True,
    doc="The text in upper case; null stays null.",
    examples=(("upper('straße')", "'STRASSE'"), ("upper(null)", "null")),
)
def _upper(ctx: Context, text: Value) -> str | None:
    return None if text is None else built(ctx, expect_string("upper", text).upper())


@declare(
    "reverse",
    "text: string|null",
    returns="string|null",
    cost="linear",
    context=True,
    doc="The text backwards; null stays null.",
    examples=(("reverse('abc')", "'cba'"), ("reverse(null)", "null")),
)
def _reverse(ctx: Context, text: Value) -> str | None:
    return None if text is None else built(ctx, utf16_reversed(expect_string("reverse", text)))


@declare(
    "substring",
    "text: any",
    "start: number",
    "length?: number",
    returns="string",
    cost="linear",
    context=True,
    doc="A part of the text, `start` counting from 1, up to `length` long or to the end. Empty for a "
    "start below 1 or past the end, a negative length, and anything that is not a string.",
    examples=(
        ("substring('hello', 2, 3)", "'ell'"),
        ("substring('hello', 4)", "'lo'"),
        ("substring('hello', 0)", "''"),
        ("substring(null, 1)", "''"),
    ),
)
def _substring(ctx: Context, text: Value, start: Value, length: Value = None) -> str:
    if text.__class__ is not str:
        return ""
    if start.__class__ is int and length.__class__ is int and start > 0 <= length < LONG and text.isascii():
        return text[start - 1 : start - 1 + length]  # short: not accounted for
    first = to_number(start)
    count: int | float = math.inf if length is None else to_number(length)
    if not first >= 1 or not count >= 0:
        return ""
    size = 2 * len(text)  # in units at most
    begin = min(first - 1, size)
    return built(ctx, utf16_slice(text, math.floor(begin), math.floor(begin + min(count, size))))


@declare(
    "replaceOne",
    "text: string|null",
    "search: string",
    "replacement: string",
    returns="string|null",
    cost="growing",
    context=True,
    doc="The text with the first occurrence of `search` replaced, both taken literally; null stays null.",
    examples=(("replaceOne('a-b-c', '-', '+')", "'a+b-c'"), ("replaceOne(null, 'a', 'b')", "null")),
)
def _replace_one(ctx: Context, text: Value, search: Value, replacement: Value) -> str | None:
    return _replace(ctx, "replaceOne", text, search, replacement, 1)


@declare(
    "replaceAll",
    "text: string|null",
    "search: string",
    "replacement: string",
    returns="string|null",
    cost="growing",
    context=True,
    doc="The text with every occurrence of `search` replaced, both taken literally; an empty `search` is "
    "found around every character. null stays null.",
    examples=(
        ("replaceAll('a-b-c', '-', '+')", "'a+b+c'"),
        ("replaceAll('abc', '', '.')", "'.a.b.c.'"),
        ("replaceAll('aXb', 'X', '$&')", "'a$&b'"),
    ),
)
def _replace_all(ctx: Context, text: Value, search: Value, replacement: Value) -> str | None:
    return _replace(ctx, "replaceAll", text, search, replacement, -1)


def _replace(
    ctx: Context, name: str, text: Value, search: Value, replacement: Value, most: int
) -> str | None:
    if text is None:
        return None
    source = expect_string(name, text)
    old = js_string(search)
    new = js_string(replacement)
    if not old:
        source = units(source)
    occurrences = source.count(old)
    if 0 <= most < occurrences:
        occurrences = most
    size = len(source) + occurrences * (len(new) - len(old))
    ctx.grow(size)
    if size > LONG:
        ctx.charge(size >> 6)
    replaced = source.replace(old, new, most)
    return replaced if old else joined(replaced)


_ONE_CHARACTER: Final = 1


def _trimmed(ctx: Context, name: str, text: Value, character: Value, left: bool, right: bool) -> str | None:
    if text is None:
        return None
    if character is None:
        character = " "
    if character.__class__ is not str or utf16_length(character) != _ONE_CHARACTER:
        return ""
    source = expect_string(name, text)
    if left:
        source = source.lstrip(character)
    return built(ctx, source.rstrip(character) if right else source)


@declare(
    "trim",
    "text: string|null",
    "character?: string",
    returns="string|null",
    cost="linear",
    context=True,
    doc="The text without spaces, or without the given character, at both ends. Tabs and line breaks "
    "stay. The character must be a single one, otherwise the result is empty.",
    examples=(("trim('  a b ')", "'a b'"), ("trim('--a--', '-')", "'a'"), ("trim('xay', 'xy')", "''")),
)
def _trim(ctx: Context, text: Value, character: Value = None) -> str | None:
    return _trimmed(ctx, "trim", text, character, True, True)


@declare(
    "trimLeft",
    "text: string|null",
    "character?: string",
    returns="string|null",
    cost="linear",
    context=True,
    doc="Like trim, at the start only.",
    examples=(("trimLeft('  a ')", "'a '"), ("trimLeft('00120', '0')", "'120'")),
)
def _trim_left(ctx: Context, text: Value, character: Value = None) -> str | None:
    return _trimmed(ctx, "trimLeft", text, character, True, False)


@declare(
    "trimRight",
    "text: string|null",
    "character?: string",
    returns="string|null",
    cost="linear",
    context=True,
    doc="Like trim, at the end only.",
    examples=(("trimRight(' a  ')", "' a'"), ("trimRight('1.500', '0')", "'1.5'")),
)
def _trim_right(ctx: Context, text: Value, character: Value = None) -> str | None:
    return _trimmed(ctx, "trimRight", text, character, False, True)


@declare(
    "splitByString",
    "separator: string",
    "text: string|null",
    "max_parts?: integer",
    returns="array|null",
    cost="growing",
    context=True,
    doc="The parts of the text between separators; with `max_parts` only the first ones. An empty "
    "separator gives the characters. null stays null.",
    examples=(
        ("splitByString(',', 'a,b,c')", "['a', 'b', 'c']"),
        ("splitByString(',', 'a,b,c', 2)", "['a', 'b']"),
        ("splitByString('', 'ab')", "['a', 'b']"),
        ("splitByString(',', '')", "['']"),
    ),
)
def _split(ctx: Context, separator: Value, text: Value, max_parts: Value = None) -> list[str] | None:
    if text is None:
        return None
    source = expect_string("splitByString", text)
    between = js_string(separator)
    most = _part_limit(max_parts)
    parts = min(source.count(between) + 1 if between else utf16_length(source), most)
    ctx.grow(len(source) + 64 * parts)
    if parts > LONG:
        ctx.charge(parts >> 3)
    if not between:
        return list(units(source)[:parts])
    return source.split(between, parts)[:parts] if parts else []


def _part_limit(max_parts: Value) -> int:
    """Return JavaScript's limit of split(): the number modulo 2^32."""
    if max_parts is None:
        return 2**32 - 1
    number = to_number(max_parts)
    return math.trunc(to_double(number)) % 2**32 if number - number == 0 else 0
