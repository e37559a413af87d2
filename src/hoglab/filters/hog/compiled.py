"""Filters ready to run: one at a time, with the error that each makes (spec: hog-runtime 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hoglab.fairness.compute_quota import ComputeQuota
from hoglab.filters.hog.environment import FILTER
from hoglab.hog import (
    EXPRESSION_LIMITS,
    HogLimit,
    HogRuntimeError,
    HogThrow,
    Limits,
    Program,
    compile_expression,
    evaluate,
)

if TYPE_CHECKING:
    from hoglab.filters.hog.expression import FilterExpression
    from hoglab.hog.nodes import Expr

Globals = dict[str, Any]
"""Globals of a filter: every root of spec hog-runtime 1.2."""

NOT_COMPILED = "Filters were not compiled correctly and so could not be executed"


class FilterFailure(Exception):  # noqa: N818 - the outcome of an evaluation, counted and logged
    """A filter could not say whether an event matches; the text says why."""


class CompiledFilter:
    """One filter.

    ``expression`` is None for a filter that could not be compiled: it fails on every event; ``limits``: what one
    evaluation may use.
    """

    __slots__ = ("_names", "_program", "expression")

    def __init__(self, expression: FilterExpression | None, limits: Limits = EXPRESSION_LIMITS) -> None:
        self.expression = expression
        self._program: Program | None = None
        self._names: frozenset[str] | None = None
        if expression is not None:
            self._program = compile_expression(expression.node, FILTER.with_limits(limits))
            self._names = expression.event_names if expression.events_only else None

    def matches_in_time(self, globals_: Globals, quota: ComputeQuota) -> bool:
        """Return the result of `matches`, unless the filter was slow too often in a batch. Raises `FilterFailure`."""
        refusal = quota.refusal(self)
        if refusal is not None:
            raise FilterFailure(refusal)
        return quota.run(self, lambda: self.matches(globals_))

    def matches(self, globals_: Globals) -> bool:
        """Return whether an event matches: only the boolean true counts. Raises `FilterFailure`."""
        if self._program is not None and self._names is not None and globals_["event"] not in self._names:
            return False
        return self.value(globals_) is True

    def value(self, globals_: Globals) -> Any:
        """Return the value of the expression, for explanations. Raises `FilterFailure`."""
        if self._program is None:
            raise FilterFailure(NOT_COMPILED)
        try:
            return evaluate(self._program, globals_)
        except (HogRuntimeError, HogLimit) as error:
            raise FilterFailure(error.message) from None
        except HogThrow as error:
            raise FilterFailure(str(error)) from None


def condition_function(node: Expr) -> Callable[[Globals], Any]:
    """Return the shortest way to the value of an expression.

    What it raises is to be explained by a `CompiledFilter`.
    """
    program = compile_expression(node, FILTER)
    if program.generated.bounded:
        return program.function
    return lambda globals_: evaluate(program, globals_)
