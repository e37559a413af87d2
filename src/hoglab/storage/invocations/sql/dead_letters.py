"""Dead letters in the table ``dead_event``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database.tables import dead_event
from hoglab.storage.invocations.dead_letters import StoredDeadLetter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement

    from hoglab.storage.database import Database
    from hoglab.storage.invocations.dead_letters import DeadLetterSelection

_column = dead_event.c
_STORED = [
    # A letter without a function has an empty one in the table, whose columns of keys are never NULL.
    sa.func.nullif(_column.function_id, "").label(name) if name == "function_id" else _column[name]
    for name in StoredDeadLetter.__dataclass_fields__
]


class DeadLetters:
    """Store of dead letters. Blocking methods, called from any thread; they raise `DatabaseError`.

    The queue adds them, and forgets those that were tried again (`InvocationQueue.enqueue`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def known(self, ids: Sequence[str]) -> frozenset[str]:
        """Return the stored dead letters among some ids."""
        with self._database.read() as connection:
            return frozenset(connection.scalars(sa.select(_column.id).where(_column.id.in_(ids))))

    def page(
        self, project_id: int, wanted: DeadLetterSelection, limit: int, offset: int
    ) -> tuple[list[StoredDeadLetter], int]:
        """Return dead letters, those that failed last first, and how many match."""
        clauses = _clauses(project_id, wanted)
        newest = sa.select(*_STORED).where(*clauses).order_by(_column.failed_at.desc(), _column.id)
        with self._database.read() as connection:
            count = connection.scalar(sa.select(sa.func.count()).select_from(dead_event).where(*clauses)) or 0
            rows = connection.execute(newest.limit(limit).offset(offset))
            return [StoredDeadLetter(*row) for row in rows], count

    def oldest(self, project_id: int, wanted: DeadLetterSelection, limit: int) -> list[str]:
        """Return the ids of those whose failure is longest ago."""
        clauses = _clauses(project_id, wanted)
        ids = sa.select(_column.id).where(*clauses).order_by(_column.failed_at, _column.id).limit(limit)
        with self._database.read() as connection:
            return list(connection.scalars(ids))

    def read(self, ids: Sequence[str]) -> list[StoredDeadLetter]:
        """Return the stored dead letters among some ids."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(*_STORED).where(_column.id.in_(ids)))
            return [StoredDeadLetter(*row) for row in rows]

    def discard(self, project_id: int, wanted: DeadLetterSelection) -> int:
        """Delete dead letters, and return how many."""
        with self._database.write() as tx:
            return int(tx.execute(sa.delete(dead_event).where(*_clauses(project_id, wanted))).rowcount)


def _clauses(project_id: int, wanted: DeadLetterSelection) -> list[ColumnElement[bool]]:
    clauses: list[ColumnElement[bool]] = [_column.project_id == project_id]
    if wanted.function_id is not None:
        clauses.append(_column.function_id == wanted.function_id)
    if wanted.ids is not None:
        clauses.append(_column.id.in_(wanted.ids))
    if wanted.steps is not None:
        clauses.append(_column.step.in_(wanted.steps))
    if wanted.reason_part:
        clauses.append(_column.reason.icontains(wanted.reason_part, autoescape=True))
    if wanted.since is not None:
        clauses.append(_column.failed_at >= wanted.since)
    if wanted.until is not None:
        clauses.append(_column.failed_at < wanted.until)
    return clauses
