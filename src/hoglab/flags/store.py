"""The queries of feature flags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.storage.database.tables import feature_flag

if TYPE_CHECKING:
    from hoglab.storage.database import Transaction


@dataclass(frozen=True, slots=True)
class FlagRow:
    """One feature flag: the columns of its table."""

    id: int
    project_id: int
    key: str
    name: str
    filters: dict[str, Any]
    active: bool
    archived: bool
    deleted: bool
    version: int
    ensure_experience_continuity: bool | None
    is_remote_configuration: bool | None
    has_encrypted_payloads: bool | None
    evaluation_runtime: str | None
    bucketing_identifier: str | None
    tags: list[str]
    evaluation_contexts: list[str]
    creation_context: str | None
    created_by_id: int | None
    last_modified_by_id: int | None
    created_at: datetime
    updated_at: datetime
    last_called_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkedExperiment:
    """An experiment that uses a flag, with the fields that flags need."""

    id: int
    name: str
    is_running: bool
    deleted: bool


ExperimentLinks = Callable[[Connection, int, Collection[int] | None], Mapping[int, list[LinkedExperiment]]]
"""Function that returns by flag id the experiments of some flags of a project, or of all; deleted ones included."""


FlagChange = Callable[["Transaction", FlagRow, FlagRow, datetime], None]
"""Function that is told of a flag before and after a change, in the change's transaction, and of its moment."""


def no_experiments(
    _connection: Connection, _project_id: int, _flag_ids: Collection[int] | None
) -> Mapping[int, list[LinkedExperiment]]:
    """Return no links, for a server without experiments."""
    return {}


def nobody_is_told(_tx: Transaction, _before: FlagRow, _after: FlagRow, _now: datetime) -> None:
    """Do nothing, for a server without experiments."""


_COLUMNS = tuple(feature_flag.c[field.name] for field in fields(FlagRow))


def flag_rows(connection: Connection, project_id: int) -> list[FlagRow]:
    """Return every flag of a project that is not deleted, by id."""
    statement = (
        sa.select(*_COLUMNS)
        .where(feature_flag.c.project_id == project_id, feature_flag.c.deleted.is_(False))
        .order_by(feature_flag.c.id)
    )
    return [FlagRow(*row) for row in connection.execute(statement)]


def flag_by_id(connection: Connection, project_id: int, flag_id: int) -> FlagRow | None:
    """Return a flag, deleted or not."""
    return _one(connection, feature_flag.c.project_id == project_id, feature_flag.c.id == flag_id)


def flag_by_key(connection: Connection, project_id: int, key: str) -> FlagRow | None:
    """Return the flag that holds a key, deleted or not; there is at most one."""
    return _one(connection, feature_flag.c.project_id == project_id, feature_flag.c.key == key)


def _one(connection: Connection, *where: sa.ColumnElement[bool]) -> FlagRow | None:
    row = connection.execute(sa.select(*_COLUMNS).where(*where)).one_or_none()
    return None if row is None else FlagRow(*row)


def count_flags(connection: Connection, project_id: int) -> int:
    """Return the number of flags of a project that are not deleted."""
    statement = (
        sa.select(sa.func.count())
        .select_from(feature_flag)
        .where(feature_flag.c.project_id == project_id, feature_flag.c.deleted.is_(False))
    )
    return connection.scalar(statement) or 0


def size_of_filters(connection: Connection, project_id: int, but: int | None = None) -> int:
    """Return the characters that the filters of all flags of a project have as JSON; ``but``: a flag to leave out."""
    length = sa.func.length(sa.type_coerce(feature_flag.c.filters, sa.Text))
    statement = sa.select(sa.func.sum(length)).where(
        feature_flag.c.project_id == project_id,
        feature_flag.c.id != (but or 0),
        feature_flag.c.deleted.is_(False),
    )
    return connection.scalar(statement) or 0


def keys_in_use(connection: Connection, project_id: int, prefix: str) -> set[str]:
    """Return the keys of the project, those of deleted flags included, that begin with ``prefix``."""
    statement = sa.select(feature_flag.c.key).where(
        feature_flag.c.project_id == project_id, feature_flag.c.key.startswith(prefix, autoescape=True)
    )
    return set(connection.scalars(statement))


def insert_flag(connection: Connection, values: Mapping[str, Any]) -> FlagRow:
    return FlagRow(*connection.execute(sa.insert(feature_flag).values(**values).returning(*_COLUMNS)).one())


def update_flag(connection: Connection, flag_id: int, values: Mapping[str, Any]) -> FlagRow:
    statement = sa.update(feature_flag).where(feature_flag.c.id == flag_id).values(**values)
    return FlagRow(*connection.execute(statement.returning(*_COLUMNS)).one())


def delete_flag(connection: Connection, flag_id: int) -> None:
    """Remove the row of a flag for good, to free its key."""
    connection.execute(sa.delete(feature_flag).where(feature_flag.c.id == flag_id))


def active_flags(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    """Yield the active flags of a project, in words, with their conditions."""
    for row in flag_rows(connection, project_id):
        if row.active:
            yield f'feature flag "{row.key}"', row.filters
