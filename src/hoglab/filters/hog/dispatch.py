"""Dispatch of an event to those of many filters that match, far faster than evaluating each.

Filters are sorted into buckets by the event names that can match them; each bucket becomes one generated function,
a decision tree in which a condition that several filters share is evaluated once (`fuse`). Filters that any event
may match have a bucket of their own. The answer is the same as that of every filter alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hoglab.fairness.compute_quota import ComputeQuota
from hoglab.filters.hog.compiled import NOT_COMPILED, FilterFailure
from hoglab.filters.hog.conditions import AllOf, either
from hoglab.filters.hog.fuse import FilterCase, Find, fuse
from hoglab.hog import HogLimit
from hoglab.hog.values import NeedsBudgetError, without_budget

if TYPE_CHECKING:
    from hoglab.filters.hog.compiled import CompiledFilter, Globals
    from hoglab.filters.hog.conditions import Condition, Predicate
    from hoglab.filters.hog.expression import EventAlternative, FilterExpression


class Matches(NamedTuple):
    """The filters that match an event, by their places in ascending order, and those that failed on it."""

    matched: Sequence[int]
    failed: Sequence[tuple[int, str]] = ()


_MadeOf = tuple[tuple[int, "FilterExpression"], ...]
"""Places and filters."""


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The filters that some events concern. ``find`` answers for those that cannot fail, together."""

    fused: tuple[int, ...] = ()
    find: Find | None = None
    risky: tuple[int, ...] = ()
    """Filters that may fail are asked one by one, so that each failure shows and costs nobody else."""
    made_of: _MadeOf = ()


@dataclass(slots=True)
class _Draft:
    sure: list[tuple[int, FilterExpression]] = dataclass_field(default_factory=list)
    risky: list[int] = dataclass_field(default_factory=list)

    def add(self, place: int, expression: FilterExpression) -> None:
        if expression.infallible:
            self.sure.append((place, expression))
        else:
            self.risky.append(place)

    def bucket(self, name: str | None, before: _Bucket | None) -> _Bucket:
        """Return the bucket of these filters.

        ``before`` is the previous bucket of the same name, which is taken over if its filters are the same.
        """
        made_of = (*self.sure,)
        risky = (*self.risky,)
        if before is not None and _same(before.made_of, made_of):
            return before if before.risky == risky else replace(before, risky=risky)
        cases = [FilterCase(place, _decisions(expression, name)) for place, expression in made_of]
        places = tuple(place for place, _ in made_of)
        return _Bucket(places, fuse(cases) if cases else None, risky, made_of)


class _Buckets(NamedTuple):
    """The buckets by names of events, and the bucket of filters that any event may match."""

    named: Mapping[str, _Bucket]
    anywhere: _Bucket | None


_NONE = _Buckets({}, None)


def _same(some: _MadeOf, others: _MadeOf) -> bool:
    """Return whether they are the same filters at the same places."""
    return len(some) == len(others) and all(
        left[0] == right[0] and left[1] is right[1] for left, right in zip(some, others, strict=True)
    )


class FusedDispatcher:
    """All filters of one project's functions. Immutable: a change of configuration makes a new one."""

    def __init__(self, filters: Sequence[CompiledFilter], before: FusedDispatcher | None = None) -> None:
        """Distribute filters to buckets.

        ``before`` is the previous dispatcher, whose buckets are taken over where they are the same.
        """
        self._filters = tuple(filters)
        named: dict[str, _Draft] = defaultdict(_Draft)
        anywhere = _Draft()
        broken: list[tuple[int, str]] = []
        for place, compiled in enumerate(self._filters):
            expression = compiled.expression
            if expression is None:
                broken.append((place, NOT_COMPILED))
                continue
            names = _bucket_names(expression)
            if names is None:
                anywhere.add(place, expression)
                continue
            for name in names:
                named[name].add(place, expression)
        self._broken = tuple(broken)
        known = _NONE if before is None else before.buckets
        self._named = {name: draft.bucket(name, known.named.get(name)) for name, draft in named.items()}
        self._anywhere = anywhere.bucket(None, known.anywhere)
        self._asks_all = bool(broken or anywhere.sure or anywhere.risky)

    @property
    def buckets(self) -> _Buckets:
        """The buckets, for the next dispatcher."""
        return _Buckets(self._named, self._anywhere)

    def __len__(self) -> int:
        return len(self._filters)

    def concerns(self, event: str) -> bool:
        """Return whether events of this name can match a filter or make one fail; other events need no evaluation."""
        return self._asks_all or event in self._named

    def match(self, globals_: Globals, quota: ComputeQuota | None = None) -> Matches:
        """Evaluate every filter on one event. ``quota`` accounts for slow filters of the event's batch."""
        quota = quota or ComputeQuota()
        matched: list[int] = []
        failed = [*self._broken]
        for bucket in (self._named.get(globals_["event"]), self._anywhere):
            if bucket is None:
                continue
            if bucket.find is not None:
                sure = len(matched)
                try:
                    without_budget(partial(bucket.find, globals_, matched))
                except (Exception, HogLimit, NeedsBudgetError):
                    # Long work, or a limit of the machine: none but the guilty shall feel it.
                    del matched[sure:]
                    self._ask(bucket.fused, globals_, matched, failed, quota)
            if bucket.risky:
                self._ask(bucket.risky, globals_, matched, failed, quota)
        matched.sort()
        if failed:
            failed.sort()
        return Matches(matched, failed)

    def _ask(
        self,
        places: Sequence[int],
        globals_: Globals,
        matched: list[int],
        failed: list[tuple[int, str]],
        quota: ComputeQuota,
    ) -> None:
        """Evaluate filters one by one."""
        for place in places:
            try:
                if self._filters[place].matches_in_time(globals_, quota):
                    matched.append(place)
            except FilterFailure as failure:
                failed.append((place, str(failure)))


def _bucket_names(expression: FilterExpression) -> frozenset[str] | None:
    """Return the events that a filter must be asked about, None for all.

    A filter that may fail must be asked about every event, unless its own rules turn events away by name.
    """
    if expression.events_only or expression.infallible:
        return expression.event_names
    return None


def _decisions(expression: FilterExpression, name: str | None) -> tuple[Predicate, ...]:
    """Return predicates of a bucket, where the event's name is known (None: it is not)."""
    conditions = [*expression.required]
    ways = [way for entry in expression.entries for way in _ways(entry, name)]
    if expression.entries:
        conditions.append(either(ways))
    return AllOf(tuple(conditions)).decisions


def _ways(entry: EventAlternative, name: str | None) -> list[Condition]:
    """Return the conjunctions, one of which must hold, of one entry for events of a known name."""
    ways: list[Condition] = []
    for branch in entry.branches:
        if branch.never or (name is not None and branch.event not in (None, name)):
            continue
        named = () if name is not None or branch.name is None else (branch.name,)
        ways.append(AllOf((*named, *branch.conditions, *entry.conditions)))
    return ways
