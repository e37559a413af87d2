"""Cohorts that filters of metrics and exposures name (spec: hog-runtime 2.5, 2.8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hoglab.analysis.query.model import Cohort
from hoglab.analysis.query.scope import cohort_ids
from hoglab.filters import FilterError, PropertyFilter, PropertyGroup, parse_filters
from hoglab.storage.database.tables import cohort, cohort_person, person

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_DEPTH = 10
"""How deep cohorts may be made of cohorts."""


def named_cohorts(connection: Connection, project_id: int, definitions: Iterable[Any]) -> dict[int, Cohort]:
    """Every cohort that filters anywhere inside JSON definitions name, and those that they are made of.

    A cohort that is unknown, deleted or made of behaviour is left out: a filter on it cannot be answered.
    """
    found: dict[int, Cohort] = {}
    wanted = set(_named(list(definitions)))
    for _ in range(MAX_DEPTH):
        missing = wanted - found.keys()
        if not missing:
            break
        loaded = _load(connection, project_id, missing)
        if not loaded:
            break
        found |= loaded
        wanted = {
            identifier
            for each in loaded.values()
            for leaf in each.filters.leaves()
            if leaf.is_cohort
            for identifier in cohort_ids(leaf.value)
        }
    return found


def _load(connection: Connection, project_id: int, ids: set[int]) -> dict[int, Cohort]:
    statement = sa.select(cohort.c.id, cohort.c.is_static, cohort.c.filters).where(
        cohort.c.project_id == project_id, cohort.c.id.in_(ids), cohort.c.deleted.is_(False)
    )
    found = {}
    for row in connection.execute(statement):
        if row.is_static:
            found[row.id] = Cohort(people=_members(connection, row.id))
        elif (filters := _person_filters(row.filters)) is not None:
            found[row.id] = Cohort(filters)
    return found


def _members(connection: Connection, cohort_id: int) -> tuple[str, ...]:
    statement = (
        sa.select(person.c.uuid)
        .join_from(cohort_person, person, person.c.id == cohort_person.c.person_id)
        .where(cohort_person.c.cohort_id == cohort_id)
        .order_by(person.c.id)
    )
    return tuple(connection.scalars(statement))


def _person_filters(stored: Any) -> PropertyGroup | None:
    """The definition of a dynamic cohort when it speaks of persons and cohorts only, and says anything."""
    properties = stored.get("properties") if isinstance(stored, Mapping) else None
    try:
        group = parse_filters(properties, "cohort", default_type="person")
    except FilterError:
        return None
    leaves: list[PropertyFilter] = list(group.leaves())
    return group if leaves and all(leaf.type == "person" or leaf.is_cohort for leaf in leaves) else None


def _named(value: Any) -> Iterator[int]:
    """Ids of cohorts in filters anywhere inside JSON."""
    if isinstance(value, Mapping):
        kind = value.get("type")
        if isinstance(kind, str) and kind.endswith("cohort") and "value" in value:
            yield from cohort_ids(value["value"])
        for each in value.values():
            yield from _named(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named(each)
