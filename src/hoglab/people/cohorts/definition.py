"""Definitions of cohorts, and which are accepted (spec: experiments-api 7.4, 8.1; sdk-wire 3.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hoglab.filters.dates import MAX_RELATIVE_NUMBER
from hoglab.filters.evaluate import OPERATORS
from hoglab.filters.model import FilterError, PropertyFilter, PropertyGroup, parse_filters, parse_group
from hoglab.filters.operands import key_problem, operand_problem
from hoglab.http.errors import ApiError, validation_error
from hoglab.http.fields.dates import parse_moment

MAX_DEPTH = 20
"""Maximum depth of cohorts nested in one another."""

MAX_FILTERS_BYTES = 512 * 1024

BEHAVIOURAL = "behavioral"
"""The type of rules about events, as the wire spells it."""

PERFORMED = "performed_event"
"""The one kind of behaviour that is calculated: an event at some time since a moment."""

RuleProblem = Callable[[PropertyFilter], str | None]
"""Function that returns the reason why a rule about behaviour could not be calculated; None when it could."""

_TIME_UNITS = frozenset({"day", "week", "month", "year"})
_COHORT_OPERATORS = frozenset({"in", "not_in", "exact"})


@dataclass(frozen=True, slots=True)
class Cohort:
    """A cohort as evaluation needs it. ``tree`` is the property tree of a cohort with rules.

    A static cohort with rules has the persons as members who matched when it was created; it ``is_pending`` until
    they are found.

    ``version`` of a static cohort grows whenever its list of members is changed; merges of persons do not change
    it. That of a dynamic cohort says which definition its members are from; 0 before the first calculation.
    """

    id: int
    is_static: bool
    tree: Any = None
    version: int = 0
    is_pending: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the stored members count; before the first calculation there are none."""
        return not self.is_pending if self.is_static else self.version > 0


def cohort_reference(leaf: PropertyFilter) -> int | None:
    """Return the id of the cohort that a filter names; None when its value is no id."""
    value = leaf.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and is_id(value) else None


def is_id(text: str) -> bool:
    """Return whether a text spells an id."""
    return text.isascii() and text.isdigit() and len(text) < 19


def references(tree: PropertyGroup) -> set[int]:
    """Return the cohorts that a definition names."""
    named = {cohort_reference(leaf) for leaf in tree.leaves() if leaf.is_cohort}
    return {cohort_id for cohort_id in named if cohort_id is not None}


def action_keys(tree: Any) -> set[str]:
    """Return the actions that the rules of a definition refer to, as they are named there."""
    leaves = parse_group(tree or {}, "properties", default_type="person").leaves()
    return {
        leaf.key for leaf in leaves if leaf.type == BEHAVIOURAL and leaf.extra.get("event_type") == "actions"
    }


def read_trees(cohorts: Iterable[Cohort]) -> tuple[dict[int, PropertyGroup], dict[int, str]]:
    """Return the definitions of dynamic cohorts, and the faults of those that cannot be evaluated.

    Faults are broken definitions, and cohorts in or above a cycle or a very long chain.
    """
    trees: dict[int, PropertyGroup] = {}
    faults: dict[int, str] = {}
    for cohort in cohorts:
        if not cohort.is_static:
            try:
                trees[cohort.id] = parse_group(cohort.tree or {}, default_type="person")
            except FilterError as error:
                faults[cohort.id] = f"has a broken definition: {error}"
    return trees, faults | _unordered(trees)


def _unordered(trees: Mapping[int, PropertyGroup]) -> dict[int, str]:
    """Return the cohorts that cannot be ordered by their dependencies."""
    waiting = {cohort_id: references(tree) & trees.keys() for cohort_id, tree in trees.items()}
    for _ in range(MAX_DEPTH):
        resolved = [cohort_id for cohort_id, left in waiting.items() if not left & waiting.keys()]
        if not resolved:
            break
        for cohort_id in resolved:
            del waiting[cohort_id]
    return dict.fromkeys(waiting, "refers to itself or nests too deep")


def has_conditions(sent: Any) -> bool:
    """Return whether the ``filters`` of a static cohort have any condition; clients send an empty tree for none.

    What is no tree at all counts as one: `check_filters` says what is wrong with it.
    """
    if not sent:
        return False
    try:
        tree = parse_group(sent["properties"] or {}, "properties")
    except (FilterError, KeyError, TypeError):
        return True
    return any(True for _ in tree.leaves())


def check_filters(sent: Any, rule_problem: RuleProblem) -> dict[str, Any]:
    """Return the ``filters`` of a dynamic cohort. Raises 400 for the first broken rule, with its place."""
    if not isinstance(sent, Mapping) or "properties" not in sent:
        raise filters_error('must be an object with "properties"')
    if len(orjson.dumps(sent)) > MAX_FILTERS_BYTES:
        raise filters_error(f"exceed the limit of {MAX_FILTERS_BYTES} bytes")
    checked_tree(sent["properties"], rule_problem, "filters")
    return dict(sent)


def checked_tree(raw: Any, rule_problem: RuleProblem, attr: str) -> PropertyGroup:
    """Return conditions on persons. Raises 400 with ``attr`` for the first broken rule, with its place."""
    try:
        tree = parse_group(raw, "properties", default_type="person")
    except FilterError as error:
        raise validation_error(str(error), attr) from None
    for place, leaf in _placed(tree, raw, "properties"):
        try:
            _check_leaf(leaf, rule_problem)
        except _RuleError as error:
            raise validation_error(f"{place}: {error}", attr) from None
    return tree


def _placed(group: PropertyGroup, raw: Any, path: str) -> Iterator[tuple[str, PropertyFilter]]:
    """Yield every filter of a tree with its place in the JSON that it was read from."""
    inside, values = (path, raw) if isinstance(raw, list) else (f"{path}.values", raw.get("values") or ())
    for index, (member, part) in enumerate(zip(group.values, values, strict=True)):
        place = f"{inside}[{index}]"
        if isinstance(member, PropertyGroup):
            yield from _placed(member, part, place)
        else:
            yield place, member


class _RuleError(Exception):
    """A condition that cannot define a cohort; the text says why."""


def check_references(cohort_id: int | None, filters: Mapping[str, Any], others: Mapping[int, Cohort]) -> None:
    """Raise 400 when a definition names an unknown cohort, or leads back to the cohort itself.

    ``others`` are the cohorts of the project; ``cohort_id`` is None for a new cohort.
    """
    tree = parse_group(filters["properties"], default_type="person")
    for named in sorted(references(tree)):
        if named not in others:
            raise _unknown_cohort(named)
    own_id = cohort_id if cohort_id is not None else -1
    changed = {**others, own_id: Cohort(own_id, False, filters["properties"])}
    if own_id in read_trees(changed.values())[1]:
        raise filters_error("Cohorts must not refer to each other in a circle or nest too deep")


def filters_error(detail: str, code: str = "invalid_input") -> ApiError:
    """Return the 400 for the ``filters`` of a cohort."""
    return validation_error(detail, "filters", code)


def _unknown_cohort(cohort_id: object) -> ApiError:
    return validation_error(f"Cohort with id {cohort_id} does not exist", "filters", "cohort_does_not_exist")


def _check_leaf(leaf: PropertyFilter, rule_problem: RuleProblem) -> None:
    """Raise `_RuleError`, or the 400 for a cohort that there cannot be."""
    if leaf.is_cohort:
        if cohort_reference(leaf) is None:
            raise _unknown_cohort(str(leaf.value)[:100])
        if leaf.operator not in _COHORT_OPERATORS:
            raise _RuleError(f"Cohorts are compared with in or not_in, not {leaf.operator[:100]}")
    elif leaf.type == BEHAVIOURAL:
        _check_behaviour(leaf)
        if problem := rule_problem(leaf):
            raise _RuleError(problem)
    elif leaf.type in {"person", "person_metadata"}:
        if problem := key_problem(leaf.type, leaf.key):
            raise _RuleError(problem)
        if leaf.operator not in OPERATORS:
            raise _RuleError(f"{leaf.operator[:100]} is not a known operator")
        if problem := operand_problem(leaf.operator, leaf.value):
            raise _RuleError(f"{leaf.key[:100]}: {problem}")
    else:
        raise _RuleError(f"Filters of type {leaf.type[:100]} cannot define a cohort")


def _check_behaviour(leaf: PropertyFilter) -> None:
    extra = leaf.extra
    if leaf.value != PERFORMED:
        raise _RuleError(f"Behaviour {str(leaf.value)[:100]} is not supported, only {PERFORMED}")
    if extra.get("event_type") not in {"events", "actions"} or not leaf.key:
        raise _RuleError("A behavioural filter needs the key of an event, and event_type events or actions")
    try:
        parse_filters(extra.get("event_filters"), "event_filters")
        if extra.get("explicit_datetime") is not None:
            parse_moment(str(extra["explicit_datetime"]))
    except ValueError as error:
        raise _RuleError(f"A behavioural filter is malformed: {error}") from None
    interval, count = extra.get("time_interval"), extra.get("time_value")
    if interval is not None and interval not in _TIME_UNITS:
        raise _RuleError("time_interval must be day, week, month or year")
    digits = "" if count is None else str(count)
    if count is not None and not (
        digits.isdecimal() and len(digits) < 6 and 1 <= int(digits) <= MAX_RELATIVE_NUMBER
    ):
        raise _RuleError(f"time_value must be a whole number from 1 to {MAX_RELATIVE_NUMBER}")
