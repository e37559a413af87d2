"""Environments: the functions and globals that a text may use, and the limits of its execution.

The same language serves texts of many purposes, which differ in their functions (design: Bloblang's environments).
The embedding program decides the purposes; it adds its own functions with `Environment.with_functions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import EXPRESSION_LIMITS, Limits
from hoglab.hog.stdlib import LIBRARY
from hoglab.hog.stdlib.registry import Function, parameter

if TYPE_CHECKING:
    from collections.abc import Callable

Globals = Mapping[str, frozenset[str] | None]
"""Globals by their names, with the members of globals that have fixed ones (None: any)."""

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """Environment of a text: its functions, limits and globals.

    Environments are compared by identity; derive new ones with the `with_...` methods.

    Attributes:
        name: for messages and caches.
        functions: functions by every name they have.
        limits: limits of one execution.
        roots: the only globals that may be read, None when any may.
        refusal: the message for other globals; `{names}` stands for their names, sorted.
        sure_roots: globals that every execution gets.
        without_value: the consequence for a program that ends without a value, told in a finding; None where nobody
            needs its value.
        globals: the globals that executions may get, for hints; None where they are unknown. Other globals may be
            read too, unless `roots` restricts them.
    """

    name: str
    functions: Mapping[str, Function] = field(repr=False)
    limits: Limits = DEFAULT_LIMITS
    roots: frozenset[str] | None = None
    refusal: str = "Unknown global variable: {names}"
    sure_roots: frozenset[str] = frozenset()
    globals: Globals | None = None
    without_value: str | None = None

    def with_functions(self, *functions: Function) -> Environment:
        """Return this environment with more functions, which replace functions of equal names."""
        more = {name: function for function in functions for name in (function.name, *function.aliases)}
        return replace(self, functions={**self.functions, **more})

    def without_functions(self, *names: str) -> Environment:
        """Return this environment without the functions of these names."""
        kept = {name: function for name, function in self.functions.items() if name not in names}
        return replace(self, functions=kept)

    def with_limits(self, limits: Limits) -> Environment:
        """Return this environment with other limits."""
        return replace(self, limits=limits)


ANY = Environment("any", dict(LIBRARY))
"""Environment with the whole library and any globals: for trying the language."""

TEMPLATE = Environment(
    "template",
    {name: declared for name, declared in LIBRARY.items() if name != "print" and not declared.is_async},
    EXPRESSION_LIMITS,
)
"""Environment of templates and expressions: nothing prints, nothing waits."""


def host_function(
    name: str,
    *params: str,
    impl: Callable[..., Any] | None = None,
    returns: str = "any",
    needs_context: bool = False,
    pure: bool = False,
    doc: str = "",
) -> Function:
    """Declare a function of the embedding program, for `Environment.with_functions`.

    `params` are declared as those of library functions (`hoglab.hog.stdlib.registry.parameter`); without any, any
    number of arguments is allowed. With `impl` it is called at once with Hog values (after the `Context`, if it needs
    one). Without `impl`, a call suspends the program until the embedding program answers.
    """

    def refuse(*_args: Any) -> Any:
        raise HogRuntimeError(f"Unknown async function '{name}'")

    parsed = tuple(parameter(text) for text in params or ("values...: any",))
    return Function(
        name=name,
        category="host",
        min_args=sum(not declared.optional for declared in parsed),
        max_args=None if any(declared.variadic for declared in parsed) else len(parsed),
        exact=False,
        params=parsed,
        returns=tuple(returns.split("|")),
        pure=pure,
        infallible=False,
        is_async=impl is None,
        needs_context=needs_context,
        cost="linear",
        doc=doc,
        examples=(),
        impl=impl or refuse,
    )
