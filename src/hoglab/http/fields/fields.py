"""Field types of request bodies and queries: what the wire accepts, and what it says when it does not.

A schema is a `WireModel` whose fields carry one of the markers below::

    class ExperimentIn(WireModel):
        name: Annotated[str, Text(max_length=400)]
        description: Annotated[str, Text(max_length=3000, blank=True)] | None = ""
        archived: Annotated[bool, Bool()] = False
        start_date: Annotated[datetime, Moment()] | None = None
        parameters: Annotated[dict[str, Any], JsonObject()] | None = None

``| None`` makes a field nullable; a default makes it optional. ``model_fields_set`` tells what was sent.
Coercions, codes and texts: spec experiments-api 1.5. Leave ``from __future__ import annotations`` out of
modules that define schemas, so that linters know that Pydantic evaluates the annotations.
"""

import ast
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hoglab.http.fields.dates import parse_moment
from hoglab.http.fields.notes import Notes, annotate

MAX_NUMBER_TEXT = 1000
"""Longest text that is tried as a number."""

_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "off", "0"})
_DATETIME_HINT = "YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z]"


class WireModel(BaseModel):
    """A body or query: unknown keys have no effect; a field whose wire name is no Python name has an alias."""

    model_config = ConfigDict(extra="ignore")

    notes: ClassVar[Notes] = {}
    """Descriptions of the fields in the documents."""
    closed: ClassVar[bool] = False
    """Whether unknown keys are refused wherever such an object stands in a body (http/fields/unknown_keys.py)."""
    unused: ClassVar[Collection[str]] = ()
    """Keys that clients are known to send beside the fields, and that have no effect."""
    mistakable: ClassVar[Mapping[str, str]] = {}
    """Keys that look right, and which one is meant by them."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = handler(schema)
        resolved = handler.resolve_ref_schema(described)
        resolved.setdefault("description", inspect.getdoc(cls))
        properties = resolved.get("properties", {})
        for name, text in attribute_docstrings(cls).items():
            if cls.model_fields[name].description is None:
                properties[cls.model_fields[name].alias or name]["description"] = text
        annotate(properties, cls.notes)
        return described

    def sent(self) -> dict[str, Any]:
        """Return the fields that came with the request, by their Python names, nested models as they are."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }


def attribute_docstrings(model: type[WireModel]) -> dict[str, str]:
    """Return docstrings of a model's fields, by name; fields of a base class keep theirs.

    Pydantic's `use_attribute_docstrings` reads the source of every model when its class is made, a tenth of the time
    in which a server starts. Only documents need them.
    """
    docstrings: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, WireModel):
            docstrings |= _docstrings_of_module(cls.__module__).get(cls.__qualname__, {})
    return {name: docstrings[name] for name in model.model_fields if name in docstrings}


@lru_cache
def _docstrings_of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of attributes by the qualified name of their class, outside of functions."""
    docstrings: dict[str, dict[str, str]] = {}

    def visit(body: Sequence[ast.stmt], prefix: str) -> None:
        for definition in body:
            if isinstance(definition, ast.ClassDef):
                docstrings[prefix + definition.name] = dict(_docstrings(definition.body))
                visit(definition.body, f"{prefix}{definition.name}.")

    visit(ast.parse(inspect.getsource(sys.modules[name])).body, "")
    return docstrings


def _docstrings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, inspect.cleandoc(docstring)


def fail(code: str, text: str) -> PydanticCustomError:
    """Return an error with a code and text of the wire, for validators of a room's own."""
    # Braces are doubled because Pydantic treats the text as a template.
    return PydanticCustomError(code, "{text}", {"text": text})


class _Marker:
    """Base of the markers: reads what came as what is meant, and describes itself as JSON Schema."""

    def read(self, value: Any) -> Any:
        raise NotImplementedError

    def document(self) -> JsonSchemaValue:
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any) -> Any:
            if value is None:
                raise fail("null", "This field may not be null.")
            return self.read(value)

        return core_schema.no_info_plain_validator_function(check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.document()


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise fail("invalid_input", "Not a valid string.")
    return value if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class Text(_Marker):
    """A string. Numbers are taken as their text; surrounding blanks are cut off unless ``trim`` is False."""

    max_length: int | None = None
    blank: bool = False
    trim: bool = True
    pattern: str | None = None
    """Limits for the documents alone; rooms check them with their own code and text."""

    def read(self, value: Any) -> str:
        text = _text(value)
        stripped = text.strip()
        if self.trim:
            text = stripped
        if not stripped:
            if not self.blank:
                raise fail("blank", "This field may not be blank.")
            return ""
        if self.max_length is not None and len(text) > self.max_length:
            raise fail("max_length", f"Ensure this field has no more than {self.max_length} characters.")
        if "\0" in text:
            raise fail("null_characters_not_allowed", "Null characters are not allowed.")
        return text

    def document(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "string"}
        if self.max_length is not None:
            schema["maxLength"] = self.max_length
        if not self.blank:
            schema["minLength"] = 1
        if self.pattern is not None:
            schema["pattern"] = self.pattern
        return schema


@dataclass(frozen=True, slots=True)
class Bool(_Marker):
    """A boolean, or one of its many spellings: ``"yes"``, ``"off"``, ``1``."""

    def read(self, value: Any) -> bool:
        known = parse_bool(value)
        if known is None:
            raise fail("invalid_input", "Must be a valid boolean.")
        return known

    def document(self) -> JsonSchemaValue:
        return {"type": "boolean"}


def parse_bool(value: Any) -> bool | None:
    """Return the boolean that a value spells (spec: experiments-api 1.5); None when it spells none."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else None
    return None


@dataclass(frozen=True, slots=True)
class Int(_Marker):
    """An integer, also as text (``"5"``) or as a float without a fraction (``5.0``)."""

    min: int | None = -(2**63)
    max: int | None = 2**63 - 1

    def read(self, value: Any) -> int:
        number = parse_integer(value)
        if number is None:
            raise fail("invalid_input", "A valid integer is required.")
        if self.min is not None and number < self.min:
            raise fail("min_value", f"Ensure this value is greater than or equal to {self.min}.")
        if self.max is not None and number > self.max:
            raise fail("max_value", f"Ensure this value is less than or equal to {self.max}.")
        return number

    def document(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "integer"}
        if self.min is not None and self.min > -(2**63):
            schema["minimum"] = self.min
        if self.max is not None and self.max < 2**63 - 1:
            schema["maximum"] = self.max
        return schema


def parse_integer(value: Any) -> int | None:
    """Return the integer that a value is or spells; None when it is no integer."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if isfinite(value) and value.is_integer() else None
    if isinstance(value, str) and len(value) <= MAX_NUMBER_TEXT:
        text = value.strip()
        whole, dot, zeros = text.partition(".")
        digits = whole[1:] if whole[:1] in ("+", "-") else whole
        if digits.isascii() and digits.isdigit() and (not dot or not zeros.strip("0")):
            return int(whole)
    return None


@dataclass(frozen=True, slots=True)
class Number(_Marker):
    """A finite number, also as text."""

    min: float | None = None
    max: float | None = None

    def read(self, value: Any) -> float:
        number = parse_number(value)
        if number is None:
            raise fail("invalid_input", "A valid number is required.")
        if self.min is not None and number < self.min:
            raise fail("min_value", f"Ensure this value is greater than or equal to {self.min:g}.")
        if self.max is not None and number > self.max:
            raise fail("max_value", f"Ensure this value is less than or equal to {self.max:g}.")
        return number

    def document(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "number"}
        if self.min is not None:
            schema["minimum"] = self.min
        if self.max is not None:
            schema["maximum"] = self.max
        return schema


def parse_number(value: Any) -> float | None:
    """Return the finite number that a value is or spells; None when it is none. Integers stay integers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) > MAX_NUMBER_TEXT:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Moment(_Marker):
    """A date-time, read as `datetime` in UTC (spec: experiments-api 1.6)."""

    def read(self, value: Any) -> datetime:
        if isinstance(value, str):
            try:
                return parse_moment(value)
            except ValueError:
                pass
        raise fail(
            "invalid_input",
            f"Datetime has wrong format. Use one of these formats instead: {_DATETIME_HINT}.",
        )

    def document(self) -> JsonSchemaValue:
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True, slots=True)
class Uuid(_Marker):
    """A UUID, read as its usual text (lower case, with hyphens)."""

    def read(self, value: Any) -> str:
        known = parse_uuid(value)
        if known is None:
            raise fail("invalid_input", "Must be a valid UUID.")
        return known

    def document(self) -> JsonSchemaValue:
        return {"type": "string", "format": "uuid"}


def parse_uuid(value: Any) -> str | None:
    """Return the usual text of a UUID (hyphens may be missing in what is read); None for anything else."""
    if not isinstance(value, str) or len(value) not in (32, 36) or not value.isascii():
        return None
    if len(value) == 36 and any(value[at] != "-" for at in (8, 13, 18, 23)):
        return None
    digits = value.replace("-", "")
    if len(digits) != 32 or not digits.isalnum():
        return None
    try:
        return str(UUID(digits))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, init=False)
class Choice(_Marker):
    """One of some texts: ``Choice("web", "product")``. ``null`` needs ``| None`` beside it."""

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", values)

    def read(self, value: Any) -> str:
        text = value if isinstance(value, str) else str(value)
        if text in self.values:
            return text
        raise fail("invalid_choice", f'"{text}" is not a valid choice.')

    def document(self) -> JsonSchemaValue:
        return {"type": "string", "enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class PrimaryKey(_Marker):
    """The integer id of another object. Whether that exists is for the service to say."""

    def read(self, value: Any) -> int:
        number = parse_integer(value)
        if number is None:
            text = f"Incorrect type. Expected pk value, received {type(value).__name__}."
            raise fail("incorrect_type", text)
        if not 0 <= number < 2**63:
            raise fail("does_not_exist", f'Invalid pk "{number}" - object does not exist.')
        return number

    def document(self) -> JsonSchemaValue:
        return {"type": "integer"}


@dataclass(frozen=True, slots=True)
class JsonObject(_Marker):
    """A JSON object, kept as it came."""

    def read(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        name = type(value).__name__
        raise fail("not_a_dict", f'Expected a dictionary of items but got type "{name}".')

    def document(self) -> JsonSchemaValue:
        return {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class JsonList(_Marker):
    """A JSON array. ``of`` is a marker that every item is read with; without it they stay as they came."""

    of: _Marker | None = None
    max_length: int | None = None

    def read(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            name = type(value).__name__
            raise fail("not_a_list", f'Expected a list of items but got type "{name}".')
        if self.max_length is not None and len(value) > self.max_length:
            text = f"Ensure this field has no more than {self.max_length} elements."
            raise fail("max_length", text)
        return value

    def document(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "array", "items": self.of.document() if self.of else {}}
        if self.max_length is not None:
            schema["maxItems"] = self.max_length
        return schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        outer = super(JsonList, self).__get_pydantic_core_schema__(source, handler)
        if self.of is None:
            return outer
        # A list schema behind the check gives each item's error its index in the path.
        item = self.of.__get_pydantic_core_schema__(Any, handler)
        return core_schema.chain_schema([outer, core_schema.list_schema(item)])


@dataclass(frozen=True, slots=True)
class JsonAny(_Marker):
    """Any JSON value, kept as it came; ``null`` too."""

    def read(self, value: Any) -> Any:
        return value

    def document(self) -> JsonSchemaValue:
        return {}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any) -> Any:
            return self.read(value)

        return core_schema.no_info_plain_validator_function(check)
