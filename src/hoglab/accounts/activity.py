"""The log of who changed what (spec: experiments-api 7.5, hog-functions-api 22)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select, update
from uuid_utils import uuid7

from hoglab.accounts import store
from hoglab.accounts.internal_events import emit
from hoglab.http.fields.dates import utc_now
from hoglab.http.fields.wire import user_object
from hoglab.storage.database import Rebuildable
from hoglab.storage.database.tables import activity_log, user

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from hoglab.storage.database import Database, Transaction


MAX_ENTRIES = 1_000_000
"""Entries of all projects that are kept, the newest."""
MAX_AGE = timedelta(days=3 * 365)
"""Age after which an entry is deleted."""
FORGOTTEN_AT_ONCE = 1_000

ACTIVITY = "$activity_log_entry_created"
"""The internal event of every entry."""


def change(scope: str, field: str, before: Any, after: Any, action: str = "changed") -> dict[str, Any]:
    """Return one entry of ``detail.changes``: a field of an object of ``scope`` that got another value."""
    return {"type": scope, "action": action, "field": field, "before": before, "after": after}


def record(
    tx: Transaction,
    project_id: int,
    user_id: int | None,
    activity: str,
    scope: str,
    item_id: int | str,
    detail: Mapping[str, Any],
    *,
    is_system: bool = False,
    now: datetime | None = None,
) -> None:
    """Log a change inside the transaction that makes it.

    ``activity`` is ``created``, ``updated``, ``deleted``, ``restored``, …; ``scope`` is ``Experiment``,
    ``FeatureFlag``, ``HogFunction``, …; ``detail`` needs ``name`` and may have ``changes`` (see `change`) and
    ``type``. A ``user_id`` of None means that the server itself made the change. Functions get it as an event
    `ACTIVITY` whose properties are the entry as the API shows it.
    """
    moment = now or utc_now()
    row = {
        "id": str(uuid7()),
        "project_id": project_id,
        "user_id": user_id,
        "activity": activity,
        "scope": scope,
        "item_id": str(item_id),
        "detail": dict(detail),
        "is_system": is_system or user_id is None,
        "created_at": moment,
    }
    tx.connection.execute(insert(activity_log).values(**row))
    author = store.users(tx.connection, [user_id]).get(user_id or 0)
    emit(tx, project_id, ACTIVITY, _entry(row, user_object(author)), user_id=user_id, now=moment)


def forget_old(
    database: Database, *, now: datetime | None = None, most: int = MAX_ENTRIES, age: timedelta = MAX_AGE
) -> int:
    """Delete entries that are too old or too many, a part at a time. Return how many."""
    forgotten = 0
    newest_first = (activity_log.c.created_at.desc(), activity_log.c.id.desc())
    while True:
        with database.write(rebuildable=Rebuildable.EXPIRED) as tx:
            kept = select(activity_log.c.created_at).order_by(*newest_first).offset(most).limit(1)
            since = max(
                (now or utc_now()) - age, tx.connection.scalar(kept) or datetime.min.replace(tzinfo=UTC)
            )
            old = select(activity_log.c.id).where(activity_log.c.created_at <= since).limit(FORGOTTEN_AT_ONCE)
            count = tx.connection.execute(delete(activity_log).where(activity_log.c.id.in_(old))).rowcount
        forgotten += count
        if count < FORGOTTEN_AT_ONCE:
            return forgotten


def rewrite(
    tx: Transaction,
    project_id: int,
    scope: str,
    item_id: int | str,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> None:
    """Put every logged change of one item through ``change``, to remove what nobody may read any longer."""
    mine = (
        (activity_log.c.project_id == project_id)
        & (activity_log.c.scope == scope)
        & (activity_log.c.item_id == str(item_id))
    )
    for entry_id, detail in tx.connection.execute(
        select(activity_log.c.id, activity_log.c.detail).where(mine)
    ).all():
        if detail.get("changes"):
            rewritten = {**detail, "changes": [dict(change(logged)) for logged in detail["changes"]]}
            tx.connection.execute(
                update(activity_log).where(activity_log.c.id == entry_id).values(detail=rewritten)
            )


def entries(
    connection: Connection,
    project_id: int,
    *,
    limit: int,
    offset: int,
    scopes: Sequence[str] = (),
    item_id: str | None = None,
    user_uuid: str | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Return a page of the log, newest first, in wire format, and the number of all entries."""
    where = [activity_log.c.project_id == project_id]
    if scopes:
        where.append(activity_log.c.scope.in_(scopes))
    if item_id is not None:
        where.append(activity_log.c.item_id == item_id)
    if user_uuid is not None:
        author = select(user.c.id).where(user.c.uuid == user_uuid)
        where.append(activity_log.c.user_id.in_(author))
    count = connection.scalar(select(func.count()).select_from(activity_log).where(*where)) or 0
    page = (
        select(activity_log)
        .where(*where)
        .order_by(activity_log.c.created_at.desc(), activity_log.c.id.desc())
        .limit(limit)
        .offset(offset)
    )
    rows = [dict(row) for row in connection.execute(page).mappings()]
    authors = store.users(connection, (row["user_id"] for row in rows))
    return [_entry(row, user_object(authors.get(row["user_id"]))) for row in rows], count


_DETAIL = dict.fromkeys(("id", "changes", "merge", "trigger", "name", "short_id", "type"))
"""Minimum of ``detail``; its texts and changes come with the entry."""


def _entry(row: Mapping[str, Any], author: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": row["id"],
        "user": author,
        "activity": row["activity"],
        "scope": row["scope"],
        "item_id": row["item_id"],
        "detail": {**_DETAIL, **row["detail"]},
        "created_at": row["created_at"],
        "is_system": row["is_system"],
        "was_impersonated": False,
        "unread": False,
    }
