"""The queries of actions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.storage.database.tables import action

Steps = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action: the columns of its table."""

    id: int
    project_id: int
    name: str | None
    description: str
    steps: Steps
    tags: list[str]
    deleted: bool
    created_by_id: int | None
    created_at: datetime
    updated_at: datetime


_COLUMNS = tuple(action.c[field.name] for field in fields(ActionRow))


def action_by_id(connection: Connection, project_id: int, action_id: int) -> ActionRow | None:
    """Return an action, deleted or not."""
    statement = sa.select(*_COLUMNS).where(action.c.project_id == project_id, action.c.id == action_id)
    row = connection.execute(statement).one_or_none()
    return None if row is None else ActionRow(*row)


def action_named(connection: Connection, project_id: int, name: str) -> int | None:
    """Return the id of the action with a name that is not deleted."""
    statement = sa.select(action.c.id).where(*_present(project_id), action.c.name == name)
    return connection.scalar(statement.limit(1))


def list_actions(
    connection: Connection, project_id: int, *, search: str | None = None, limit: int, offset: int
) -> tuple[list[ActionRow], int]:
    """Return actions that are not deleted, newest first, and how many there are. ``search``: a part of the name."""
    matching = sa.select(*_COLUMNS).where(*_present(project_id))
    if search:
        matching = matching.where(action.c.name.icontains(search, autoescape=True))
    count = connection.scalar(sa.select(sa.func.count()).select_from(matching.subquery())) or 0
    page = matching.order_by(action.c.created_at.desc(), action.c.id.desc()).limit(limit).offset(offset)
    return [ActionRow(*row) for row in connection.execute(page)], count


def count_actions(connection: Connection, project_id: int) -> int:
    """Return the number of actions of a project that are not deleted."""
    statement = sa.select(sa.func.count()).select_from(action).where(*_present(project_id))
    return connection.scalar(statement) or 0


def insert_action(connection: Connection, values: Mapping[str, Any]) -> ActionRow:
    return ActionRow(*connection.execute(sa.insert(action).values(**values).returning(*_COLUMNS)).one())


def update_action(connection: Connection, action_id: int, values: Mapping[str, Any]) -> ActionRow:
    statement = sa.update(action).where(action.c.id == action_id).values(**values)
    return ActionRow(*connection.execute(statement.returning(*_COLUMNS)).one())


# --- what other rooms ask


def names(connection: Connection, project_id: int, ids: Collection[int]) -> dict[int, str | None]:
    """Return the names of the actions that exist and are not deleted, by id."""
    if not ids:
        return {}
    statement = sa.select(action.c.id, action.c.name).where(*_present(project_id), action.c.id.in_(ids))
    return {row.id: row.name for row in connection.execute(statement)}


def steps(connection: Connection, project_id: int, ids: Collection[int] | None = None) -> dict[int, Steps]:
    """Return the steps of actions that are not deleted (of all for None), by id."""
    if ids is not None and not ids:
        return {}
    statement = sa.select(action.c.id, action.c.steps).where(*_present(project_id))
    if ids is not None:
        statement = statement.where(action.c.id.in_(ids))
    return {row.id: row.steps for row in connection.execute(statement)}


def present_actions(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    """Yield the actions of a project that are not deleted, in words, with their steps."""
    statement = sa.select(action.c.id, action.c.name, action.c.steps).where(*_present(project_id))
    for row in connection.execute(statement.order_by(action.c.id)):
        yield f'action "{row.name}" (ID: {row.id})', row.steps


def _present(project_id: int) -> tuple[sa.ColumnElement[bool], ...]:
    return action.c.project_id == project_id, action.c.deleted.is_(False)
