"""The filters of hog functions: stored JSON to Hog expressions, bytecode and fast dispatch."""

from __future__ import annotations

from typing import Any

from hoglab.filters.hog.compiled import NOT_COMPILED, CompiledFilter, FilterFailure
from hoglab.filters.hog.dispatch import FusedDispatcher, Matches
from hoglab.filters.hog.environment import FILTER, FILTER_ROOTS
from hoglab.filters.hog.expression import Branch, EventAlternative, FilterExpression, build_filter
from hoglab.filters.hog.properties import FilterContext, ReferencedCohort
from hoglab.hog.codegen import compile_bytecode

__all__ = [
    "FILTER",
    "FILTER_ROOTS",
    "NOT_COMPILED",
    "Branch",
    "CompiledFilter",
    "EventAlternative",
    "FilterContext",
    "FilterExpression",
    "FilterFailure",
    "FusedDispatcher",
    "Matches",
    "ReferencedCohort",
    "build_filter",
    "filter_bytecode",
]


def filter_bytecode(expression: FilterExpression) -> list[Any]:
    """Return the bytecode of a filter, as the API shows it (spec: hog-functions-api 6.3)."""
    return compile_bytecode(expression.node)
