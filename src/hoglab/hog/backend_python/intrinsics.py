"""Short ways for a few library functions that destinations and filters call all the time.

Each gives the result of the library function for the operands that it handles, and calls it for all others.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hoglab.hog.backend_python.build import all_of, call, choose, const, is_class, item, method, name
from hoglab.hog.compiler.optimise import UNKNOWN
from hoglab.hog.rt.context import LONG
from hoglab.hog.stdlib import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.hog import nodes as n
    from hoglab.hog.backend_python.emitter import Emitter
    from hoglab.hog.stdlib.registry import Function


def intrinsic(emitter: Emitter, function: Function, args: Sequence[n.Expr]) -> ast.expr | None:
    """Emit the short way for a call with the right number of arguments; None when there is none."""
    short = _SHORT.get(function.name)
    if short is None or LIBRARY.get(function.name) is not function:
        return None
    return short(emitter, function, args)


def _library(emitter: Emitter, function: Function, *args: ast.expr) -> ast.expr:
    context = [name("c")] if function.needs_context else []
    return call(emitter.unit.constants.add(function.call), *context, *args)


def _substring(emitter: Emitter, function: Function, args: Sequence[n.Expr]) -> ast.expr | None:
    """Build `substring(x, 2, 3)` with constant bounds: a slice, where units and characters are the same."""
    if len(args) != 3 or emitter.unit.folder.value(args[0]) is not UNKNOWN:
        return None  # Python's compiler warns of slices of constants that are no text
    start, length = (emitter.unit.folder.value(arg) for arg in args[1:])
    if not (start.__class__ is length.__class__ is int and start > 0 <= length < LONG):
        return None
    first, again = emitter.bind_once(emitter.expr(args[0]))
    part = item(again, ast.Slice(const(start - 1), const(start - 1 + length)))
    is_plain = all_of([is_class(first, "str"), method(again, "isascii")])
    return choose(is_plain, part, _library(emitter, function, again, const(start), const(length)))


def _starts_with(emitter: Emitter, _function: Function, args: Sequence[n.Expr]) -> ast.expr | None:
    prefix = emitter.unit.folder.value(args[1])
    if prefix.__class__ is not str:
        return None
    first, again = emitter.bind_once(emitter.expr(args[0]))
    return all_of([is_class(first, "str"), method(again, "startswith", const(prefix))])


def _length(emitter: Emitter, function: Function, args: Sequence[n.Expr]) -> ast.expr:
    first, again = emitter.bind_once(emitter.expr(args[0]))
    return choose(is_class(first, "list"), call("size", again), _library(emitter, function, again))


_SHORT: dict[str, Callable[[Emitter, Function, Sequence[n.Expr]], ast.expr | None]] = {
    "substring": _substring,
    "startsWith": _starts_with,
    "length": _length,
}
