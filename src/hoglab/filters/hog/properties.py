"""Property filters as Hog expressions (spec: hog-runtime 2.4, 2.5, 2.7, 2.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoglab.filters.elements import only_id, parse_selector, selector_pattern, tag_pattern
from hoglab.filters.hog.conditions import NOTHING, AllOf, AnyOf, Condition, Leaf, both, either, negated, plain
from hoglab.filters.hog.environment import FILTER_ROOTS
from hoglab.filters.hog.operators import VALUELESS, Operand, condition
from hoglab.filters.hog.source import parse_condition
from hoglab.filters.hog.tree import call, compare, const, lambda_
from hoglab.filters.hog.tree import field as path_to
from hoglab.filters.model import (
    COHORT_OPERATORS,
    GROUP_TYPES,
    FilterError,
    PropertyFilter,
    PropertyGroup,
    parse_filters,
)
from hoglab.hog import HogRuntimeError, missing_global
from hoglab.hog.values import compile_regex

if TYPE_CHECKING:
    from hoglab.hog.nodes import Expr

EXCEPTION_LISTS = frozenset(
    {"$exception_types", "$exception_values", "$exception_sources", "$exception_functions"}
)
"""Event properties that hold a list, any element of which may meet the condition."""


@dataclass(frozen=True, slots=True)
class ReferencedCohort:
    """Cohort as far as filters need it. ``filters`` is the stored definition."""

    id: int
    name: str
    filters: Mapping[str, Any] | None
    is_static: bool


@dataclass(frozen=True, slots=True)
class FilterContext:
    """Everything outside a function that its filters speak about."""

    test_account_filters: Sequence[Mapping[str, Any]] = ()
    actions: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The steps of every action of the project."""
    cohorts: Mapping[int, ReferencedCohort] = field(default_factory=dict)
    timezone: str = "UTC"
    path_cleaning: bool = False


@dataclass(frozen=True, slots=True)
class PropertyBuilder:
    """Turns property filters into conditions. ``nested_keys``: dots in keys lead into nested objects."""

    context: FilterContext
    nested_keys: bool = False

    def conditions(self, raw: object, path: str) -> list[Condition]:
        """Return one condition for each member of a ``properties`` list. Raises `FilterError`."""
        group = parse_filters(raw, path)
        if group.type == "OR":
            return [self._group(group, path)]
        return [self._member(member, f"{path}[{index}]") for index, member in enumerate(group.values)]

    def _member(self, member: PropertyFilter | PropertyGroup, path: str) -> Condition:
        if isinstance(member, PropertyGroup):
            return self._group(member, path)
        return replace(self._leaf(member, path), path=path, asked=member)

    def _group(self, group: PropertyGroup, path: str) -> Condition:
        parts = [self._member(member, f"{path}[{index}]") for index, member in enumerate(group.values)]
        return (AllOf if group.type == "AND" else AnyOf)(tuple(parts), path)

    def _leaf(self, leaf: PropertyFilter, path: str) -> Leaf:
        """Return the condition of one filter; one that lacks something it needs is true."""
        if leaf.is_cohort:
            return self._cohort(leaf, path)
        if leaf.type == "flag" or not leaf.key:
            return NOTHING
        if leaf.type == "hogql":
            return parse_condition(leaf.key, path, FILTER_ROOTS)
        if "value" not in leaf.given and leaf.operator not in VALUELESS:
            return NOTHING
        built = self._element(leaf, path) if leaf.type == "element" else self._property(leaf, path)
        return negated(built) if leaf.negation else built

    def _operand(self, leaf: PropertyFilter, path: str) -> Operand:
        return Operand(leaf.value, path, self.context.timezone, self.context.path_cleaning)

    def _property(self, leaf: PropertyFilter, path: str) -> Leaf:
        operand = self._operand(leaf, path)
        if leaf.type in {"event", "feature"} and leaf.key in EXCEPTION_LISTS:
            values = call("JSONExtractArrayRaw", path_to("properties", leaf.key))
            return _any_element(values, leaf.operator, operand)
        place = self._place(leaf, path)
        return NOTHING if place is None else condition(place, leaf.operator, operand)

    def _place(self, leaf: PropertyFilter, path: str) -> Expr | None:
        """Return the path to the value, None when the filter is incomplete."""
        key = leaf.key
        match leaf.type:
            case "event" | "feature":
                if key == "$elements_chain":
                    return path_to("elements_chain")
                return path_to("properties", *(key.split(".") if self.nested_keys else [key]))
            case "person":
                return (
                    path_to("distinct_id") if key == "distinct_id" else path_to("person", "properties", key)
                )
            case "group":
                index = leaf.group_type_index
                if index is None:
                    return None
                if not 0 <= index < GROUP_TYPES:
                    raise FilterError(f"must be 0 to {GROUP_TYPES - 1}", f"{path}.group_type_index")
                return path_to(f"group_{index}", "properties", key)
            case "event_metadata":
                if key not in FILTER_ROOTS:
                    raise FilterError(missing_global((key,)), path)
                return path_to(key)
            case "workflow_variable":
                return path_to("variables", key)
        raise FilterError(f"Filters of type {leaf.type} are not supported in real-time filters", path)

    def _element(self, leaf: PropertyFilter, path: str) -> Leaf:
        operand = self._operand(leaf, path)
        if leaf.key == "href":
            return condition(path_to("elements_chain_href"), leaf.operator, operand)
        if leaf.key == "text":
            return _any_element(path_to("elements_chain_texts"), leaf.operator, operand)
        if leaf.key not in {"selector", "tag_name"}:
            raise FilterError(f"Elements have no property {leaf.key}", path)
        if leaf.operator not in {"exact", "is_not"}:
            raise FilterError(f"Operator {leaf.operator} is not supported for {leaf.key}", path)
        values = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        if not values:
            return NOTHING
        build = selector_condition if leaf.key == "selector" else tag_condition
        conditions = [build(operand.one(value).text(), path) for value in values]
        if leaf.operator == "exact":
            return either(conditions)
        return both(list(map(negated, conditions)))

    # --- cohorts ---

    def _cohort(self, leaf: PropertyFilter, path: str) -> Leaf:
        """Return membership, spelled out as conditions on the person."""
        if leaf.operator not in COHORT_OPERATORS:
            raise FilterError(f"Cohorts are compared with in or not_in, not {leaf.operator}", path)
        refusals: list[str] = []
        memberships = [self._inlined(identifier, refusals) for identifier in _cohort_ids(leaf.value)]
        if refusals:
            raise UnsupportedCohortError(refusals)
        member = either([membership for membership in memberships if membership is not None])
        return negated(member) if leaf.excludes_cohort is not leaf.negation else member

    def _inlined(self, identifier: int | None, refusals: list[str]) -> Condition | None:
        cohort = None if identifier is None else self.context.cohorts.get(identifier)
        if cohort is None:
            refusals.append(f"cohort {identifier} does not exist")
            return None
        label = f'cohort "{cohort.name}" (id {cohort.id})'
        if cohort.is_static:
            refusals.append(f"{label} is a static list of persons")
            return None
        group = parse_filters((cohort.filters or {}).get("properties"), f"cohort {cohort.id}")
        leaves = list(group.leaves())
        if not leaves:
            refusals.append(f"{label} has no conditions")
            return None
        if any(leaf.type != "person" for leaf in leaves):
            refusals.append(f"{label} looks at more than person properties")
            return None
        return self._group(group, f"cohort {cohort.id}")


class UnsupportedCohortError(FilterError):
    """A cohort that cannot be spelled out as conditions on the person; ``reasons`` say why."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(
            f"Cohort membership can't be evaluated in real-time filters. {'; '.join(reasons)}.", ""
        )


def _cohort_ids(value: object) -> list[int | None]:
    """Return the ids that a cohort filter names; None for what is no id."""
    ids: list[int | None] = []
    for item in value if isinstance(value, list) else [value]:
        text = str(item)
        ids.append(int(text) if text.isascii() and text.isdigit() and not isinstance(item, bool) else None)
    return ids


def _any_element(values: Expr, operator: str, operand: Operand) -> Leaf:
    """Return the condition that some element of a list meets a condition."""
    body = condition(path_to("one"), operator, operand).node
    return plain(call("arrayExists", lambda_("one", body), values))


def selector_condition(selector: str, path: str) -> Leaf:
    """Return the condition that some element of the chain matches a CSS selector (spec: hog-runtime 2.7)."""
    try:
        parts = parse_selector(selector)
    except FilterError as error:
        raise FilterError(error.message, path) from None
    identifier = only_id(parts)
    if identifier is not None:
        return plain(compare("in", const(identifier), path_to("elements_chain_ids")))
    pattern = selector_pattern(parts)
    try:
        compile_regex(pattern)
    except HogRuntimeError:
        raise FilterError(f"Selector is too long: {selector}", path) from None
    return plain(compare("=~", path_to("elements_chain"), const(pattern)))


def tag_condition(tag: str, path: str) -> Leaf:
    """Return the condition that some element of the chain has this tag (spec: hog-runtime 2.6)."""
    pattern = tag_pattern(tag)
    try:
        compile_regex(pattern)
    except HogRuntimeError as error:
        raise FilterError(error.message, path) from None
    return plain(compare("=~", path_to("elements_chain"), const(pattern)))
