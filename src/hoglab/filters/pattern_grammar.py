"""The grammar of patterns that may run in an engine which backtracks (spec: sdk-wire 3.6).

That engine knows much more: fuzzy matching, recursion, named lists, set operations. It also expands counted repeats,
at some 250 bytes a step, and its C code crashes for some patterns with a million of them. Hence a pattern is read here
first: what the grammar does not name is refused, and so is a pattern that is too large once its repeats are expanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hoglab.filters.model import FilterError
from hoglab.patterns import DOTALL, anchored

MAX_LENGTH: Final = 1_000
"""Largest number of characters of a pattern."""

MAX_STEPS: Final = 2_000
"""Largest number of steps of a pattern: ``(ab){1,9}`` has 27, three of them for each turn."""

MAX_DEPTH: Final = 20
"""Largest number of groups that stand in each other."""

MAX_GROUPS: Final = 50
"""Largest number of groups of a pattern, whether they capture or not."""

_OPENING = anchored(
    r"\(\?(?:[:=!>]|<[=!]|P?<[A-Za-z_][A-Za-z0-9_]{0,31}>|[ims]{1,3}(?:-[ims]{1,3})?:|-[ims]{1,3}:)"
)
_FLAGS = anchored(r"\(\?[ims]{1,3}\)")
_NAMED_REFERENCE = anchored(r"\(\?P=[A-Za-z_][A-Za-z0-9_]{0,31}\)")
_ESCAPE = anchored(
    r"\\(?:[dDwWsSbBAzZnrtfva]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[1-9][0-9]?|[pP](?:[A-Z]|\{\^?[A-Za-z0-9_ =-]{1,40}\})"
    r"|[^A-Za-z0-9])",
    DOTALL,
)
_CLASS_NAME = anchored(r"\[:\^?[a-z]{1,10}:\]")
_REPEAT = anchored(r"\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\}")


class PatternRefusedError(FilterError):
    """A pattern may be valid elsewhere, but is not run here. The message says why, in words for its author."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "")


@dataclass(slots=True)
class _Group:
    """Steps of a group that is being read, and those of its last item, which a repeat multiplies."""

    steps: int = 1
    last: int = 0

    def add(self, steps: int) -> None:
        self.steps += steps
        self.last = steps

    def repeat(self, times: int) -> None:
        more = self.last * (times - 1)
        self.steps += more
        self.last += more


def check_grammar(pattern: str) -> None:
    """Raise `PatternRefusedError` for a pattern outside of the grammar or beyond one of the limits.

    One pass. Patterns that are merely wrong, such as those with a group that is not closed, may pass.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternRefusedError(f"regular expressions with look-around may have {MAX_LENGTH:,} characters")
    open_groups = [_Group()]
    at, groups = 0, 0
    while at < len(pattern):
        group, character = open_groups[-1], pattern[at]
        if character == "(":
            groups += 1
            at = _behind_opening(pattern, at, open_groups)
            if groups > MAX_GROUPS or len(open_groups) > MAX_DEPTH + 1:
                raise PatternRefusedError(
                    f"regular expressions with look-around may have {MAX_GROUPS} groups, {MAX_DEPTH} in each other"
                )
        elif character == ")":
            at += 1
            if len(open_groups) > 1:
                inner = open_groups.pop()
                open_groups[-1].add(inner.steps)
        elif character in "*+?":
            group.repeat(2)
            at += 1
        elif character == "{":
            times, at = _repeat(pattern, at)
            group.repeat(times)
        else:
            at = _behind_item(pattern, at)
            group.add(1)
        if sum(group.steps for group in open_groups) > MAX_STEPS:
            raise PatternRefusedError(
                f"regular expressions with look-around may have {MAX_STEPS:,} steps, each repeat counted as often as"
                " it may run"
            )


def _behind_opening(pattern: str, at: int, open_groups: list[_Group]) -> int:
    """Return the place behind the opening of a group, which is then open, or behind flags or a reference."""
    if not pattern.startswith("(?", at) and not pattern.startswith("(*", at):
        open_groups.append(_Group())
        return at + 1
    if match := _OPENING.match(pattern, at):
        open_groups.append(_Group())
    elif match := _NAMED_REFERENCE.match(pattern, at) or _FLAGS.match(pattern, at):
        open_groups[-1].add(1)
    else:
        raise PatternRefusedError(f"{pattern[at : at + 4]!r} is not supported in regular expressions")
    return match.end()


def _repeat(pattern: str, at: int) -> tuple[int, int]:
    """Return how often a counted repeat may run (one more where it is open above), and the place behind it."""
    match = _REPEAT.match(pattern, at)
    if match is None:
        raise PatternRefusedError(
            f"{pattern[at : at + 8]!r} is not supported in regular expressions; a brace is \\{{"
        )
    low, comma, high = match.groups()
    times = int(low) + 1 if comma and not high else max(int(low), int(high or 0))
    return max(times, 1), match.end()


def _behind_item(pattern: str, at: int) -> int:
    """Return the place behind one character, escape or class of characters."""
    if pattern[at] == "\\":
        return _behind_escape(pattern, at)
    if pattern[at] != "[":
        return at + 1
    at += 2 if pattern.startswith("[^", at) else 1
    first = True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        if pattern[at] == "\\":
            at = _behind_escape(pattern, at)
        elif name := _CLASS_NAME.match(pattern, at):
            at = name.end()
        else:
            at += 1
    return at + 1


def _behind_escape(pattern: str, at: int) -> int:
    match = _ESCAPE.match(pattern, at)
    if match is None:
        raise PatternRefusedError(f"{pattern[at : at + 3]!r} is not supported in regular expressions")
    return match.end()
