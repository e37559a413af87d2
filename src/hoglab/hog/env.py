"""Environments: which functions and globals a text may use, and what its execution may cost.

The same language serves filters, templates, destinations and transformations; what differs is the set of functions
(design: Bloblang's environments). Functions of the embedding program are added with `Environment.with_functions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import DESTINATION_LIMITS, EXPRESSION_LIMITS, Limits
from hoglab.hog.stdlib import LIBRARY
from hoglab.hog.stdlib.registry import Function

if TYPE_CHECKING:
    from collections.abc import Callable

FILTER_ROOTS = frozenset(
    {
        "event", "uuid", "distinct_id", "timestamp", "properties", "elements_chain", "elements_chain_href",
        "elements_chain_texts", "elements_chain_ids", "elements_chain_elements", "person", "pdi", "variables",
    }
    | {f"$group_{index}" for index in range(5)}
    | {f"group_{index}" for index in range(5)}
)  # fmt: skip
"""The globals of filters (spec: hog-runtime 1.2)."""


Globals = Mapping[str, frozenset[str] | None]
"""Globals by their names, with the members of those whose members are fixed (None: any)."""

_PERSON = frozenset({"id", "properties"})
FILTER_GLOBALS: Globals = {
    **dict.fromkeys(FILTER_ROOTS),
    "person": _PERSON,
    "pdi": frozenset({"distinct_id", "person_id", "person"}),
    **{f"group_{index}": frozenset({"properties"}) for index in range(5)},
}
"""The same with their members."""

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """What a text may use. Environments are compared by identity; derive new ones with the `with_...` methods.

    Attributes:
        name: for messages and caches.
        functions: functions by every name they have.
        limits: what one execution may use.
        roots: the only globals that may be read, None when any may.
        refusal: the message for other globals; `{names}` stands for their names, sorted.
        sure_roots: globals that every execution gets.
        globals: the globals that executions may get, for hints; None where nobody knows. Others may be read all the
            same, unless `roots` says which ones may.
    """

    name: str
    functions: Mapping[str, Function] = field(repr=False)
    limits: Limits = DEFAULT_LIMITS
    roots: frozenset[str] | None = None
    refusal: str = "Unknown global variable: {names}"
    sure_roots: frozenset[str] = frozenset()
    globals: Globals | None = None

    def with_functions(self, *functions: Function) -> Environment:
        """The same environment with more functions; they replace those of the same names."""
        more = {name: function for function in functions for name in (function.name, *function.aliases)}
        return replace(self, functions={**self.functions, **more})

    def without_functions(self, *names: str) -> Environment:
        """The same environment without the functions of these names."""
        kept = {name: function for name, function in self.functions.items() if name not in names}
        return replace(self, functions=kept)

    def with_limits(self, limits: Limits) -> Environment:
        """The same environment with other limits."""
        return replace(self, limits=limits)


def _library(*, suspending: bool, printing: bool) -> dict[str, Function]:
    return {
        name: function
        for name, function in LIBRARY.items()
        if (suspending or not function.is_async) and (printing or function.name != "print")
    }


ANY = Environment("any", _library(suspending=True, printing=True))
"""The whole library, any globals: for trying the language."""

FILTER = Environment(
    "filter",
    _library(suspending=False, printing=False),
    EXPRESSION_LIMITS,
    roots=FILTER_ROOTS,
    sure_roots=FILTER_ROOTS,
    globals=FILTER_GLOBALS,
)
"""Filters: event-row globals, nothing that prints or waits (spec: hog-runtime 1.2, 2.3)."""

TEMPLATE = Environment("template", _library(suspending=False, printing=False), EXPRESSION_LIMITS)
"""Input templates and masking hashes: no printing, no waiting (spec: hog-runtime 3)."""

DESTINATION = Environment("destination", _library(suspending=True, printing=True), DESTINATION_LIMITS)
"""Bodies of destinations; `fetch` and its like are added by the program that performs them."""

TRANSFORMATION = Environment(
    "transformation",
    _library(suspending=False, printing=True),
    DESTINATION_LIMITS,
    roots=frozenset({"project", "event", "inputs"}),
    refusal=(
        "Variable not available in transformations: {names}. "
        "Transformations only have access to project, event, and inputs."
    ),
)
"""Bodies and inputs of transformations: nothing waits (spec: hog-functions-api 5.7)."""

LOG_TRANSFORMATION = replace(
    TRANSFORMATION,
    name="log-transformation",
    roots=frozenset({"project", "record", "inputs"}),
    refusal=(
        "Variable not available in log transformations: {names}. "
        "Log transformations only have access to project, record, and inputs."
    ),
)
"""As `TRANSFORMATION`, for log records."""


def host_function(
    name: str,
    impl: Callable[..., Any] | None = None,
    *,
    min_args: int = 0,
    max_args: int | None = None,
    needs_context: bool = False,
    pure: bool = False,
    doc: str = "",
) -> Function:
    """A function of the embedding program, for `Environment.with_functions`.

    With `impl` it is called at once with Hog values (after the `Context`, if it needs that). Without, calling it
    suspends the program until the embedding program answers.
    """

    def refuse(*_args: Any) -> Any:
        raise HogRuntimeError(f"Unknown async function '{name}'")

    return Function(
        name=name,
        category="host",
        min_args=min_args,
        max_args=max_args,
        exact=False,
        params=(),
        returns=("any",),
        pure=pure,
        infallible=False,
        is_async=impl is None,
        needs_context=needs_context,
        cost="linear",
        doc=doc,
        examples=(),
        impl=impl or refuse,
    )
