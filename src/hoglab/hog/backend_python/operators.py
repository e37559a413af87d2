"""Arithmetic and comparison: the short ways, and when they may be taken.

The forms and their costs were measured (a class check about 6 ns, a helper call about 30). Results beyond the exact
integers become doubles, as they are in JavaScript; otherwise integers of millions of bits would be work and memory
that nothing accounts for. Only steps by small constants need no such check.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_python.build import (
    all_of,
    any_of,
    binary,
    call,
    choose,
    compare,
    const,
    is_class,
    method,
    name,
    negate,
    walrus,
)
from hoglab.hog.backend_python.support import MAX_EXACT
from hoglab.hog.compiler.optimise import UNKNOWN
from hoglab.hog.compiler.patterns import pattern_problem
from hoglab.hog.compiler.types import BOOL, FLOAT, NUMBER, STR, is_step
from hoglab.hog.rt.coerce import ARITHMETIC, COMPARISON, NEGATED, like_matcher
from hoglab.hog.rt.context import LONG
from hoglab.hog.rt.printing import concat_text
from hoglab.hog.rt.regex import compile_regex

if TYPE_CHECKING:
    from hoglab.hog.backend_python.emitter import Emitter

ARITHMETIC_HELPERS = {op: helper.__name__ for op, helper in ARITHMETIC.items()}

_ORDER_OPS: dict[str, type[ast.cmpop]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}
_HELPERS = {op: helper.__name__ for op, helper in COMPARISON.items()}


def concat_constant(value: object) -> str:
    """Return the text of a constant in a `concat`."""
    return concat_text(value)


def by_helper(op: str, left: ast.expr, right: ast.expr) -> ast.expr:
    """Emit a comparison by its helper, for any operands."""
    positive = NEGATED.get(op)
    comparison = call(_HELPERS[positive or op], left, right)
    return comparison if positive is None else negate(comparison)


# --- arithmetic


def arithmetic(emitter: Emitter, node: n.ArithmeticOperation) -> ast.expr:
    """Build `+ - * / %` on numbers (spec: hog-language 8.3)."""
    if node.op == "/":
        return _quotient(emitter, node)
    if node.op == "%":
        return _remainder(emitter, node)
    op = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}[node.op]()
    result = binary(emitter.number(node.left), op, emitter.number(node.right))
    kinds = emitter.kind(node.left), emitter.kind(node.right)
    if FLOAT in kinds or (node.op != "*" and is_step(node.right)):
        return result
    return _clamped(emitter, result)


def _clamped(emitter: Emitter, value: ast.expr) -> ast.expr:
    """Emit the result if it is within the exact integers, else the result of `clamp`."""
    variable = emitter.unit.fresh("t")
    limits = const(-MAX_EXACT), const(MAX_EXACT)
    exact = ast.Compare(limits[0], [ast.LtE(), ast.LtE()], [walrus(variable, value), limits[1]])
    result = name(variable)
    return choose(exact, result, call("clamp", result))


def _quotient(emitter: Emitter, node: n.ArithmeticOperation) -> ast.expr:
    divisor = emitter.unit.folder.value(node.right)
    if divisor.__class__ in (int, float) and divisor != 0 and divisor == divisor:
        return binary(emitter.number(node.left), ast.Div(), const(float(divisor)))
    return call("div", emitter.expr(node.left), emitter.expr(node.right))


def _remainder(emitter: Emitter, node: n.ArithmeticOperation) -> ast.expr:
    """Emit the remainder: Python's has the sign of the divisor, Hog's the sign of the dividend."""
    divisor = emitter.unit.folder.value(node.right)
    if divisor.__class__ is int and 0 < divisor < MAX_EXACT and not emitter.kind(node.left) & ~NUMBER:
        first, again = emitter.bind_once(emitter.expr(node.left))
        positive = binary(again, ast.Mod(), const(divisor))
        opposite = binary(ast.UnaryOp(ast.USub(), again), ast.Mod(), const(divisor))
        not_negative = compare(first, ast.GtE(), const(0))
        return choose(not_negative, positive, ast.UnaryOp(ast.USub(), opposite))
    return call("mod", emitter.expr(node.left), emitter.expr(node.right))


# --- comparisons


def comparison(emitter: Emitter, node: n.CompareOperation) -> ast.expr:
    """Emit a comparison of two operands whose order of evaluation does not matter."""
    op = node.op
    if op in ("==", "!="):
        return _equality(emitter, node)
    if op in _ORDER_OPS:
        return _order(emitter, node)
    special = None
    if op.endswith("in"):
        special = _membership(emitter, node)
    elif op.endswith("like"):
        special = _like(emitter, node)
    else:
        special = _regex(emitter, node)
    return special or by_helper(op, *emitter.readonly_args((node.left, node.right)))


def _equality(emitter: Emitter, node: n.CompareOperation) -> ast.expr:
    equal = node.op == "=="
    helper = _HELPERS[node.op]
    python: type[ast.cmpop] = ast.Eq if equal else ast.NotEq
    for side, other in ((node.right, node.left), (node.left, node.right)):
        known = emitter.unit.folder.value(side)
        if known is None:
            return is_null(emitter.expr(other), equal)
        if known is UNKNOWN or known != known:
            continue
        kind = emitter.kind(other)
        operand = emitter.expr(other)
        cls, wanted = _class_of(known)
        if not kind & ~wanted:
            return compare(operand, python(), const(known))
        first, again = emitter.bind_once(operand)
        match = is_class(first, cls)
        if cls == "int":
            match = any_of([match, is_class(again, "float")])
        return choose(
            match, compare(again, python(), const(known)), call(helper, again, emitter.constant_of(known))
        )
    left, right = emitter.kind(node.left), emitter.kind(node.right)
    made_left, made_right = emitter.readonly_args((node.left, node.right))
    # Not two texts: comparing long ones is work that the helper charges for.
    for group in (NUMBER, BOOL):
        if not (left | right) & ~group:
            return compare(made_left, python(), made_right)
    return call(helper, made_left, made_right)


def is_null(expression: ast.expr, wanted: bool = True) -> ast.expr:
    """Build `value is None`, or `value is not None`."""
    if isinstance(expression, ast.Constant):
        return const((expression.value is None) is wanted)
    return compare(expression, ast.Is() if wanted else ast.IsNot(), const(None))


def _class_of(known: object) -> tuple[str, int]:
    """Return the class whose instances Python may compare with a constant, and their kinds."""
    if known.__class__ is str:
        return "str", STR
    return ("bool", BOOL) if known.__class__ is bool else ("int", NUMBER)


def _order(emitter: Emitter, node: n.CompareOperation) -> ast.expr:
    op = _ORDER_OPS[node.op]
    helper = _HELPERS[node.op]
    left, right = emitter.kind(node.left), emitter.kind(node.right)
    made_left, made_right = emitter.expr(node.left), emitter.expr(node.right)
    number_left, number_right = not left & ~NUMBER, not right & ~NUMBER
    if number_left and number_right:
        return compare(made_left, op(), made_right)
    if number_left and not isinstance(made_left, (ast.Name, ast.Constant)):
        return call(helper, made_left, made_right)
    if number_right and not isinstance(made_right, (ast.Name, ast.Constant)):
        return call(helper, made_left, made_right)
    if number_right:
        first, again = emitter.bind_once(made_left)
        numeric = any_of([is_class(first, "int"), is_class(again, "float")])
        return choose(numeric, compare(again, op(), made_right), call(helper, again, made_right))
    if number_left:
        first, again = emitter.bind_once(made_right)
        numeric = any_of([is_class(first, "int"), is_class(again, "float")])
        return choose(numeric, compare(made_left, op(), again), call(helper, made_left, again))
    return call(helper, made_left, made_right)


def _membership(emitter: Emitter, node: n.CompareOperation) -> ast.expr | None:
    """Build `x in ('a', 'b')` with constant texts: one look-up in a set."""
    if not isinstance(node.right, (n.Array, n.Tuple)) or not node.right.exprs:
        return None
    wanted = [emitter.unit.folder.value(part) for part in node.right.exprs]
    if not all(part.__class__ is str for part in wanted):
        return None
    first, again = emitter.bind_once(emitter.expr(node.left))
    contained = compare(again, ast.In(), const(frozenset(wanted)))
    test = all_of([is_class(first, "str"), contained])
    return negate(test) if node.op == "not in" else test


def _short_text(first: ast.expr, again: ast.expr) -> ast.expr:
    """Return whether a value is a text, short enough to be searched without charging for it."""
    return all_of([is_class(first, "str"), compare(call("size", again), ast.Lt(), const(LONG))])


def _like(emitter: Emitter, node: n.CompareOperation) -> ast.expr | None:
    """Emit a constant pattern without inner wildcards as a search for a text, because `like` is not anchored."""
    pattern = emitter.unit.folder.value(node.right)
    if pattern.__class__ is not str or pattern_problem(node.op, pattern) is not None:
        return None
    ignore_case = "ilike" in node.op
    wanted = like_matcher(pattern, ignore_case)
    first, again = emitter.bind_once(emitter.expr(node.left))
    if isinstance(wanted, str):
        subject = method(again, "lower") if ignore_case else again
        contained = compare(const(wanted), ast.In(), subject)
    else:
        contained = call(emitter.unit.constants.add(wanted.search), again)
    helper = call("ilike" if ignore_case else "like", again, const(pattern))
    test = choose(_short_text(first, again), contained, helper)
    return negate(test) if node.op.startswith("not") else test


def _regex(emitter: Emitter, node: n.CompareOperation) -> ast.expr | None:
    """Emit a constant pattern, compiled with the program. A text that it requires is searched for first.

    An empty text never matches.
    """
    pattern = emitter.unit.folder.value(node.right)
    if pattern.__class__ is not str or not pattern or pattern_problem(node.op, pattern) is not None:
        return None
    ignore_case = node.op.endswith("*")
    matcher = compile_regex(pattern, ignore_case)
    first, again = emitter.bind_once(emitter.expr(node.left))
    helper = call("iregex" if ignore_case else "regex", again, const(pattern))
    short = _short_text(first, again)
    literals = matcher.literals
    parts: list[ast.expr] = []
    if literals is not None:
        parts.append(any_of([compare(const(text), ast.In(), again) for text in literals.texts]))
    else:
        short = all_of([short, again])
    if literals is None or not literals.exact:
        parts.append(call(emitter.unit.constants.add(matcher.search), again))
    test = choose(short, all_of(parts), helper)
    return negate(test) if node.op.startswith("!") else test
