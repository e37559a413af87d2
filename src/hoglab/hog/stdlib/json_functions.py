"""Library functions for JSON text.  spec: hog-language 10.5, 8.13."""

import math
from functools import partial

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.access import get_property
from hoglab.hog.rt.coerce import read_float_prefix, read_integer_prefix
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.json_text import parse, stringify
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="json", cost="linear")


@declare(
    "jsonParse",
    "text: any",
    returns="any",
    doc="The value that a JSON text stands for; fails when it is not JSON.",
    examples=(
        ("""jsonParse('{"b": [1, 2.0], "1": null}')""", "{'1': null, 'b': [1, 2]}"),
        ("jsonParse(5)", "5"),
    ),
)
def _json_parse(text: Value) -> Value:
    return parse(text if text.__class__ is str else js_string(text))


@declare(
    "jsonStringify",
    "value: any",
    "indent?: integer",
    returns="string",
    doc="The value as JSON text, compact or indented by a number of spaces (at most 10).",
    examples=(
        ("jsonStringify({'a': [1, 2.0, null]})", """'{"a":[1,2,null]}'"""),
        ("jsonStringify([1], 2)", r"'[\n  1\n]'"),
        ("jsonStringify('é')", "'\"é\"'"),
    ),
)
def _json_stringify(value: Value, indent: Value = None) -> str:
    if (indent.__class__ is not int and indent.__class__ is not float) or indent != indent:
        return stringify(value)
    return stringify(value, math.floor(min(10, max(0, indent))))


@declare(
    "isValidJSON",
    "text: any",
    returns="boolean",
    doc="Whether the text is JSON.",
    examples=(
        ("""isValidJSON('{"a": 1}')""", "true"),
        ("isValidJSON('{a: 1}')", "false"),
        ("isValidJSON(null)", "true"),
    ),
)
def _is_valid_json(text: Value) -> bool:
    return _parsed(js_string(text))[0]


def _parsed(text: str) -> tuple[bool, Value]:
    try:
        return True, parse(text)
    except HogRuntimeError:
        return False, None


# Paths


def _is_container(value: Value) -> bool:
    return value.__class__ is dict or value.__class__ is list or value.__class__ is HogTuple


def _root(value: Value) -> Value:
    """Return the first argument of a JSON function, read as JSON when it is text."""
    return _parsed(value)[1] if value.__class__ is str else value


def _at(value: Value, path: tuple[Value, ...]) -> Value:
    """Return the value at a path into an object or array, null when there is none."""
    current = _root(value)
    if not _is_container(current):
        return None
    for step in path:
        if not _is_container(current):
            return None
        current = get_property(current, step) if _selects(current, step) else None
    return current


def _selects(container: Value, step: Value) -> bool:
    """Return whether a step can select a member: names do not select elements of arrays."""
    return container.__class__ is dict or step.__class__ is int or step.__class__ is float


def _has(container: Value, step: Value) -> bool:
    if container.__class__ is dict:
        return dict_key(step) in container
    if container.__class__ is list or container.__class__ is HogTuple:
        if step.__class__ is not int and (step.__class__ is not float or not step.is_integer()):
            return False
        return step != 0 and -len(container) <= step <= len(container)
    return False


@declare(
    "JSONHas",
    "json: any",
    "path...: any",
    returns="boolean",
    doc="Whether there is anything at the path. Array positions count from 1, or from the end when "
    "negative; text on the way is read as JSON.",
    examples=(
        ("""JSONHas('{"a": [1, 2]}', 'a', 2)""", "true"),
        ("""JSONHas('{"a": [1, 2]}', 'a', 3)""", "false"),
        ("JSONHas({'a': null}, 'a')", "true"),
    ),
)
def _json_has(json: Value, *path: Value) -> bool:
    current = json
    for step in path:
        current = _root(current)
        if not _has(current, step):
            return False
        current = get_property(current, step)
    return True


@declare(
    "JSONLength",
    "json: any",
    "path...: any",
    returns="integer",
    doc="The number of elements or members at the path, 0 when there is neither an array nor an object.",
    examples=(
        ("""JSONLength('{"a": [1, 2, 3]}', 'a')""", "3"),
        ("""JSONLength('{"a": 1, "b": 2}')""", "2"),
        ("""JSONLength('{"a": "text"}', 'a')""", "0"),
    ),
)
def _json_length(json: Value, *path: Value) -> int:
    member = _at(json, path)
    return len(member) if _is_container(member) else 0


@declare(
    "JSONExtractBool",
    "json: any",
    "path...: any",
    returns="boolean",
    doc="Whether the value at the path is true.",
    examples=(
        ("""JSONExtractBool('{"a": true}', 'a')""", "true"),
        ("""JSONExtractBool('{"a": 1}', 'a')""", "false"),
        ("JSONExtractBool('true')", "true"),
    ),
)
def _json_extract_bool(json: Value, *path: Value) -> bool:
    member = _at(json, path) if path else _root(json)
    return member is True


@declare(
    "JSONExtractInt",
    "json: any",
    "path...: any",
    returns="number|null",
    doc="The integer that the text of the value at the path starts with, null when there is none.",
    examples=(
        ("""JSONExtractInt('{"a": "12x"}', 'a')""", "12"),
        ("""JSONExtractInt('{"a": [7.9]}', 'a', 1)""", "7"),
        ("""JSONExtractInt('{"a": 1}', 'b')""", "null"),
    ),
)
def _json_extract_int(json: Value, *path: Value) -> int | float | None:
    return read_integer_prefix(js_string(_at(json, path)))


@declare(
    "JSONExtractFloat",
    "json: any",
    "path...: any",
    returns="number|null",
    doc="The number that the text of the value at the path starts with, null when there is none.",
    examples=(
        ("""JSONExtractFloat('{"a": "1.5x"}', 'a')""", "1.5"),
        ("""JSONExtractFloat('{"a": true}', 'a')""", "null"),
    ),
)
def _json_extract_float(json: Value, *path: Value) -> int | float | None:
    return read_float_prefix(js_string(_at(json, path)))


@declare(
    "JSONExtractString",
    "json: any",
    "path...: any",
    returns="string|null",
    doc="The value at the path as text: arrays of plain values are joined with commas, other containers "
    "give JSON. null when there is none.",
    examples=(
        ("""JSONExtractString('{"a": "x"}', 'a')""", "'x'"),
        ("""JSONExtractString('{"a": [1, 2]}', 'a')""", "'1,2'"),
        ("""JSONExtractString('{"a": {"b": 1}}', 'a')""", """'{"b":1}'"""),
        ("""JSONExtractString('{"a": null}', 'a')""", "null"),
    ),
)
def _json_extract_string(json: Value, *path: Value) -> str | None:
    member = _at(json, path)
    if member is None:
        return None
    if member.__class__ is dict or (_is_container(member) and any(_is_container(item) for item in member)):
        return stringify(member)
    return js_string(member)


@declare(
    "JSONExtractArrayRaw",
    "json: any",
    "path...: any",
    returns="array|tuple|null",
    doc="The array at the path, null when there is none.",
    examples=(
        ("""JSONExtractArrayRaw('{"a": [1, "x"]}', 'a')""", "[1, 'x']"),
        ("""JSONExtractArrayRaw('{"a": 1}', 'a')""", "null"),
    ),
)
def _json_extract_array(json: Value, *path: Value) -> list[Value] | None:
    member = _at(json, path)
    return member if member.__class__ is list or member.__class__ is HogTuple else None


@declare(
    "JSONExtract",
    "json: any",
    "path_or_type: any",
    "more...: any",
    returns="any",
    doc="The value at the path, null when there is none. The last argument names a type and is not used.",
    examples=(
        ("""JSONExtract('{"a": {"b": 2}}', 'a', 'b', 'Int')""", "2"),
        ("""JSONExtract('{"a": 1}', 'b', 'Int')""", "null"),
    ),
)
def _json_extract(json: Value, *path_and_type: Value) -> Value:
    return _at(json, path_and_type[:-1])
