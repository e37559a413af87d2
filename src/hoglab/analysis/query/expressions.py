"""HogQL expressions over one event as SQL: what ``math_hogql`` may say (spec experiment-results 1.6).

An expression is translated node by node; names that it does not know are refused, and every constant is a bound
parameter. A property is text until arithmetic asks for a number, as in filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from hoglab.analysis.query.scope import Scope
from hoglab.filters.model import FilterError
from hoglab.hog import nodes

MAX_NODES = 200
"""How many parts one expression may have."""


class _Kind(Enum):
    TEXT = auto()
    NUMBER = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True)
class _Sql:
    text: str
    kind: _Kind


_COLUMNS = {"event": "event", "distinct_id": "distinct_id", "person_id": "person_id"}
_JSON = {("properties",): "properties", ("person", "properties"): "person_properties"}
_ARITHMETIC = frozenset("+-*/")
_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OF_NUMBERS = {"abs": "abs", "floor": "floor", "ceil": "ceil", "ceiling": "ceil"}
_TO_NUMBER = frozenset(
    {"tofloat", "tofloatornull", "tofloatorzero", "tofloatordefault", "toint", "tointornull", "todecimal"}
)


def number_of(expression: nodes.Expr, scope: Scope) -> str:
    """The expression on a row of events as float64, NULL where it has no number. Raises `FilterError`."""
    _require_small(expression)
    return _Translation(scope).number(expression)


def text_of(expression: nodes.Expr, scope: Scope) -> str:
    """The expression on a row of events as text, for telling values apart. Raises `FilterError`."""
    _require_small(expression)
    return _Translation(scope).text(expression)


def _require_small(expression: nodes.Expr) -> None:
    if sum(1 for _ in nodes.walk(expression)) > MAX_NODES:
        raise FilterError(f"an expression can have at most {MAX_NODES} parts", "math_hogql")


@dataclass(frozen=True, slots=True)
class _Translation:
    scope: Scope

    def number(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        match found.kind:
            case _Kind.NUMBER:
                return found.text
            case _Kind.TRUTH:
                return f"CASE WHEN {found.text} THEN 1.0 WHEN NOT {found.text} THEN 0.0 END"
        return self.scope.dialect.number(found.text)

    def text(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        match found.kind:
            case _Kind.NUMBER:
                return self.scope.dialect.text_of_number(found.text)
            case _Kind.TRUTH:
                return f"CASE WHEN {found.text} THEN 'true' WHEN NOT {found.text} THEN 'false' END"
        return found.text

    def truth(self, node: nodes.Expr) -> str:
        found = self.translated(node)
        if found.kind is _Kind.TRUTH:
            return found.text
        if found.kind is _Kind.NUMBER:
            return f"{found.text} <> 0"
        return f"{found.text} = 'true'"

    def translated(self, node: nodes.Expr) -> _Sql:
        match node:
            case nodes.Constant():
                return self._constant(node.value)
            case nodes.Field():
                return self._field(node.chain)
            case nodes.ArrayAccess(array=nodes.Field(chain=chain), property=nodes.Constant(value=str(key))):
                return self._field((*chain, key))
            case nodes.ArithmeticOperation(op=op) if op in _ARITHMETIC:
                left, right = self.number(node.left), self.number(node.right)
                if op == "/":
                    return _Sql(f"({left} / nullif({right}, 0))", _Kind.NUMBER)
                return _Sql(f"({left} {op} {right})", _Kind.NUMBER)
            case nodes.CompareOperation():
                return self._comparison(node)
            case nodes.BetweenExpr():
                between = (
                    f"{self.number(node.expr)} BETWEEN {self.number(node.low)} AND {self.number(node.high)}"
                )
                return _Sql(f"({'NOT ' if node.negated else ''}({between}))", _Kind.TRUTH)
            case nodes.And():
                return _Sql("(" + " AND ".join(map(self.truth, node.exprs)) + ")", _Kind.TRUTH)
            case nodes.Or():
                return _Sql("(" + " OR ".join(map(self.truth, node.exprs)) + ")", _Kind.TRUTH)
            case nodes.Not():
                return _Sql(f"(NOT {self.truth(node.expr)})", _Kind.TRUTH)
            case nodes.Call():
                return self._call(node)
        raise FilterError(f"{type(node).__name__} cannot be used in metrics", "math_hogql")

    def _constant(self, value: object) -> _Sql:
        if value is None:
            return _Sql("NULL", _Kind.NUMBER)
        if isinstance(value, bool):
            return _Sql("TRUE" if value else "FALSE", _Kind.TRUTH)
        if isinstance(value, str):
            return _Sql(self.scope.bind(value), _Kind.TEXT)
        assert isinstance(value, int | float)  # noqa: S101 - the parser makes nothing else
        number = float(value) if abs(value) <= 2**1000 else math.inf
        if not math.isfinite(number):
            raise FilterError("a number is too large", "math_hogql")
        return _Sql(self.scope.bind(number), _Kind.NUMBER)

    def _field(self, chain: tuple[str, ...]) -> _Sql:
        if len(chain) == 1 and chain[0] in _COLUMNS:
            return _Sql(f"CAST({_COLUMNS[chain[0]]} AS VARCHAR)", _Kind.TEXT)
        column = _JSON.get(tuple(map(str, chain[:-1])))
        if column is None:
            raise FilterError(f"{'.'.join(map(str, chain))} cannot be used in metrics", "math_hogql")
        text = self.scope.dialect.property_text(column, str(chain[-1]), self.scope.parameters)
        return _Sql(text, _Kind.TEXT)

    def _comparison(self, node: nodes.CompareOperation) -> _Sql:
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, nodes.Constant) and side.value is None and node.op in ("==", "!="):
                return _Sql(f"({self.text(other)} IS {'NOT ' if node.op == '!=' else ''}NULL)", _Kind.TRUTH)
        operator = _COMPARISONS.get(node.op)
        if operator is None:
            raise FilterError(f"the operator {node.op} cannot be used in metrics", "math_hogql")
        kinds = {self.translated(side).kind for side in (node.left, node.right)}
        as_ = self.number if _Kind.NUMBER in kinds else self.text
        return _Sql(f"({as_(node.left)} {operator} {as_(node.right)})", _Kind.TRUTH)

    def _call(self, node: nodes.Call) -> _Sql:
        name, arguments = node.name.lower(), node.args
        if name in _TO_NUMBER and len(arguments) == 1:
            number = self.number(arguments[0])
            return _Sql(f"coalesce({number}, 0)" if name.endswith("orzero") else number, _Kind.NUMBER)
        if name in _OF_NUMBERS and len(arguments) == 1:
            return _Sql(f"{_OF_NUMBERS[name]}({self.number(arguments[0])})", _Kind.NUMBER)
        special = _SPECIAL.get((name, len(arguments)))
        if special is None:
            raise FilterError(f"{node.name}() with {len(arguments)} arguments cannot be used", "math_hogql")
        return special(self, arguments)

    def if_(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        condition, first, second = arguments
        if all(self.translated(part).kind is _Kind.TEXT for part in (first, second)):
            text = f"CASE WHEN {self.truth(condition)} THEN {self.text(first)} ELSE {self.text(second)} END"
            return _Sql(text, _Kind.TEXT)
        number = f"CASE WHEN {self.truth(condition)} THEN {self.number(first)} ELSE {self.number(second)} END"
        return _Sql(number, _Kind.NUMBER)

    def if_null(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        first, second = map(self.translated, arguments)
        if first.kind is _Kind.TEXT and second.kind is _Kind.TEXT:
            return _Sql(f"coalesce({first.text}, {second.text})", _Kind.TEXT)
        return _Sql(f"coalesce({self.number(arguments[0])}, {self.number(arguments[1])})", _Kind.NUMBER)

    def to_string(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        return _Sql(self.text(arguments[0]), _Kind.TEXT)

    def lower(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        return _Sql(f"lower({self.text(arguments[0])})", _Kind.TEXT)

    def smaller(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        left, right = map(self.number, arguments)
        return _Sql(
            f"CASE WHEN {left} <= {right} THEN {left} WHEN {left} > {right} THEN {right} END", _Kind.NUMBER
        )

    def larger(self, arguments: tuple[nodes.Expr, ...]) -> _Sql:
        left, right = map(self.number, arguments)
        return _Sql(
            f"CASE WHEN {left} >= {right} THEN {left} WHEN {left} < {right} THEN {right} END", _Kind.NUMBER
        )


_SPECIAL: Mapping[tuple[str, int], Callable[[_Translation, tuple[nodes.Expr, ...]], _Sql]] = {
    ("if", 3): _Translation.if_,
    ("coalesce", 2): _Translation.if_null,
    ("ifnull", 2): _Translation.if_null,
    ("tostring", 1): _Translation.to_string,
    ("lower", 1): _Translation.lower,
    ("least", 2): _Translation.smaller,
    ("greatest", 2): _Translation.larger,
}
