"""Hog templates inside inputs: their compiled form, what they depend on, what they may name.

Spec: hog-functions-api 5.4-5.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes
from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.errors import HogSourceError
from hoglab.hog.parser import parse_template
from hoglab.hog.stdlib import LIBRARY
from hoglab.hog.symbols import resolve

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from hoglab.hog.symbols import Resolution

HOST_FUNCTIONS = frozenset({"fetch", "postHogCapture", "sendEmail", "generateMessagingPreferencesUrl"})
"""What the runtime offers beside the library to code that delivers."""

EVENT_FUNCTIONS = frozenset(
    {"geoipLookup", "cleanNullValues", "isKnownBotUserAgent", "isKnownBotIp", "fetch", "postHogCapture"}
)
"""What may be named in transformations; the last two are refused when they run."""

TRANSFORMATION_ROOTS = frozenset({"project", "event", "inputs"})


class TemplateError(Exception):
    """A template that cannot be compiled; the text is what people see."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What templates of a function may name. ``roots``: the only globals (None: any)."""

    roots: AbstractSet[str] | None = None
    functions: AbstractSet[str] = HOST_FUNCTIONS
    record_is_event: bool = False
    """Whether ``record.x`` stands for ``event.properties.x`` (functions that a table triggers)."""


ANY_GLOBALS = Dialect()
TRANSFORMATION = Dialect(TRANSFORMATION_ROOTS, EVENT_FUNCTIONS)
TABLE_ROWS = Dialect(record_is_event=True)


@dataclass(slots=True)
class CompiledValue:
    """A value with each of its texts replaced by its bytecode, and the inputs that these texts read."""

    bytecode: Any
    needs: set[str] = field(default_factory=set)


def compile_value(
    value: Any, dialect: Dialect, verbatim_keys: AbstractSet[str] = frozenset()
) -> CompiledValue:
    """Compile every text inside a JSON value. Raises `TemplateError` for the first that is wrong."""
    compiled = CompiledValue(None)
    compiled.bytecode = _compile(value, dialect, compiled.needs, verbatim_keys)
    return compiled


def _compile(value: Any, dialect: Dialect, needs: set[str], verbatim: AbstractSet[str]) -> Any:
    if isinstance(value, str):
        return _compile_text(value, dialect, needs)
    if isinstance(value, dict):
        return {k: _compile(v, dialect, needs, frozenset()) for k, v in value.items() if k not in verbatim}
    if isinstance(value, list):
        return [_compile(one, dialect, needs, frozenset()) for one in value]
    return value


def _compile_text(text: str, dialect: Dialect, needs: set[str]) -> list[Any]:
    try:
        tree = parse_template(text)
        if dialect.record_is_event:
            tree = _records_as_events(tree)
        found = resolve(tree, text)
        problem = _unknown_names(found, dialect)
        if problem is not None:
            raise TemplateError(f"Invalid template: {problem}")
        bytecode = compile_bytecode(tree)
    except HogSourceError as error:
        raise TemplateError(_explained(text, error)) from None
    needs |= {
        place.chain[1] for place in found.globals if place.chain[0] == "inputs" and len(place.chain) > 1
    }
    needs |= _bracketed(tree)
    return bytecode


def _explained(text: str, error: HogSourceError) -> str:
    if error.code == "hyphen":
        return error.message
    if "{{" in text:
        return (
            "Invalid template: this field uses single-curly templating like {person.properties.email}. "
            f"Liquid-style {{{{ ... }}}} syntax is not supported here. ({error.message})"
        )
    return f"Invalid template: {error.message}"


def _unknown_names(found: Resolution, dialect: Dialect) -> str | None:
    unknown = sorted({call.name for call in found.calls if not _is_function(call.name, dialect)})
    if unknown:
        return "; ".join(f"Hog function `{name}` is not implemented" for name in unknown)
    if dialect.roots is None:
        return None
    outside = sorted(
        {
            place.chain[0]
            for place in found.globals
            if place.chain[0] not in dialect.roots and not _is_function(place.chain[0], dialect)
        }
    )
    if not outside:
        return None
    return (
        f"Variable not available in transformations: {', '.join(outside)}. "
        "Transformations only have access to project, event, and inputs."
    )


def _is_function(name: str, dialect: Dialect) -> bool:
    return name in LIBRARY or name in dialect.functions


def _bracketed(tree: nodes.Node) -> set[str]:
    """The inputs that are read as ``inputs['name']``."""
    found = set()
    for node in nodes.walk(tree):
        if (
            isinstance(node, nodes.ArrayAccess)
            and isinstance(node.array, nodes.Field)
            and node.array.chain == ("inputs",)
            and isinstance(node.property, nodes.Constant)
        ):
            found.add(str(node.property.value))
    return found


def _records_as_events(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(_records_as_events(one) for one in node)
    if not isinstance(node, nodes.Node):
        return node
    if isinstance(node, nodes.Field) and node.chain[0] == "record":
        return replace(node, chain=("event", "properties", *node.chain[1:]))
    return replace(
        node,
        **{
            one.name: _records_as_events(getattr(node, one.name))
            for one in fields(node)
            if one.name not in ("start", "end")
        },
    )


class InputCycleError(Exception):
    """Inputs that need each other."""


def order_inputs(needs: Mapping[str, AbstractSet[str]]) -> list[str]:
    """The inputs in an order in which each comes after those it needs; ties keep the given order.

    Needs that are no key are ignored. Raises `InputCycleError`.
    """
    missing = {key: sum(need in needs for need in wanted) for key, wanted in needs.items()}
    ready = deque(key for key, count in missing.items() if not count)
    ordered = []
    while ready:
        done = ready.popleft()
        ordered.append(done)
        for key, wanted in needs.items():
            if done in wanted:
                missing[key] -= 1
                if not missing[key]:
                    ready.append(key)
    if len(ordered) != len(needs):
        raise InputCycleError
    return ordered


def has_liquid_markup(value: Any) -> bool:
    """Whether a value holds text that Liquid would fill in; any other text stands for itself."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(has_liquid_markup(one) for one in value.values())
    if isinstance(value, Sequence):
        return any(has_liquid_markup(one) for one in value)
    return False
