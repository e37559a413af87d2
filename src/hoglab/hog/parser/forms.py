"""Forms that begin with an ordinary word: `not`, `case`, `interval`, `cast`, `trim`, `lambda`, `array[...]`.

Each function examines the tokens after the word and returns None, having taken none, when the word is just a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog.nodes import Alias, Array, Call, Constant, Expr, Lambda, Not, TryCast, TypeCast
from hoglab.hog.parser.precedence import ADD, NOT, OPERAND_KINDS, WORDS
from hoglab.hog.sql_nodes import ColumnsExpr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hoglab.hog.parser.lexer import Token
    from hoglab.hog.parser.literals import LiteralParser

_INTERVAL_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
_TRIMS = {"both": "trim", "leading": "trimLeft", "trailing": "trimRight"}


def not_form(p: LiteralParser, token: Token) -> Expr | None:
    following = p.peek()
    if following.kind == "(":
        # as the official parser has it: `not (a) = b` is the call `not(a)` compared with b
        p.advance()
        function = p.lambda_of_parenthesis()
        if function is not None:
            return Not(token.start, function.end, function)
        p.at -= 1
        p.token = token
        return None
    if following.kind not in OPERAND_KINDS or (following.kind == "." and p.peek(2).kind != "number"):
        return None
    if following.kind == "name" and following.word in WORDS and p.peek(2).kind in OPERAND_KINDS | {"literal"}:
        return None
    p.advance()
    operand = p.expression(NOT)
    return Not(token.start, p.last_end, operand)


def true_false(p: LiteralParser, token: Token) -> Expr | None:
    following = p.peek().kind
    if following in ("(", ":=") or (following == "." and p.peek(2).kind != "number"):
        return None
    p.advance()
    return Constant(token.start, token.end, token.word == "true")


def case_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `case when c then t ... [else e] end`, `case x when ...`."""
    following = p.peek()
    if following.kind not in OPERAND_KINDS - {"-", "+", "*", ".", "(", "["}:
        return None
    if following.word in WORDS or following.word in ("then", "end"):
        return None
    p.advance()
    subject = None if p.at_word("when") else p.expression()
    parts: list[Expr] = [] if subject is None else [subject]
    while p.accept_word("when"):
        parts.append(p.expression())
        p.expect_word("then", "in `case`")
        parts.append(p.expression())
    if len(parts) < 2:
        raise p.error(f"Expected `when` in `case`, found {p.shown()}")
    branches = len(parts) // 2
    if p.accept_word("else"):
        parts.append(p.expression())
    else:
        parts.append(Constant(p.last_end, p.last_end, None))
    p.expect_word("end", "at the end of `case`")
    name = "_caseWithExpression" if subject is not None else "if" if branches == 1 else "multiIf"
    return Call(token.start, p.last_end, name, tuple(parts))


def interval_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `interval 5 day`, `interval '5 days'`."""
    following = p.peek()
    if following.kind not in ("number", "string", "name", "quoted", "(", "-", "{") or following.word in WORDS:
        return None
    if following.kind == "string" and p.peek(2).word not in _INTERVAL_UNITS:
        p.advance()
        p.advance()
        amount, unit = _interval_text(p, following)
        count = Constant(following.start, following.end, amount)
        return Call(token.start, following.end, f"toInterval{unit.capitalize()}", (count,))
    if following.kind in ("(", "-") and not _interval_unit_follows(p):
        return None
    p.advance()
    value = p.expression(ADD)
    unit = p.token.word if p.token.kind == "name" else ""
    if unit not in _INTERVAL_UNITS:
        raise p.error(f"Expected a unit of time after the interval, found {p.shown()}")
    end = p.advance().end
    return Call(token.start, end, f"toInterval{unit.capitalize()}", (value,))


def _interval_text(p: LiteralParser, token: Token) -> tuple[int, str]:
    """Return the parts of `'5 days'`: the count and the unit in the singular."""
    amount, space, unit = str(token.value).partition(" ")
    if not space:
        raise p.error("Unsupported interval type: must be in the format '<count> <unit>'", token)
    if not (amount.isascii() and amount.isdecimal() and len(amount) < 10):
        raise p.error(f"Unsupported interval count: '{amount}' is not a valid integer", token)
    if unit.removesuffix("s") not in _INTERVAL_UNITS:
        raise p.error(f"Unsupported interval unit: {unit}", token)
    return int(amount), unit.removesuffix("s")


def _interval_unit_follows(p: LiteralParser) -> bool:
    """Return whether `interval (...)` or `interval -n` is followed by a unit (else `interval` is a name)."""
    at = p.at + 1
    if p.tokens[at].kind == "-":
        return p.tokens[min(at + 2, len(p.tokens) - 1)].word in _INTERVAL_UNITS
    open_brackets = 0
    while p.tokens[at].kind != "eof":
        kind = p.tokens[at].kind
        open_brackets += (kind in ("(", "[", "{")) - (kind in (")", "]", "}"))
        at += 1
        if not open_brackets:
            return p.tokens[at].word in _INTERVAL_UNITS
    return False


def cast_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `cast(x as type)`, `try_cast(x as type)`; any other argument list is an ordinary call."""
    if p.peek().kind != "(":
        return None
    p.advance()
    p.advance()
    args, distinct, order_by = p.arguments()
    if len(args) == 1 and isinstance(args[0], Alias) and not distinct:
        kind = TypeCast if token.word == "cast" else TryCast
        return kind(token.start, p.last_end, args[0].expr, args[0].alias.lower())
    return Call(token.start, p.last_end, str(token.value), args, None, distinct, order_by)


def trim_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `trim(both 'x' from s)`."""
    side = p.peek(2)
    if p.peek().kind != "(" or side.word not in _TRIMS or p.peek(3).kind != "string":
        return None
    p.advance()
    p.advance()
    p.advance()
    chars = p.advance()
    p.expect_word("from", "in `trim`")
    subject = p.bracketed_expression()
    end = p.expect(")", "after the arguments of `trim`").end
    args = (subject, Constant(chars.start, chars.end, chars.value))
    return Call(token.start, end, _TRIMS[side.word], args)


def lambda_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `lambda x, y: body`."""
    at, tokens = p.at + 1, p.tokens
    names: list[str] = []
    while tokens[at].kind in ("name", "quoted"):
        names.append(str(tokens[at].value))
        at += 1
        if tokens[at].kind != ",":
            break
        at += 1
    if not names or tokens[at].kind != ":":
        return None
    function = p.lambda_body(tuple(names), at + 1)
    return Lambda(token.start, function.end, function.args, function.body)


def array_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `array[1, 2]`: an array literal, even where a variable of that name exists."""
    if p.peek().kind != "[":
        return None
    p.advance()
    p.advance()
    items = p.items("]", "after the elements of the array")
    p.warn(
        "array-literal",
        f"`{token.value}[...]` is an array literal, not an element of a variable",
        token.start,
        p.last_end,
        f"quote the name to take an element: `` `{token.value}`[...] ``",
    )
    return Array(token.start, p.last_end, items)


def columns_form(p: LiteralParser, token: Token) -> Expr | None:
    """Parse `columns('regex')`, `columns(a, b)`."""
    if p.peek().kind != "(" or p.peek(2).kind == ")":
        return None
    p.advance()
    p.advance()
    args = p.arguments().args
    first = args[0]
    if len(args) == 1 and isinstance(first, Constant) and isinstance(first.value, str):
        return ColumnsExpr(token.start, p.last_end, regex=first.value)
    return ColumnsExpr(token.start, p.last_end, columns=args)


def sql_literal(p: LiteralParser, token: Token) -> Expr | None:
    """Refuse `date '...'`, `timestamp '...'`, with the texts of the official parser."""
    if p.peek().kind == "string":
        raise p.error(f"Unsupported rule: ColumnExpr{token.word.capitalize()}", token, code="unsupported")
    return None


SPECIAL_FORMS: Mapping[str, Callable[[LiteralParser, Token], Expr | None]] = {
    "not": not_form,
    "true": true_false,
    "false": true_false,
    "case": case_form,
    "interval": interval_form,
    "cast": cast_form,
    "try_cast": cast_form,
    "trim": trim_form,
    "lambda": lambda_form,
    "array": array_form,
    "columns": columns_form,
    "date": sql_literal,
    "timestamp": sql_literal,
}
