"""Single conditions as fused filters see them: which property they look at, and in which well-known way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hoglab.filters.hog.properties import ROOTS
from hoglab.filters.hog.tree import shape
from hoglab.hog import nodes
from hoglab.hog.rt.coerce import ge, gt, le, like_matcher, lt
from hoglab.hog.rt.regex import compile_regex

if TYPE_CHECKING:
    from hoglab.hog.nodes import Expr

Chain = tuple[str, ...]

Kind = Literal["plain", "set", "text", "texts", "contains", "regex", "number"]
"""How a condition looks at a property: in no known way; whether it is there; compared with one text or several;
searched for a text (whatever the case) or a pattern; compared with a number."""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One condition. ``operand`` is what it compares with; ``negated`` says that it holds if that fails.

    ``when_null`` is its answer where the property is null or missing.
    """

    node: Expr
    chain: Chain = ()
    kind: Kind = "plain"
    operand: Any = None
    negated: bool = False
    when_null: bool = False


_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


class Decisions:
    """Turns expressions into decisions, the same expression into the same decision."""

    def __init__(self) -> None:
        self._known: dict[Any, Decision] = {}

    def of(self, conditions: Sequence[Expr]) -> frozenset[Decision]:
        """The decisions that must all hold for the conditions to hold; conjunctions are taken apart."""
        found = []
        todo = list(conditions)
        while todo:
            node = todo.pop()
            if isinstance(node, nodes.And):
                todo += node.exprs
            elif not (isinstance(node, nodes.Constant) and node.value is True):
                key = shape(node)
                if key not in self._known:
                    self._known[key] = _decision(node)
                found.append(self._known[key])
        return frozenset(found)


def _decision(node: Expr) -> Decision:
    found: Decision | None = None
    match node:
        case nodes.Not(expr=nodes.Call() as call):
            found = _pattern(node, call, negated=True)
        case nodes.Call():
            found = _pattern(node, node, negated=False)
        case nodes.CompareOperation(right=nodes.Constant(value=value)):
            found = _comparison(node, value)
        case nodes.CompareOperation(right=nodes.Tuple() as options):
            found = _membership(node, options)
    return found or Decision(node)


def _pattern(node: Expr, call: nodes.Call, *, negated: bool) -> Decision | None:
    match call:
        case nodes.Call(name="match", args=(subject, nodes.Constant(value=str() as pattern))) if pattern:
            chain = _text_of(subject)
            if chain is not None:
                in_null = compile_regex(pattern).search("null")
                return Decision(node, chain, "regex", pattern, negated, in_null is not negated)
    return None


def _comparison(node: nodes.CompareOperation, value: Any) -> Decision | None:
    if node.op in {"ilike", "not ilike"}:
        chain = _text_of(node.left)
        wanted = like_matcher(value, True) if isinstance(value, str) else None
        if chain is None or not isinstance(wanted, str):
            return None
        negated = node.op == "not ilike"
        return Decision(node, chain, "contains", wanted, negated, (wanted in "null") is not negated)
    chain = _chain(node.left)
    if chain is None:
        return None
    if node.op in {"==", "!="}:
        negated = node.op == "!="
        if value is None:
            return Decision(node, chain, "set", None, not negated, not negated)
        if isinstance(value, str):
            return Decision(node, chain, "text", value, negated, negated)
    if node.op in _ORDER and value.__class__ in (int, float):
        return Decision(node, chain, "number", (node.op, value), False, _ORDER[node.op](None, value))
    return None


def _membership(node: nodes.CompareOperation, options: nodes.Tuple) -> Decision | None:
    chain = _chain(node.left)
    values = [one.value for one in options.exprs if isinstance(one, nodes.Constant)]
    if chain is None or node.op not in {"in", "not in"} or len(values) != len(options.exprs):
        return None
    texts = frozenset(value for value in values if isinstance(value, str))
    negated = node.op == "not in"
    return Decision(node, chain, "texts", texts, negated, (None in values) is not negated)


def _chain(node: Expr) -> Chain | None:
    return node.chain if isinstance(node, nodes.Field) and node.chain[0] in ROOTS else None


def _text_of(node: Expr) -> Chain | None:
    """The property whose text an expression takes."""
    match node:
        case nodes.Call(name="toString", args=(subject,)):
            return _chain(subject)
    return None
