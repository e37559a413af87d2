"""Expressions: prefixes, operators by precedence, calls, lambdas.

spec: hog-language 2. Where the text of the spec leaves a case open, the official parser's answer is followed
(the comments say where).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hoglab.hog.nodes import (
    Alias,
    And,
    ArithmeticOperation,
    Array,
    ArrayAccess,
    BetweenExpr,
    Block,
    Call,
    CompareOperation,
    Constant,
    Expr,
    ExprCall,
    Field,
    Lambda,
    NamedArgument,
    Or,
    Placeholder,
    Tuple,
    TupleAccess,
    TypeCast,
)
from hoglab.hog.parser.forms import SPECIAL_FORMS
from hoglab.hog.parser.literals import Arguments, LiteralParser
from hoglab.hog.parser.precedence import (
    ALIAS,
    AND,
    COMPARE,
    COMPARE_OPS,
    NEGATABLE,
    OPERAND_KINDS,
    OR,
    POSTFIX,
    SYMBOLS,
    TERNARY,
    WORDS,
)
from hoglab.hog.parser.tags import tag
from hoglab.hog.parser.tokens import MAX_OPERATORS
from hoglab.hog.sql_nodes import QUERIES, ColumnsExpr, IsDistinctFrom, WindowFunction

if TYPE_CHECKING:
    from hoglab.hog.nodes import OrderExpr
    from hoglab.hog.parser.lexer import Token
    from hoglab.hog.sql_nodes import WindowExpr

_CALL_SUFFIXES = frozenset({"over", "filter", "ignore", "within"})


class ExpressionParser(LiteralParser):
    """Parser of expressions."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.plain_calls: set[Expr] = set()  # calls written as `name(...)`, not made from an operator
        self.no_names_until = 0  # up to this token index, a list of names is known not to be a lambda's

    def expression(self, level: int = ALIAS) -> Expr:
        """Parse an expression of operators that bind at least as tightly as `level`."""
        self.enter()
        start = self.token.start
        expression = self.operators(self.prefix(), level, start)
        self.depth -= 1
        return expression

    def operand(self, level: int) -> Expr:
        """Parse the right side of an operator, like `expression`; levels only rise, so depth is not counted."""
        start = self.token.start
        return self.operators(self.prefix(), level, start)

    def operators(self, left: Expr, level: int, start: int | None = None) -> Expr:
        """Parse every operator that follows `left` and binds at least as tightly as `level`.

        `start` is the beginning of `left` with the parentheses around it, which have no node of their own.
        """
        links = 0
        if start is None:
            start = left.start
        while True:
            token = self.token
            kind = token.kind
            if kind == "name":
                word = token.word
                binding = WORDS.get(word, 0)
                if word == "not":
                    binding = NEGATABLE.get(self.peek().word, 0) if self.peek().kind == "name" else 0
                if binding < level or not binding:
                    return left
                left = self.word_operator(left, word, binding)
            else:
                binding = SYMBOLS.get(kind, 0)
                if binding < level or not binding or (kind == "[" and self.peek().kind == "]"):
                    return left
                left = self.postfix(left) if binding == POSTFIX else self.symbol_operator(left, kind, binding)
            if left.start != start or left.end != self.last_end:
                left = replace(left, start=start, end=self.last_end)
            links += 1
            if links > MAX_OPERATORS:
                raise self.error(
                    f"More than {MAX_OPERATORS} operators in a row",
                    code="too-deep",
                    hint="split the expression",
                )

    # --- infix

    def symbol_operator(self, left: Expr, op: str, binding: int) -> Expr:
        self.advance()
        self.count()
        if op == "?":
            then = self.bracketed_expression()
            self.expect(":", "between the two branches of `? :`")
            other = self.expression(TERNARY)
            return Call(left.start, other.end, "if", (left, then, other))
        right = self.operand(binding + 1)
        if op == "??":
            return Call(left.start, right.end, "ifNull", (left, right))
        if op == "||":
            return Call(left.start, right.end, "concat", (*_concat_parts(left), *_concat_parts(right)))
        if binding == COMPARE:
            return CompareOperation(left.start, right.end, COMPARE_OPS.get(op, op), left, right)
        return ArithmeticOperation(left.start, right.end, op, left, right)

    def word_operator(self, left: Expr, word: str, binding: int) -> Expr:
        self.advance()
        self.count()
        if word == "and":
            return self.chained(left, "and", AND, And)
        if word == "or":
            return self.chained(left, "or", OR, Or)
        if word == "is":
            negated = self.accept_word("not")
            if self.at_word("distinct") and self.peek().word == "from":
                self.advance()
                self.advance()
                right = self.operand(binding + 1)
                return IsDistinctFrom(left.start, right.end, left, right, negated)
            if self.token.word != "null":
                raise self.error(f"Expected `null` after `is{' not' * negated}`, found {self.shown()}")
            null = self.advance()
            op = "!=" if negated else "=="
            return CompareOperation(
                left.start, null.end, op, left, Constant(null.start, null.end, None), True
            )
        if word == "as":
            token = self.token
            alias = str(self.advance().value) if token.kind == "string" else self.name("the name after `as`")
            return Alias(left.start, token.end, alias, left)
        negated = word == "not"
        if negated:
            word = self.advance().word
        if word == "between":
            low = self.operand(binding + 1)
            self.expect_word("and", "between the two bounds")
            high = self.operand(binding + 1)
            return BetweenExpr(left.start, high.end, left, low, high, negated)
        if word == "in" and self.at_word("cohort") and self.peek().kind in OPERAND_KINDS - {"(", "["}:
            self.advance()
            word = "in cohort"
        right = self.operand(binding + 1)
        return CompareOperation(left.start, right.end, f"not {word}" if negated else word, left, right)

    def chained(self, left: Expr, word: str, binding: int, kind: type[And] | type[Or]) -> Expr:
        """Make one node of `a and b and c`; operands that are such nodes themselves are split."""
        parts = list(left.exprs) if isinstance(left, kind) else [left]
        while True:
            right = self.operand(binding + 1)
            parts.extend(right.exprs if isinstance(right, kind) else (right,))
            if not (self.at_word(word) and self.token.kind == "name"):
                return kind(left.start, right.end, tuple(parts))
            self.advance()
            self.count()

    # --- postfix

    def postfix(self, left: Expr) -> Expr:
        self.count()
        op = self.advance().kind
        if op == "(":
            return self.call_of(left, self.arguments().args)
        if op == "[":
            return self.index(left, nullish=False)
        if op == "::":
            type_name = self.name("a type after `::`")
            return TypeCast(left.start, self.last_end, left, type_name.lower())
        nullish = op == "?."
        if nullish and self.accept("["):
            return self.index(left, nullish=True)
        token = self.token
        if token.kind == "number":
            if token.word != "decimal" or not isinstance(token.value, int):
                raise self.error("Only whole numbers may follow a dot", code="number")
            self.advance()
            return TupleAccess(left.start, token.end, left, token.value, nullish)
        if token.kind == "*" and isinstance(left, Field) and not nullish:
            self.advance()
            return self.excluding(left.start) or Field(left.start, token.end, (*left.chain, "*"))
        name = self.name("the name of a property")
        if isinstance(left, Field) and not nullish and self.tokens[self.at - 3].kind != ")":
            return Field(left.start, token.end, (*left.chain, name))
        return ArrayAccess(left.start, token.end, left, Constant(token.start, token.end, name), nullish)

    def call_of(self, callee: Expr, args: tuple[Expr, ...]) -> Expr:
        """Make one node of `callee(args)`; a plain name may have two groups of arguments."""
        if isinstance(callee, Call) and callee in self.plain_calls:
            call = Call(callee.start, self.last_end, callee.name, args, callee.args)
            return self.call_suffix(call) if self.token.word in _CALL_SUFFIXES else call
        return ExprCall(callee.start, self.last_end, callee, args)

    def call_suffix(self, call: Call) -> Expr:
        """Parse the SQL that may follow a call: `filter (where ...)`, `over ...`."""
        if self.token.word == "within" and self.peek().word == "group":
            self.at += 1
            self.advance()
            self.expect("(", "after `within group`")
            order = self.order_by()
            self.expect(")", "after the order")
            return Call(call.start, self.last_end, call.name, (), call.args, within_group=order)
        if self.at_word("ignore") and self.peek().word == "nulls":
            self.advance()
            self.advance()
            return call
        if self.at_word("filter") and self.peek().kind == "(" and self.peek(2).word == "where":
            self.at += 2
            self.advance()
            where = self.bracketed_expression()
            self.expect(")", "after the condition of `filter`")
            call = replace(call, end=self.last_end, filter_expr=where)
        following = self.peek()
        if not self.at_word("over") or call.distinct or following.kind not in ("(", "name", "quoted"):
            return call
        self.advance()
        exprs, args = (call.args, None) if call.params is None else (call.params, call.args)
        if following.kind == "(":
            window = self.window()
            return WindowFunction(call.start, self.last_end, call.name, exprs, args, window)
        name = self.name("the name of the window")
        return WindowFunction(call.start, self.last_end, call.name, exprs, args, None, name)

    def index(self, left: Expr, *, nullish: bool) -> Expr:
        key = self.bracketed_expression()
        if self.token.kind == ":":
            raise self.error("Array slices are not supported", code="unsupported")
        end = self.expect("]", "after the index").end
        return ArrayAccess(left.start, end, left, key, nullish)

    def arguments(self) -> Arguments:
        """Parse the arguments of a call up to and including `)`; a query may replace them."""
        self.brackets += 1
        args: list[Expr] = []
        distinct = False
        order_by: tuple[OrderExpr, ...] | None = None
        if self.at_word("distinct") and self.peek().kind in OPERAND_KINDS | {")"}:
            self.advance()
            distinct = True
        if self.starts_select():
            args.append(self.query())
        else:
            while self.token.kind != ")":
                args.append(self.expression())
                if not self.accept(","):
                    break
            if self.token.word == "order" and self.peek().word == "by" and args:
                order_by = self.order_by()
        self.expect(")", "after the arguments")
        self.brackets -= 1
        return Arguments(tuple(args), distinct, order_by)

    def query(self) -> Expr:
        """Parse a query whose parenthesis the caller closes."""
        raise NotImplementedError

    def combined(self, first: Expr, start_of_all: int) -> Expr:
        """Parse the queries combined with `first`, which begins at `start_of_all`."""
        raise NotImplementedError

    def order_by(self) -> tuple[OrderExpr, ...]:
        """Parse the list after `order by`; the next token is `order`."""
        raise NotImplementedError

    def window(self) -> WindowExpr:
        """Parse the parenthesised description of a window."""
        raise NotImplementedError

    # --- prefix and primary

    def prefix(self) -> Expr:
        token = self.token
        kind = token.kind
        self.count()
        if kind == "name":
            return self.named(token)
        if kind == "string":
            self.advance()
            return Constant(token.start, token.end, token.value)
        if kind == "number":
            return self.number(token.start, 1)
        if kind == "-" or kind == "+":
            return self.sign(token)
        if kind == "(":
            return self.parenthesis()
        if kind == "[":
            self.advance()
            items = self.items("]", "after the elements of the array")
            return Array(token.start, self.last_end, items)
        if kind == "{":
            return self.brace()
        if kind == "f'":
            self.advance()
            return self.text_parts(token.start, "f-end")
        if kind == "literal":
            self.advance()
            return Constant(token.start, token.end, token.value)
        if kind == "quoted":
            return self.lambda_of_names() or self.field(token)
        if kind == "." and self.peek().kind == "number":
            return self.number(token.start, 1)
        if kind == "*":
            self.advance()
            return self.excluding(token.start) or Field(token.start, token.end, ("*",))
        if kind == "tag":
            return tag(self)
        if kind == "#" and self.peek().kind == "number":
            return self.positional_reference()
        raise self.error(f"Expected an expression, found {self.shown()}")

    def named(self, token: Token) -> Expr:
        """Parse an expression that begins with a name: a lambda, a call, a constant, a special form or a field."""
        following = self.peek().kind
        if following in (",", "->"):
            function = self.lambda_of_names()
            if function is not None:
                return function
        word = token.word
        special = SPECIAL_FORMS.get(word)
        if special is not None:
            form = special(self, token)
            if form is not None:
                return form
        if following == ":=":
            self.advance()
            self.advance()
            value = self.expression()
            return NamedArgument(token.start, value.end, str(token.value), value)
        return self.field(token)

    def field(self, token: Token) -> Expr:
        self.advance()
        name = str(token.value)
        if self.token.kind == "(":
            self.advance()
            self.count()
            args, distinct, order_by = self.arguments()
            call = Call(token.start, self.last_end, name, args, None, distinct, order_by)
            if self.token.word in _CALL_SUFFIXES:
                return self.call_suffix(call)
            if not distinct:
                self.plain_calls.add(call)
            return call
        return Field(token.start, token.end, (name,))

    def lambda_of_names(self) -> Lambda | None:
        """Parse `x -> ...` or `x, y -> ...`; return None when something else follows the names."""
        at, tokens = self.at, self.tokens
        if at < self.no_names_until:
            return None
        names: list[str] = []
        while tokens[at].kind in ("name", "quoted"):
            names.append(str(tokens[at].value))
            at += 1
            if tokens[at].kind == "->":
                return self.lambda_body(tuple(names), at + 1)
            if tokens[at].kind != ",":
                break
            at += 1
            if tokens[at].kind == "->":
                return self.lambda_body(tuple(names), at + 1)
        self.no_names_until = at
        return None

    def lambda_of_parenthesis(self) -> Lambda | None:
        """Parse `() -> ...`, `(x) -> ...`, `(x, y,) -> ...`; return None when the parenthesis is something else."""
        at, tokens = self.at + 1, self.tokens
        names: list[str] = []
        while tokens[at].kind in ("name", "quoted"):
            names.append(str(tokens[at].value))
            at += 1
            if tokens[at].kind != ",":
                break
            at += 1
        if tokens[at].kind == ")" and tokens[at + 1].kind == "->":
            return self.lambda_body(tuple(names), at + 2)
        return None

    def lambda_body(self, names: tuple[str, ...], body_at: int) -> Lambda:
        start = self.token.start
        self.at = body_at
        self.token = self.tokens[body_at]
        body = self.brace_body() if self.token.kind == "{" else self.expression()
        return Lambda(start, self.last_end, names, body)

    def brace_body(self) -> Expr | Block:
        """Parse the braces after `->`: a dict, a placeholder, or a block (spec: hog-language 3.6)."""
        raise NotImplementedError

    def parenthesis(self) -> Expr:
        function = self.lambda_of_parenthesis()
        if function is not None:
            return function
        start = self.advance().start
        if self.starts_select():
            query = self.query()
            self.expect(")", "after the query")
            return query
        if self.token.kind == ")":
            raise self.error("Empty parentheses", hint="an empty tuple is `tuple()`, a lambda is `() -> ...`")
        inside = self.token.start
        first = self.bracketed_expression()
        if isinstance(first, (*QUERIES, Placeholder)) and self.token.word in ("union", "intersect", "except"):
            first = self.combined(first, inside)
        if self.accept(")"):
            self.plain_calls.discard(first)
            return first
        self.expect(",", "or `)` in the parentheses")
        rest = self.items(")", "after the elements of the tuple")
        return Tuple(start, self.last_end, (first, *rest))

    # --- what only SQL has

    def excluding(self, start: int) -> ColumnsExpr | None:
        """Parse `exclude (a, b)` behind a star."""
        if not (self.at_word("exclude") and self.peek().kind == "("):
            return None
        self.advance()
        self.advance()
        names = [self.name("the name of a column")]
        while self.accept(","):
            names.append(self.name("the name of a column"))
        end = self.expect(")", "after the excluded columns").end
        return ColumnsExpr(start, end, all_columns=True, exclude=tuple(names))

    def starts_select(self) -> bool:
        """Return whether a query begins here (and not a variable named `select` or `with`)."""
        if self.token.kind != "name" or self.token.word not in ("select", "with"):
            return False
        following = self.peek()
        if following.kind == "name" and following.word in WORDS:
            return False
        if self.token.word == "with":
            return following.kind in ("name", "quoted", "number", "string")
        if following.kind == "*":
            after = self.peek(2)
            return after.word in ("from", "exclude") or after.kind in (")", ",")
        return following.kind in OPERAND_KINDS - {"."} or following.kind == "literal"


def _concat_parts(part: Expr) -> tuple[Expr, ...]:
    """Return the arguments of a `concat`, so that joins of joins become one call."""
    if isinstance(part, Call) and part.name == "concat" and part.params is None:
        return part.args
    return (part,)
