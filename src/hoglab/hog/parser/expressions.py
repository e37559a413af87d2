"""Expressions: prefixes, operators by precedence, literals, calls, lambdas, f-strings.

spec: hog-language 2. Where the text of the spec leaves a case open, the official parser's answer is followed
(the comments say where).
"""

from __future__ import annotations

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
    Dict,
    Expr,
    ExprCall,
    Field,
    HogQLXAttribute,
    HogQLXTag,
    Lambda,
    NamedArgument,
    Or,
    Placeholder,
    Tuple,
    TupleAccess,
    TypeCast,
)
from hoglab.hog.parser.forms import SPECIAL_FORMS
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
    UNARY,
    WORDS,
)
from hoglab.hog.parser.tokens import MAX_OPERATORS, TokenReader

if TYPE_CHECKING:
    from hoglab.hog.lexer import Token


class ExpressionParser(TokenReader):
    """Parses expressions. `self.brackets` counts enclosing brackets: 0 at the outer level of a program,
    where a number with a trailing dot ends the statement (`return 1.a` is `return 1.` and `a`)."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.brackets = 1
        self.plain_calls: set[Expr] = set()  # calls written as `name(...)`, not made from an operator
        self.no_names_until = 0  # up to this token index, a list of names is known not to be a lambda's

    def expression(self, level: int = ALIAS) -> Expr:
        """An expression of operators that bind at least as tightly as `level`."""
        self.enter()
        found = self.operators(self.prefix(), level)
        self.depth -= 1
        return found

    def operand(self, level: int) -> Expr:
        """As `expression`, for the right side of an operator: levels only rise, so depth is not counted."""
        return self.operators(self.prefix(), level)

    def operators(self, left: Expr, level: int) -> Expr:
        """Takes every operator that follows `left` and binds at least as tightly as `level`."""
        links = 0
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
        """`a and b and c` as one node; operands that are such nodes themselves are taken apart."""
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
            args, _ = self.arguments()
            return self.call_of(left, args)
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
            return Field(left.start, token.end, (*left.chain, "*"))
        name = self.name("the name of a property")
        if isinstance(left, Field) and not nullish and self.tokens[self.at - 3].kind != ")":
            return Field(left.start, token.end, (*left.chain, name))
        return ArrayAccess(left.start, token.end, left, Constant(token.start, token.end, name), nullish)

    def call_of(self, callee: Expr, args: tuple[Expr, ...]) -> Expr:
        """`callee(args)`: two groups of arguments after a plain name make one node."""
        if isinstance(callee, Call) and callee in self.plain_calls:
            return Call(callee.start, self.last_end, callee.name, args, callee.args)
        return ExprCall(callee.start, self.last_end, callee, args)

    def index(self, left: Expr, *, nullish: bool) -> Expr:
        key = self.bracketed_expression()
        if self.token.kind == ":":
            raise self.error("Array slices are not supported", code="unsupported")
        end = self.expect("]", "after the index").end
        return ArrayAccess(left.start, end, left, key, nullish)

    def bracketed_expression(self) -> Expr:
        self.brackets += 1
        inner = self.expression()
        self.brackets -= 1
        return inner

    def arguments(self) -> tuple[tuple[Expr, ...], bool]:
        """Call arguments up to and including `)`, and whether `distinct` stood before them."""
        self.brackets += 1
        args: list[Expr] = []
        distinct = False
        if self.at_word("distinct") and self.peek().kind in OPERAND_KINDS | {")"}:
            self.advance()
            distinct = True
        while self.token.kind != ")":
            if self.starts_select():
                raise self.error("SQL is not supported here", code="unsupported")
            args.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", "after the arguments")
        self.brackets -= 1
        return tuple(args), distinct

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
            return Field(token.start, token.end, ("*",))
        if kind == "tag":
            return self.tag()
        if kind == "#":
            raise self.error("Positional references are SQL only", code="unsupported")
        raise self.error(f"Expected an expression, found {self.shown()}")

    def named(self, token: Token) -> Expr:
        """An expression that begins with a name: a lambda, a call, a constant, a special form or a field."""
        following = self.peek().kind
        if following in (",", "->"):
            found = self.lambda_of_names()
            if found is not None:
                return found
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
            args, distinct = self.arguments()
            call = Call(token.start, self.last_end, name, args, None, distinct)
            if not distinct:
                self.plain_calls.add(call)
            return call
        return Field(token.start, token.end, (name,))

    def lambda_of_names(self) -> Lambda | None:
        """`x -> ...` or `x, y -> ...`; None when the names are followed by something else."""
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
        """`() -> ...`, `(x) -> ...`, `(x, y,) -> ...`; None when the parenthesis is something else."""
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
        return Lambda(start, body.end, names, body)

    def brace_body(self) -> Expr | Block:
        """The braces after `->`: a dict, a placeholder, or a block (spec: hog-language 3.6)."""
        raise NotImplementedError

    def number(self, start: int, sign: int) -> Constant:
        """A number; the parts of `1.5` are tokens of their own, because `t.1.5` means something else."""
        token = self.token
        value = token.value
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
        return ArithmeticOperation(token.start, operand.end, "-", zero, operand)

    def parenthesis(self) -> Expr:
        found = self.lambda_of_parenthesis()
        if found is not None:
            return found
        start = self.advance().start
        if self.starts_select():
            raise self.error("SQL is not supported here", code="unsupported")
        if self.token.kind == ")":
            raise self.error("Empty parentheses", hint="an empty tuple is `tuple()`, a lambda is `() -> ...`")
        first = self.bracketed_expression()
        if self.accept(")"):
            self.plain_calls.discard(first)
            return first
        self.expect(",", "or `)` in the parentheses")
        rest = self.items(")", "after the elements of the tuple")
        return Tuple(start, self.last_end, (first, *rest))

    def items(self, closing: str, where: str) -> tuple[Expr, ...]:
        """Expressions separated by commas, up to and including the closing bracket."""
        self.brackets += 1
        found: list[Expr] = []
        while self.token.kind != closing:
            found.append(self.expression())
            if not self.accept(","):
                break
        self.expect(closing, where)
        self.brackets -= 1
        return tuple(found)

    def brace(self) -> Expr:
        """Braces where an expression is expected: a dict, or a placeholder."""
        start = self.advance().start
        if self.accept("}"):
            return Dict(start, self.last_end, ())
        first = self.bracketed_expression()
        if self.token.kind == ":":
            return self.dict_items(start, first)
        end = self.expect("}", "or `:` after the key of the object").end
        return Placeholder(start, end, first)

    def dict_items(self, start: int, key: Expr) -> Dict:
        """The rest of a dict whose first key has been read; the next token is its colon."""
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
        """The chunks and interpolations of an f-string or template as one expression."""
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

    # --- tags

    def tag(self) -> HogQLXTag:
        """`<Name attr='text' other={expr} flag />` or with children (spec: hog-language 2.3)."""
        self.enter()
        opening = self.advance()
        attributes: list[HogQLXAttribute] = []
        while self.token.kind == "attribute":
            attributes.append(self.attribute())
        if self.accept("/>"):
            end = self.last_end
        else:
            self.expect("tag>", "at the end of the tag")
            children = self.tag_children(opening)
            end = self.last_end
            if children and any(attribute.name == "children" for attribute in attributes):
                message = "Can't have a HogQLX tag with both children and a 'children' attribute"
                raise self.error(message, opening, code="tag")
            if children:
                start = children[0].start
                attributes.append(HogQLXAttribute(start, children[-1].end, "children", tuple(children)))
        self.depth -= 1
        return HogQLXTag(opening.start, end, str(opening.value), tuple(attributes))

    def attribute(self) -> HogQLXAttribute:
        self.count()
        name = self.advance()
        value: Expr = Constant(name.start, name.end, True)
        if self.accept("="):
            token = self.token
            if token.kind == "string":
                self.advance()
                value = Constant(token.start, token.end, token.value)
            elif self.accept("f'"):
                value = self.text_parts(token.start, "f-end")
            else:
                self.expect("{{", "or a string as the value of the attribute")
                value = self.bracketed_expression()
                self.expect("}}", "after the value of the attribute")
        return HogQLXAttribute(name.start, value.end, str(name.value), value)

    def tag_children(self, opening: Token) -> list[Expr]:
        found: list[Expr] = []
        while self.token.kind != "</":
            token = self.token
            self.count()
            if token.kind == "text":
                self.advance()
                found.append(Constant(token.start, token.end, token.value))
            elif token.kind == "tag":
                found.append(self.tag())
            else:
                self.expect("{{", "in the tag")
                found.append(self.bracketed_expression())
                self.expect("}}", "after the expression in the tag")
        if self.token.value != opening.value:
            raise self.error(
                f"Opening and closing HogQLX tags must match. Got {opening.value} and {self.token.value}",
                code="tag",
            )
        self.advance()
        return found

    def starts_select(self) -> bool:
        """Whether a `select` query begins here (and not a variable of that name)."""
        if self.token.kind != "name" or self.token.word not in ("select", "with"):
            return False
        following = self.peek()
        if self.token.word == "with":
            return following.kind == "name" and self.peek(2).word == "as"
        if following.kind == "*":
            return self.peek(2).word == "from" or self.peek(2).kind in (")", ",")
        if following.kind == "name" and following.word in WORDS:
            return False
        return following.kind in OPERAND_KINDS - {"."} or following.kind in ("literal", "<")


def _concat_parts(part: Expr) -> tuple[Expr, ...]:
    """The arguments of a `concat`, so that joins of joins become one call."""
    if isinstance(part, Call) and part.name == "concat" and part.params is None:
        return part.args
    return (part,)
