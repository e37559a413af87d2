"""Cohorts that filters of metrics and exposures name (spec: hog-runtime 2.5, 2.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hoglab.analysis.query.model import CohortMembers
from hoglab.analysis.query.scope import cohort_ids
from hoglab.filters import FilterError, PropertyFilter, PropertyGroup, parse_filters
from hoglab.people import cohorts

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_DEPTH = 10
"""Maximum depth of cohorts made of cohorts."""


def named_cohorts(
    connection: Connection, project_id: int, definitions: Iterable[Any]
) -> dict[int, CohortMembers]:
    """Return every cohort that filters anywhere inside JSON definitions name, and the cohorts that they are made of.

    A cohort whose rules follow from the properties of persons alone is evaluated with each event. All others, such as
    those about behaviour, have the members that were calculated last. A cohort that is unknown or deleted is left out:
    a filter on it cannot be answered.
    """
    return _with_nested(definitions, lambda ids: _load(connection, project_id, ids))


def cohorts_of(definitions: Iterable[Any], known: Mapping[int, CohortMembers]) -> dict[int, CohortMembers]:
    """Return the ``known`` cohorts that `named_cohorts` would find."""
    return _with_nested(
        definitions, lambda ids: {cohort_id: known[cohort_id] for cohort_id in ids & known.keys()}
    )


def _with_nested(
    definitions: Iterable[Any], load: Callable[[set[int]], dict[int, CohortMembers]]
) -> dict[int, CohortMembers]:
    cohorts: dict[int, CohortMembers] = {}
    wanted = set(_named(list(definitions)))
    for _ in range(MAX_DEPTH):
        missing = wanted - cohorts.keys()
        if not missing:
            break
        loaded = load(missing)
        if not loaded:
            break
        cohorts |= loaded
        wanted = {
            identifier
            for cohort in loaded.values()
            for leaf in cohort.filters.leaves()
            if leaf.is_cohort
            for identifier in cohort_ids(leaf.value)
        }
    return cohorts


def _load(connection: Connection, project_id: int, ids: set[int]) -> dict[int, CohortMembers]:
    members = {}
    for cohort_id, definition in cohorts.definitions(connection, project_id).items():
        if cohort_id not in ids:
            continue
        filters = None if definition.is_static else _person_filters(definition.tree)
        if filters is not None:
            members[cohort_id] = CohortMembers(filters)
            continue
        people = tuple(map(str, cohorts.members(connection, cohort_id)))
        members[cohort_id] = CohortMembers(
            people=people, version=definition.version, is_calculated=definition.is_known
        )
    return members


def _person_filters(tree: Any) -> PropertyGroup | None:
    """Return the definition of a dynamic cohort when it refers to persons and cohorts only, and is not empty."""
    try:
        group = parse_filters(tree, "cohort", default_type="person")
    except FilterError:
        return None
    leaves: list[PropertyFilter] = list(group.leaves())
    return group if leaves and all(leaf.type == "person" or leaf.is_cohort for leaf in leaves) else None


def _named(value: Any) -> Iterator[int]:
    """Yield the ids of cohorts in filters anywhere inside JSON."""
    if isinstance(value, Mapping):
        kind = value.get("type")
        if isinstance(kind, str) and kind.endswith("cohort") and "value" in value:
            yield from cohort_ids(value["value"])
        for part in value.values():
            yield from _named(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _named(part)
