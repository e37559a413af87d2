"""Calls of function values: the rules of their arguments (spec: hog-language 5.7, 10.1)."""

from collections.abc import Callable

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.rt.values import HogFunction, Value


def callback(ctx: Context, function: Value, count: int) -> Callable[..., Value]:
    """Return the Python callable that calls a function value with exactly `count` arguments.

    A closure gets null for missing arguments and refuses surplus ones; a library function checks its arity.

    Raises:
        HogRuntimeError: not a function, or a wrong number of arguments.
    """
    if function.__class__ is not HogFunction:
        raise HogRuntimeError(f"Invalid closure: {repr_value(function)[:100]}")
    if count > ctx.limits.arguments:
        raise HogRuntimeError("Too many arguments")
    call: Callable[..., Value] = function.call
    if function.kind != "local":
        check_arity(function.name, count, function.arity, function.max_arity)
        return call
    missing = function.arity - count
    if missing == 0:
        return call
    if missing < 0:
        raise HogRuntimeError(f"Too many arguments. Passed {count}, expected {function.arity}")
    padding = (None,) * missing
    return lambda *args: call(*args, *padding)


def check_arity(name: str, count: int, least: int, most: int | None) -> None:
    """Refuse a call of a library function with too few or too many arguments."""
    if count < least:
        raise HogRuntimeError(f"Function {name} requires at least {least} arguments")
    if most is not None and count > most:
        raise HogRuntimeError(f"Function {name} requires at most {most} arguments")
