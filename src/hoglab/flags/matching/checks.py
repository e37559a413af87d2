"""Property filters of flags and cohorts, compiled into checks of a `Subject` (spec: sdk-wire 3.5-3.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hoglab.filters.evaluate import MISSING, EvaluationContext, Predicate, compile_predicate
from hoglab.filters.model import PropertyFilter, PropertyGroup
from hoglab.flags.matching.outcome import FlagFailure, FlagReason
from hoglab.flags.matching.subject import Subject
from hoglab.people.cohorts.definition import BEHAVIOURAL, Cohort, cohort_reference, read_trees

Check = Callable[[Subject], bool]


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    test: Check
    depends_on: frozenset[str] = frozenset()
    """Keys of ``flag`` filters: ids of other flags, as text."""

    def negated(self) -> CompiledCheck:
        test = self.test
        return CompiledCheck(lambda subject: not test(subject), self.depends_on)


class CheckCompiler:
    """Compiles filters for one project. Every dynamic cohort is compiled once and shared by its flags.

    ``resolve_flag`` gives the id of the flag that a dependency names, None for a flag that does not exist.
    """

    def __init__(
        self,
        context: EvaluationContext,
        cohorts: Mapping[int, Cohort],
        resolve_flag: Callable[[str], int | None],
    ) -> None:
        self.context = context
        self.resolve_flag = resolve_flag
        self._cohorts = cohorts
        self._trees, self._faults = read_trees(cohorts.values())
        self._compiled: dict[int, CompiledCheck] = {}

    def check(self, leaf: PropertyFilter, aggregation: int | None = None) -> CompiledCheck:
        """Return the check of one filter, negation included.

        ``aggregation`` is the group type of the condition around it.
        """
        compiled = self._leaf(leaf, aggregation)
        return compiled.negated() if leaf.negation else compiled

    def _leaf(self, leaf: PropertyFilter, aggregation: int | None) -> CompiledCheck:
        if leaf.is_cohort:
            return self._cohort_filter(leaf)
        if leaf.type == "flag":
            return self._dependency(leaf)
        predicate = compile_predicate(leaf.operator, leaf.value, self.context)
        if leaf.type == "person":
            return _person_check(leaf.key, predicate)
        if leaf.type == "group":
            index = aggregation if leaf.group_type_index is None else leaf.group_type_index
            return _group_check(index, leaf.key, predicate)
        if leaf.type == "person_metadata":
            return _metadata_check(leaf.key, predicate)
        return _broken(f"Filters of type {leaf.type} cannot be evaluated")

    def _dependency(self, leaf: PropertyFilter) -> CompiledCheck:
        expected = leaf.value
        flag_id = self.resolve_flag(leaf.key)
        depends_on = frozenset({leaf.key})
        if flag_id is None or leaf.operator != "flag_evaluates_to" or not isinstance(expected, (bool, str)):
            return CompiledCheck(_no, depends_on)
        return CompiledCheck(
            lambda subject: dependency_matches(expected, subject.dependency(flag_id)), depends_on
        )

    def _cohort_filter(self, leaf: PropertyFilter) -> CompiledCheck:
        if leaf.operator not in {"in", "not_in", "exact"}:
            return _broken(f"Cohorts are not compared with {leaf.operator}")
        cohort_id = cohort_reference(leaf)
        if cohort_id is None:
            return _broken(f"Cohort {leaf.value!r} does not exist")
        cohort = self.cohort(cohort_id)
        return cohort.negated() if leaf.operator == "not_in" else cohort

    def cohort(self, cohort_id: int) -> CompiledCheck:
        """Return the check of membership in a cohort.

        An unknown or cyclic cohort fails the flags that ask for it, and so does one with rules about behaviour that
        was never calculated: neither ``in`` nor ``not_in`` has an answer.
        """
        compiled = self._compiled.get(cohort_id)
        if compiled is None:
            compiled = self._compiled[cohort_id] = self._new_cohort(cohort_id)
        return compiled

    def _new_cohort(self, cohort_id: int) -> CompiledCheck:
        if cohort_id in self._faults:
            return _broken(f"Cohort {cohort_id} {self._faults[cohort_id]}")
        if cohort_id not in self._cohorts:
            return _broken(f"Cohort {cohort_id} does not exist")
        cohort = self._cohorts[cohort_id]
        tree = None if cohort.is_static else self._trees[cohort_id]
        if tree is not None and all(leaf.type != BEHAVIOURAL for leaf in tree.leaves()):
            return self._tree(tree)
        if not cohort.is_known:
            return _broken(f"Cohort {cohort_id} has not been calculated yet")
        if tree is None:
            return CompiledCheck(lambda subject: subject.is_listed_in_cohort(cohort_id))
        return self._calculated(cohort_id, self._tree(tree))

    def _calculated(self, cohort_id: int, of_strangers: CompiledCheck) -> CompiledCheck:
        """Return the check of a cohort with rules about behaviour, by its calculated members.

        Persons who are not stored have done nothing, so the rules themselves are evaluated for them.
        """
        strangers = of_strangers.test

        def test(subject: Subject) -> bool:
            return strangers(subject) if subject.person() is None else subject.is_listed_in_cohort(cohort_id)

        return CompiledCheck(test, of_strangers.depends_on)

    def _tree(self, group: PropertyGroup) -> CompiledCheck:
        members = (
            self._tree(value) if isinstance(value, PropertyGroup) else self._cohort_leaf(value)
            for value in group.values
        )
        tests = tuple(member.test for member in members)
        if group.type == "AND" or not tests:
            return CompiledCheck(lambda subject: all(guarded(test, subject) for test in tests))
        return CompiledCheck(lambda subject: any(guarded(test, subject) for test in tests))

    def _cohort_leaf(self, leaf: PropertyFilter) -> CompiledCheck:
        """Return the check of a leaf of a cohort; what it says about behaviour is checked for those who did nothing."""
        if leaf.type == BEHAVIOURAL:
            return _NEVER.negated() if leaf.negation else _NEVER
        if leaf.type in {"person", "person_metadata"} or leaf.is_cohort:
            return self.check(leaf)
        return _broken(f"Filters of type {leaf.type} cannot define a cohort")


UNEVALUABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a check for values that it cannot compare: the condition does not match."""


def guarded(test: Check, subject: Subject) -> bool:
    """Return the result of a check, False for a value that it cannot compare; failures of a whole flag are raised."""
    try:
        return test(subject)
    except UNEVALUABLE:
        return False


def dependency_matches(expected: bool | str, actual: bool | str) -> bool:
    """Return whether the value of a flag is what a dependency on it expects (spec: sdk-wire 3.10)."""
    if isinstance(expected, bool):
        return expected is (actual is not False)
    return expected == actual


def _person_check(key: str, predicate: Predicate) -> CompiledCheck:
    def test(subject: Subject) -> bool:
        value = subject.known.get(key, MISSING)
        if value is MISSING:
            value = subject.person_property(key)
        return predicate(value)

    return CompiledCheck(test)


def _group_check(index: int | None, key: str, predicate: Predicate) -> CompiledCheck:
    if index is None:
        return _NEVER
    return CompiledCheck(lambda subject: predicate(subject.group_property(index, key)))


def _metadata_check(key: str, predicate: Predicate) -> CompiledCheck:
    if key != "created_at":
        return CompiledCheck(lambda _subject: predicate(MISSING))

    def test(subject: Subject) -> bool:
        person = subject.person()
        return predicate(MISSING if person is None else person.created_at.isoformat())

    return CompiledCheck(test)


def _broken(detail: str) -> CompiledCheck:
    def test(_subject: Subject) -> bool:
        raise FlagFailure(FlagReason.EVALUATION_ERROR, detail)

    return CompiledCheck(test)


def _no(_subject: Subject) -> bool:
    return False


_NEVER = CompiledCheck(_no)
