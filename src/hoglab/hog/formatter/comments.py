"""The comments and empty lines between tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hoglab.hog.patterns import searched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hoglab.hog.parser.lexer import Token

# Between two tokens there is nothing but blanks and comments, so this need not know about strings.
_COMMENT = searched(r"(?:--|//|#)[^\r\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?")
_NEWLINE = searched(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment. `place`: behind other code on its line, on a line of its own, or inside a line.

    `blank`: an empty line stands before it.
    """

    text: str
    place: Literal["trailing", "own", "inline"]
    blank: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Comments and line breaks before a token.

    It has the comments, and whether an empty line stands between the last one (or the token before) and the token.
    `newline`: whether there is a line break at all.
    """

    comments: tuple[Comment, ...] = ()
    blank: bool = False
    newline: bool = False

    @property
    def breaks(self) -> bool:
        """Whether a comment demands that the line ends here."""
        return any(comment.place != "inline" for comment in self.comments)


def gaps(source: str, tokens: Sequence[Token], dropped: set[int]) -> dict[int, Gap]:
    """Return the gaps before the kept tokens, by position; the gaps around a dropped token become one."""
    by_position: dict[int, Gap] = {}
    end = 0
    for at, token in enumerate(tokens):
        if at in dropped:
            continue
        if token.start > end or not at:
            by_position[at] = _gap(source, end, token.start, first=not end, last=token.kind == "eof")
        end = token.end
    return by_position


def _gap(source: str, start: int, end: int, *, first: bool, last: bool) -> Gap:
    rows: list[tuple[int, list[str]]] = [(0, [])]  # line breaks before a line, and the comments in it
    at = start
    for match in _COMMENT.finditer(source, start, end):
        newlines = _newlines(source, at, match.start())
        if newlines:
            rows.append((newlines, []))
        rows[-1][1].append(_NEWLINE.sub("\n", match.group().rstrip()))
        at = match.end()
    newlines = _newlines(source, at, end)
    if newlines or last:
        rows.append((newlines, []))
    comments = list(_placed(rows, first=first))
    return Gap(tuple(comments), rows[-1][0] > 1, len(rows) > 1)


def _placed(rows: list[tuple[int, list[str]]], *, first: bool) -> Iterator[Comment]:
    """Yield the comments of the lines between two tokens, which share the first line and the last one."""
    for index, (newlines, texts) in enumerate(rows):
        if not texts:
            continue
        if index + 1 == len(rows):
            yield from (Comment(text, "inline", False) for text in texts)
        elif index or first:
            yield Comment(" ".join(texts), "own", newlines > 1 and not (first and not index))
        else:
            yield from (Comment(text, "trailing", False) for text in texts)


def _newlines(source: str, start: int, end: int) -> int:
    return len(_NEWLINE.findall(source, start, end))
