"""Literals of a regular expression: the plain texts that it can match.

Many patterns people write are plain texts in disguise (`example\\.com/(pricing|plans)`), or hold one that every
match must contain. Looking for a text takes Python a tenth of the time of asking RE2. Only patterns that RE2 has
accepted are read here, and only a part of its syntax is understood: where anything else appears, nothing is said.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple, NoReturn

from hoglab.hog.patterns import anchored

MAX_TEXTS: Final = 8
"""Maximum number of texts searched for one after the other; a pattern with more is left to RE2."""

MIN_REQUIRED: Final = 3
"""Minimum length of a text that is searched for before a pattern runs."""

MAX_NESTING: Final = 20
"""Maximum nesting of groups; a pattern with more has no known literals."""

_PLAIN: Final = anchored(r"[^\\.+*?()\[\]{}|^$]+")
_CLASS_ESCAPES: Final = frozenset("dDwWsSbBAz")
"""Escapes that stand for classes of characters or for places: one escape is one atom."""


class Literals(NamedTuple):
    """Every match of the pattern contains one of `texts`; with `exact`, every text that contains one matches."""

    texts: tuple[str, ...]
    exact: bool


Texts = frozenset[str] | None
"""The texts that a part of a pattern can match; None when they are too many or unknown."""

_EMPTY: Final[Texts] = frozenset({""})


def literals_of(pattern: str) -> Literals | None:
    """Return the texts to look for in place of the pattern, or before it runs; None when nothing is known.

    Letters keep their case: the literals are for searches with regard to case.
    """
    reader = _Reader(pattern)
    try:
        branches = reader.branches()
        if reader.at < len(pattern):
            return None
    except _NotUnderstoodError:
        return None
    if len(branches) == 1:
        return _of_sequence(branches[0])
    return _exactly(_either([_in_a_row(branch) for branch in branches]))


def _exactly(texts: Texts) -> Literals | None:
    if texts is None or "" in texts:
        return None
    return Literals(_shortest(texts), exact=True)


def _of_sequence(parts: list[Texts]) -> Literals | None:
    """Return the literals of a pattern without alternatives: neighbours with known texts make longer ones."""
    whole = _in_a_row(parts)
    if whole is not None:
        return _exactly(whole)
    best: Texts = None
    run: Texts = _EMPTY
    for part in parts:
        longer = _in_a_row([run, part])
        run = longer if longer is not None else part if part is not None else _EMPTY
        if best is None or _least(run) > _least(best):
            best = run
    if best is None or _least(best) < MIN_REQUIRED:
        return None
    return Literals(_shortest(best), exact=False)


def _least(texts: Texts) -> int:
    return min(map(len, texts)) if texts else 0


def _in_a_row(parts: list[Texts]) -> Texts:
    """Return the texts of parts that follow each other."""
    whole = _EMPTY
    for part in parts:
        if whole is None or part is None or len(whole) * len(part) > MAX_TEXTS:
            return None
        whole = frozenset(first + second for first, second in product(whole, part))
    return whole


def _either(branches: list[Texts]) -> Texts:
    """Return the texts of alternatives."""
    texts: set[str] = set()
    for branch in branches:
        if branch is None:
            return None
        texts |= branch
    return frozenset(texts) if len(texts) <= MAX_TEXTS else None


def _shortest(texts: frozenset[str]) -> tuple[str, ...]:
    """Return the texts without those that contain another of them."""
    kept: list[str] = []
    for text in sorted(texts, key=lambda text: (len(text), text)):
        if not any(shorter in text for shorter in kept):
            kept.append(text)
    return tuple(kept)


class _NotUnderstoodError(Exception):
    """The pattern uses syntax that this module does not read."""


class _Reader:
    """Reader of a pattern that RE2 has accepted."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0

    def branches(self) -> list[list[Texts]]:
        """Read alternatives up to a closing parenthesis or the end, each as its parts in order."""
        branches: list[list[Texts]] = [[]]
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.accept("|"):
                branches.append([])
            elif not self.plain(branches[-1]):
                branches[-1].append(self.repeated(self.atom()))
        return branches

    def plain(self, parts: list[Texts]) -> bool:
        """Read characters that stand for themselves, except a repeated one."""
        matched = _PLAIN.match(self.pattern, self.at)
        if matched is None:
            return False
        end = matched.end()
        if self.pattern[end : end + 1] in ("?", "*", "+", "{"):
            end -= 1
        if end == self.at:
            return False
        parts.append(frozenset({self.pattern[self.at : end]}))
        self.at = end
        return True

    def accept(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def repeated(self, atom: Texts) -> Texts:
        """Read the repetition that may follow the atom, and return both."""
        if self.accept("?"):
            self.accept("?")
            return _either([atom, _EMPTY])
        if self.accept("*") or self.accept("+"):
            self.accept("?")
            return None
        if self.pattern.startswith("{", self.at):
            self.refuse()  # a repetition, or a brace that stands for itself
        return atom

    def atom(self) -> Texts:
        char = self.pattern[self.at]
        self.at += 1
        if char == "\\":
            return self.escape()
        if char == "(":
            return self.group()
        if char == "[":
            return self.char_class()
        if char in ".^$":
            return None
        if char in "*+?{":
            self.refuse()
        return frozenset({char})

    def escape(self) -> Texts:
        char = self.pattern[self.at]
        self.at += 1
        if char in _CLASS_ESCAPES:
            return None
        if not char.isascii() or char.isalnum():
            self.refuse()
        return frozenset({char})

    def group(self) -> Texts:
        if self.pattern.startswith("?", self.at) and not self.accept("?:"):
            self.refuse()  # flags would change what the rest means
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.refuse()
        inner = _either([_in_a_row(branch) for branch in self.branches()])
        self.depth -= 1
        if not self.accept(")"):
            self.refuse()
        return inner

    def char_class(self) -> Texts:
        """Skip a class; `[.]` is a way to write a full stop."""
        start = self.at
        self.accept("^")
        self.accept("]")  # stands for itself in the first place
        while not self.accept("]"):
            if self.at >= len(self.pattern) or self.pattern.startswith("[", self.at):
                self.refuse()  # classes in a class, such as [[:alpha:]]
            self.at += 2 if self.pattern[self.at] == "\\" else 1
        content = self.pattern[start : self.at - 1]
        return frozenset({content}) if len(content) == 1 and content not in "^\\" else None

    def refuse(self) -> NoReturn:
        raise _NotUnderstoodError
