"""Library functions that look for something in a string.  spec: hog-language 10.3, 8.4."""

from functools import partial

from hoglab.hog.rt.coerce import ilike, like, regex
from hoglab.hog.rt.context import LONG, Context, charge
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.regex import compile_regex
from hoglab.hog.rt.text import utf16_length
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import function
from hoglab.hog.stdlib.strings import built

declare = partial(function, category="strings")


@declare(
    "startsWith",
    "text: any",
    "prefix: any",
    returns="boolean",
    cost="linear",
    infallible=True,
    doc="Whether the text starts with the prefix; false when either is not a string.",
    examples=(("startsWith('hello', 'he')", "true"), ("startsWith(null, 'a')", "false")),
)
def _starts_with(text: Value, prefix: Value) -> bool:
    if text.__class__ is not str or prefix.__class__ is not str:
        return False
    return bool(text.startswith(prefix))


def _find(text: str, wanted: str) -> int:
    index = text.find(wanted)
    return utf16_length(text[:index]) + 1 if index >= 0 else 0


@declare(
    "position",
    "text: any",
    "wanted: any",
    "ignored?: any",
    returns="integer",
    cost="linear",
    doc="Where `wanted` first occurs, counting from 1; 0 when it does not or when `text` is not a string.",
    examples=(("position('hello', 'l')", "3"), ("position('hello', 'x')", "0"), ("position('a1', 1)", "2")),
)
def _position(text: Value, wanted: Value, _ignored: Value = None) -> int:
    return _find(text, js_string(wanted)) if text.__class__ is str else 0


@declare(
    "positionCaseInsensitive",
    "text: any",
    "wanted: any",
    "ignored?: any",
    returns="integer",
    cost="linear",
    weight=2,
    doc="Like position, ignoring case.",
    examples=(("positionCaseInsensitive('Hello', 'L')", "3"), ("positionCaseInsensitive(null, 'a')", "0")),
)
def _position_any_case(text: Value, wanted: Value, _ignored: Value = None) -> int:
    return _find(text.lower(), js_string(wanted).lower()) if text.__class__ is str else 0


@declare(
    "match",
    "text: any",
    "pattern: string",
    returns="boolean",
    cost="linear",
    doc="Whether an RE2 regular expression matches anywhere in the text; false when either is null, "
    "false, 0 or empty.",
    examples=(
        (r"match('v12', '\\d+')", "true"),
        ("match('abc', '^b')", "false"),
        ("match(null, 'a')", "false"),
    ),
)
def _match(text: Value, pattern: Value) -> bool:
    return regex(text, pattern)


@declare(
    "extractRegex",
    "text: any",
    "pattern: any",
    returns="string",
    cost="linear",
    context=True,
    doc="The first group of an RE2 regular expression's first match, or the whole match when there is no "
    "group; empty when nothing matches.",
    examples=(
        (r"extractRegex('order 42', '(\\d+)')", "'42'"),
        ("extractRegex('abc', 'b.')", "'bc'"),
        ("extractRegex('abc', 'x')", "''"),
    ),
)
def _extract_regex(ctx: Context, text: Value, pattern: Value) -> str:
    if text is None or pattern is None:
        return ""
    source = js_string(text)
    wanted = js_string(pattern)
    if not wanted:
        return ""
    return built(ctx, compile_regex(wanted).extract(source) or "")


@declare(
    "like",
    "text: any",
    "pattern: any",
    returns="boolean",
    cost="linear",
    doc="Whether the pattern occurs in the text; % stands for any run of characters, _ for a single one.",
    examples=(("like('hello', 'h_l%')", "true"), ("like('hello', 'H%')", "false")),
)
def _like(text: Value, pattern: Value) -> bool:
    return like(text, pattern)


@declare(
    "ilike",
    "text: any",
    "pattern: any",
    returns="boolean",
    cost="linear",
    doc="Like like, ignoring case.",
    examples=(("ilike('Hello', '%ELL%')", "true"), ("ilike('Hello', 'x')", "false")),
)
def _ilike(text: Value, pattern: Value) -> bool:
    return ilike(text, pattern)


@declare(
    "notLike",
    "text: any",
    "pattern: any",
    returns="boolean",
    cost="linear",
    doc="The opposite of like.",
    examples=(
        ("notLike('hello', '%x%')", "true"),
        ("notLike('hello', 'ell')", "false"),
    ),
)
def _not_like(text: Value, pattern: Value) -> bool:
    return not like(text, pattern)


@declare(
    "notILike",
    "text: any",
    "pattern: any",
    returns="boolean",
    cost="linear",
    doc="The opposite of ilike.",
    examples=(
        ("notILike('hello', '%ELL%')", "false"),
        ("notILike('hello', 'x')", "true"),
    ),
)
def _not_ilike(text: Value, pattern: Value) -> bool:
    return not ilike(text, pattern)


@declare(
    "multiSearchAnyCaseInsensitive",
    "text: any",
    "wanted: array",
    returns="integer",
    cost="linear",
    doc="1 when any of the strings occurs in the text, ignoring case, else 0.",
    examples=(
        ("multiSearchAnyCaseInsensitive('Hello World', ['x', 'WORLD'])", "1"),
        ("multiSearchAnyCaseInsensitive('Hello', ['x'])", "0"),
        ("multiSearchAnyCaseInsensitive(null, ['x'])", "0"),
    ),
)
def _multi_search(text: Value, wanted: Value) -> int:
    if text is None or (wanted.__class__ is not list and wanted.__class__ is not HogTuple):
        return 0
    source = js_string(text).lower()
    for needle in wanted:
        if len(source) > LONG or len(wanted) > LONG:
            charge(1 + (len(source) >> 6))
        if js_string(needle).lower() in source:
            return 1
    return 0
