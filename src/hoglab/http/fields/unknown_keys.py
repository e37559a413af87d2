"""Keys that an object does not have: refused when they are saved, or kept out of effect and told as warnings.

The models of bodies are the one declaration of which keys there are. A field that a room reads by hand carries
`Keys`, which names the model of what it holds. What a model says of its unknown keys:

``closed = True`` (or Pydantic's ``extra="forbid"``)
    Every unknown key is refused: the object decides, and nobody sends more than is declared.
otherwise
    Only what is likely a misspelt key is refused. Clients of PostHog send further keys there; they have no effect,
    and answers say so in ``warnings``.

``unused`` names keys that those clients are known to send, which are let pass in silence; ``mistakable`` says of
keys that look right which one is meant. Keys at the top of a body are never refused (spec experiments-api 1.1).
What was stored before a key was looked at may be sent back as it is: `first_refused` passes over it, and it is told.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hoglab.hog import closest
from hoglab.http.errors import ApiError, validation_error

UNKNOWN_FIELD = "unknown_field"
"""The code of refusals and warnings for keys that an object does not have."""
SHORTEST_BEGINNING = 2
"""Minimum number of characters of a key that suggest the whole of it."""

Path = tuple[str | int, ...]
WarningEntry = dict[str, str]
"""An entry of ``warnings``: ``code``, ``attr`` and ``detail``, as errors have them."""


NAMED = "https://components.invalid/"
"""Prefix of references to `Keys` with a name, until the document is put together (http/documents/openapi.py)."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Marks a field that is read by hand: ``of`` is the model, or the list of models, that it holds.

    ``name``: under which documents describe it, or what the list holds; None where they say what reads it says.
    """

    of: Any
    name: str | None = None

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if self.name is None:
            return handler(schema)
        described = {"$ref": f"{NAMED}{self.name}"}
        return {"type": "array", "items": described} if get_origin(self.of) is list else described

    @property
    def described(self) -> Any:
        """The type that the name stands for."""
        return get_args(self.of)[0] if get_origin(self.of) is list else self.of


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that the object around it does not have. ``path`` leads to it; ``guess`` is what may be meant."""

    path: Path
    guess: str | None
    is_refused: bool

    @property
    def attr(self) -> str:
        """The place in the form that errors have (spec experiments-api 1.5)."""
        return attr_of(self.path)

    @property
    def detail(self) -> str:
        """Description of the problem, in a sentence."""
        return f"{shown_path(self.path)} is not a known key{hint(self.guess)}"

    @property
    def place(self) -> tuple[str, ...]:
        """The path without the positions in lists, which change when items are added."""
        return tuple("*" if isinstance(part, int) else part for part in self.path)

    def error(self) -> ApiError:
        """Return the 400 for the key."""
        return validation_error(self.detail, self.attr, UNKNOWN_FIELD)

    def warning(self) -> WarningEntry:
        """Return the entry of ``warnings`` for the key."""
        text = f"{shown_path(self.path)} is not a known key and has no effect{hint(self.guess)}"
        return warning(UNKNOWN_FIELD, self.path, text)


def attr_of(path: Path) -> str:
    """Return a path in the form of an error's ``attr``: ``filters__groups__0__roll_out``."""
    return "__".join(map(str, path))


def shown_path(path: Path) -> str:
    """Return a path in the form for people: ``filters.groups[0].roll_out``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def hint(guess: str | None) -> str:
    """Return the end of a sentence about a name that is not known."""
    return "." if guess is None else f"; did you mean {guess}?"


def warning(code: str, path: Path, detail: str) -> WarningEntry:
    """Return an entry of ``warnings``."""
    return {"code": code, "attr": attr_of(path), "detail": detail}


# --- what rooms ask


def unknown_keys(kind: Any, value: object, path: Path = ()) -> Iterator[UnknownKey]:
    """Return every unknown key of a value of a type: a model, or lists, unions and mappings of models."""
    return _unknown(_shape(kind), value, path)


def within(model: type[BaseModel], value: Mapping[str, Any]) -> Iterator[UnknownKey]:
    """Yield the unknown keys inside of the fields of a body or of a stored object; not those beside the fields."""
    for name, shape in _fields(model).items():
        if name in value:
            yield from _unknown(shape, value[name], (name,))


def first_refused(sent: Iterable[UnknownKey], stored: Iterable[UnknownKey] = ()) -> UnknownKey | None:
    """Return the first unknown key that is not to be saved. One that is ``stored`` as often as it is sent passes."""
    left = Counter(unknown_key.place for unknown_key in stored)
    for unknown in sent:
        if unknown.is_refused:
            left[unknown.place] -= 1
            if left[unknown.place] < 0:
                return unknown
    return None


def refuse(sent: Iterable[UnknownKey], stored: Iterable[UnknownKey] = ()) -> None:
    """Raise 400 for the result of `first_refused`."""
    if (refused := first_refused(sent, stored)) is not None:
        raise refused.error()


def warnings_of(unknown_keys: Iterable[UnknownKey]) -> list[WarningEntry]:
    """Return the ``warnings`` of unknown keys."""
    return [unknown_key.warning() for unknown_key in unknown_keys]


def warnings_of_body(body: Any, answer: Any, sent: object) -> list[WarningEntry]:
    """Return the ``warnings`` of a request: unknown keys inside of its fields, and beside them."""
    if not (_is_model(body) and _is_model(answer) and "warnings" in _fields(answer)):
        return []
    if not isinstance(sent, Mapping):
        return []
    known = _fields(body)
    unknown_keys = list(within(body, sent))
    beside = sent.keys() - known.keys() - _fields(answer).keys() - IGNORED_BESIDE
    unknown_keys += [
        UnknownKey((key,), _guess(key, body)[0], is_refused=False) for key in sorted(map(str, beside))
    ]
    return warnings_of(unknown_keys)


def with_warnings(answer: dict[str, Any], further: list[WarningEntry]) -> dict[str, Any]:
    """Return an object with further ``warnings``; each place is told once. Objects without any have no such key."""
    if not further:
        return answer
    before = answer.get("warnings") or []
    places = {(warning["code"], warning["attr"]) for warning in before}
    return {
        **answer,
        "warnings": [
            *before,
            *(warning for warning in further if (warning["code"], warning["attr"]) not in places),
        ],
    }


IGNORED_BESIDE = frozenset({"personal_api_key"})
"""Keys beside the fields of a body that are read by somebody else."""


# --- what types say


@dataclass(frozen=True, slots=True)
class _Shape:
    """A type, as far as keys are concerned: the models that it may be, and what lists and mappings hold."""

    models: tuple[type[BaseModel], ...] = ()
    items: _Shape | None = None
    values: _Shape | None = None


def _shape(kind: Any) -> _Shape:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *metadata = get_args(kind)
        return _shape(_marked(metadata, inner))
    if origin in (Union, types.UnionType):
        parts = [_shape(argument) for argument in get_args(kind)]
        return _Shape(
            tuple(model for part in parts for model in part.models),
            next((part.items for part in parts if part.items is not None), None),
            next((part.values for part in parts if part.values is not None), None),
        )
    if origin is list:
        return _Shape(items=_shape(get_args(kind)[0]))
    if origin is dict:
        return _Shape(values=_shape(get_args(kind)[1]))
    return _Shape((kind,)) if _is_model(kind) else _Shape()


def named_kinds(model: Any) -> dict[str, Any]:
    """Return the named types of a model's fields for the documents, by their names."""
    marks = (mark for info in model.model_fields.values() for mark in _marks(info.annotation, info.metadata))
    return {mark.name: mark.described for mark in marks if mark.name is not None}


def _marks(kind: Any, metadata: Iterable[object]) -> Iterator[Keys]:
    yield from (mark for mark in metadata if isinstance(mark, Keys))
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        yield from _marks(inner[0], inner[1:])
    elif get_origin(kind) in (Union, types.UnionType):
        for annotation in inner:
            yield from _marks(annotation, ())


def _marked(metadata: Iterable[object], kind: Any) -> Any:
    return next((mark.of for mark in metadata if isinstance(mark, Keys)), kind)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@lru_cache(maxsize=512)
def _fields(model: type[BaseModel]) -> Mapping[str, _Shape]:
    """Return the fields of a model by their names on the wire."""
    return {
        info.alias or name: _shape(_marked(info.metadata, info.annotation))
        for name, info in model.model_fields.items()
    }


@lru_cache(maxsize=512)
def _constants(model: type[BaseModel]) -> Mapping[str, tuple[Any, ...]]:
    """Return the values that those fields of a model may have that tell it from others."""
    return {
        name: get_args(info.annotation)
        for name, info in model.model_fields.items()
        if get_origin(info.annotation) is Literal
    }


def _unknown(shape: _Shape, value: object, path: Path) -> Iterator[UnknownKey]:
    if isinstance(value, Mapping):
        model = _model_of(shape.models, value)
        if model is not None:
            yield from _of_object(model, value, path)
        elif shape.values is not None:
            for key, part in value.items():
                yield from _unknown(shape.values, part, (*path, key))
    elif isinstance(value, list) and shape.items is not None:
        for index, part in enumerate(value):
            yield from _unknown(shape.items, part, (*path, index))


def _of_object(model: type[BaseModel], value: Mapping[str, Any], path: Path) -> Iterator[UnknownKey]:
    fields, unused = _fields(model), getattr(model, "unused", ())
    for key, part in value.items():
        if key in fields:
            yield from _unknown(fields[key], part, (*path, key))
        elif key not in unused:
            guess, is_likely = _guess(key, model)
            yield UnknownKey((*path, key), guess, is_likely or _is_closed(model))


def _is_closed(model: type[BaseModel]) -> bool:
    return model.model_config.get("extra") == "forbid" or getattr(model, "closed", False)


def _model_of(models: tuple[type[BaseModel], ...], value: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the one of several models that a value is of: by its constants, then by how many of its keys are known.

    None when it is of none of them, whose keys nothing is known about.
    """
    fitting = [
        model
        for model in models
        if all(value.get(name) in constants for name, constants in _constants(model).items())
    ]
    return min(fitting, key=lambda model: len(value.keys() - _fields(model).keys()), default=None)


def _guess(key: str, model: type[BaseModel]) -> tuple[str | None, bool]:
    """Return the known key that was probably meant, and whether that is likely: a typing error, or another spelling."""
    meant: str | None = getattr(model, "mistakable", {}).get(key)
    if meant is not None:
        return meant, True
    known = list(_fields(model))
    plain = _plain(key)
    same = next((name for name in known if _plain(name) == plain), None) or closest(key, known)
    if same is not None:
        return same, True
    begun = (name for name in known if len(plain) >= SHORTEST_BEGINNING and _plain(name).startswith(plain))
    return next(begun, None), False


def _plain(key: str) -> str:
    """Return a key without what different ways of writing differ in."""
    return key.replace("_", "").replace("-", "").lower()
