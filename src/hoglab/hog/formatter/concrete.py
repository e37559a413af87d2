"""The concrete tree: the tokens of each construct, as the parser saw them.

The syntax tree does not say how a construct was written (`a ? b : c` or `if(a, b, c)`, brackets, quotes), and the
formatter must keep it. So the parser is watched while it parses: every construct becomes a span of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.parser.lexer import tokenize
from hoglab.hog.parser.precedence import SYMBOLS, WORDS
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.hog.parser.statements import StatementParser

if TYPE_CHECKING:
    from hoglab.hog.parser.lexer import Token
    from hoglab.hog.parser.literals import Arguments
    from hoglab.hog.sql_nodes import SelectQuery

OPENING = {"(": ")", "[": "]", "{": "}", "{{": "}}"}


@dataclass(slots=True, eq=False)
class TokenSpan:
    """The tokens `start`..`end` (exclusive) of one construct; `children` are the constructs inside, in order.

    `kind` is `source`, `statement`, `expression` (with its operators), `operand`, `postfix`, `infix` (an
    operator and its right side; `level` is its precedence), `lambda`, `body` (of a lambda, in braces) or `query`.
    `node` is its syntax tree.
    """

    kind: str
    start: int
    end: int = 0
    level: int = 0
    children: list[TokenSpan] = field(default_factory=list)
    node: Any = None

    def parts(self) -> list[int | TokenSpan]:
        """Return the children and the tokens between them, in order."""
        parts: list[int | TokenSpan] = []
        at = self.start
        for child in self.children:
            parts.extend(range(at, child.start))
            parts.append(child)
            at = child.end
        parts.extend(range(at, self.end))
        return parts


@dataclass(slots=True)
class Concrete:
    """A parsed text.

    `lists` has the construct of each closing bracket: `call`, `array`, `tuple`, `dict`, `parameters` or `block`;
    other brackets hold one part. `closing` has the closing bracket of each opening one.
    """

    source: str
    tokens: list[Token]
    tree: n.Program | n.Expr
    root: TokenSpan
    lists: dict[int, str]
    closing: dict[int, int]


def read(source: str, *, template: bool = False) -> Concrete:
    """Parse a program or template. Raises `HogSyntaxError`."""
    ensure_stack()
    tokens = tokenize(source, template=template)
    watcher = _Watcher(source, tokens)
    tree: n.Program | n.Expr = watcher.whole_template() if template else watcher.program()
    root = watcher.open[0]
    root.end = len(tokens) - 1
    closing = _closing(tokens)
    for opening in watcher.heads:
        watcher.lists.pop(closing[opening], None)
    return Concrete(source, tokens, tree, root, watcher.lists, closing)


def _closing(tokens: list[Token]) -> dict[int, int]:
    closing: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind in OPENING:
            opened.append(at)
        elif opened and token.kind == OPENING[tokens[opened[-1]].kind]:
            closing[opened.pop()] = at
    return closing


class _Watcher(StatementParser):
    def __init__(self, source: str, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.open = [TokenSpan("source", 0)]
        self.lists: dict[int, str] = {}
        self.heads: list[int] = []  # brackets of conditions, which the parser reads as arguments

    def watch(self, kind: str, parse: Callable[..., Any], *args: Any, level: int = 0) -> Any:
        span = TokenSpan(kind, self.at, level=level)
        self.open[-1].children.append(span)
        self.open.append(span)
        span.node = parse(*args)
        self.open.pop()
        span.end = self.at
        return span.node

    def close(self, kind: str) -> None:
        """Mark the construct of the bracket that was closed last."""
        self.lists[self.at - 1] = kind

    # --- statements

    def statement(self) -> n.Statement:
        start = self.at
        node: n.Statement = self.watch("statement", super().statement)
        if isinstance(node, n.Function):
            at = start
            while self.tokens[at].kind != ")":
                at += 1
            self.lists[at] = "parameters"
        elif isinstance(node, n.IfStatement):
            self.heads.append(start + 1)
        return node

    def let(self) -> n.VariableDeclaration:
        declaration: n.VariableDeclaration = self.watch("statement", super().let)
        return declaration

    def block_rest(self, start: int, declarations: list[n.Statement]) -> n.Block:
        block = super().block_rest(start, declarations)
        self.close("block")
        return block

    # --- expressions

    def expression(self, level: int = 1) -> n.Expr:
        tree: n.Expr = self.watch("expression", super().expression, level)
        return tree

    def operand(self, level: int) -> n.Expr:
        tree: n.Expr = self.watch("expression", super().operand, level)
        return tree

    def prefix(self) -> n.Expr:
        operand: n.Expr = self.watch("operand", super().prefix)
        return operand

    def postfix(self, left: n.Expr) -> n.Expr:
        operand: n.Expr = self.watch("postfix", super().postfix, left)
        return operand

    def symbol_operator(self, left: n.Expr, op: str, binding: int) -> n.Expr:
        operation: n.Expr = self.watch("infix", super().symbol_operator, left, op, binding, level=SYMBOLS[op])
        return operation

    def word_operator(self, left: n.Expr, word: str, binding: int) -> n.Expr:
        level = binding if word == "not" else WORDS[word]
        operation: n.Expr = self.watch("infix", super().word_operator, left, word, binding, level=level)
        return operation

    def lambda_body(self, names: tuple[str, ...], body_at: int) -> n.Lambda:
        start = self.at
        function: n.Lambda = self.watch("lambda", super().lambda_body, names, body_at)
        if self.tokens[start].kind == "(":
            self.lists[body_at - 2] = "parameters"
        return function

    def select(self) -> SelectQuery:
        query: SelectQuery = self.watch("query", super().select)
        return query

    def brace_body(self) -> n.Expr | n.Block:
        body: n.Expr | n.Block = self.watch("body", super().brace_body)
        return body

    def arguments(self) -> Arguments:
        contents = super().arguments()
        self.close("call")
        return contents

    def items(self, closing: str, where: str) -> tuple[n.Expr, ...]:
        elements = super().items(closing, where)
        self.close("array" if closing == "]" else "tuple")
        return elements

    def dict_items(self, start: int, key: n.Expr) -> n.Dict:
        dictionary = super().dict_items(start, key)
        self.close("dict")
        return dictionary
