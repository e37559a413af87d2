"""Erasing persons from ``invocation``, ``invocation_result``, ``log_entry`` and ``dead_event``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from hoglab.storage.database.prepared import among, listed
from hoglab.storage.database.tables import backfill, dead_event, invocation, invocation_result, log_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hoglab.storage.database import Database
    from hoglab.storage.invocations.erasing import ErasedPersons, LeaveOut

ROWS_AT_ONCE = 1_000
"""Rows that are changed in one transaction."""

T = TypeVar("T")


class RunErasing:
    """Erasing from everything that delivery keeps. Blocking methods of one thread; they raise `DatabaseError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def erase(self, persons: ErasedPersons, leave_out: LeaveOut) -> bool:
        """Take persons out of invocations that wait, results, log lines and dead letters.

        Invocations that have others in them stay for those. Return whether no invocation of theirs is at work: one that
        is will leave more, and this is to be called again, as it is after an error.
        """
        is_over = self._erase_invocations(persons, leave_out)
        with self._database.read() as connection:
            rows = _left_behind(connection, persons)
        for column, values in rows.items():
            for some in _chunks(values):
                with self._database.write() as tx:
                    tx.execute(sa.select(column).where(column.in_(some)).order_by(column).with_for_update())
                    tx.execute(_erasing(column).where(column.in_(some)))
        return is_over

    def purge(self) -> None:
        """Remove the bytes of what was erased from the files. Raises `DatabaseBusyError`: to be called again."""
        for file in self._database.files:
            file.purge(rewrite=True)

    def _erase_invocations(self, persons: ErasedPersons, leave_out: LeaveOut) -> bool:
        column, is_over = invocation.c, True
        caused = (column.log_offset <= persons.log_offset) | (
            column.log_offset.is_(None) & (column.created_at <= persons.requested_at)
        )
        mine = sa.select(column.id, column.state).where(column.project_id == persons.project_id, caused)
        with self._database.read() as connection:
            ids = [row.id for row in connection.execute(mine) if leave_out(row.state) != row.state]
        for some in _chunks(ids):
            with self._database.write() as tx:
                asked = sa.select(column.id, column.state, column.status).where(column.id.in_(some))
                # Locked: what a worker claims after its status was looked at would run as it was.
                for row in tx.connection.execute(asked.order_by(column.id).with_for_update()).all():
                    state = leave_out(row.state)
                    if row.status == "running":
                        is_over = False
                    elif state is None:
                        tx.execute(sa.delete(invocation).where(column.id == row.id))
                    else:
                        tx.execute(sa.update(invocation).where(column.id == row.id).values(state=state))
        return is_over


def _left_behind(connection: sa.Connection, persons: ErasedPersons) -> dict[sa.Column[Any], list[Any]]:
    """Return rows that are about persons, by the column that they are named by."""
    result, line, dead = invocation_result.c, log_entry.c, dead_event.c
    about = among(result.person_id, listed(persons.person_ids)) | among(
        result.distinct_id, listed(persons.distinct_ids)
    )
    runs = connection.execute(
        sa.select(result.invocation_id, result.parent_run_id).where(
            result.project_id == persons.project_id, about
        )
    ).all()
    # Lines about all events of a batch are those of their common run. Jobs that run many functions tell of none.
    parents = {run.parent_run_id for run in runs} - {None}
    parents -= set(connection.scalars(sa.select(backfill.c.id)))
    instances = {*(run.invocation_id for run in runs), *parents, *persons.event_ids}
    mine = line.project_id == persons.project_id
    lines = connection.scalars(sa.select(line.id).where(mine, among(line.instance_id, listed(instances))))
    dead_letters = connection.scalars(
        sa.select(dead.id).where(
            dead.project_id == persons.project_id, among(dead.distinct_id, listed(persons.distinct_ids))
        )
    )
    return {
        line.id: list(lines),
        dead.id: list(dead_letters),
        result.invocation_id: [run.invocation_id for run in runs],
    }


def _erasing(column: sa.Column[Any]) -> Any:
    """Return the statement that erases rows of the column's table: results stay, without who they were about."""
    if column.table is not invocation_result:
        return sa.delete(column.table)
    return sa.update(invocation_result).values(
        distinct_id=None, person_id=None, invocation_globals=None, error_message=None
    )


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), ROWS_AT_ONCE):
        yield values[start : start + ROWS_AT_ONCE]
