"""The parser's access to the tokens: looking ahead, taking, refusing; and the limits on size and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog.errors import Diagnostic, HogSyntaxError, position_at
from hoglab.hog.parser.hints import hint_for
from hoglab.hog.parser.lexer import MAX_DEPTH

if TYPE_CHECKING:
    from hoglab.hog.parser.lexer import Token

MAX_OPERATORS = 500
"""Maximum number of operators of one precedence level that follow each other without parentheses."""

MAX_NODES = 20_000
"""Maximum number of nodes of a tree."""

_SHOWN = {
    "eof": "the end",
    "f'": "an f-string",
    "f-end": "the end of the f-string",
    "{{": "{",
    "}}": "}",
    "tag>": ">",
}


class TokenReader:
    """A cursor over tokens. `at` is the index of the next token, `token` that token itself."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.depth = 0
        self.nodes = 0
        self.warnings: list[Diagnostic] = []

    # --- moving

    def advance(self) -> Token:
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def peek(self, distance: int = 1) -> Token:
        """Return the token `distance` places after the next one; the last token when there are fewer."""
        return self.tokens[min(self.at + distance, len(self.tokens) - 1)]

    def accept(self, kind: str) -> bool:
        if self.token.kind == kind:
            self.advance()
            return True
        return False

    def accept_word(self, word: str) -> bool:
        if self.token.word == word and self.token.kind in ("name", "reserved"):
            self.advance()
            return True
        return False

    def at_word(self, word: str) -> bool:
        return self.token.word == word and self.token.kind in ("name", "reserved")

    def expect(self, kind: str, where: str) -> Token:
        if self.token.kind != kind:
            raise self.error(f"Expected `{_SHOWN.get(kind, kind)}` {where}, found {self.shown()}")
        return self.advance()

    def expect_word(self, word: str, where: str) -> None:
        if not self.accept_word(word):
            raise self.error(f"Expected `{word}` {where}, found {self.shown()}")

    def name(self, what: str) -> str:
        """Take an identifier; `what` says what it names."""
        token = self.token
        if token.kind in ("name", "quoted"):
            self.advance()
            return str(token.value)
        if token.kind in ("reserved", "literal"):
            raise self.error(
                f"`{self.text(token)}` is a reserved word and cannot be {what}",
                code="reserved-word",
                hint=f"quote it: `` `{self.text(token)}` ``",
            )
        hint = (
            "double quotes and backticks make names, single quotes make strings"
            if token.kind == "string"
            else None
        )
        raise self.error(f"Expected {what}, found {self.shown()}", hint=hint)

    @property
    def last_end(self) -> int:
        """End of the token taken last."""
        return self.tokens[self.at - 1].end if self.at else 0

    # --- limits

    def enter(self) -> None:
        """Go one level deeper; the caller leaves with `self.depth -= 1`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"The code is nested more than {MAX_DEPTH} levels deep", code="too-deep")

    def count(self, nodes: int = 1) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(f"The code has more than {MAX_NODES} parts", code="too-large")

    # --- complaints

    def text(self, token: Token) -> str:
        return self.source[token.start : token.end]

    def shown(self) -> str:
        token = self.token
        if token.kind in _SHOWN:
            return _SHOWN[token.kind] if token.kind in ("eof", "f'", "f-end") else f"`{_SHOWN[token.kind]}`"
        text = self.text(token)
        return f"`{text if len(text) <= 40 else text[:37] + '...'}`"

    def error(
        self,
        message: str,
        token: Token | None = None,
        *,
        code: str = "unexpected-token",
        hint: str | None = None,
    ) -> HogSyntaxError:
        """Return the error about `token` (by default the next one), for the caller to raise."""
        token = token or self.token
        return HogSyntaxError(
            message,
            source=self.source,
            start=token.start,
            end=max(token.end, token.start + 1),
            code=code,
            hint=hint if hint is not None else self.hint_for(token),
        )

    def warn(self, code: str, message: str, start: int, end: int, hint: str | None = None) -> None:
        where = position_at(self.source, start)
        self.warnings.append(Diagnostic("warning", code, message, where.line, where.column, start, end, hint))

    def hint_for(self, token: Token) -> str | None:
        """Return the hint at the likely intention behind an unexpected token; None without one."""
        at = self.at if token is self.token else self.tokens.index(token)
        return hint_for(self.tokens, at, self.source)
