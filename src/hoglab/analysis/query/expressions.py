"""HogQL expressions over one event as SQL, for ``math_hogql`` (spec experiment-results 1.6).

An expression is translated node by node; unknown names are refused, and every constant is a bound parameter. A
property is text until arithmetic asks for a number, as in filters. A comparison is true or false: a missing value
equals a missing value and nothing else, and is neither less nor more, as in Hog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, ClassVar, Protocol

from hoglab.analysis.query.model import chain_of
from hoglab.filters.model import GROUP_TYPES, FilterError
from hoglab.filters.sql import Parameters, Row
from hoglab.hog import HogSyntaxError, nodes, parse_expression
from hoglab.storage.event_store.dialects import Dialect

MAX_LENGTH = 5_000
"""The longest expression, in characters."""
MAX_NODES = 200
"""Maximum number of parts of one expression."""
MAX_DEPTH = 50
"""Maximum depth of nested parts; a sum or product of many is one level. The time that an engine takes for a level grows

with the number of levels, and nothing can interrupt it.
"""


class RowScope(Protocol):
    """The part of a scope that expressions need: see `hoglab.analysis.query.scope.Scope`."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def parameters(self) -> Parameters: ...

    @property
    def row(self) -> Row: ...

    def bind(self, value: str | float | datetime) -> str: ...

    def group_place(self, chain: Sequence[str]) -> tuple[str, str] | None:
        """Return the JSON column and the key of a property of an event's group; None for other names."""
        ...


class ExpressionKind(Enum):
    """Kind of an expression, known before its translation."""

    TEXT = auto()
    NUMBER = auto()
    TRUTH = auto()
    MOMENT = auto()
    """Microseconds since the epoch."""
    LOCAL = auto()
    """Microseconds of local time since the epoch."""
    DAY = auto()
    """Days of local time since the epoch."""


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression of the engine. A ``plain`` one, such as a column, a property or a bound value, may be repeated."""

    text: str
    kind: ExpressionKind
    plain: bool = False


Columns = Callable[[Sequence[str | int]], Sql]
"""Function that gives the meaning of names over a row that is no event. Raises `FilterError`."""

_COLUMNS = {
    **{name: name for name in ("event", "distinct_id", "person_id")},
    **{f"$group_{index}": f"group_{index}" for index in range(GROUP_TYPES)},
}
_JSON = {("properties",): "properties", ("person", "properties"): "person_properties"}
_ARITHMETIC = frozenset("+-*/")
_OF_MANY = frozenset("+-*")
_WORDS = {
    "Alias": "a name of a column",
    "Array": "an array",
    "ArrayAccess": "an element of something else than a property",
    "Dict": "an object",
    "ExprCall": "a call of something else than a function",
    "Lambda": "a function of one's own",
    "Placeholder": "a placeholder",
    "Tuple": "a tuple",
    "TupleAccess": "an element of a tuple",
    "TryCast": "a cast",
    "TypeCast": "a cast",
}
"""Names of the parts of the language without a translation."""
_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OF_NUMBERS = {"abs": "abs", "floor": "floor", "ceil": "ceil", "ceiling": "ceil"}
_TO_NUMBER = frozenset(
    {"tofloat", "tofloatornull", "tofloatorzero", "tofloatordefault", "toint", "tointornull", "todecimal"}
)


def read(text: str, place: str) -> nodes.Expr:
    """Parse the expression of a text. Raises `FilterError` with the character at which it cannot be read."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"can have at most {MAX_LENGTH} characters.", place)
    try:
        return parse_expression(text)
    except HogSyntaxError as error:
        raise FilterError(f"cannot be read at character {error.offset + 1}: {error}", place) from error


def truth_of(expression: nodes.Expr, scope: RowScope, place: str) -> str:
    """Return the condition that the expression holds on a row of events; it may be NULL. Raises `FilterError`."""
    return Translation(scope, place, None).whole(expression, Translation.truth)


def number_of(expression: nodes.Expr, scope: RowScope, place: str, columns: Columns | None = None) -> str:
    """Return the expression on a row of events, or over ``columns``, as float64, NULL where it is no number.

    Raises `FilterError` with the character of the text that ``place`` holds.
    """
    return Translation(scope, place, columns).whole(expression, Translation.number)


def text_of(expression: nodes.Expr, scope: RowScope, place: str, columns: Columns | None = None) -> str:
    """Return the expression on a row as text, to tell values apart. Raises `FilterError` as `number_of` does."""
    return Translation(scope, place, columns).whole(expression, Translation.text)


def _goes_on(node: nodes.Node, part: nodes.Node) -> bool:
    """Return whether a part is the beginning of the same sum or product: ``a + b`` of ``a + b + c``."""
    return (
        isinstance(node, nodes.ArithmeticOperation)
        and isinstance(part, nodes.ArithmeticOperation)
        and part is node.left
        and {node.op, part.op} <= _OF_MANY
    )


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one expression, each node of which is translated once.

    No operand is written twice, which would double the statement with each level of nesting. Nor are operands put
    where the engine itself writes them twice: into ``nullif`` or as the first operand of ``BETWEEN``. A value that
    a result needs several times is bound to a name (`Dialect.bound`).
    """

    language: ClassVar[str] = "metrics"
    """Texts that are translated, in the plural."""

    scope: RowScope
    place: str
    columns: Columns | None

    def whole(self, expression: nodes.Expr, as_: Callable[[Any, nodes.Expr], Sql]) -> str:
        """Translate the expression, which must be small enough, into the requested form."""
        self._check_size(expression)
        return self.scope.parameters.written(as_(self, expression).text, self.place)

    def sized(self, expression: nodes.Expr) -> Sql:
        """Translate the expression, which must be small enough, in its own kind."""
        self._check_size(expression)
        sql = self.translated(expression)
        self.scope.parameters.written(sql.text, self.place)
        return sql

    def _check_size(self, expression: nodes.Expr) -> None:
        left: list[tuple[nodes.Node, int]] = [(expression, 1)]
        for count in range(1, MAX_NODES + 2):
            if not left:
                return
            node, depth = left.pop()
            if depth > MAX_DEPTH:
                raise FilterError(f"an expression can be nested at most {MAX_DEPTH} levels deep", self.place)
            left += [(part, depth + (not _goes_on(node, part))) for part in nodes.children(node)]
            if count + len(left) > MAX_NODES:
                raise FilterError(f"an expression can have at most {MAX_NODES} parts", self.place)

    def refused(self, node: nodes.Expr, reason: str) -> FilterError:
        return FilterError(f"{reason} (at character {node.start + 1})", self.place)

    def number(self, node: nodes.Expr) -> Sql:
        place = self.property_place(node)
        if place is not None:
            return Sql(self.scope.row.number(*place), ExpressionKind.NUMBER)
        return self.as_number(self.translated(node))

    def text(self, node: nodes.Expr) -> Sql:
        return self.as_text(self.translated(node))

    def truth(self, node: nodes.Expr) -> Sql:
        sql = self.translated(node)
        if sql.kind is ExpressionKind.TRUTH:
            return sql
        holds = "<> 0" if sql.kind is ExpressionKind.NUMBER else "= 'true'"
        return Sql(f"({sql.text} {holds})", ExpressionKind.TRUTH)

    def as_number(self, sql: Sql) -> Sql:
        match sql.kind:
            case ExpressionKind.NUMBER:
                return sql
            case ExpressionKind.TRUTH:
                return Sql(self.scope.dialect.number_of_truth(sql.text), ExpressionKind.NUMBER)
        return Sql(self._bound(self.scope.dialect.number, sql), ExpressionKind.NUMBER)

    def as_text(self, sql: Sql) -> Sql:
        match sql.kind:
            case ExpressionKind.NUMBER:
                return Sql(self.scope.dialect.text_of_number(sql.text), ExpressionKind.TEXT)
            case ExpressionKind.TRUTH:
                return Sql(self.scope.dialect.text_of_truth(sql.text), ExpressionKind.TEXT)
        return sql

    def _bound(self, body: Callable[..., str], *values: Sql) -> str:
        """Return SQL of ``body`` for values, each of which it may write several times."""
        texts = [value.text for value in values]
        if all(value.plain for value in values):
            return body(*texts)
        return self.scope.dialect.bound(texts, body)

    def translated(self, node: nodes.Expr) -> Sql:
        match node:
            case nodes.Constant():
                return self.constant(node)
            case nodes.Field() | nodes.ArrayAccess() if (chain := chain_of(node)) is not None:
                return self.event_value(node, chain)
            case nodes.ArithmeticOperation(op=op) if op not in _ARITHMETIC:
                raise self.refused(node, f"the operator {op} cannot be used in {self.language}")
            case nodes.ArithmeticOperation(op=op):
                left, right = self.number(node.left), self.number(node.right)
                if op == "/":
                    divisor = self._bound(lambda it: f"CASE WHEN {it} <> 0 THEN {it} END", right)
                    return Sql(f"({left.text} / {divisor})", ExpressionKind.NUMBER)
                return Sql(f"({left.text} {op} {right.text})", ExpressionKind.NUMBER)
            case nodes.CompareOperation():
                return self.comparison(node)
            case nodes.BetweenExpr():
                between = self._bound(
                    lambda it, low, high: f"({it} >= {low} AND {it} <= {high})",
                    *map(self.number, (node.expr, node.low, node.high)),
                )
                return Sql(
                    f"({'NOT ' if node.negated else ''}coalesce({between}, FALSE))", ExpressionKind.TRUTH
                )
            case nodes.And():
                return self._joined("AND", node.exprs)
            case nodes.Or():
                return self._joined("OR", node.exprs)
            case nodes.Not():
                return self.negated((node.expr,))
            case nodes.Call():
                return self.call(node)
        raise self.refused(
            node, f"{_WORDS.get(type(node).__name__, 'what stands here')} cannot be used in {self.language}"
        )

    def _joined(self, operator: str, parts: Sequence[nodes.Expr]) -> Sql:
        return Sql(
            "(" + f" {operator} ".join(self.truth(part).text for part in parts) + ")", ExpressionKind.TRUTH
        )

    def constant(self, node: nodes.Constant) -> Sql:
        value = node.value
        if value is None:
            return Sql("CAST(NULL AS DOUBLE)", ExpressionKind.NUMBER, plain=True)
        if isinstance(value, bool):
            return Sql("TRUE" if value else "FALSE", ExpressionKind.TRUTH, plain=True)
        if isinstance(value, str):
            return Sql(self.scope.bind(value), ExpressionKind.TEXT, plain=True)
        assert isinstance(value, int | float)  # noqa: S101 - the parser makes nothing else
        number = float(value) if abs(value) <= 2**1000 else math.inf
        if not math.isfinite(number):
            raise self.refused(node, "the number is too large")
        return Sql(self.scope.bind(number), ExpressionKind.NUMBER, plain=True)

    def event_value(self, node: nodes.Expr, chain: tuple[str, ...]) -> Sql:
        if self.columns is not None:
            return self.columns(chain)
        if len(chain) == 1 and chain[0] in _COLUMNS:
            column = self.scope.row.column(_COLUMNS[chain[0]])
            return Sql(f"CAST({column} AS VARCHAR)", ExpressionKind.TEXT, plain=True)
        place = self.property_place(node)
        if place is None:
            raise self.refused(node, f"{'.'.join(map(str, chain))} cannot be used in {self.language}")
        return Sql(self.scope.row.text(*place), ExpressionKind.TEXT, plain=True)

    def property_place(self, node: nodes.Expr) -> tuple[str, str] | None:
        """Return the JSON column and the key of a property of an event; None for anything else."""
        chain = chain_of(node)
        if chain is None or self.columns is not None:
            return None
        column = _JSON.get(tuple(map(str, chain[:-1])))
        return self.scope.group_place(chain) or (None if column is None else (column, str(chain[-1])))

    def comparison(self, node: nodes.CompareOperation) -> Sql:
        negated = node.op == "!="
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, nodes.Constant) and side.value is None and node.op in ("==", "!="):
                operand = self.translated(other).text
                return Sql(f"({operand} IS {'NOT ' if negated else ''}NULL)", ExpressionKind.TRUTH)
        if node.op not in _COMPARISONS:
            raise self.refused(node, f"the operator {node.op} cannot be used in {self.language}")
        return self.compared(node, self.translated(node.left), self.translated(node.right))

    def compared(self, node: nodes.CompareOperation, first: Sql, second: Sql) -> Sql:
        """Return the comparison of two operands, each of which was translated once.

        Comparisons are nested: to translate an operand again at each level would take time that doubles with each.
        """
        operator, negated = _COMPARISONS[node.op], node.op == "!="
        sides = ((node.left, first), (node.right, second))
        as_number = any(operand.kind is ExpressionKind.NUMBER for _, operand in sides)
        left, right = ((self.as_number if as_number else self.as_text)(operand).text for _, operand in sides)
        is_known = any(
            isinstance(side, nodes.Constant) and not (as_number and operand.kind is ExpressionKind.TEXT)
            for side, operand in sides
        )
        if operator in ("=", "<>") and not is_known:  # both may be missing
            return Sql(f"({left} IS {'' if negated else 'NOT '}DISTINCT FROM {right})", ExpressionKind.TRUTH)
        return Sql(
            f"coalesce({left} {operator} {right}, {'TRUE' if negated else 'FALSE'})", ExpressionKind.TRUTH
        )

    def call(self, node: nodes.Call) -> Sql:
        name, arguments = node.name.lower(), node.args
        if node.distinct or any(
            part is not None for part in (node.params, node.filter_expr, node.order_by, node.within_group)
        ):
            raise self.refused(node, f"{node.name}() with more than its arguments cannot be used")
        if name in _TO_NUMBER and len(arguments) == 1:
            number = self.number(arguments[0])
            return (
                Sql(f"coalesce({number.text}, 0)", ExpressionKind.NUMBER)
                if name.endswith("orzero")
                else number
            )
        if name in _OF_NUMBERS and len(arguments) == 1:
            return Sql(f"{_OF_NUMBERS[name]}({self.number(arguments[0]).text})", ExpressionKind.NUMBER)
        special = _SPECIAL.get((name, len(arguments)))
        if special is None:
            raise self.refused(node, f"{node.name}() with {len(arguments)} arguments cannot be used")
        return special(self, arguments)

    def _alike(self, first: nodes.Expr, second: nodes.Expr) -> tuple[Sql, Sql]:
        """Return both operands as text where they are text, else as numbers."""
        operands = self.translated(first), self.translated(second)
        if all(operand.kind is ExpressionKind.TEXT for operand in operands):
            return operands
        return self.as_number(operands[0]), self.as_number(operands[1])

    def if_(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        condition = self.truth(arguments[0])
        first, second = self._alike(*arguments[1:])
        return Sql(f"CASE WHEN {condition.text} THEN {first.text} ELSE {second.text} END", first.kind)

    def if_null(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        first, second = self._alike(*arguments)
        return Sql(f"coalesce({first.text}, {second.text})", first.kind)

    def negated(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"(NOT {self.truth(arguments[0]).text})", ExpressionKind.TRUTH)

    def to_string(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self.text(arguments[0])

    def lower(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"lower({self.text(arguments[0]).text})", ExpressionKind.TEXT)

    def smaller(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._extreme("<=", ">", arguments)

    def larger(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._extreme(">=", "<", arguments)

    def _extreme(self, first: str, second: str, arguments: tuple[nodes.Expr, ...]) -> Sql:
        """Return the smaller or the larger of two numbers; of NULL and anything NULL."""
        extreme = self._bound(
            lambda left, right: (
                f"CASE WHEN {left} {first} {right} THEN {left} WHEN {left} {second} {right} THEN {right} END"
            ),
            *map(self.number, arguments),
        )
        return Sql(extreme, ExpressionKind.NUMBER)


_SPECIAL: Mapping[tuple[str, int], Callable[[Translation, tuple[nodes.Expr, ...]], Sql]] = {
    ("if", 3): Translation.if_,
    ("coalesce", 2): Translation.if_null,
    ("ifnull", 2): Translation.if_null,
    ("not", 1): Translation.negated,  # what the parser makes of ``not (…)``
    ("tostring", 1): Translation.to_string,
    ("lower", 1): Translation.lower,
    ("least", 2): Translation.smaller,
    ("greatest", 2): Translation.larger,
}
