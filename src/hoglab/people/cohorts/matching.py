"""Membership in dynamic cohorts, decided from stored persons.

The predicates are those of flags (spec: sdk-wire 3.6, 3.9), so that the list of members and the value of a flag
agree. Only rules about behaviour differ: they are answered here, and flags read the calculated members.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from hoglab.filters.evaluate import MISSING, EvaluationContext, compile_predicate
from hoglab.filters.model import FilterError, PropertyFilter, PropertyGroup
from hoglab.people.cohorts.definition import BEHAVIOURAL, cohort_reference
from hoglab.people.properties import MIRRORED

_NEVER_INITIAL: Final = frozenset({"$os_name", "utm_name"})
"""Properties whose first value PostHog keeps with the person, but does not take the latest one for."""

INITIAL_SOURCES: Final[Mapping[str, str]] = {
    first: name for name, first in MIRRORED.items() if name not in _NEVER_INITIAL
}
"""``$initial_…`` properties and the property that replaces each when it is missing (sdk-wire 3.5)."""

RowIds: TypeAlias = "array[int]"
"""Row ids of persons in ascending order: eight bytes each, for memberships may be large."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored person who may belong to a cohort."""

    row_id: int
    properties: Mapping[str, Any]
    created_at: datetime


Test = Callable[[Candidate], bool]


class CohortError(Exception):
    """A cohort cannot be calculated; the text says why."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of the objects that a definition refers to.

    ``trees`` and ``faults`` are the results of `definition.read_trees`; ``static`` reads the members of a static
    cohort and ``behaviour`` the persons who did what a rule says. Both may raise `CohortError`.
    """

    context: EvaluationContext
    trees: Mapping[int, PropertyGroup]
    faults: Mapping[int, str]
    static: Callable[[int], RowIds]
    behaviour: Callable[[PropertyFilter], RowIds]


def membership_test(cohort_id: int, sources: Sources) -> Test:
    """Return the test for membership in a dynamic cohort. Raises `CohortError` for one that cannot be evaluated."""
    return _Compiler(sources).cohort(cohort_id)


class _Compiler:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._compiled: dict[int, Test] = {}

    def cohort(self, cohort_id: int) -> Test:
        test = self._compiled.get(cohort_id)
        if test is None:
            test = self._compiled[cohort_id] = self._new(cohort_id)
        return test

    def _new(self, cohort_id: int) -> Test:
        if cohort_id in self._sources.faults:
            raise CohortError(f"Cohort {cohort_id} {self._sources.faults[cohort_id]}")
        tree = self._sources.trees.get(cohort_id)
        return _listed(self._sources.static(cohort_id)) if tree is None else self._group(tree)

    def _group(self, group: PropertyGroup) -> Test:
        tests = tuple(
            self._group(value) if isinstance(value, PropertyGroup) else self._leaf(value)
            for value in group.values
        )
        if group.type == "AND" or not tests:
            return lambda person: all(test(person) for test in tests)
        return lambda person: any(test(person) for test in tests)

    def _leaf(self, leaf: PropertyFilter) -> Test:
        test = self._positive(leaf)
        if leaf.negation is not (leaf.is_cohort and leaf.operator == "not_in"):
            return lambda person: not test(person)
        return test

    def _positive(self, leaf: PropertyFilter) -> Test:
        if leaf.is_cohort:
            return self.cohort(cohort_reference(leaf) or 0)
        if leaf.type == BEHAVIOURAL:
            return _listed(self._sources.behaviour(leaf))
        try:
            predicate = compile_predicate(leaf.operator, leaf.value, self._sources.context)
        except FilterError as error:
            raise CohortError(f"{leaf.key}: {error.message}") from None
        key = leaf.key
        if leaf.type == "person_metadata":
            if key != "created_at":
                return lambda _person: predicate(MISSING)
            return lambda person: predicate(person.created_at.isoformat())
        other = INITIAL_SOURCES.get(key)
        if other is None:
            return lambda person: predicate(person.properties.get(key, MISSING))
        return lambda person: predicate(
            person.properties.get(key, person.properties.get(other, MISSING)),
        )


def _listed(row_ids: RowIds) -> Test:
    def test(person: Candidate) -> bool:
        place = bisect_left(row_ids, person.row_id)
        return place < len(row_ids) and row_ids[place] == person.row_id

    return test
