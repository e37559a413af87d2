"""The queries of the accounts room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from hoglab.http.identity import Project, User
from hoglab.storage.database import PreparedSelect, among, listed
from hoglab.storage.database.tables import (
    login_link,
    membership,
    organization,
    personal_api_key,
    project,
    user,
    user_session,
)

if TYPE_CHECKING:
    from datetime import datetime

_PROJECT_FIELDS = tuple(field.name for field in fields(Project))
_USER_FIELDS = tuple(field.name for field in fields(User))
_PROJECT_COLUMNS = tuple(project.c[name] for name in _PROJECT_FIELDS)
_USER_COLUMNS = tuple(user.c[name] for name in _USER_FIELDS)
DELETED_SETTING = "deleted_at"
"""The project setting with the time when a project was deleted; such projects are answered to nobody."""
_PROJECT = PreparedSelect(select(*_PROJECT_COLUMNS).where(project.c.id == bindparam("project_id")))
_USERS = PreparedSelect(select(*_USER_COLUMNS).where(among(user.c.id, bindparam("ids"))))


def projects(connection: Connection) -> list[Project]:
    """Return every project that is not deleted, by id."""
    return [project for project in projects_ever(connection) if DELETED_SETTING not in project.settings]


def projects_ever(connection: Connection) -> list[Project]:
    """Return every project, also deleted ones, by id."""
    rows = connection.execute(select(*_PROJECT_COLUMNS).order_by(project.c.id))
    return [Project(*row) for row in rows]


def project_by_id(connection: Connection, project_id: int) -> Project | None:
    """Return a project; None where there is none, or it is deleted."""
    rows = _PROJECT.rows(connection, project_id=project_id)
    stored = Project(*rows[0]) if rows else None
    return None if stored is None or DELETED_SETTING in stored.settings else stored


def insert_project(connection: Connection, values: Mapping[str, Any]) -> Project:
    """Add a project; an id is given when ``values`` has none."""
    row = connection.execute(insert(project).values(**values).returning(*_PROJECT_COLUMNS)).one()
    return Project(*row)


def update_project(connection: Connection, project_id: int, values: Mapping[str, Any]) -> Project | None:
    """Change columns of a project. Return None when there is none."""
    statement = update(project).where(project.c.id == project_id).values(**values)
    row = connection.execute(statement.returning(*_PROJECT_COLUMNS)).one_or_none()
    return None if row is None else Project(*row)


def is_empty(connection: Connection) -> bool:
    """Return whether there is no organization yet."""
    return connection.scalar(select(organization.c.id).limit(1)) is None


def insert_organization(connection: Connection, organization_id: str, name: str, now: datetime) -> None:
    connection.execute(insert(organization).values(id=organization_id, name=name, created_at=now))


def organizations(connection: Connection, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return organizations of some ids, oldest first."""
    statement = select(organization).where(organization.c.id.in_(list(ids)))
    rows = connection.execute(statement.order_by(organization.c.created_at, organization.c.id))
    return [dict(row) for row in rows.mappings()]


def user_by_id(connection: Connection, user_id: int) -> User | None:
    row = connection.execute(select(*_USER_COLUMNS).where(user.c.id == user_id)).one_or_none()
    return None if row is None else User(*row)


def user_by_email(connection: Connection, email: str) -> User | None:
    row = connection.execute(select(*_USER_COLUMNS).where(user.c.email == email)).one_or_none()
    return None if row is None else User(*row)


def users(connection: Connection, ids: Iterable[int | None]) -> dict[int, User]:
    """Return users of some ids, by id: for lists of objects that show who made them."""
    wanted = {user_id for user_id in ids if user_id is not None}
    if not wanted:
        return {}
    rows = _USERS.rows(connection, ids=listed(wanted))
    return {user.id: user for user in (User(*row) for row in rows)}


def insert_user(connection: Connection, values: Mapping[str, Any]) -> User:
    row = connection.execute(insert(user).values(**values).returning(*_USER_COLUMNS)).one()
    return User(*row)


def update_user(connection: Connection, user_id: int, values: Mapping[str, Any]) -> None:
    connection.execute(update(user).where(user.c.id == user_id).values(**values))


def owner_id(connection: Connection) -> int | None:
    """Return the user who has been a member of any organization with the highest level for longest."""
    order = (membership.c.level.desc(), membership.c.joined_at, membership.c.user_id)
    return connection.scalar(select(membership.c.user_id).order_by(*order).limit(1))


def insert_membership(
    connection: Connection, organization_id: str, user_id: int, level: int, now: datetime
) -> None:
    values = {"organization_id": organization_id, "user_id": user_id, "level": level, "joined_at": now}
    connection.execute(insert(membership).values(values))


def delete_membership(connection: Connection, organization_id: str, user_id: int) -> bool:
    where = (membership.c.organization_id == organization_id, membership.c.user_id == user_id)
    return connection.execute(delete(membership).where(*where)).rowcount > 0


def levels(connection: Connection, user_id: int) -> dict[str, int]:
    """Return a user's membership level by organization, oldest membership first."""
    statement = select(membership.c.organization_id, membership.c.level)
    rows = connection.execute(
        statement.where(membership.c.user_id == user_id).order_by(membership.c.joined_at)
    )
    return {row.organization_id: row.level for row in rows}


def memberships(connection: Connection, organization_id: str) -> list[tuple[int, int, datetime]]:
    """Return user, level and time of joining of an organization's memberships, oldest first."""
    statement = select(membership.c.user_id, membership.c.level, membership.c.joined_at)
    order = (membership.c.joined_at, membership.c.user_id)
    rows = connection.execute(
        statement.where(membership.c.organization_id == organization_id).order_by(*order)
    )
    return [(row.user_id, row.level, row.joined_at) for row in rows]


def insert_key(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.execute(insert(personal_api_key).values(**values))


def key_by_hash(connection: Connection, secure_value: str) -> dict[str, Any] | None:
    statement = select(personal_api_key).where(personal_api_key.c.secure_value == secure_value)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else dict(row)


def keys(
    connection: Connection, user_id: int | None = None, key_id: str | None = None
) -> list[dict[str, Any]]:
    """Return personal API keys, newest first: of one user, of one id, or all."""
    statement = select(personal_api_key)
    if user_id is not None:
        statement = statement.where(personal_api_key.c.user_id == user_id)
    if key_id is not None:
        statement = statement.where(personal_api_key.c.id == key_id)
    order = (personal_api_key.c.created_at.desc(), personal_api_key.c.id.desc())
    return [dict(row) for row in connection.execute(statement.order_by(*order)).mappings()]


def count_keys(connection: Connection, user_id: int) -> int:
    statement = select(func.count()).select_from(personal_api_key)
    return connection.scalar(statement.where(personal_api_key.c.user_id == user_id)) or 0


def update_key(connection: Connection, key_id: str, values: Mapping[str, Any]) -> bool:
    """Change columns of a key. Return False when there is none."""
    statement = update(personal_api_key).where(personal_api_key.c.id == key_id).values(**values)
    return connection.execute(statement).rowcount > 0


def delete_key(connection: Connection, key_id: str) -> bool:
    """Remove a key and the sessions that were made from it. Return False when there is none."""
    delete_sessions(connection, user_session.c.key_id == key_id)
    statement = delete(personal_api_key).where(personal_api_key.c.id == key_id)
    return connection.execute(statement).rowcount > 0


def key_by_id(connection: Connection, key_id: str) -> dict[str, Any] | None:
    row = connection.execute(select(personal_api_key).where(personal_api_key.c.id == key_id)).mappings()
    key = row.one_or_none()
    return None if key is None else dict(key)


# Sessions of browsers


def insert_session(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.execute(insert(user_session).values(**values))


def session_by_hash(connection: Connection, secure_value: str) -> dict[str, Any] | None:
    statement = select(user_session).where(user_session.c.secure_value == secure_value)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else dict(row)


def sessions(connection: Connection, user_id: int | None = None) -> list[dict[str, Any]]:
    """Return sessions of one user, or all, the one seen last first."""
    statement = select(user_session)
    if user_id is not None:
        statement = statement.where(user_session.c.user_id == user_id)
    order = (user_session.c.last_seen_at.desc(), user_session.c.id.desc())
    return [dict(row) for row in connection.execute(statement.order_by(*order)).mappings()]


def touch_session(connection: Connection, session_id: str, moment: datetime) -> None:
    """Store the time when a session was last seen."""
    statement = update(user_session).where(user_session.c.id == session_id)
    connection.execute(statement.values(last_seen_at=moment))


def delete_sessions(connection: Connection, where: ColumnElement[bool]) -> int:
    """Remove the sessions for which a condition holds. Return how many."""
    return connection.execute(delete(user_session).where(where)).rowcount


def insert_link(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.execute(insert(login_link).values(**values))


def link_by_hash(connection: Connection, secure_value: str) -> dict[str, Any] | None:
    statement = select(login_link).where(login_link.c.secure_value == secure_value)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else dict(row)


def use_link(connection: Connection, secure_value: str, now: datetime) -> bool:
    """Mark a link as used. Return False when it was used already, or has expired."""
    fresh = (
        login_link.c.secure_value == secure_value,
        login_link.c.used_at.is_(None),
        login_link.c.expires_at > now,
    )
    return connection.execute(update(login_link).where(*fresh).values(used_at=now)).rowcount > 0


def delete_links(connection: Connection, before: datetime) -> int:
    """Remove the links that expired before a moment. Return how many."""
    return connection.execute(delete(login_link).where(login_link.c.expires_at < before)).rowcount
