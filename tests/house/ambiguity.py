"""Whether a pattern of the standard library's engine can take more than linear time, told from its parsed form.

The engine tries one way after the other through a pattern. It takes more than linear time where the number of ways
grows with the text: as a polynomial where two loops read the same text and a way leads from one to the other,
exponentially where one loop reads a text in two ways. See Weber and Seidl, "On the degree of ambiguity of finite
automata" (1991). A search also tries each place of the text, which is a loop before the pattern that reads everything.

Approximations: conditions without a width are taken as always true, but for a look-behind at the beginning; a counted
repeat with an upper bound is no loop; possessive loops of one character end where that character does.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ALPHABET = [*map(chr, range(256)), "ĳ", "Ω", "中", "\u2028", "\u3000", "\ud800", "\U0001f600"]
"""A character of each kind that patterns distinguish."""

_ONE_CHARACTER = frozenset({codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN})

EVERYTHING = (1 << len(ALPHABET)) - 1


@dataclass
class _Part:
    """A part of a pattern: the positions it may begin and end with, and whether it may be empty."""

    first: dict[int, int] = field(default_factory=dict)
    """Positions, with the characters by which each may be entered."""
    last: dict[int, int] = field(default_factory=dict)
    """Positions, with the characters that may follow where the part ends there."""
    nullable: int = EVERYTHING
    """The characters that may follow where the part is empty; 0 where it is not."""


class Automaton:
    """The positions of a pattern (Glushkov's construction), with the ways between them and how many there are."""

    def __init__(self, source: str | bytes, flags: int, *, searched: bool) -> None:
        tree = parser.parse(source, flags)
        self._flags = tree.state.flags
        self._bytes = isinstance(source, bytes)
        self.reads: list[int] = []
        self.ways: Counter[tuple[int, int, int]] = Counter()
        items = list(tree)
        before = self._look_behind(items[0]) if searched and items else 0
        part = self._sequence(items)
        self.starts = {place for place in part.first if self.reads[place]}
        if searched:
            fails = bool(items) and items[-1][0] in {codes.AT, codes.ASSERT, codes.ASSERT_NOT}
            ends = set() if fails else set(part.last)
            self._search_from(part, before)
            self.ways = Counter({way: n for way, n in self.ways.items() if not ends & set(way[:2])})

    def _search_from(self, part: _Part, before: int) -> None:
        """Add the loop of a search: two positions, for characters that may precede the pattern and others."""
        free, other = self._position(EVERYTHING & ~before), self._position(before)
        for start in (free, other):
            for end in (free, other):
                self._way(start, end, EVERYTHING)
        for place, by in part.first.items():
            self._way(free, place, by)

    def _position(self, reads: int) -> int:
        self.reads.append(reads)
        return len(self.reads) - 1

    def _way(self, start: int, end: int, by: int) -> None:
        self.ways[start, end, by & self.reads[end]] += 1

    def _sequence(self, items: Iterable[Any]) -> _Part:
        whole = _Part()
        for item in items:
            part = self._item(*item)
            for place, then in whole.last.items():
                for entered, by in part.first.items():
                    self._way(place, entered, then & by)
            for entered, by in part.first.items():
                if by & whole.nullable:
                    whole.first[entered] = whole.first.get(entered, 0) | (by & whole.nullable)
            kept = {place: then & part.nullable for place, then in whole.last.items() if then & part.nullable}
            whole.last = {**kept, **part.last}
            whole.nullable &= part.nullable
        return whole

    def _item(self, code: Any, argument: Any) -> _Part:
        if code in _ONE_CHARACTER:
            place = self._position(self._characters(code, argument))
            return _Part({place: EVERYTHING}, {place: EVERYTHING}, 0)
        if code is codes.SUBPATTERN:
            return self._sequence(argument[3])
        if code is codes.ATOMIC_GROUP:
            return self._sequence(argument)
        if code is codes.BRANCH:
            parts = [self._sequence(branch) for branch in argument[1]]
            return _Part(
                {place: by for part in parts for place, by in part.first.items()},
                {place: then for part in parts for place, then in part.last.items()},
                max((part.nullable for part in parts), default=EVERYTHING),
            )
        if code in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
            return self._repeat(code, *argument)
        return _Part()  # no width; a back-reference is refused by `unread`

    def _repeat(self, code: Any, low: int, high: Any, body: Any) -> _Part:
        part = self._sequence(body)
        unbounded = high is codes.MAXREPEAT
        if unbounded:
            for place, then in part.last.items():
                for entered, by in part.first.items():
                    self._way(place, entered, then & by)
        if low == 0:
            part.nullable = EVERYTHING
        if code is codes.POSSESSIVE_REPEAT and unbounded and len(body) == 1 and body[0][0] in _ONE_CHARACTER:
            follows = EVERYTHING & ~_union(self.reads[place] & by for place, by in part.first.items())
            part.last = {place: then & follows for place, then in part.last.items()}
            part.nullable &= follows
        return part

    def _characters(self, code: Any, argument: Any) -> int:
        members = argument if code is codes.IN else [(code, argument)]
        text = parser.SubPattern(parser.State(), [(codes.IN, members)] if code is codes.IN else members)
        compiled = re._compiler.compile(text, self._flags)  # type: ignore[attr-defined]
        return sum(
            1 << at
            for at, character in enumerate(ALPHABET)
            if (not self._bytes or at < 256)
            and compiled.match(character.encode("latin-1") if self._bytes else character)
        )

    def _look_behind(self, item: Any) -> int:
        """Return the characters that a look-behind at the beginning forbids before the pattern."""
        code, argument = item
        if code is codes.ASSERT_NOT and argument[0] < 0 and len(argument[1]) == 1:
            inner, what = argument[1][0]
            if inner in _ONE_CHARACTER:
                return self._characters(inner, what)
        if code is codes.AT and argument in {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING}:
            return EVERYTHING if not self._flags & re.MULTILINE else EVERYTHING & ~(1 << ALPHABET.index("\n"))
        return 0

    def pumps(self) -> Iterator[tuple[str, str]]:
        """Yield for each loop a text that leads to it and one that goes round it, which may be read again and again."""
        after: dict[int, list[tuple[int, int]]] = {}
        for start, end, by in self.ways:
            if by:
                after.setdefault(start, []).append((end, by))
        for place in _loops(after):
            round_it = _shortest(after, place, place)
            for start in sorted(self.starts):
                begin = ALPHABET[_lowest(self.reads[start])]
                way = "" if start == place else _shortest(after, start, place)
                if way is not None and round_it:
                    yield begin + way, round_it
                    yield "", begin + way + round_it

    def ambiguity(self) -> str | None:
        """Return in what way the automaton is ambiguous, None where the number of ways is bounded."""
        after: dict[int, list[tuple[int, int]]] = {}
        for (start, end, by), count in self.ways.items():
            if by:
                after.setdefault(start, []).extend([(end, by)] * count)
        loops = _loops(after)
        for place, loop in loops.items():
            if any(_two_ways(after, loop, start) for start in loop):
                return f"a loop of {len(loop)} positions reads a text in two ways (position {place})"
        for place, loop in loops.items():
            for other, other_loop in loops.items():
                if place != other and _leads(after, place, loop, other, other_loop):
                    return f"two loops read the same text (positions {place} and {other})"
        return None


def _union(sets: Iterable[int]) -> int:
    whole = 0
    for members in sets:
        whole |= members
    return whole


def _loops(after: dict[int, list[tuple[int, int]]]) -> dict[int, frozenset[int]]:
    """Return for each position that can come back to itself those that it meets on such a way."""
    reached = {start: _reached(after, start) for start in after}
    return {
        start: frozenset(end for end in ends if start in reached.get(end, ()))
        for start, ends in reached.items()
        if start in ends
    }


def _reached(after: dict[int, list[tuple[int, int]]], start: int) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        for end, _ in after.get(waiting.pop(), ()):
            if end not in seen:
                seen.add(end)
                waiting.append(end)
    return seen


def _lowest(members: int) -> int:
    """Return the place in the alphabet of a member: a letter or digit where there is one."""
    places = [at for at in range(len(ALPHABET)) if members >> at & 1]
    return next((at for at in places if ALPHABET[at].isalnum()), places[0])


def _shortest(after: dict[int, list[tuple[int, int]]], start: int, goal: int) -> str | None:
    """Return a text that leads from one position to another, by at least one way; None where none does."""
    waiting = deque([(start, "")])
    seen: set[int] = set()
    while waiting:
        place, text = waiting.popleft()
        for end, by in after.get(place, ()):
            longer = text + ALPHABET[_lowest(by)]
            if end == goal:
                return longer
            if end not in seen:
                seen.add(end)
                waiting.append((end, longer))
    return None


def _two_ways(after: dict[int, list[tuple[int, int]]], loop: frozenset[int], start: int) -> bool:
    """Return whether two ways of one loop from a position read the same text and meet again."""
    waiting: list[tuple[int, int, bool]] = [(start, start, False)]
    seen = set(waiting)
    while waiting:
        one, two, apart = waiting.pop()
        for i, (first, by) in enumerate(after.get(one, ())):
            for j, (second, also_by) in enumerate(after.get(two, ())):
                if first not in loop or second not in loop or not by & also_by:
                    continue
                state = (first, second, apart or (first != second) or (one == two and i != j))
                if state == (start, start, True):
                    return True
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
    return False


def _leads(
    after: dict[int, list[tuple[int, int]]],
    place: int,
    loop: frozenset[int],
    other: int,
    other_loop: frozenset[int],
) -> bool:
    """Return whether some text leads from a position to itself, from it to another, and from that to itself."""
    waiting = [(place, place, other)]
    seen = set(waiting)
    while waiting:
        for state in _together(after, waiting.pop(), loop, other_loop):
            if state == (place, other, other):
                return True
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return False


def _together(
    after: dict[int, list[tuple[int, int]]],
    state: tuple[int, int, int],
    loop: frozenset[int],
    other_loop: frozenset[int],
) -> Iterator[tuple[int, int, int]]:
    for one, by_one in after.get(state[0], ()):
        if one in loop:
            for two, by_two in after.get(state[1], ()):
                if by_one & by_two:
                    for three, by_three in after.get(state[2], ()):
                        if three in other_loop and by_one & by_two & by_three:
                            yield one, two, three
