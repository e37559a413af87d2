"""Library functions that print, wait or make errors.  spec: hog-language 8.7, 8.9, 10.2."""

from functools import partial

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.printing import is_truthy, repr_value, to_string
from hoglab.hog.rt.values import HogError, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="program")


@declare(
    "print",
    "values...: any",
    returns="null",
    cost="linear",
    context=True,
    pure=False,
    doc="Prints the arguments in one line, with a space between them. Strings are printed as they are.",
    examples=(
        ("print('a', [1, 'b'])", "null"),
        ("print()", "null"),
    ),
)
def _print(ctx: Context, *values: Value) -> None:
    room = ctx.limits.print_chars
    parts: list[str] = []
    for value in values:
        text = value if value.__class__ is str else repr_value(value)
        parts.append(text[: room + 1])  # enough for the line to be recognised as too long
        room -= len(text) + 1
        if room < 0:
            break
    ctx.print(" ".join(parts))


@declare(
    "sleep",
    "seconds: number",
    returns="null",
    pure=False,
    is_async=True,
    doc="Waits; the program is suspended meanwhile, which costs it no computing time.",
    examples=(("sleep(0.5)", "null"),),
)
def _sleep(_seconds: Value) -> Value:
    raise HogRuntimeError("Unknown async function 'sleep'")


def _error(kind: str, message: Value, payload: Value) -> HogError:
    return HogError(kind, to_string(message) if is_truthy(message) else "An error occurred", payload)


@declare(
    "HogError",
    "type: string",
    "message?: string",
    "payload?: any",
    returns="error",
    cost="linear",
    doc="An error of the given type, ready to be thrown.",
    examples=(
        ("HogError('NotFound', 'no such user')", "NotFound('no such user')"),
        ("HogError('NotFound').message", "'An error occurred'"),
    ),
)
def _hog_error(kind: Value, message: Value = None, payload: Value = None) -> HogError:
    return _error(to_string(kind) if is_truthy(kind) else "Error", message, payload)


@declare(
    "Error",
    "message?: string",
    "payload?: any",
    returns="error",
    cost="linear",
    doc="An error of the type Error, with anything as payload.",
    examples=(
        ("Error('bad input', {'field': 'a'})", "Error('bad input', {'field': 'a'})"),
        ("Error().type", "'Error'"),
    ),
)
def _plain_error(message: Value = None, payload: Value = None) -> HogError:
    return _error("Error", message, payload)


@declare(
    "RetryError",
    "message?: string",
    "payload?: any",
    returns="error",
    cost="linear",
    doc="An error of the type RetryError. A destination that it ends is run again later, from its last call on; "
    "a number as payload is how many seconds to wait at least.",
    examples=(
        ("RetryError('later')", "RetryError('later')"),
        ("RetryError().message", "'An error occurred'"),
    ),
)
def _retry_error(message: Value = None, payload: Value = None) -> HogError:
    return _error("RetryError", message, payload)


@declare(
    "NotImplementedError",
    "message?: string",
    "payload?: any",
    returns="error",
    cost="linear",
    doc="An error of the type NotImplementedError.",
    examples=(
        ("NotImplementedError('soon').type", "'NotImplementedError'"),
        ("NotImplementedError('soon', [1]).payload", "[1]"),
    ),
)
def _not_implemented_error(message: Value = None, payload: Value = None) -> HogError:
    return _error("NotImplementedError", message, payload)
