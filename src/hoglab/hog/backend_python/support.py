"""What compiled programs call: the only names that generated code knows.

Everything here takes and returns Hog values. None of it takes a Python callable from a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt import access, coerce, printing
from hoglab.hog.rt.numbers import to_double
from hoglab.hog.rt.values import SCALARS, HogError, HogFunction, HogTuple, Value, dict_key

if TYPE_CHECKING:
    from hoglab.hog.rt.context import Context
    from hoglab.hog.stdlib.registry import Function

MAX_EXACT = 2**53
"""Sums and products beyond this, in either direction, become floats."""

SHORT_TEXT = 1024
"""Joined texts up to this length are accounted for by the turn of the loop, longer ones one by one."""


def fail(message: str, *_evaluated: Value) -> NoReturn:
    """Raises a failure that was already certain when the code was made."""
    raise HogRuntimeError(message)


def too_deep(limit: int) -> NoReturn:
    """Ends a program whose functions call each other without end (spec: hog-language 8.11)."""
    raise HogLimit(f"Call stack exceeded maximum length of {limit}", kind="depth")


def thrown(value: Value) -> HogThrow:
    """The exception for `throw value`."""
    if value.__class__ is not HogError:
        raise HogRuntimeError("Can not throw: value is not of type Error")
    return HogThrow(value)


def caught(exception: HogThrow) -> Value:
    """The error value that a `catch` receives."""
    return exception.error


def between(value: Value, low: Value, high: Value) -> bool:
    """`value between low and high`; false when anything is null (spec: hog-language 6.3)."""
    if value is None or low is None or high is None:
        return False
    return coerce.ge(value, low) and coerce.le(value, high)


def not_between(value: Value, low: Value, high: Value) -> bool:
    """`value not between low and high`; false when anything is null."""
    if value is None or low is None or high is None:
        return False
    return coerce.lt(value, low) or coerce.gt(value, high)


def not_contains(needle: Value, haystack: Value) -> bool:
    return not coerce.contains(needle, haystack)


def grown(ctx: Context, text: str) -> str:
    """A joined text that is long enough to be accounted for on its own."""
    ctx.grow(len(text))
    return text


def global_chain(root: Value, chain: tuple[str, ...]) -> Value:
    """The member of a global that a chain of names leads to; null where something is missing."""
    for key in chain:
        root = access.get_property(root, key)
    return root


def call_value(ctx: Context, *values: Value) -> Value:
    """Calls the last value, a function, with the others (arguments are evaluated before the callee)."""
    function = values[-1]
    return ctx.callback(function, len(values) - 1)(*values[:-1])


def local_function(name: str, arity: int, call: Any) -> HogFunction:
    """A function of the program as a value."""
    return HogFunction(name, arity, arity, call)


def library_value(ctx: Context, function: Function) -> HogFunction:
    """A library or host function as a value; calling one that the host performs waits for the answer."""
    if not function.is_async:
        return function.as_value(ctx)

    def call(*args: Value) -> Value:
        return wait(ctx, function.name, list(args))

    return HogFunction(function.name, function.min_args, function.max_args, call, "async")


def wait(ctx: Any, name: str, args: list[Value]) -> Value:
    """The host's answer to a call, for programs in replay mode (see `run`)."""
    return ctx.answer(name, args)


def extended(*parts: Value) -> Value:
    """The entries of an input object: the first part's, if that is an object, then those of the others.

    spec: hog-runtime 3 (`$$_extend_object`).
    """
    result: dict[Any, Value] = {}
    for part in parts:
        if part.__class__ is dict:
            result.update(part)
    return result


def with_inputs(variables: dict[str, Value], inputs: dict[str, Value]) -> dict[str, Value]:
    """The globals of templates: `inputs` are the ones resolved so far."""
    return {**variables, "inputs": inputs}


NAMES: dict[str, Any] = {
    "add": coerce.add,
    "between": between,
    "bool": bool,
    "call_value": call_value,
    "caught": caught,
    "clamp": to_double,
    "contains": coerce.contains,
    "copy": access.copied,
    "dict": dict,
    "div": coerce.div,
    "eq": coerce.eq,
    "extended": extended,
    "fail": fail,
    "float": float,
    "ge": coerce.ge,
    "get": access.get_property,
    "global_chain": global_chain,
    "grown": grown,
    "gt": coerce.gt,
    "ilike": coerce.ilike,
    "int": int,
    "iregex": coerce.iregex,
    "items": access.items,
    "key": dict_key,
    "le": coerce.le,
    "library_value": library_value,
    "like": coerce.like,
    "list": list,
    "local_function": local_function,
    "lt": coerce.lt,
    "mod": coerce.mod,
    "mul": coerce.mul,
    "ne": coerce.ne,
    "neg": coerce.neg,
    "not_between": not_between,
    "not_contains": not_contains,
    "num": coerce.to_number,
    "regex": coerce.regex,
    "scalars": SCALARS,
    "set_property": access.set_property,
    "size": len,
    "str": str,
    "sub": coerce.sub,
    "text": printing.concat_text,
    "throw": HogThrow,
    "thrown": thrown,
    "too_deep": too_deep,
    "truthy": printing.is_truthy,
    "tuple": HogTuple,
    "values": access.values,
    "wait": wait,
    "with_inputs": with_inputs,
    "zip": zip,
}
"""The names of generated code, besides its own variables and its constants (`k0`, `k1`, ...)."""

ATTRIBUTES = frozenset({"__class__", "get", "isascii", "join", "lower", "startswith"})
"""The attributes that generated code reads, all of them on values whose class it has checked. `join` is what Python's
compiler makes of texts that are put together out of many parts."""
