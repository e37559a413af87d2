"""Hints at the author's likely intention, from the tokens around a mistake.

Hog looks like JavaScript and like SQL, and is neither; most mistakes are words and signs of other languages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.hog.parser.lexer import Token

_CONDITIONS = {
    "if": "`if (condition)`",
    "elif": "`else if (condition)`",
    "while": "`while (condition)`",
    "for": "`for (let item in items)`",
    "def": "`fun name(parameters)`",
    "else": "`else`",
    "try": "`try`",
}
FOREIGN = {
    "break": "there is no `break`; use a condition of the loop, or `return` from a function",
    "continue": "there is no `continue`; put the rest of the body into an `if`",
    "var": "declare variables with `let name := value`",
    "const": "declare variables with `let name := value`",
    "function": "functions are declared with `fun name(parameters) { ... }`",
    "def": "functions are declared with `fun name(parameters) { ... }`",
    "async": "there is no `async`; a call such as `fetch(...)` waits for its result by itself",
    "await": "there is no `await`; a call such as `fetch(...)` waits for its result by itself",
    "elif": "write `else if (...)`",
    "else": "an `else` follows the body of an `if`",
    "if": "the condition stands in parentheses: `if (condition) { ... }`",
    "for": "the head of a loop stands in parentheses: `for (let item in items) { ... }`",
    "new": "there is no `new`; call the function alone",
    "class": "there are no classes; use an object {'key': value}",
    "import": "a module is loaded by a call: `let m := import('name')`",
    "switch": "there is no `switch`; use `if ... else if`, or `case when ... then ... end`",
    "do": "there is no `do`; use `while (condition) { ... }`",
    "raise": "errors are thrown: `throw Error('message')`",
    "print": "`print` is a function: `print(value)`",
    "select": "a query stands in parentheses: `(select ...)`",
}
"""Words that are statements in other languages, and plain names here."""

FOREIGN_NAMES = {"None": "null", "undefined": "null", "nil": "null"}
"""Constants of other languages, with their names here."""

CALLED = frozenset({"(", ".", "[", "->", ":=", "?.", ","})
"""Tokens behind which a foreign word is used as a name on purpose."""


def hint_for(tokens: Sequence[Token], at: int, source: str) -> str | None:
    """Return the hint for the unexpected token at index `at`; None without one."""
    token = tokens[at]
    before, earlier = tokens[max(0, at - 1)], tokens[max(0, at - 2)]
    sign = _double_sign(token, before, earlier)
    if sign is not None:
        return f"there is no `{sign}{sign}`; write `x := x {sign} 1`"
    return _operator(tokens, at) or _declaration(tokens, at) or _foreign_form(tokens, at, source)


def _double_sign(token: Token, before: Token, earlier: Token) -> str | None:
    for first, second in ((token, before), (before, earlier)):
        if first is not second and first.kind == second.kind and first.kind in ("+", "-"):
            return first.kind
    return None


def _operator(tokens: Sequence[Token], at: int) -> str | None:
    """Return the hint for operators of other languages: `=>`, `===`, `+=`, and `=` for `:=`."""
    token, before = tokens[at], tokens[max(0, at - 1)]
    touching = before.end == token.start
    if token.kind == ">" and before.kind == "=" and touching:
        return "a function without a name is written `x -> ...`"
    if token.kind == "=" and touching and before.kind in ("==", "!="):
        return f"there is no `{before.kind}=`; write `{before.kind}`"
    if token.kind == "=" and before.kind in ("+", "-", "*", "/", "%", "||"):
        return f"there is no `{before.kind}=`; write `x := x {before.kind} ...`"
    if token.kind == "=":
        return "use `:=` to assign; `=` compares"
    if token.kind == "." and tokens[min(at + 1, len(tokens) - 1)].kind == ".":
        return "there is no `...`; join arrays and objects with library functions"
    if before.word == "is" and before.kind == "name":
        return "`is` only tests for null; compare with `=`"
    return None


def _declaration(tokens: Sequence[Token], at: int) -> str | None:
    """Return the hint for syntax of other languages where names are declared; None when there is none."""
    token, before = tokens[at], tokens[max(0, at - 1)]
    earlier = tokens[max(0, at - 2)]
    if token.kind == "reserved" and token.word in ("fun", "fn"):
        return "functions need a name; for a function without one write `x -> ...`"
    if before.word == "let" and token.kind in ("{", "["):
        return "a `let` declares one variable; take parts out with `.name` and `[index]`"
    typed = token.kind == ":" and before.kind == "name"
    if typed and (earlier.word == "let" or _inside_parameters(tokens, at)):
        return "there are no types: write the name alone"
    if token.kind == "name" and before.kind == "name" and before.word in ("const", "var"):
        return "loop variables are declared with `let`"
    if token.word == "of" and earlier.word == "let":
        return "write `for (let item in items)`"
    return None


def _inside_parameters(tokens: Sequence[Token], at: int) -> bool:
    while at > 0 and tokens[at].kind in ("name", "quoted", ",", ":"):
        at -= 1
    return tokens[at].kind == "(" and tokens[max(0, at - 2)].word in ("fun", "fn")


def _foreign_form(tokens: Sequence[Token], at: int, source: str) -> str | None:
    """Return the hint for Python's blocks and comprehensions, conditions without parentheses, `switch`."""
    token = tokens[at]
    first = at
    while first > 0 and "\n" not in source[tokens[first - 1].end : tokens[first].start]:
        first -= 1
    word = tokens[first].word
    if token.kind == ":" and any(part.word == "case" for part in tokens[first:at]):
        return FOREIGN["switch"]
    if token.kind == ":" and word in _CONDITIONS:
        return f"blocks are written in braces: {_CONDITIONS[word]} followed by `{{ ... }}`"
    if word == "while" and at == first + 1:
        return "the condition stands in parentheses: `while (condition) { ... }`"
    if token.word == "for" and token.kind == "name":
        return "there are no comprehensions; use `arrayMap(x -> ..., items)`"
    return None
