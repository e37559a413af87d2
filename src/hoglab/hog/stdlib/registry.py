"""Declarations of library functions: name, parameters, kinds, cost, documentation and examples.

A declaration is all that other parts need: the compiler checks the number of arguments, and what may be omitted or
moved; the documentation is made from it, and its examples are run as tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import SHORT_CONTAINER, Context, charge, reading_units
from hoglab.hog.rt.printing import type_name
from hoglab.hog.rt.values import HogFunction, HogTuple, Value

Cost = Literal["constant", "linear", "growing", "callback"]
"""Work of one call.

It is independent of the data; proportional to the arguments; the result may be larger than the arguments by any
factor; a function of the program is called for each element.

A call pays for reading its arguments before it uses them (`Function.call`), unless its cost is constant. It accounts
itself for further work, and for what it finds inside of containers.
"""

KINDS: Final = frozenset(
    {
        "any",
        "array",
        "boolean",
        "date",
        "datetime",
        "error",
        "float",
        "function",
        "integer",
        "null",
        "number",
        "object",
        "string",
        "tuple",
    }
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `kinds` are those it is meant for; `variadic` stands for any number of further arguments."""

    name: str
    kinds: tuple[str, ...]
    optional: bool = False
    variadic: bool = False

    def __str__(self) -> str:
        mark = "..." if self.variadic else "?" if self.optional else ""
        return f"{self.name}{mark}: {'|'.join(self.kinds)}"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library.

    Attributes:
        name: the name programs call it by.
        category: the chapter of the reference it belongs to.
        min_args: least number of arguments.
        max_args: largest number of arguments, None when unbounded.
        exact: the number of arguments is fixed, and errors have the words used for functions written in Hog.
        params: the parameters in order.
        returns: the kinds of value it can give; exact enough for kind inference.
        pure: the same arguments give the same result, and nothing else happens.
        infallible: no argument makes it fail (limits aside).
        is_async: the host performs it while the program waits.
        needs_context: `impl` takes the execution's `Context` before the arguments.
        cost: how its work grows.
        doc: one or two sentences.
        examples: pairs of an expression and its printed value.
        impl: the implementation; `impl(*args)` or `impl(ctx, *args)`.
        aliases: further names.
        weight: duration of its work on the same arguments, relative to making upper-case letters.
        call: the function that programs call: `impl`, after the arguments are paid for.
    """

    name: str
    category: str
    min_args: int
    max_args: int | None
    exact: bool
    params: tuple[Parameter, ...]
    returns: tuple[str, ...]
    pure: bool
    infallible: bool
    is_async: bool
    needs_context: bool
    cost: Cost
    doc: str
    examples: tuple[tuple[str, str], ...]
    impl: Callable[..., Value]
    aliases: tuple[str, ...] = ()
    weight: int = 1
    call: Callable[..., Value] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", self.impl if self.cost == "constant" else _metered(self))

    @property
    def signature(self) -> str:
        """`name(param: kind, ...) -> kind`, for the reference."""
        return f"{self.name}({', '.join(map(str, self.params))}) -> {'|'.join(self.returns)}"

    def arity_error(self, count: int) -> str | None:
        """Return the error message for a call with `count` arguments.

        The result is None when the number is right.  spec: hog-language 10.1.
        """
        if self.min_args <= count and (self.max_args is None or count <= self.max_args):
            return None
        if self.exact:
            return f"Function {self.name} requires exactly {self.min_args} arguments"
        if count < self.min_args:
            return f"Function {self.name} requires at least {self.min_args} arguments"
        return f"Function {self.name} requires at most {self.max_args} arguments"

    def invoke(self, ctx: Context, args: list[Value] | tuple[Value, ...]) -> Value:
        """Call the function with any number of arguments.

        Raises:
            HogRuntimeError: wrong number of arguments, or what the function itself refuses.
        """
        problem = self.arity_error(len(args))
        if problem is not None:
            raise HogRuntimeError(problem)
        return self.call(ctx, *args) if self.needs_context else self.call(*args)

    def as_value(self, ctx: Context) -> HogFunction:
        """Return the function as a Hog value that programs can store and pass on; the host's answer is waited for."""
        if self.is_async:
            waiting: Any = ctx  # an `ExecutionContext` wherever the program may wait for the host

            def ask(*args: Value) -> Value:
                return waiting.answer(self.name, list(args))

            return HogFunction(self.name, self.min_args, self.max_args, ask, "async")

        def call(*args: Value) -> Value:
            return self.invoke(ctx, args)

        return HogFunction(self.name, self.min_args, self.max_args, call, "stl")


def _metered(function: Function) -> Callable[..., Value]:
    """Return the implementation of a function that first charges for the arguments it will read.

    Programs call it all the time, so it does no unnecessary work.
    """
    impl, weight = function.impl, function.weight

    def pay(args: tuple[Value, ...]) -> None:
        charge(sum(map(reading_units, args)) * weight)

    def call(*args: Value) -> Value:
        for arg in args:
            if arg.__class__ in _SIZED and len(arg) > SHORT_CONTAINER:
                pay(args)
                break
        return impl(*args)

    def call_with_one(arg: Value) -> Value:
        if arg.__class__ in _SIZED and len(arg) > SHORT_CONTAINER:
            pay((arg,))
        return impl(arg)

    def call_in_context(ctx: Context, *args: Value) -> Value:
        for arg in args:
            if arg.__class__ in _SIZED and len(arg) > SHORT_CONTAINER:
                ctx.charge(sum(map(reading_units, args)) * weight)
                break
        return impl(ctx, *args)

    def call_in_context_with_one(ctx: Context, arg: Value) -> Value:
        if arg.__class__ in _SIZED and len(arg) > SHORT_CONTAINER:
            ctx.charge(reading_units(arg) * weight)
        return impl(ctx, arg)

    if function.min_args == function.max_args == 1:
        return call_in_context_with_one if function.needs_context else call_with_one
    return call_in_context if function.needs_context else call


_SIZED: Final[frozenset[Any]] = frozenset({str, list, dict, HogTuple})


LIBRARY: dict[str, Function] = {}
"""Every library function by each of its names.  Complete once `hoglab.hog.stdlib` is imported."""


def parameter(text: str) -> Parameter:
    """Read a parameter in its short form: `name: kind|kind`, `name?: kind` (optional) or `name...: kind` (variadic)."""
    name, _, kinds_text = text.partition(":")
    name = name.strip()
    kinds = tuple(kind.strip() for kind in kinds_text.split("|"))
    unknown = set(kinds) - KINDS
    if unknown:
        raise ValueError(f"unknown kinds in parameter {text!r}: {sorted(unknown)}")
    if name.endswith("..."):
        return Parameter(name.removesuffix("..."), kinds, optional=True, variadic=True)
    return Parameter(name.removesuffix("?"), kinds, optional=name.endswith("?"))


def function(
    name: str,
    *params: str,
    category: str,
    returns: str,
    doc: str,
    examples: tuple[tuple[str, str], ...] = (),
    cost: Cost = "constant",
    context: bool = False,
    pure: bool = True,
    infallible: bool = False,
    is_async: bool = False,
    exact: bool = False,
    aliases: tuple[str, ...] = (),
    weight: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated callable as a library function; `params` are short forms for `parameter`."""
    parsed = tuple(parameter(text) for text in params)
    kinds = tuple(returns.split("|"))
    if set(kinds) - KINDS:
        raise ValueError(f"unknown kinds in the result of {name}")
    unbounded = any(p.variadic for p in parsed)

    def register(impl: Callable[..., Any]) -> Callable[..., Any]:
        declared = Function(
            name=name,
            category=category,
            min_args=sum(not p.optional for p in parsed),
            max_args=None if unbounded else len(parsed),
            exact=exact,
            params=parsed,
            returns=kinds,
            pure=pure,
            infallible=infallible,
            is_async=is_async,
            needs_context=context,
            cost=cost,
            doc=doc,
            examples=examples,
            impl=impl,
            aliases=aliases,
            weight=weight,
        )
        for key in (name, *aliases):
            if key in LIBRARY:
                raise ValueError(f"library function {key} is declared twice")
            LIBRARY[key] = declared
        return impl

    return register


def expect_string(name: str, value: Value) -> str:
    """Return the value if it is a string.  Raises HogRuntimeError naming the function otherwise."""
    if value.__class__ is not str:
        raise HogRuntimeError(f"Function {name} expects a string, got {type_name(value)}")
    return value
