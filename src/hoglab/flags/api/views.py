"""Flags as answers show them, with their users and experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts_store
from hoglab.flags.api.representation import flag_object

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.flags.service import FlagService
    from hoglab.flags.store import FlagRow, LinkedExperiment
    from hoglab.http.identity import User
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database


class FlagViews:
    """Turns flags into answers, with their users and experiments."""

    def __init__(self, database: Database, service: FlagService) -> None:
        self._database = database
        self._service = service

    def one(self, call: Call, row: FlagRow) -> dict[str, Any]:
        """Return the object of one flag."""
        with self._database.read() as connection:
            return self._read(connection, call, row)

    def _read(self, connection: Connection, call: Call, row: FlagRow) -> dict[str, Any]:
        linked = self._service.linked(connection, row.project_id, [row.id])
        users = accounts_store.users(connection, _people([row]))
        return self._object(call, row, users, linked)

    def require_state(self, call: Call) -> Callable[[Connection, FlagRow], None] | None:
        """Return a function that raises 412 unless a flag is in a state that the caller names; None for any state."""
        wanted = call.if_match
        if wanted is None:
            return None

        def check(connection: Connection, row: FlagRow) -> None:
            wanted.require(self._read(connection, call, row))

        return check

    def many(
        self, call: Call, rows: Sequence[FlagRow], linked: Mapping[int, Sequence[LinkedExperiment]]
    ) -> list[dict[str, Any]]:
        """Return the objects of several flags; users are read together."""
        with self._database.read() as connection:
            users = accounts_store.users(connection, _people(rows))
        return [self._object(call, row, users, linked) for row in rows]

    def _object(
        self,
        call: Call,
        row: FlagRow,
        users: Mapping[int, User],
        linked: Mapping[int, Sequence[LinkedExperiment]],
    ) -> dict[str, Any]:
        return flag_object(
            row,
            users=users,
            linked=linked.get(row.id, ()),
            access_level=call.access_level(row.created_by_id),
            now=call.now,
        )


def _people(rows: Iterable[FlagRow]) -> set[int | None]:
    return {person for row in rows for person in (row.created_by_id, row.last_modified_by_id)}
