"""Superfluous tokens: commas before closing brackets, semicolons between statements that end without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.formatter.concrete import Concrete, TokenSpan
from hoglab.hog.parser.forms import SPECIAL_FORMS
from hoglab.hog.parser.precedence import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoglab.hog.parser.lexer import Token

_ENDS = frozenset({"string", "literal", "quoted", "f-end", ")", "]", "}", "/>", "</"})
_BEGINS = frozenset({"name", "reserved", "string", "number", "literal", "quoted", "f'", "}", "eof"})
# Words that would go on with what stands before them, or that what stands behind them would go on with.
_JOINING = frozenset({*WORDS, *SPECIAL_FORMS} - {"true", "false"}) | {
    "else", "when", "then", "end", "return", "catch", "finally", "select", "with", "distinct", "from", "cohort",
}  # fmt: skip
_COMMA_LISTS = frozenset({"call", "array", "tuple", "dict", "parameters"})


def superfluous_commas(concrete: Concrete) -> set[int]:
    """Return the commas directly before a closing bracket, except the one that makes a tuple of one element."""
    commas: set[int] = set()
    for close, kind in concrete.lists.items():
        if kind in _COMMA_LISTS and concrete.tokens[close - 1].kind == ",":
            commas.add(close - 1)
    for span in spans(concrete.root):
        if isinstance(span.node, n.Tuple) and len(span.node.exprs) == 1:
            commas.difference_update(part for part in span.parts() if isinstance(part, int))
    return commas


def superfluous_semicolons(concrete: Concrete) -> set[int]:
    """Return the semicolons without which the text has the same meaning, judged by the tokens on both sides."""
    tokens = concrete.tokens
    kept, before_else = _needed(concrete), _before_else(concrete)
    superfluous: set[int] = set()
    at = 0
    while at < len(tokens):
        if tokens[at].kind != ";" or at in kept:
            at += 1
            continue
        end = at
        while tokens[end].kind == ";" and end not in kept:
            end += 1
        before = tokens[at - 1] if at else None
        over = before is None or _separate(before, tokens[end], may_be_else=at in before_else)
        start = at if over else at + 1
        superfluous.update(range(start, end))
        at = end
    return superfluous


def spans(root: TokenSpan) -> Iterator[TokenSpan]:
    """Yield the span and all inside it."""
    stack = [root]
    while stack:
        span = stack.pop()
        yield span
        stack.extend(span.children)


def _before_else(concrete: Concrete) -> set[int]:
    """Return the semicolons that end the first branch of an `if` that has a second one."""
    semicolons: set[int] = set()
    for span in spans(concrete.root):
        if isinstance(span.node, n.IfStatement) and span.node.else_ is not None:
            then = next(child for child in span.children if child.kind == "statement")
            semicolons.add(then.end - 1)
    return semicolons


def _separate(before: Token, after: Token, *, may_be_else: bool) -> bool:
    """Return whether a statement that ends with one token is certainly over where the other one follows."""
    if before.kind == ";" or (before.kind == "{" and after.kind != "}"):
        return True
    joins = after.kind not in _BEGINS or after.word in _JOINING - {"return"}
    if joins and not (may_be_else and after.word == "else"):
        return False
    if before.kind == "name":
        return after.kind in ("eof", "}", "reserved") or before.word not in _JOINING
    return before.kind in _ENDS or (before.kind == "number" and after.kind != "number")


def _needed(concrete: Concrete) -> set[int]:
    """Return the semicolons inside the heads of loops, empty bodies, and those that make a block of a lambda's body."""
    needed: set[int] = set()
    tokens = concrete.tokens
    for span in spans(concrete.root):
        node = span.node
        if isinstance(node, n.ForStatement):
            opening = span.start + 1
            needed.update(
                part
                for part in span.parts()
                if isinstance(part, int) and opening < part < concrete.closing[opening]
            )
        elif isinstance(node, n.ExprStatement) and node.expr is None:
            needed.add(span.start)
        elif span.kind == "body" and isinstance(node, n.Block) and len(node.declarations) < 2:
            needed.update(at for at in range(span.start, span.end) if tokens[at].kind == ";")
    return needed
