"""The queries of cohorts and their members."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from hoglab.people.cohorts.definition import Cohort
from hoglab.people.cohorts.matching import Candidate, RowIds
from hoglab.people.reading import next_persons
from hoglab.people.store import chunks
from hoglab.storage.database.tables import cohort, cohort_person, experiment, person, person_distinct_id
from hoglab.storage.database.types import json_text

PERSONS_PER_READ = 2_000
"""Persons that are in memory together while a cohort is calculated."""


@dataclass(frozen=True, slots=True)
class CohortRow:
    """One cohort: the columns of its table."""

    id: int
    project_id: int
    name: str | None
    description: str
    filters: dict[str, Any] | None
    query: dict[str, Any] | None
    groups: list[Any]
    is_static: bool
    is_calculating: bool
    deleted: bool
    count: int | None
    version: int | None
    pending_version: int | None
    errors_calculating: int
    last_error_message: str | None
    last_calculation: datetime | None
    created_by_id: int | None
    created_at: datetime


_COLUMNS = tuple(cohort.c[field.name] for field in fields(CohortRow))


# --- cohorts


def cohort_by_id(connection: Connection, project_id: int, cohort_id: int) -> CohortRow | None:
    """Return a cohort, deleted or not."""
    row = connection.execute(
        sa.select(*_COLUMNS).where(cohort.c.project_id == project_id, cohort.c.id == cohort_id)
    ).one_or_none()
    return None if row is None else CohortRow(*row)


def list_cohorts(
    connection: Connection,
    project_id: int,
    *,
    search: str | None = None,
    is_static: bool | None = None,
    created_by_id: int | None = None,
    limit: int,
    offset: int,
) -> tuple[list[CohortRow], int]:
    """Return cohorts that are not deleted, newest first, and how many there are. ``search``: a part of the name."""
    matching = sa.select(*_COLUMNS).where(cohort.c.project_id == project_id, cohort.c.deleted.is_(False))
    if search:
        matching = matching.where(cohort.c.name.icontains(search, autoescape=True))
    if is_static is not None:
        matching = matching.where(cohort.c.is_static.is_(is_static))
    if created_by_id is not None:
        matching = matching.where(cohort.c.created_by_id == created_by_id)
    count = connection.scalar(sa.select(sa.func.count()).select_from(matching.subquery())) or 0
    rows = connection.execute(
        matching.order_by(cohort.c.created_at.desc(), cohort.c.id.desc()).limit(limit).offset(offset)
    )
    return [CohortRow(*row) for row in rows], count


def definitions(connection: Connection, project_id: int) -> dict[int, Cohort]:
    """Return every cohort of a project that is not deleted, as evaluation needs it."""
    is_pending = sa.or_(cohort.c.is_calculating, cohort.c.errors_calculating > 0)
    statement = sa.select(
        cohort.c.id, cohort.c.is_static, cohort.c.filters, cohort.c.version, is_pending
    ).where(cohort.c.project_id == project_id, cohort.c.deleted.is_(False))
    return {
        cohort_id: Cohort(
            cohort_id,
            is_static,
            (filters or {}).get("properties"),
            version or 0,
            is_pending=bool(is_static and pending),
        )
        for cohort_id, is_static, filters, version, pending in connection.execute(statement)
    }


def existing(connection: Connection, project_id: int, wanted: Collection[int]) -> set[int]:
    """Return which of some cohorts exist in a project and are not deleted, by id."""
    statement = sa.select(cohort.c.id).where(
        cohort.c.project_id == project_id, cohort.c.deleted.is_(False), cohort.c.id.in_(list(wanted))
    )
    return set(connection.scalars(statement))


def calculated_cohorts(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    """Yield the dynamic cohorts of a project, in words, with their conditions."""
    for cohort_id, definition in definitions(connection, project_id).items():
        if not definition.is_static:
            yield f"cohort {cohort_id}", definition.tree


def count_cohorts(connection: Connection, project_id: int) -> int:
    """Return the number of cohorts of a project that are not deleted."""
    statement = (
        sa.select(sa.func.count())
        .select_from(cohort)
        .where(cohort.c.project_id == project_id, cohort.c.deleted.is_(False))
    )
    return connection.scalar(statement) or 0


def exposure_experiments(connection: Connection, cohort_ids: Collection[int]) -> dict[int, list[int]]:
    """Return the experiments that are not deleted and use one of these cohorts for exposure, by cohort id."""
    by_cohort: dict[int, list[int]] = {}
    statement = (
        sa.select(experiment.c.exposure_cohort_id, experiment.c.id)
        .where(experiment.c.exposure_cohort_id.in_(list(cohort_ids)), experiment.c.deleted.is_(False))
        .order_by(experiment.c.id)
    )
    for cohort_id, experiment_id in connection.execute(statement):
        by_cohort.setdefault(cohort_id, []).append(experiment_id)
    return by_cohort


def insert_cohort(connection: Connection, values: Mapping[str, Any]) -> CohortRow:
    return CohortRow(*connection.execute(sa.insert(cohort).values(**values).returning(*_COLUMNS)).one())


def update_cohort(connection: Connection, cohort_id: int, values: Mapping[str, Any]) -> CohortRow:
    statement = sa.update(cohort).where(cohort.c.id == cohort_id).values(**values)
    return CohortRow(*connection.execute(statement.returning(*_COLUMNS)).one())


def request_calculation(connection: Connection, cohort_ids: Collection[int]) -> None:
    """Mark cohorts with rules as waiting for a calculation."""
    connection.execute(
        sa.update(cohort)
        .where(cohort.c.id.in_(list(cohort_ids)))
        .values(is_calculating=True, pending_version=sa.func.coalesce(cohort.c.pending_version, 0) + 1)
    )


def waiting_cohorts(connection: Connection) -> list[tuple[int, int, int]]:
    """Return (project, id, version) of the cohorts to calculate, those with fewest errors first."""
    statement = (
        sa.select(cohort.c.project_id, cohort.c.id, sa.func.coalesce(cohort.c.pending_version, 0))
        .where(cohort.c.is_calculating.is_(True), cohort.c.deleted.is_(False))
        .order_by(cohort.c.errors_calculating, cohort.c.id)
    )
    return [tuple(row) for row in connection.execute(statement)]


def outdated_cohorts(connection: Connection, before: datetime) -> list[int]:
    """Return the cohorts to calculate again: those that failed, and dynamic ones without a success since a moment."""
    statement = sa.select(cohort.c.id).where(
        cohort.c.is_calculating.is_(False),
        cohort.c.deleted.is_(False),
        sa.or_(
            cohort.c.errors_calculating > 0,
            sa.and_(
                cohort.c.is_static.is_(False),
                sa.or_(cohort.c.last_calculation.is_(None), cohort.c.last_calculation < before),
            ),
        ),
    )
    return list(connection.scalars(statement))


# --- members


def members_query(cohort_id: int) -> sa.Select[tuple[int]]:
    """Return a query for the row ids of the persons in a cohort, to be used inside of other queries."""
    return sa.select(cohort_person.c.person_id).where(cohort_person.c.cohort_id == cohort_id)


def members(connection: Connection, cohort_id: int) -> Iterator[UUID]:
    """Yield the persons in a cohort, in the order of their rows; read page by page."""
    rows = connection.execution_options(yield_per=PERSONS_PER_READ).scalars(
        sa.select(person.c.uuid)
        .join_from(cohort_person, person, person.c.id == cohort_person.c.person_id)
        .where(cohort_person.c.cohort_id == cohort_id)
        .order_by(cohort_person.c.person_id)
    )
    return map(UUID, rows)


def member_rows(connection: Connection, cohort_id: int) -> RowIds:
    """Return row ids of the persons in a cohort, ascending."""
    return array("q", connection.scalars(members_query(cohort_id).order_by(cohort_person.c.person_id)))


def count_members(connection: Connection, cohort_id: int) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(members_query(cohort_id).subquery())) or 0


def counts_of(connection: Connection, cohort_ids: Collection[int]) -> dict[int, int]:
    """Return the number of members of cohorts by id; those without members are left out."""
    counts = (
        sa.select(cohort_person.c.cohort_id, sa.func.count())
        .where(cohort_person.c.cohort_id.in_(list(cohort_ids)))
        .group_by(cohort_person.c.cohort_id)
    )
    return {row[0]: row[1] for row in connection.execute(counts)} if cohort_ids else {}


def count_persons(connection: Connection, project_id: int) -> int:
    """Return the number of persons of a project."""
    return (
        connection.scalar(
            sa.select(sa.func.count()).select_from(person).where(person.c.project_id == project_id)
        )
        or 0
    )


def rows_of_persons(connection: Connection, project_id: int, uuids: Iterable[str]) -> Iterator[int]:
    """Yield row ids of persons by uuid; unknown ones are left out."""
    for some in chunks(uuids):
        yield from connection.scalars(
            sa.select(person.c.id).where(person.c.project_id == project_id, person.c.uuid.in_(some))
        )


def rows_of_distinct_ids(connection: Connection, project_id: int, names: Iterable[str]) -> Iterator[int]:
    """Yield row ids of the persons behind distinct ids; unknown ones are left out."""
    ids = person_distinct_id.c
    for some in chunks(names):
        yield from connection.scalars(
            sa.select(ids.person_id).where(ids.project_id == project_id, ids.distinct_id.in_(some))
        )


def rows_of_emails(connection: Connection, project_id: int, emails: Iterable[str]) -> Iterator[int]:
    """Yield the row ids of the persons with one of these as their ``email``, ignoring case. Reads all persons once."""
    wanted = {email.lower() for email in emails}
    if not wanted:
        return
    theirs = json_text(person.c.properties, "email")
    everybody = sa.select(person.c.id, theirs).where(person.c.project_id == project_id, theirs.is_not(None))
    for row_id, email in connection.execute(everybody.execution_options(yield_per=PERSONS_PER_READ)):
        if str(email).lower() in wanted:
            yield row_id


_CANDIDATES = next_persons(
    person.c.id,
    person.c.properties,
    person.c.created_at,
    project_id=bindparam("project_id"),
    after=bindparam("after"),
    limit=PERSONS_PER_READ,
)


def candidates(connection: Connection, project_id: int, after: int) -> list[Candidate]:
    """Return the next persons of a project by row id, at most `PERSONS_PER_READ`."""
    rows = connection.execute(_CANDIDATES, {"project_id": project_id, "after": after})
    return [Candidate(*row) for row in rows]


# Persons may have been merged away since they were found, so only persons that still exist are added.
_ADD = sa.insert(cohort_person).from_select(
    ["cohort_id", "person_id"],
    sa.select(bindparam("cohort", type_=sa.Integer), person.c.id).where(
        person.c.id == bindparam("member", type_=sa.Integer)
    ),
)
_REMOVE = sa.delete(cohort_person).where(
    cohort_person.c.cohort_id == bindparam("cohort"), cohort_person.c.person_id == bindparam("member")
)


def add_members(connection: Connection, cohort_id: int, row_ids: Iterable[int]) -> None:
    """Add persons who are not in the cohort yet."""
    _run_many(connection, _ADD, cohort_id, row_ids)


def remove_members(connection: Connection, cohort_id: int, row_ids: Iterable[int]) -> None:
    _run_many(connection, _REMOVE, cohort_id, row_ids)


def add_further_members(connection: Connection, cohort_id: int, wanted: RowIds) -> bool:
    """Add persons (ascending row ids), some of whom may be members already. Return whether that changed anything."""
    _, new = differences(member_rows(connection, cohort_id), wanted)
    add_members(connection, cohort_id, new)
    return bool(new)


def replace_members(connection: Connection, cohort_id: int, wanted: RowIds) -> bool:
    """Make exactly these persons (ascending row ids) the members. Return whether that changed anything."""
    gone, new = differences(member_rows(connection, cohort_id), wanted)
    remove_members(connection, cohort_id, gone)
    add_members(connection, cohort_id, new)
    return bool(gone or new)


def differences(before: RowIds, after: RowIds) -> tuple[RowIds, RowIds]:
    """Return the differences of two ascending lists: what only ``before`` has, what only ``after`` has."""
    gone, new = array("q"), array("q")
    left = right = 0
    while left < len(before) and right < len(after):
        old, fresh = before[left], after[right]
        if old < fresh:
            gone.append(old)
        elif fresh < old:
            new.append(fresh)
        left += old <= fresh
        right += fresh <= old
    return gone + before[left:], new + after[right:]


def _run_many(connection: Connection, statement: Any, cohort_id: int, row_ids: Iterable[int]) -> None:
    for some in chunks(row_ids, PERSONS_PER_READ):
        rows: Sequence[dict[str, int]] = [{"cohort": cohort_id, "member": row_id} for row_id in some]
        connection.execute(statement, rows)
