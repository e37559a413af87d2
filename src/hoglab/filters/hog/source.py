"""Conditions that people write as Hog expressions: filters of type ``hogql`` (spec: hog-runtime 2.4)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from hoglab.filters.hog.conditions import Leaf, Predicate
from hoglab.filters.model import FilterError
from hoglab.hog import LIBRARY, HogSourceError, missing_global, parse_expression
from hoglab.hog.codegen import lower, resolve

if TYPE_CHECKING:
    from hoglab.hog.codegen import SymbolTable
    from hoglab.hog.nodes import Expr


def parse_condition(text: str, path: str, roots: AbstractSet[str]) -> Leaf:
    """Return the condition that a text writes out, which may fail when it runs.

    Raises `FilterError` for text that is no expression, and for names that no event has.
    """
    try:
        node: Expr = lower(parse_expression(text), text, markup=False)
        symbols = resolve(node, text)
    except HogSourceError as error:
        if error.code in ("query", "unsupported"):
            raise FilterError("Select queries are not allowed in filters", path) from None
        raise FilterError(error.message, path) from None
    _check_names(symbols, path, roots)
    return Leaf(node, (Predicate(node),), infallible=False, written=True)


def _check_names(symbols: SymbolTable, path: str, roots: AbstractSet[str]) -> None:
    unknown = sorted({call.name for call in symbols.calls if not _callable(call.name)})
    if unknown:
        named = "; ".join(f"Hog function `{name}` is not implemented" for name in unknown)
        raise FilterError(f"Filter compilation errors: {named}", path)
    for place in symbols.globals:
        if place.chain[0] not in roots and not (len(place.chain) == 1 and _callable(place.chain[0])):
            raise FilterError(missing_global(place.chain), path)


def _callable(name: str) -> bool:
    function = LIBRARY.get(name)
    return function is not None and not function.is_async
