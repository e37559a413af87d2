"""Inputs of hog functions: values whose texts are templates, and the order in which they are computed.

spec: hog-functions-api 5.4-5.7, hog-language 6.13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.hog.errors import HogCompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Path = tuple[str | int, ...]
"""Path of a template inside an input value: keys and positions."""

MAX_VALUE_DEPTH = 64
"""Maximum depth of an input value."""


def map_texts(value: Any, change: Callable[[str, Path], Any], path: Path = ()) -> Any:
    """Return the value with every text leaf replaced by `change(text, path)`; keys are never templates.

    Raises `HogCompileError` for values nested deeper than `MAX_VALUE_DEPTH`.
    """
    if isinstance(value, str):
        return change(value, path)
    if len(path) > MAX_VALUE_DEPTH and isinstance(value, (dict, list)):
        raise HogCompileError(f"Inputs may be nested {MAX_VALUE_DEPTH} levels deep", code="too-deep")
    if isinstance(value, dict):
        return {key: map_texts(part, change, (*path, key)) for key, part in value.items()}
    if isinstance(value, list):
        return [map_texts(part, change, (*path, position)) for position, part in enumerate(value)]
    return value


def order_inputs(keys: Iterable[str], dependencies: Mapping[str, set[str]]) -> list[str]:
    """Return the keys in an order in which every input comes after the ones it reads.

    `keys` are the inputs with a value, in the order of the schema; other names among the dependencies are ignored.
    Kahn's algorithm; spec: hog-functions-api 5.6. Raises `HogCompileError` with code `circular-inputs` for cycles,
    self references included.
    """
    in_order = list(keys)
    known = set(in_order)
    waiting = {key: len(dependencies.get(key, set()) & known) for key in in_order}
    ready = [key for key in in_order if not waiting[key]]
    for key in ready:  # grows while we go through it
        for dependent in in_order:
            if key in dependencies.get(dependent, set()):
                waiting[dependent] -= 1
                if not waiting[dependent]:
                    ready.append(dependent)
    if len(ready) < len(in_order):
        raise HogCompileError("Circular dependency detected in input_deps.", code="circular-inputs")
    return ready
