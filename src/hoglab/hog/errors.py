"""The exceptions of the language: errors in source text, in a running program, and at its limits.

Five classes, by who has to act on them:

- `HogSyntaxError`, `HogCompileError`: the text is wrong. Both carry a position, a code and often a hint.
- `HogRuntimeError`: the machine refuses an operation of the program (bad JSON, an unknown global).
  A Hog `try` never sees it (spec: hog-language 3.5).
- `HogThrow`: the program threw an error value; a Hog `try` may catch it.
- `HogLimit`: time, memory, steps or depth ran out. It derives from `BaseException`, so that neither
  Hog code nor a library function can swallow it by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Position:
    """A place in source text: `line` and `column` count from 1, `offset` from 0 (in characters)."""

    line: int
    column: int
    offset: int


def position_at(source: str, offset: int) -> Position:
    """Return the position of the character with the given offset; offsets past the end mean the end."""
    offset = max(0, min(offset, len(source)))
    line = source.count("\n", 0, offset) + 1
    return Position(line, offset - (source.rfind("\n", 0, offset) + 1) + 1, offset)


EXCERPT_WIDTH = 100  # characters of a source line shown in an error


def excerpt(source: str, start: int, end: int) -> str:
    """Return the source line of `start` and, below it, carets under `start`..`end` (cut at the line's end).

    Lines longer than `EXCERPT_WIDTH` are shown around the place only; tabs count as one column.
    """
    start = max(0, min(start, len(source)))
    line_start = source.rfind("\n", 0, start) + 1
    line_end = source.find("\n", start)
    line = source[line_start : len(source) if line_end < 0 else line_end].rstrip("\r").replace("\t", " ")
    column = min(start - line_start, len(line))
    width = max(1, min(end - start, len(line) - column))
    cut = max(0, column - EXCERPT_WIDTH // 2) if len(line) > EXCERPT_WIDTH else 0
    shown = line[cut : cut + EXCERPT_WIDTH]
    column -= cut
    return f"{shown}\n{' ' * column}{'^' * max(1, min(width, EXCERPT_WIDTH - column))}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about source text.

    `severity` is `error`, `warning` or `notice`; `code` is a stable short name (`unexpected-token`,
    `unknown-function`, ...); `start` and `end` are character offsets, `line` and `column` count from 1.
    """

    severity: str
    code: str
    message: str
    line: int
    column: int
    start: int
    end: int
    hint: str | None = None


class HogSourceError(Exception):
    """Base of the errors that are found in source text before it runs."""

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        start: int = 0,
        end: int | None = None,
        code: str = "syntax",
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        where = position_at(source, start)
        self.message = message
        self.line = where.line
        self.column = where.column
        self.offset = where.offset
        self.end = max(self.offset, start if end is None else min(end, len(source)))
        self.code = code
        self.hint = hint
        self.excerpt = excerpt(source, self.offset, self.end)
        self.path: tuple[str | int, ...] = ()  # where the text is inside a larger value (an input)

    @property
    def position(self) -> Position:
        return Position(self.line, self.column, self.offset)

    def diagnostic(self) -> Diagnostic:
        """Return the error as data."""
        return Diagnostic(
            "error", self.code, self.message, self.line, self.column, self.offset, self.end, self.hint
        )

    def render(self) -> str:
        """Write several lines for a person: message, place, excerpt with carets, hint."""
        text = f"{self.message}\n  at line {self.line}, column {self.column}\n{self.excerpt}"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class HogSyntaxError(HogSourceError):
    """The text is not a Hog program, expression or template."""


class HogCompileError(HogSourceError):
    """The text parses, but its meaning is not allowed (undeclared variable, SQL in a program, ...)."""


class HogRuntimeError(Exception):
    """The running program asked for something that the machine refuses; a Hog `try` does not catch it.

    `position` is the place in the Hog source, filled in by the runner when it is known; `path` is the place of a
    template among the inputs.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.position: Position | None = None
        self.path: tuple[str | int, ...] = ()


def missing_global(chain: Sequence[str]) -> str:
    """Return the message for a missing global; `chain` is the path that was read."""
    return f"Global variable not found: {'.'.join(chain)}"


class HogThrow(Exception):  # noqa: N818 - a thrown value, which is no failure until nobody catches it
    """A Hog error value on its way to a `catch`; its text is `Type('message')`.

    spec: hog-language 8.10.
    """

    def __init__(self, error: Any) -> None:  # a HogError, which is above this module
        super().__init__()
        self.error = error
        self.position: Position | None = None
        self.path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return f"{self.error.type}({quote(self.error.message)})"


class HogLimit(BaseException):
    """A limit was reached: the execution is over, and no program can catch it.

    `kind` is `time`, `memory`, `steps`, `depth` or `async_steps`.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.position: Position | None = None
        self.path: tuple[str | int, ...] = ()


def note_place(error: BaseException, line: int, column: int) -> None:
    """Add to an exception a note of its place: `line` from 1, `column` from 0."""
    error.__dict__.setdefault("hog_place", (line, column))


def noted_place(error: BaseException) -> tuple[int, int] | None:
    """Return the place noted on an exception."""
    place: tuple[int, int] | None = error.__dict__.get("hog_place")
    return place


_ESCAPES = {
    "\b": "\\b",
    "\f": "\\f",
    "\r": "\\r",
    "\n": "\\n",
    "\t": "\\t",
    "\0": "\\0",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)


def quote(text: object) -> str:
    """Write the text as a Hog string literal (spec: hog-language 8.9)."""
    return f"'{str(text).translate(_ESCAPE_TABLE)}'"
