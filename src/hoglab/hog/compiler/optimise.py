"""Constant folding: the value of an expression made of constants, computed once.

The tree itself does not change (the bytecode backend needs the written form); the Python backend asks here before it
emits code for an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hoglab.hog import nodes as n
from hoglab.hog.rt import coerce
from hoglab.hog.rt.numbers import exact
from hoglab.hog.rt.printing import concat_text, is_truthy

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Final = object()
"""Not a constant."""

MAX_FOLDED_TEXT: Final = 10_000
"""Maximum length of joined constants; longer ones are left to the running program, which accounts for memory."""

_FOLDED: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
"""Comparisons of constants that are folded; others may fail."""


class Folder:
    """Folder of the constant expressions of one tree; every node is examined once."""

    def __init__(self) -> None:
        self.memo: dict[n.Expr, Any] = {}

    def value(self, node: n.Expr) -> Any:
        """Return the constant that the expression always gives, or `UNKNOWN`."""
        if isinstance(node, n.Constant):
            return exact(node.value)
        visit = _VISITS.get(type(node))
        if visit is None:
            return UNKNOWN
        constant = self.memo.get(node, self)
        if constant is self:
            constant = self.memo[node] = visit(self, node)
        return constant


def _arithmetic(folder: Folder, node: n.ArithmeticOperation) -> Any:
    left, right = folder.value(node.left), folder.value(node.right)
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return coerce.ARITHMETIC[node.op](left, right)


def _compare(folder: Folder, node: n.CompareOperation) -> Any:
    left, right = folder.value(node.left), folder.value(node.right)
    if node.op not in _FOLDED or left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return coerce.COMPARISON[node.op](left, right)


def _not(folder: Folder, node: n.Not) -> Any:
    value = folder.value(node.expr)
    return UNKNOWN if value is UNKNOWN else not is_truthy(value)


def _concat(folder: Folder, node: n.Concat) -> Any:
    parts = [folder.value(part) for part in node.exprs]
    if any(part is UNKNOWN for part in parts):
        return UNKNOWN
    text = "".join(concat_text(part) for part in parts)
    return text if len(text) <= MAX_FOLDED_TEXT else UNKNOWN


_VISITS: dict[type[n.Expr], Callable[..., Any]] = {
    n.ArithmeticOperation: _arithmetic,
    n.CompareOperation: _compare,
    n.Not: _not,
    n.Concat: _concat,
}
