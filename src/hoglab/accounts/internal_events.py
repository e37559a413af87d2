"""Events of the server itself: what happened to a project, for functions that subscribe to it (spec: hog-runtime 7.4).

They are written in the transaction of the change they report, and wait there until delivery has evaluated the
functions of type `internal_destination`. They are not among the events of the project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select
from uuid_utils import uuid7

from hoglab.accounts import store
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database.tables import internal_event

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.storage.database import Transaction


@dataclass(frozen=True, slots=True)
class InternalEvent:
    """One event. ``person``: ``{"id", "properties"}`` of the user who did it, None when the server did."""

    id: int
    project_id: int
    uuid: str
    event: str
    distinct_id: str
    properties: Mapping[str, Any]
    person: Mapping[str, Any] | None
    created_at: datetime


def emit(
    tx: Transaction,
    project_id: int,
    event: str,
    properties: Mapping[str, Any],
    *,
    user_id: int | None,
    now: datetime | None = None,
) -> None:
    """Report something to functions, if its transaction succeeds.

    ``user_id`` is the user who did it; None means the server itself.
    """
    author = store.users(tx.connection, [user_id]).get(user_id or 0)
    person = None
    if author is not None:
        seen = {"email": author.email, "first_name": author.first_name, "last_name": author.last_name}
        person = {"id": author.uuid, "properties": seen}
    tx.connection.execute(
        insert(internal_event).values(
            project_id=project_id,
            uuid=str(uuid7()),
            event=event,
            distinct_id=f"project_{project_id}" if author is None else author.distinct_id,
            properties=dict(properties),
            person=person,
            created_at=now or utc_now(),
        )
    )
    tx.changed("internal_events", project_id)


def waiting(connection: Connection, limit: int) -> list[InternalEvent]:
    """Return the oldest events that wait."""
    rows = connection.execute(select(internal_event).order_by(internal_event.c.id).limit(limit)).mappings()
    return [InternalEvent(**row) for row in rows]


def forget(tx: Transaction, events: Sequence[InternalEvent]) -> None:
    """Remove events that were dispatched."""
    ids = [event.id for event in events]
    tx.connection.execute(delete(internal_event).where(internal_event.c.id.in_(ids)))
