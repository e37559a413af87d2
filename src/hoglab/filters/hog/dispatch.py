"""Which of many filters match an event, in far less time than asking one after the other.

Filters are sorted into buckets by the event names that can match them; each bucket becomes one generated
function, a decision tree in which a condition that several filters share is looked at once (`fuse`). Filters
that any event may match have a bucket of their own. The answer is the same as that of every filter alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.filters.hog.compiled import NOT_COMPILED, FilterFailure
from hoglab.filters.hog.fuse import Case, fuse
from hoglab.filters.hog.tree import all_of, any_of, compare, const, field
from hoglab.hog.errors import HogLimit

if TYPE_CHECKING:
    from hoglab.filters.hog.compiled import CompiledFilter, Globals
    from hoglab.filters.hog.expression import Entry, FilterExpression
    from hoglab.hog.nodes import Expr


@dataclass(frozen=True, slots=True)
class Matches:
    """The filters that match an event, by their places in ascending order, and those that failed on it."""

    matched: Sequence[int]
    failed: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class _Bucket:
    members: tuple[int, ...]
    find: Callable[[Globals, list[int]], None]


_EMPTY = _Bucket((), lambda _globals, _found: None)


class FusedDispatcher:
    """All filters of one project's functions. Immutable: a change of configuration makes a new one."""

    def __init__(self, filters: Sequence[CompiledFilter]) -> None:
        self._filters = tuple(filters)
        named: dict[str, list[Case]] = defaultdict(list)
        anywhere: list[Case] = []
        broken: list[tuple[int, str]] = []
        for place, one in enumerate(self._filters):
            expression = one.expression
            if expression is None:
                broken.append((place, NOT_COMPILED))
                continue
            names = _bucket_names(expression)
            if names is None:
                anywhere.append(_case(place, expression, one, None))
                continue
            for name in names:
                named[name].append(_case(place, expression, one, name))
        self._broken = tuple(broken)
        self._named = {name: _bucket(cases) for name, cases in named.items()}
        self._anywhere = _bucket(anywhere)

    def __len__(self) -> int:
        return len(self._filters)

    def match(self, globals_: Globals) -> Matches:
        """Ask every filter about one event."""
        found: list[int] = []
        named = self._named.get(globals_["event"], _EMPTY)
        try:
            named.find(globals_, found)
            self._anywhere.find(globals_, found)
        except (Exception, HogLimit):
            return self._one_by_one(globals_, (*named.members, *self._anywhere.members))
        found.sort()
        return Matches(found, self._broken)

    def _one_by_one(self, globals_: Globals, places: Sequence[int]) -> Matches:
        """Find out which filter failed."""
        matched: list[int] = []
        failed = list(self._broken)
        for place in sorted(places):
            try:
                if self._filters[place].matches(globals_):
                    matched.append(place)
            except FilterFailure as failure:
                failed.append((place, str(failure)))
        failed.sort()
        return Matches(matched, failed)


def _bucket(cases: list[Case]) -> _Bucket:
    return _Bucket(tuple(case.place for case in cases), fuse(cases)) if cases else _EMPTY


def _bucket_names(expression: FilterExpression) -> frozenset[str] | None:
    """The events that a filter must be asked about, None for all.

    A filter that may fail must be asked about every event, unless its own rules turn events away by name.
    """
    if expression.events_only or expression.total:
        return expression.event_names
    return None


def _case(place: int, expression: FilterExpression, whole: CompiledFilter, name: str | None) -> Case:
    """What must hold in a bucket, where the event's name is known (None: it is not).

    A filter that may fail is asked as a whole: it evaluates all of its conditions, so that each failure shows.
    """
    if not expression.total:
        return Case(place, (), whole.value)
    required = [one.node for one in expression.required]
    ways = [_ways(entry, name) for entry in expression.entries]
    alternatives = [way for entry in ways for way in entry]
    if expression.entries:
        if len(alternatives) == 1:
            required += alternatives[0]
        else:
            required.append(any_of([all_of(way) for way in alternatives]))
    return Case(place, tuple(required))


def _ways(entry: Entry, name: str | None) -> list[list[Expr]]:
    """The conjunctions, one of which must hold, of one entry for events of a known name."""
    own = [one.node for one in entry.conditions]
    ways = []
    for branch in entry.branches:
        if branch.never or (name is not None and branch.event not in (None, name)):
            continue
        way: list[Expr] = [one.node for one in branch.conditions]
        if name is None and branch.event is not None:
            way.insert(0, compare("==", field("event"), const(branch.event)))
        ways.append([*way, *own])
    return ways
