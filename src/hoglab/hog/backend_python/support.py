"""Functions that compiled programs call: the only names that generated code knows.

Everything here takes and returns Hog values. None of it takes a Python callable from a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt import access, coerce, printing
from hoglab.hog.rt.calls import callback
from hoglab.hog.rt.conversion import dict_key
from hoglab.hog.rt.numbers import to_double
from hoglab.hog.rt.values import ENDED, SCALARS, HogError, HogFunction, HogTuple, Value

if TYPE_CHECKING:
    from hoglab.hog.rt.context import Context
    from hoglab.hog.stdlib.registry import Function

MAX_EXACT = 2**53
"""Magnitude above which sums and products become floats."""

SHORT_TEXT = 1024
"""Maximum length of joined texts that a turn of the loop accounts for; longer ones are accounted for one by one."""


def fail(message: str, *_evaluated: Value) -> NoReturn:
    """Raise a failure that was certain when the code was generated."""
    raise HogRuntimeError(message)


def too_deep(limit: int) -> NoReturn:
    """End a program whose functions call each other without end (spec: hog-language 8.11)."""
    raise HogLimit(f"Call stack exceeded maximum length of {limit}", kind="depth")


def thrown(value: Value) -> HogThrow:
    """Return the exception for `throw value`."""
    if value.__class__ is not HogError:
        raise HogRuntimeError("Can not throw: value is not of type Error")
    return HogThrow(value)


def caught(exception: HogThrow) -> Value:
    """Return the error value that a `catch` receives."""
    return exception.error


def not_contains(needle: Value, haystack: Value) -> bool:
    return not coerce.contains(needle, haystack)


def grown(ctx: Context, text: str) -> str:
    """Return a joined text, accounted for on its own because of its length."""
    ctx.grow(len(text))
    return text


def global_chain(root: Value, chain: tuple[str, ...]) -> Value:
    """Return the member of a global at a chain of names; null where a part is missing."""
    for key in chain:
        root = access.get_property(root, key)
    return root


def call_value(ctx: Context, *values: Value) -> Value:
    """Call the last value, a function, with the others (arguments are evaluated before the callee)."""
    function = values[-1]
    return callback(ctx, function, len(values) - 1)(*values[:-1])


def local_function(name: str, arity: int, call: Any) -> HogFunction:
    """Return a function of the program as a value."""
    return HogFunction(name, arity, arity, call)


def library_value(ctx: Context, function: Function) -> HogFunction:
    """Return a library or host function as a value."""
    return function.as_value(ctx)


def wait(ctx: Any, name: str, args: list[Value]) -> Value:
    """Return the host's answer to a call, for programs in replay mode (see `run`)."""
    return ctx.answer(name, args)


def extended(*parts: Value) -> Value:
    """Return the entries of an input object: the entries of the first part, if it is an object, then the others.

    spec: hog-runtime 3 (`$$_extend_object`).
    """
    result: dict[Any, Value] = {}
    for part in parts:
        if part.__class__ is dict:
            result.update(part)
    return result


def with_inputs(variables: dict[str, Value], inputs: dict[str, Value]) -> dict[str, Value]:
    """Return the globals of templates: `inputs` are those resolved so far."""
    return {**variables, "inputs": inputs}


NAMES: dict[str, Any] = {
    **{helper.__name__: helper for helper in (*coerce.ARITHMETIC.values(), *coerce.COMPARISON.values())},
    "between": coerce.between,
    "bool": bool,
    "call_value": call_value,
    "caught": caught,
    "clamp": to_double,
    "copy": access.copied,
    "dict": dict,
    "ended": ENDED,
    "extended": extended,
    "fail": fail,
    "float": float,
    "get": access.get_property,
    "global_chain": global_chain,
    "grown": grown,
    "int": int,
    "items": access.items,
    "key": dict_key,
    "library_value": library_value,
    "list": list,
    "local_function": local_function,
    "neg": coerce.neg,
    "not_between": coerce.not_between,
    "not_contains": not_contains,
    "num": coerce.to_number,
    "scalars": SCALARS,
    "set_property": access.set_property,
    "size": len,
    "str": str,
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
"""Names of generated code, besides its own variables and its constants (`k0`, `k1`, ...)."""

ATTRIBUTES = frozenset({"__class__", "get", "isascii", "join", "lower", "startswith"})
"""Attributes that generated code reads, all of them on values whose class it has checked.

Python's compiler joins texts of many parts by `join`.
"""
