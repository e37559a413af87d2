"""Stored facts about the subject of a request, read from the database (spec: sdk-wire 3.5, 3.9, 3.12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn, Self

from hoglab.flags import store
from hoglab.flags.outcome import FlagFailure, Reason
from hoglab.flags.subject import StoredPerson
from hoglab.people.reading import group_properties, person_for

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import Connection

    from hoglab.storage.database import Database


class DatabaseFacts:
    """Point reads for one request, all of the same state of the database. A context manager for one thread."""

    def __init__(self, database: Database, project_id: int) -> None:
        self._database = database
        self._project_id = project_id
        self._stack = ExitStack()
        self._open: Connection | None = None
        self._continuity_error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            self._open = self._stack.enter_context(self._database.read())
        return self._open

    def person(self, distinct_id: str) -> StoredPerson | None:
        view = person_for(self._connection, self._project_id, distinct_id)
        return None if view is None else StoredPerson(view.row_id, view.properties, view.created_at)

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:
        return group_properties(self._connection, self._project_id, group_type_index, group_key)

    def is_in_static_cohort(self, cohort_id: int, person_id: int) -> bool:
        return store.is_member(self._connection, cohort_id, person_id)

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        if self._continuity_error is not None:
            raise self._continuity_error
        stored = store.hash_keys(self._connection, self._project_id, distinct_ids)
        merged: dict[str, str] = {}
        for distinct_id in reversed(distinct_ids):
            if distinct_id in stored:
                merged.update(stored[distinct_id].by_flag)
        return merged

    def remember_anonymous_id(self, distinct_id: str, anonymous_id: str, flag_keys: Sequence[str]) -> None:
        """Keep the bucketing of an anonymous visitor who has just become known.

        Called before anything is read. For each person behind the two ids, each flag without a stored
        bucketing id gets ``anonymous_id``. A failure is kept back for the flags that ask for `hash_keys`.
        """
        try:
            with self._database.read() as connection:
                stored = store.hash_keys(connection, self._project_id, {distinct_id, anonymous_id})
            if all(key in person.by_flag for person in stored.values() for key in flag_keys):
                return
            with self._database.write() as tx:
                # Read again inside: the persons may have been merged meanwhile.
                stored = store.hash_keys(tx.connection, self._project_id, {distinct_id, anonymous_id})
                store.add_hash_keys(tx.connection, self._project_id, stored.values(), flag_keys, anonymous_id)
        except Exception as error:
            self._continuity_error = error


class LateFacts:
    """Stands in for facts that did not come in time: every flag that asks for one fails."""

    def person(self, distinct_id: str) -> NoReturn:  # noqa: ARG002
        raise FlagFailure(Reason.TIMEOUT)

    def group_properties(self, group_type_index: int, group_key: str) -> NoReturn:  # noqa: ARG002
        raise FlagFailure(Reason.TIMEOUT)

    def is_in_static_cohort(self, cohort_id: int, person_id: int) -> NoReturn:  # noqa: ARG002
        raise FlagFailure(Reason.TIMEOUT)

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> NoReturn:  # noqa: ARG002
        raise FlagFailure(Reason.TIMEOUT)
