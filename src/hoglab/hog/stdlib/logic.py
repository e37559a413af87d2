"""Library functions for null, comparison and choice.  spec: hog-language 10.2.

Most have an operator or a special form that the compiler prefers; they matter when used as values.
"""

from functools import partial

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.coerce import compare_primitives, member, primitive, same
from hoglab.hog.rt.printing import is_truthy
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="logic")


# Null


@declare(
    "ifNull",
    "value: any",
    "otherwise: any",
    returns="any",
    infallible=True,
    doc="The value, or `otherwise` when it is null.",
    examples=(("ifNull(null, 5)", "5"), ("ifNull(0, 5)", "0")),
)
def _if_null(value: Value, otherwise: Value) -> Value:
    return otherwise if value is None else value


@declare(
    "isNull",
    "value: any",
    returns="boolean",
    infallible=True,
    doc="Whether the value is null.",
    examples=(("isNull(null)", "true"), ("isNull('')", "false")),
)
def _is_null(value: Value) -> bool:
    return value is None


@declare(
    "isNotNull",
    "value: any",
    returns="boolean",
    infallible=True,
    doc="Whether the value is anything but null.",
    examples=(("isNotNull(null)", "false"), ("isNotNull(0)", "true")),
)
def _is_not_null(value: Value) -> bool:
    return value is not None


@declare(
    "coalesce",
    "value: any",
    "others...: any",
    returns="any",
    infallible=True,
    doc="The first argument that is not null, null when all are.",
    examples=(("coalesce(null, 'a', 'b')", "'a'"), ("coalesce(null)", "null")),
)
def _coalesce(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


@declare(
    "assumeNotNull",
    "value: any",
    returns="any",
    doc="The value; fails when it is null.",
    examples=(
        ("assumeNotNull('a')", "'a'"),
        ("assumeNotNull(0)", "0"),
    ),
)
def _assume_not_null(value: Value) -> Value:
    if value is None:
        raise HogRuntimeError("Value is null in assumeNotNull")
    return value


def is_empty(value: Value) -> bool:
    """Return whether a value is null, an empty string or an empty container; numbers and booleans never are."""
    cls = value.__class__
    if cls is str or cls is list or cls is dict or cls is HogTuple:
        return not value
    return value is None


@declare(
    "empty",
    "value: any",
    returns="boolean",
    infallible=True,
    doc="Whether the value is null, an empty string or an empty container. Numbers and booleans are never "
    "empty.",
    examples=(("empty('')", "true"), ("empty([])", "true"), ("empty(null)", "true"), ("empty(0)", "false")),
)
def _empty(value: Value) -> bool:
    return is_empty(value)


@declare(
    "notEmpty",
    "value: any",
    returns="boolean",
    infallible=True,
    doc="The opposite of empty.",
    examples=(("notEmpty('a')", "true"), ("notEmpty({})", "false"), ("notEmpty(false)", "true")),
)
def _not_empty(value: Value) -> bool:
    return not is_empty(value)


# Comparison


@declare(
    "equals",
    "left: any",
    "right: any",
    returns="boolean",
    infallible=True,
    doc="Whether both are the same value of the same type. Unlike the operator, nothing is converted.",
    examples=(("equals(1, 1.0)", "true"), ("equals('1', 1)", "false"), ("equals([], [])", "false")),
)
def _equals(left: Value, right: Value) -> bool:
    return same(left, right)


@declare(
    "notEquals",
    "left: any",
    "right: any",
    returns="boolean",
    infallible=True,
    doc="The opposite of equals.",
    examples=(("notEquals('1', 1)", "true"), ("notEquals(null, null)", "false")),
)
def _not_equals(left: Value, right: Value) -> bool:
    return not same(left, right)


def _order(left: Value, right: Value) -> int:
    return compare_primitives(primitive(left), primitive(right))


@declare(
    "greater",
    "left: any",
    "right: any",
    returns="boolean",
    cost="linear",
    doc="Whether left is greater: numbers by size, strings by their characters. Dates and numeric arrays "
    "are not compared by what they hold.",
    examples=(("greater(2, 1)", "true"), ("greater('a', 'b')", "false")),
)
def _greater(left: Value, right: Value) -> bool:
    return _order(left, right) == 1


@declare(
    "greaterOrEquals",
    "left: any",
    "right: any",
    returns="boolean",
    cost="linear",
    doc="Whether left is greater or equal, compared like greater.",
    examples=(("greaterOrEquals(2, 2)", "true"), ("greaterOrEquals(null, 1)", "false")),
)
def _greater_or_equals(left: Value, right: Value) -> bool:
    return _order(left, right) in (0, 1)


@declare(
    "less",
    "left: any",
    "right: any",
    returns="boolean",
    cost="linear",
    doc="Whether left is smaller, compared like greater.",
    examples=(("less('a', 'b')", "true"), ("less(null, 1)", "true")),
)
def _less(left: Value, right: Value) -> bool:
    return _order(left, right) == -1


@declare(
    "lessOrEquals",
    "left: any",
    "right: any",
    returns="boolean",
    cost="linear",
    doc="Whether left is smaller or equal, compared like greater.",
    examples=(("lessOrEquals(1, 1)", "true"), ("lessOrEquals('b', 'a')", "false")),
)
def _less_or_equals(left: Value, right: Value) -> bool:
    return _order(left, right) <= 0


@declare(
    "in",
    "value: any",
    "items: any",
    returns="boolean",
    cost="linear",
    infallible=True,
    doc="Whether an array or tuple has the value as an element; false for everything else, strings too.",
    examples=(("in('a', ['a', 'b'])", "true"), ("in('1', [1])", "false"), ("in('a', 'abc')", "false")),
)
def _in(value: Value, items: Value) -> bool:
    return (items.__class__ is list or items.__class__ is HogTuple) and member(value, items)


@declare(
    "min2",
    "left: any",
    "right: any",
    returns="any",
    cost="linear",
    doc="The smaller of two values, compared like less.",
    examples=(("min2(3, 5)", "3"), ("min2('b', 'a')", "'a'")),
)
def _min2(left: Value, right: Value) -> Value:
    return left if _order(left, right) == -1 else right


@declare(
    "max2",
    "left: any",
    "right: any",
    returns="any",
    cost="linear",
    doc="The greater of two values, compared like greater.",
    examples=(("max2(3, 5)", "5"), ("max2('b', 'a')", "'b'")),
)
def _max2(left: Value, right: Value) -> Value:
    return left if _order(left, right) == 1 else right


# Logic and choice


@declare(
    "and",
    "value: any",
    "others...: any",
    returns="boolean",
    infallible=True,
    doc="Whether all arguments are true.",
    examples=(("and(true, 1, 'a')", "true"), ("and(true, 0)", "false")),
)
def _and(*values: Value) -> bool:
    return all(is_truthy(value) for value in values)


@declare(
    "or",
    "value: any",
    "others...: any",
    returns="boolean",
    infallible=True,
    doc="Whether any argument is true.",
    examples=(("or(false, 'a')", "true"), ("or(null, 0)", "false")),
)
def _or(*values: Value) -> bool:
    return any(is_truthy(value) for value in values)


@declare(
    "not",
    "value: any",
    returns="boolean",
    infallible=True,
    doc="Whether the value is false, null, 0, NaN or an empty string.",
    examples=(("not(0)", "true"), ("not([])", "false")),
)
def _not(value: Value) -> bool:
    return not is_truthy(value)


@declare(
    "if",
    "condition: any",
    "then: any",
    "otherwise: any",
    returns="any",
    infallible=True,
    doc="The second argument when the condition is true, else the third.",
    examples=(("if(1 > 0, 'yes', 'no')", "'yes'"), ("if('', 1, 2)", "2")),
)
def _if(condition: Value, then: Value, otherwise: Value = None) -> Value:
    return then if is_truthy(condition) else otherwise


@declare(
    "multiIf",
    "condition: any",
    "then: any",
    "more: any",
    "others...: any",
    returns="any",
    infallible=True,
    doc="Pairs of a condition and a value, then a default: the value of the first true condition.",
    examples=(("multiIf(false, 'a', true, 'b', 'c')", "'b'"), ("multiIf(false, 'a', 'c')", "'c'")),
)
def _multi_if(*arguments: Value) -> Value:
    pairs = len(arguments) // 2
    for pair in range(pairs):
        if is_truthy(arguments[2 * pair]):
            return arguments[2 * pair + 1]
    return arguments[-1] if len(arguments) % 2 else None
