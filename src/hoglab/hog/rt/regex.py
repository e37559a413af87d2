"""Regular expressions: RE2, so that no pattern can take more than linear time.

spec: hog-language 8.4, 9 (D16). The public google-re2 wrapper spends several times longer on book-keeping than on
matching (hog-perf 1.4), so a matcher calls the compiled program underneath.  That is a private attribute of a pinned
version: a self-test at import decides whether it is used, and the public interface does the same work otherwise.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, Protocol

import re2

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import LONG, charge
from hoglab.hog.rt.literals import Literals, literals_of

MAX_PATTERN_BYTES: Final = 1_000
"""Longest pattern a program may use."""

MAX_PROGRAM_BYTES: Final = 1 << 20
"""Maximum memory of one compiled pattern in RE2; larger programs are refused."""

CACHE_SIZE: Final = 128
"""Patterns kept compiled; each may hold up to `MAX_PROGRAM_BYTES`."""

MAX_WORK: Final = 250_000_000
"""Largest product of a text's length and a pattern's program size.

An awkward pattern makes RE2 step through all states of its program for each byte, at about 4 ns each, and
nothing can interrupt it: this is about a second."""

FREE_WORK: Final = 20_000
"""Product of lengths that costs nothing: some 80 microseconds at worst."""

COMPILE_STEPS: Final = 10_000
"""Steps charged for compiling a pattern while a program runs; an awkward one can take milliseconds."""


class Matcher(Protocol):
    """A compiled pattern.

    `literals` are texts of which every match contains one, None when there are none known.
    """

    pattern: str

    @property
    def literals(self) -> Literals | None: ...

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text.

        Raises:
            HogRuntimeError: the text is too long for the pattern (see `MAX_WORK`).
        """

    def extract(self, text: str) -> str | None:
        """Return the first group of the first match.

        The result is the match where the pattern has no group, or the group took no part; None without a match.
        """

    def groups(self, text: str) -> tuple[str | None, ...] | None:
        """Return the whole first match and its groups, None when there is no match."""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _admit(length: int, program_size: int) -> None:
    """Charge a search in a long text, and refuse one that might take too long."""
    work = length * program_size
    if work > MAX_WORK:
        most = MAX_WORK // program_size
        raise HogRuntimeError(
            f"Text of {length} bytes is too long for this regular expression (at most {most})"
        )
    charge(work >> 8)


class _PublicMatcher:
    """A matcher over the documented interface of google-re2."""

    __slots__ = ("_compiled", "_size", "pattern")
    literals: ClassVar[None] = None

    def __init__(self, pattern: str, compiled: Any) -> None:
        self.pattern = pattern
        self._compiled = compiled
        self._size: int = compiled.programsize

    def search(self, text: str) -> bool:
        return self._find(text) is not None

    def _find(self, text: str) -> Any:
        data = _encode(text)
        if len(data) * self._size > FREE_WORK:
            _admit(len(data), self._size)
        return self._compiled.search(data)

    def groups(self, text: str) -> tuple[str | None, ...] | None:
        matched = self._find(text)
        if matched is None:
            return None
        parts = (matched[0], *matched.groups())
        return tuple(None if part is None else _decode(part) for part in parts)

    def extract(self, text: str) -> str | None:
        return _first_group(self.groups(text))


class _DirectMatcher:
    """A matcher that calls the compiled RE2 program itself."""

    __slots__ = ("_anchor", "_compile", "_match", "_match_groups", "_size", "pattern")
    literals: ClassVar[None] = None

    def __init__(self, pattern: str, without_groups: Any, compile_with_groups: Callable[[], Any]) -> None:
        self.pattern = pattern
        self._anchor = re2._Anchor.UNANCHORED  # noqa: SLF001
        self._size: int = without_groups.programsize
        self._match: Callable[..., list[tuple[int, int]]] = without_groups._regexp.Match  # noqa: SLF001
        self._match_groups: Callable[..., list[tuple[int, int]]] | None = None
        self._compile = compile_with_groups

    def search(self, text: str) -> bool:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) * self._size > FREE_WORK:
            _admit(len(data), self._size)
        return self._match(self._anchor, data, 0, len(data))[0][0] >= 0

    def groups(self, text: str) -> tuple[str | None, ...] | None:
        match = self._match_groups
        if match is None:  # few patterns are asked for their groups, and capturing is slower
            match = self._match_groups = self._compile()._regexp.Match  # noqa: SLF001
        data = _encode(text)
        if len(data) * self._size > FREE_WORK:
            _admit(len(data), self._size)
        spans = match(self._anchor, data, 0, len(data))
        if spans[0][0] < 0:
            return None
        return tuple(None if start < 0 else _decode(data[start:end]) for start, end in spans)

    def extract(self, text: str) -> str | None:
        return _first_group(self.groups(text))


class _LiteralMatcher:
    """A matcher that looks for plain texts in place of its pattern, or before it."""

    __slots__ = ("_exact", "_matcher", "_wanted", "extract", "groups", "literals", "pattern")

    def __init__(self, matcher: Matcher, literals: Literals) -> None:
        self.pattern = matcher.pattern
        self.literals = literals
        self.extract = matcher.extract
        self.groups = matcher.groups
        self._matcher = matcher
        self._wanted = literals.texts
        self._exact = literals.exact

    def search(self, text: str) -> bool:
        if len(text) > LONG:
            charge(len(text) * len(self._wanted) >> 11)
        for wanted in self._wanted:
            if wanted in text:
                return self._exact or self._matcher.search(text)
        return False


def _first_group(groups: tuple[str | None, ...] | None) -> str | None:
    if groups is None:
        return None
    if len(groups) > 1 and groups[1] is not None:
        return groups[1]
    return groups[0]


def _compiled(pattern: str, ignore_case: bool, never_capture: bool, max_mem: int) -> Any:
    options = re2.Options()
    options.max_mem = max_mem
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_capture = never_capture
    try:
        return re2.compile(_encode(pattern), options)
    except re2.error as refused:
        reason = refused.args[0] if refused.args else refused
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise HogRuntimeError(f"Invalid regular expression: {text}") from None


def build_matcher(
    pattern: str, ignore_case: bool, max_mem: int = MAX_PROGRAM_BYTES, direct: bool | None = None
) -> Matcher:
    """Compile a pattern without checking its length.  Raises HogRuntimeError when RE2 refuses it."""
    charge(COMPILE_STEPS)
    capturing = partial(_compiled, pattern, ignore_case, False, max_mem)
    if DIRECT if direct is None else direct:
        return _DirectMatcher(pattern, _compiled(pattern, ignore_case, True, max_mem), capturing)
    return _PublicMatcher(pattern, capturing())


def _direct_calls_work() -> bool:
    """Return whether the private binding of google-re2 answers as expected in the installed version."""
    try:
        matcher = build_matcher("b(.)", False, direct=True)
        return (
            matcher.search("abc")
            and not matcher.search("cab")
            and matcher.groups("xabéc") == ("bé", "é")
            and matcher.groups("") is None
        )
    except Exception:
        return False


DIRECT: Final = _direct_calls_work()
"""Whether matchers use the fast private binding."""


@lru_cache(maxsize=CACHE_SIZE)
def compile_regex(pattern: str, ignore_case: bool = False) -> Matcher:
    """Return the matcher of a user's pattern; the same pattern again comes from a cache.

    Raises:
        HogRuntimeError: not an RE2 pattern, longer than `MAX_PATTERN_BYTES`, or needing more than
            `MAX_PROGRAM_BYTES`.
    """
    if len(pattern) > MAX_PATTERN_BYTES or len(_encode(pattern)) > MAX_PATTERN_BYTES:
        raise HogRuntimeError(f"Regular expression is longer than {MAX_PATTERN_BYTES} bytes")
    matcher = build_matcher(pattern, ignore_case)
    literals = None if ignore_case else literals_of(pattern)
    return matcher if literals is None else _LiteralMatcher(matcher, literals)
