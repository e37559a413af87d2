"""Documents with possible line breaks, and the renderer that decides which of them are made.

The algebra of Wadler's "A prettier printer", with comments as parts of their own: a line comment always ends its
line, so the renderer, not the document, makes the line break.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

WIDTH = 100
"""Columns of a line."""

INDENT = 2
"""Spaces of one level."""


@dataclass(frozen=True, slots=True)
class LineBreak:
    """A possible line break: `flat` is its text otherwise. A hard one is always broken; `blank` leaves a line empty."""

    flat: str = " "
    hard: bool = False
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Indent:
    """A document whose lines are indented by one more level."""

    doc: Doc


@dataclass(frozen=True, slots=True)
class LayoutGroup:
    """A document whose own line breaks are made together or not at all. With `broken` they are made."""

    doc: Doc
    broken: bool = False


@dataclass(frozen=True, slots=True)
class WhenBroken:
    """Text that only stands where the group around it is broken."""

    text: str


@dataclass(frozen=True, slots=True)
class Trailing:
    """A comment that ends the line of the code before it."""

    text: str


@dataclass(frozen=True, slots=True)
class OwnLine:
    """A comment on a line of its own; `before` and `after` leave a line empty there."""

    text: str
    before: bool = False
    after: bool = False


@dataclass(frozen=True, slots=True)
class Inline:
    """A block comment between two parts of a line."""

    text: str


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Three forms of one document; the first that fits is taken. `flat` is None where it cannot stand on one line."""

    flat: Doc | None
    hugged: Doc
    broken: Doc


Doc = Union[  # noqa: UP007, for a text in it names itself
    str,
    tuple["Doc", ...],
    LineBreak,
    Indent,
    LayoutGroup,
    WhenBroken,
    Trailing,
    OwnLine,
    Inline,
    LayoutChoice,
]

SOFT = LineBreak("")
SPACE = LineBreak()
HARD = LineBreak(hard=True)


def group(*parts: Doc, broken: bool = False) -> LayoutGroup:
    """Return a group, broken if any part inside must be."""
    return LayoutGroup(parts, broken or must_break(parts))


def must_break(doc: Doc) -> bool:
    """Return whether the document cannot stand on one line (apart from comments, whose places the formatter knows)."""
    if isinstance(doc, tuple):
        return any(map(must_break, doc))
    if isinstance(doc, LineBreak):
        return doc.hard
    if isinstance(doc, Indent):
        return must_break(doc.doc)
    if isinstance(doc, LayoutGroup):
        return doc.broken
    return isinstance(doc, LayoutChoice) and doc.flat is None


def forced(doc: Doc) -> Doc:
    """Return the document with its last group broken."""
    if isinstance(doc, LayoutGroup):
        return replace(doc, broken=True)
    if isinstance(doc, tuple):
        for at in range(len(doc) - 1, -1, -1):
            changed = forced(doc[at])
            if changed is not doc[at]:
                return (*doc[:at], changed, *doc[at + 1 :])
    return doc


def joined(separator: Doc, docs: Iterable[Doc]) -> tuple[Doc, ...]:
    """Join the documents with the separator between them."""
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return tuple(parts)


_Command = tuple[int, bool, Doc]  # indentation, flat, what


def render(doc: Doc, width: int = WIDTH) -> str:
    """Render a document as text; no line ends in blanks."""
    return _Renderer(width).run(doc)


@dataclass(slots=True)
class _Renderer:
    width: int
    out: list[str] = field(default_factory=list)
    column: int = 0
    trailing: list[str] = field(default_factory=list)
    line_start: bool = True
    due: int | None = None  # the indentation of a line break that must come before further text
    due_blank: bool = False
    indent: int = 0
    inline: bool = False  # an inline comment was the last thing written

    def run(self, doc: Doc) -> str:
        stack: list[_Command] = [(0, False, doc)]
        while stack:
            indent, flat, current = stack.pop()
            if isinstance(current, str):
                self.text(current)
            elif isinstance(current, tuple):
                stack.extend((indent, flat, part) for part in reversed(current))
            elif isinstance(current, LineBreak):
                if flat and not current.hard:
                    self.text(current.flat)
                else:
                    self.break_line(indent, blank=current.blank)
            elif isinstance(current, Indent):
                stack.append((indent + INDENT, flat, current.doc))
            elif isinstance(current, LayoutGroup):
                level = not current.broken and (flat or self.fits((indent, True, current.doc), stack))
                stack.append((indent, level, current.doc))
            elif isinstance(current, LayoutChoice):
                stack.append(self.choose(indent, flat, current, stack))
            elif isinstance(current, WhenBroken):
                self.text("" if flat else current.text)
            else:
                self.comment(indent, current)
        self.flush()
        return "".join(self.out)

    def choose(self, indent: int, flat: bool, choice: LayoutChoice, rest: Sequence[_Command]) -> _Command:
        if choice.flat is not None and (flat or self.fits((indent, True, choice.flat), rest)):
            return indent, True, choice.flat
        if self.fits((indent, False, choice.hugged), rest):
            return indent, False, choice.hugged
        return indent, False, choice.broken

    def text(self, text: str) -> None:
        if not text:
            return
        if text in (",", ";") and self.trailing and self.due is not None:
            self.write(text)  # before the comment, not on a line of its own
            return
        if self.due is not None:
            if text == " ":
                return
            self.break_line(self.due, blank=self.due_blank)
        if self.inline:
            self.inline = False
            if text[0] not in " ,;)]":
                self.write(" ")
        self.write(text)

    def write(self, text: str) -> None:
        if self.line_start:
            if text == " ":
                return
            self.out.append(" " * self.indent)
            self.column = self.indent
            self.line_start = False
        self.out.append(text)
        last = text.rfind("\n")
        self.column = self.column + len(text) if last < 0 else len(text) - last - 1

    def break_line(self, indent: int, *, blank: bool) -> None:
        self.due, self.due_blank, self.inline = None, False, False
        if not self.out or (self.line_start and not self.trailing):
            self.indent = indent
            if blank and self.out and not "".join(self.out[-2:]).endswith("\n\n"):
                self.out.append("\n")
            return
        self.flush()
        self.out.append("\n\n" if blank else "\n")
        self.line_start, self.indent, self.column = True, indent, indent

    def flush(self) -> None:
        while self.out and self.out[-1].strip(" ") == "" and not self.line_start:
            self.out.pop()
        if self.trailing:
            self.out.append(" " + " ".join(self.trailing))
            self.trailing.clear()

    def comment(self, indent: int, comment: Trailing | OwnLine | Inline) -> None:
        if isinstance(comment, Trailing):
            self.trailing.append(comment.text)
            self.due = indent + INDENT
            return
        if isinstance(comment, Inline):
            if self.due is not None:
                self.break_line(self.due, blank=self.due_blank)
            if not self.line_start and self.out[-1][-1] not in " ([{":
                self.write(" ")
            self.write(comment.text)
            self.inline = True
            return
        if self.due is not None or not self.line_start:
            level = self.indent if self.line_start else indent + INDENT
            self.break_line(self.due if self.due is not None else level, blank=self.due_blank)
        if comment.before:
            self.break_line(self.indent, blank=True)
        self.write(comment.text)
        self.due, self.due_blank = self.indent, comment.after

    def fits(self, first: _Command, rest: Sequence[_Command]) -> bool:
        """Return whether the text up to the next line break fits into the line; comments at its end may be longer."""
        left = self.width - self.column
        waiting = 0  # what comments take up if more comes behind them
        stack = [first]
        behind = len(rest)
        while left >= 0:
            if not stack:
                if not behind:
                    return True
                behind -= 1
                stack.append(rest[behind])
                continue
            indent, flat, doc = stack.pop()
            if isinstance(doc, str):
                if "\n" in doc:
                    return left >= doc.index("\n")
                left -= len(doc) + waiting
                waiting = 0
            elif isinstance(doc, tuple):
                stack.extend((indent, flat, part) for part in reversed(doc))
            elif isinstance(doc, LineBreak):
                if doc.hard or not flat:
                    return True
                left -= len(doc.flat) + waiting
                waiting = 0
            elif isinstance(doc, Indent):
                stack.append((indent, flat, doc.doc))
            elif isinstance(doc, LayoutGroup):
                stack.append((indent, not doc.broken, doc.doc))
            elif isinstance(doc, LayoutChoice):
                stack.append(
                    (indent, True, doc.flat) if doc.flat is not None else (indent, False, doc.hugged)
                )
            elif isinstance(doc, WhenBroken):
                left -= 0 if flat else len(doc.text) + waiting
                waiting = waiting if flat else 0
            elif isinstance(doc, OwnLine):
                return True
            elif isinstance(doc, Inline):
                waiting += len(doc.text) + 2
        return False
