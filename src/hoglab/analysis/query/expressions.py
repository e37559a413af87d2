"""HogQL expressions over one event as SQL: what ``math_hogql`` may say (spec experiment-results 1.6).

An expression is translated node by node; names that it does not know are refused, and every constant is a bound
parameter. A property is text until arithmetic asks for a number, as in filters. A comparison is true or false: what is
missing equals what is missing and nothing else, and is neither less nor more, as in Hog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from hoglab.analysis.query.dialect import Dialect
from hoglab.analysis.query.model import Question, group_column, group_property
from hoglab.filters.model import GROUP_TYPES, FilterError
from hoglab.filters.sql import Parameters
from hoglab.hog import nodes
from hoglab.hog.errors import HogSyntaxError
from hoglab.hog.parser import parse_expression

MAX_LENGTH = 5_000
"""The longest expression, in characters."""
MAX_NODES = 200
"""How many parts one expression may have."""


class RowScope(Protocol):
    """What an expression is part of: see `hoglab.analysis.query.scope.Scope`."""

    @property
    def question(self) -> Question: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def parameters(self) -> Parameters: ...

    def bind(self, value: str | float | datetime) -> str: ...


class Kind(Enum):
    """What an expression is, before anything is made of it."""

    TEXT = auto()
    NUMBER = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression of the engine."""

    text: str
    kind: Kind


Columns = Callable[[Sequence[str | int]], Sql]
"""What names mean over a row that is no event. Raises `FilterError`."""

_COLUMNS = {
    **{name: name for name in ("event", "distinct_id", "person_id")},
    **{f"$group_{index}": f"group_{index}" for index in range(GROUP_TYPES)},
}
_JSON = {("properties",): "properties", ("person", "properties"): "person_properties"}
_ARITHMETIC = frozenset("+-*/")
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
"""What parts of the language that have no translation are called."""
_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OF_NUMBERS = {"abs": "abs", "floor": "floor", "ceil": "ceil", "ceiling": "ceil"}
_TO_NUMBER = frozenset(
    {"tofloat", "tofloatornull", "tofloatorzero", "tofloatordefault", "toint", "tointornull", "todecimal"}
)


def read(text: str, place: str) -> nodes.Expr:
    """The expression of a text. Raises `FilterError`, which says at which character it cannot be read."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"can have at most {MAX_LENGTH} characters.", place)
    try:
        return parse_expression(text)
    except HogSyntaxError as error:
        raise FilterError(f"cannot be read at character {error.offset + 1}: {error}", place) from error


def truth_of(expression: nodes.Expr, scope: RowScope, place: str) -> str:
    """Whether the expression holds on a row of events; NULL where that cannot be said. Raises `FilterError`."""
    return _Translation(scope, place, None).of(expression).truth(expression)


def number_of(expression: nodes.Expr, scope: RowScope, place: str, columns: Columns | None = None) -> str:
    """The expression on a row of events, or of what has ``columns``, as float64, NULL where it has no number.

    Raises `FilterError`, which says at which character of what ``place`` holds.
    """
    return _Translation(scope, place, columns).of(expression).number(expression)


def text_of(expression: nodes.Expr, scope: RowScope, place: str, columns: Columns | None = None) -> str:
    """The expression on such a row as text, for telling values apart. Raises `FilterError` likewise."""
    return _Translation(scope, place, columns).of(expression).text(expression)


@dataclass(frozen=True, slots=True)
class _Translation:
    scope: RowScope
    place: str
    columns: Columns | None

    def of(self, expression: nodes.Expr) -> _Translation:
        """Itself, for an expression that is small enough."""
        if sum(1 for _ in nodes.walk(expression)) > MAX_NODES:
            raise FilterError(f"an expression can have at most {MAX_NODES} parts", self.place)
        return self

    def _refused(self, node: nodes.Expr, reason: str) -> FilterError:
        return FilterError(f"{reason} (at character {node.start + 1})", self.place)

    def number(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        match found.kind:
            case Kind.NUMBER:
                return found.text
            case Kind.TRUTH:
                return f"CASE WHEN {found.text} THEN 1.0 WHEN NOT {found.text} THEN 0.0 END"
        return self.scope.dialect.number(found.text)

    def text(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        match found.kind:
            case Kind.NUMBER:
                return self.scope.dialect.text_of_number(found.text)
            case Kind.TRUTH:
                return f"CASE WHEN {found.text} THEN 'true' WHEN NOT {found.text} THEN 'false' END"
        return found.text

    def truth(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        if found.kind is Kind.TRUTH:
            return found.text
        if found.kind is Kind.NUMBER:
            return f"{found.text} <> 0"
        return f"{found.text} = 'true'"

    def translated(self, node: nodes.Expr) -> Sql:
        match node:
            case nodes.Constant():
                return self._constant(node)
            case nodes.Field():
                return self._field(node, node.chain)
            case nodes.ArrayAccess(array=nodes.Field(chain=chain), property=nodes.Constant(value=str(key))):
                return self._field(node, (*chain, key))
            case nodes.ArithmeticOperation(op=op) if op not in _ARITHMETIC:
                raise self._refused(node, f"the operator {op} cannot be used in metrics")
            case nodes.ArithmeticOperation(op=op):
                left, right = self.number(node.left), self.number(node.right)
                if op == "/":
                    return Sql(f"({left} / nullif({right}, 0))", Kind.NUMBER)
                return Sql(f"({left} {op} {right})", Kind.NUMBER)
            case nodes.CompareOperation():
                return self._comparison(node)
            case nodes.BetweenExpr():
                between = (
                    f"{self.number(node.expr)} BETWEEN {self.number(node.low)} AND {self.number(node.high)}"
                )
                return Sql(f"({'NOT ' if node.negated else ''}coalesce({between}, FALSE))", Kind.TRUTH)
            case nodes.And():
                return Sql("(" + " AND ".join(map(self.truth, node.exprs)) + ")", Kind.TRUTH)
            case nodes.Or():
                return Sql("(" + " OR ".join(map(self.truth, node.exprs)) + ")", Kind.TRUTH)
            case nodes.Not():
                return Sql(f"(NOT {self.truth(node.expr)})", Kind.TRUTH)
            case nodes.Call():
                return self._call(node)
        raise self._refused(
            node, f"{_WORDS.get(type(node).__name__, 'what stands here')} cannot be used in metrics"
        )

    def _constant(self, node: nodes.Constant) -> Sql:
        value = node.value
        if value is None:
            return Sql("NULL", Kind.NUMBER)
        if isinstance(value, bool):
            return Sql("TRUE" if value else "FALSE", Kind.TRUTH)
        if isinstance(value, str):
            return Sql(self.scope.bind(value), Kind.TEXT)
        assert isinstance(value, int | float)  # noqa: S101 - the parser makes nothing else
        number = float(value) if abs(value) <= 2**1000 else math.inf
        if not math.isfinite(number):
            raise self._refused(node, "the number is too large")
        return Sql(self.scope.bind(number), Kind.NUMBER)

    def _field(self, node: nodes.Expr, chain: tuple[str, ...]) -> Sql:
        if self.columns is not None:
            return self.columns(chain)
        if len(chain) == 1 and chain[0] in _COLUMNS:
            return Sql(f"CAST({_COLUMNS[chain[0]]} AS VARCHAR)", Kind.TEXT)
        column = _JSON.get(tuple(map(str, chain[:-1])))
        asked = group_property(chain)
        question = self.scope.question
        if (
            asked is not None
            and asked[0] in question.groups
            and asked[1] in question.group_properties[asked[0]]
        ):
            column = group_column(asked[0])
        if column is None:
            raise self._refused(node, f"{'.'.join(map(str, chain))} cannot be used in metrics")
        text = self.scope.dialect.property_text(column, str(chain[-1]), self.scope.parameters)
        return Sql(text, Kind.TEXT)

    def _comparison(self, node: nodes.CompareOperation) -> Sql:
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, nodes.Constant) and side.value is None and node.op in ("==", "!="):
                return Sql(f"({self.text(other)} IS {'NOT ' if node.op == '!=' else ''}NULL)", Kind.TRUTH)
        operator = _COMPARISONS.get(node.op)
        if operator is None:
            raise self._refused(node, f"the operator {node.op} cannot be used in metrics")
        kinds = {self.translated(side).kind for side in (node.left, node.right)}
        as_ = self.number if Kind.NUMBER in kinds else self.text
        left, right = as_(node.left), as_(node.right)
        neither = f"({left} IS NULL AND {right} IS NULL)"
        missing = {"==": neither, "!=": f"(NOT {neither})"}.get(node.op, "FALSE")
        return Sql(f"coalesce({left} {operator} {right}, {missing})", Kind.TRUTH)

    def _call(self, node: nodes.Call) -> Sql:
        name, arguments = node.name.lower(), node.args
        if node.distinct or any(
            part is not None for part in (node.params, node.filter_expr, node.order_by, node.within_group)
        ):
            raise self._refused(node, f"{node.name}() with more than its arguments cannot be used")
        if name in _TO_NUMBER and len(arguments) == 1:
            number = self.number(arguments[0])
            return Sql(f"coalesce({number}, 0)" if name.endswith("orzero") else number, Kind.NUMBER)
        if name in _OF_NUMBERS and len(arguments) == 1:
            return Sql(f"{_OF_NUMBERS[name]}({self.number(arguments[0])})", Kind.NUMBER)
        special = _SPECIAL.get((name, len(arguments)))
        if special is None:
            raise self._refused(node, f"{node.name}() with {len(arguments)} arguments cannot be used")
        return special(self, arguments)

    def if_(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        condition, first, second = arguments
        if all(self.translated(part).kind is Kind.TEXT for part in (first, second)):
            text = f"CASE WHEN {self.truth(condition)} THEN {self.text(first)} ELSE {self.text(second)} END"
            return Sql(text, Kind.TEXT)
        number = f"CASE WHEN {self.truth(condition)} THEN {self.number(first)} ELSE {self.number(second)} END"
        return Sql(number, Kind.NUMBER)

    def if_null(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        first, second = map(self.translated, arguments)
        if first.kind is Kind.TEXT and second.kind is Kind.TEXT:
            return Sql(f"coalesce({first.text}, {second.text})", Kind.TEXT)
        return Sql(f"coalesce({self.number(arguments[0])}, {self.number(arguments[1])})", Kind.NUMBER)

    def negated(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"(NOT {self.truth(arguments[0])})", Kind.TRUTH)

    def to_string(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(self.text(arguments[0]), Kind.TEXT)

    def lower(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"lower({self.text(arguments[0])})", Kind.TEXT)

    def smaller(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        left, right = map(self.number, arguments)
        return Sql(
            f"CASE WHEN {left} <= {right} THEN {left} WHEN {left} > {right} THEN {right} END", Kind.NUMBER
        )

    def larger(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        left, right = map(self.number, arguments)
        return Sql(
            f"CASE WHEN {left} >= {right} THEN {left} WHEN {left} < {right} THEN {right} END", Kind.NUMBER
        )


_SPECIAL: Mapping[tuple[str, int], Callable[[_Translation, tuple[nodes.Expr, ...]], Sql]] = {
    ("if", 3): _Translation.if_,
    ("coalesce", 2): _Translation.if_null,
    ("ifnull", 2): _Translation.if_null,
    ("not", 1): _Translation.negated,  # what the parser makes of ``not (…)``
    ("tostring", 1): _Translation.to_string,
    ("lower", 1): _Translation.lower,
    ("least", 2): _Translation.smaller,
    ("greatest", 2): _Translation.larger,
}
