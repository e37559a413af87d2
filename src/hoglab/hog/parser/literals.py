"""Literals: numbers with their signs, lists of elements, objects, and the parts of strings with expressions in them.

spec: hog-language 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hoglab.hog.nodes import ArithmeticOperation, Call, Constant, Dict, Expr, Lambda, OrderExpr, Placeholder
from hoglab.hog.parser.precedence import ALIAS, UNARY
from hoglab.hog.parser.tokens import TokenReader
from hoglab.hog.sql_nodes import PositionalRef

if TYPE_CHECKING:
    from hoglab.hog.parser.lexer import Token


class Arguments(NamedTuple):
    """Contents of the parentheses of a call; all but `args` is SQL."""

    args: tuple[Expr, ...]
    distinct: bool = False
    order_by: tuple[OrderExpr, ...] | None = None


class LiteralParser(TokenReader):
    """Parser of literals.

    `self.brackets` counts enclosing brackets: 0 at the outer level of a program, where a number with a trailing dot
    ends the statement (`return 1.a` is `return 1.` and `a`).
    """

    def __init__(self, source: str, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.brackets = 1

    def expression(self, level: int = ALIAS) -> Expr:
        """Parse an expression of operators that bind at least as tightly as `level`."""
        raise NotImplementedError

    def arguments(self) -> Arguments:
        """Parse the arguments of a call, brackets included."""
        raise NotImplementedError

    def lambda_of_parenthesis(self) -> Lambda | None:
        """Parse a lambda whose names stand in brackets; return None where there is none."""
        raise NotImplementedError

    def lambda_body(self, names: tuple[str, ...], body_at: int) -> Lambda:
        """Parse the body of a lambda, behind its arrow."""
        raise NotImplementedError

    def bracketed_expression(self) -> Expr:
        self.brackets += 1
        inner = self.expression()
        self.brackets -= 1
        return inner

    # --- numbers

    def number(self, start: int, sign: int) -> Constant:
        """Parse a number; the parts of `1.5` are tokens of their own, because `t.1.5` has another meaning."""
        token = self.token
        value = token.value
        if token.kind not in ("number", "."):
            raise self.error(f"Expected a number, found {self.shown()}")
        if token.kind == "." or (token.word == "decimal" and self.peek().kind == "."):
            value = self.decimal_point()
        else:
            self.advance()
        if not isinstance(value, (int, float)):
            raise self.error(f"Expected a number, found {self.shown()}", token)
        return Constant(start, self.last_end, sign * value)

    def decimal_point(self) -> int | float:
        whole = ""
        token = self.token
        if token.kind == "number":
            following = self.peek(2)
            if following.kind in ("name", "quoted") and self.brackets:
                self.advance()
                return token.value if isinstance(token.value, (int, float)) else 0
            whole = self.text(token)
            self.advance()
        self.expect(".", "in the number")
        fraction = ""
        if self.token.kind == "number" and self.token.word == "decimal":
            fraction = self.text(self.advance())
        elif not whole:
            raise self.error(f"Expected digits after the dot, found {self.shown()}", code="number")
        return float(f"{whole}.{fraction}")

    def sign(self, token: Token) -> Expr:
        self.advance()
        kind = self.token.kind
        if kind == "number" or (kind == "." and self.peek().kind == "number"):
            return self.number(token.start, -1 if token.kind == "-" else 1)
        if kind == "literal" and self.token.word != "null":
            value = self.advance().value
            if isinstance(value, float):
                return Constant(token.start, self.last_end, -value if token.kind == "-" else value)
        if token.kind == "+":
            hint = self.hint_for(token) or "leave it out"
            raise self.error("`+` cannot stand before an expression", token, hint=hint)
        operand = self.expression(UNARY)
        zero = Constant(token.start, token.start, 0)
        return ArithmeticOperation(token.start, self.last_end, "-", zero, operand)

    def positional_reference(self) -> PositionalRef:
        start = self.advance().start
        token = self.advance()
        if not isinstance(token.value, int):
            raise self.error("Expected a whole number after `#`", token, code="number")
        return PositionalRef(start, token.end, token.value)

    # --- what is made of parts

    def items(self, closing: str, where: str) -> tuple[Expr, ...]:
        """Parse expressions separated by commas, up to and including the closing bracket."""
        self.brackets += 1
        items: list[Expr] = []
        while self.token.kind != closing:
            items.append(self.expression())
            if not self.accept(","):
                break
        self.expect(closing, where)
        self.brackets -= 1
        return tuple(items)

    def brace(self) -> Expr:
        """Parse braces where an expression is expected: a dict, or a placeholder."""
        start = self.advance().start
        if self.accept("}"):
            return Dict(start, self.last_end, ())
        first = self.bracketed_expression()
        if self.token.kind == ":":
            return self.dict_items(start, first)
        end = self.expect("}", "or `:` after the key of the object").end
        return Placeholder(start, end, first)

    def dict_items(self, start: int, key: Expr) -> Dict:
        """Parse the rest of a dict whose first key has been read; the next token is its colon."""
        self.brackets += 1
        items: list[tuple[Expr, Expr]] = []
        while True:
            self.expect(":", "after the key of the object")
            items.append((key, self.expression()))
            if not self.accept(",") or self.token.kind == "}":
                break
            key = self.expression()
        end = self.expect("}", "after the entries of the object").end
        self.brackets -= 1
        return Dict(start, end, tuple(items))

    def text_parts(self, start: int, closing: str) -> Expr:
        """Parse the chunks and interpolations of an f-string or template as one expression."""
        parts: list[Expr] = []
        while self.token.kind != closing:
            token = self.token
            self.count()
            if token.kind == "text":
                self.advance()
                parts.append(Constant(token.start, token.end, token.value))
                continue
            self.expect("{{", "in the string")
            if self.token.kind == "}}":
                raise self.error(
                    "The braces hold no expression", hint="write `\\{` for a brace that is part of the text"
                )
            parts.append(self.bracketed_expression())
            self.expect("}}", "after the expression in the string")
        end = self.token.end
        if closing != "eof":
            self.advance()
        if not parts:
            return Constant(start, end, "")
        return parts[0] if len(parts) == 1 else Call(start, end, "concat", tuple(parts))
