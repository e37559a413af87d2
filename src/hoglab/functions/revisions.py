"""Revisions of functions: every change of how a function behaves, without secrets (spec: hog-functions-api 20.2)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, insert, select, update

from hoglab.storage.database.tables import hog_function_revision

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.functions.store import Row

MAX_REVISIONS = 100
"""Maximum number of versions of a function; the newest are kept."""

DRAFT = 0
"""Version number of the draft, which no version has: its content is not live yet."""

_column = hog_function_revision.c


def add(
    connection: Connection,
    function_id: str,
    version: int,
    content: Mapping[str, Any],
    *,
    user_id: int | None,
    at: datetime,
) -> None:
    """Store a version, unless it is stored already; the oldest one beyond `MAX_REVISIONS` is deleted."""
    if get(connection, function_id, version) is not None:
        return
    values = {"function_id": function_id, "version": version, "content": dict(content)}
    connection.execute(insert(hog_function_revision).values(**values, created_by_id=user_id, created_at=at))
    connection.execute(
        delete(hog_function_revision).where(
            _column.function_id == function_id,
            _column.version != DRAFT,
            _column.version <= version - MAX_REVISIONS,
        )
    )


def stage(
    connection: Connection, function_id: str, content: Mapping[str, Any], *, user_id: int | None, at: datetime
) -> None:
    """Make some content the draft of a function that has none."""
    values = {"function_id": function_id, "version": DRAFT, "content": dict(content)}
    connection.execute(insert(hog_function_revision).values(**values, created_by_id=user_id, created_at=at))


def draft(connection: Connection, function_id: str) -> Row | None:
    """Return the draft of a function: its ``content``, and when and by whom it was staged."""
    return drafts(connection, [function_id]).get(function_id)


def drafts(connection: Connection, function_ids: Collection[str]) -> dict[str, Row]:
    """Return the drafts of some functions; functions without one are left out."""
    query = select(hog_function_revision).where(
        _column.function_id.in_(function_ids), _column.version == DRAFT
    )
    return {row["function_id"]: dict(row) for row in connection.execute(query).mappings()}


def discard_draft(connection: Connection, function_id: str) -> bool:
    """Delete the draft of a function. Return whether there was one."""
    mine = (_column.function_id == function_id, _column.version == DRAFT)
    return connection.execute(delete(hog_function_revision).where(*mine)).rowcount > 0


def page(connection: Connection, function_id: str, limit: int, offset: int) -> tuple[list[Row], int]:
    """Return versions with their times and authors, newest first, and how many there are."""
    mine = and_(_column.function_id == function_id, _column.version != DRAFT)
    query = select(_column.version, _column.created_at, _column.created_by_id).where(mine)
    rows = connection.execute(query.order_by(_column.version.desc()).limit(limit).offset(offset)).mappings()
    count = connection.scalar(select(func.count()).select_from(hog_function_revision).where(mine)) or 0
    return [dict(row) for row in rows], count


def get(connection: Connection, function_id: str, version: int) -> Row | None:
    """Return one version with its ``content``, None when it is not kept."""
    query = select(hog_function_revision).where(
        _column.function_id == function_id, _column.version == version
    )
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)


def rewrite(
    connection: Connection, function_id: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> None:
    """Change the content of every kept version of a function."""
    mine = _column.function_id == function_id
    for version, content in connection.execute(select(_column.version, _column.content).where(mine)).all():
        this_version = (_column.function_id == function_id) & (_column.version == version)
        connection.execute(
            update(hog_function_revision).where(this_version).values(content=dict(change(content)))
        )


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields that differ; of ``hog`` also the lines, as a unified diff."""
    changes: list[dict[str, Any]] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        change: dict[str, Any] = {"field": name, "before": old, "after": new, "diff": None}
        if name == "hog":
            lines = difflib.unified_diff(
                str(old or "").splitlines(), str(new or "").splitlines(), "before", "after", lineterm=""
            )
            change["diff"] = "\n".join(lines)
        changes.append(change)
    return changes
