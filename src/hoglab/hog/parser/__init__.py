"""The parser: recursive descent for statements, precedence climbing for expressions.

Three entry points, one per kind of source text. All raise `HogSyntaxError`; none recurses deeper than
`MAX_DEPTH` nested constructs, for any text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog.errors import Diagnostic
from hoglab.hog.parser.lexer import MAX_DEPTH, tokenize
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.hog.parser.statements import StatementParser
from hoglab.hog.parser.tokens import MAX_NODES, MAX_OPERATORS

if TYPE_CHECKING:
    from hoglab.hog import nodes

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_OPERATORS",
    "Diagnostic",
    "parse_expression",
    "parse_program",
    "parse_template",
]


def parse_program(source: str, warnings: list[Diagnostic] | None = None) -> nodes.Program:
    """Parse a whole program. `warnings` collects constructs that parse but are probably not meant."""
    ensure_stack()
    parser = StatementParser(source, tokenize(source))
    program = parser.program()
    if warnings is not None:
        warnings.extend(parser.warnings)
    return program


def parse_expression(source: str) -> nodes.Expr:
    """Parse a single expression that makes up the whole source."""
    ensure_stack()
    return StatementParser(source, tokenize(source)).whole_expression()


def parse_template(source: str) -> nodes.Expr:
    """Parse a template: text with `{expression}` parts (spec: hog-language 1.4, 6.13)."""
    ensure_stack()
    return StatementParser(source, tokenize(source, template=True)).whole_template()
