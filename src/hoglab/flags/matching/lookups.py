"""Stored facts about the subject of a request, read from the database (spec: sdk-wire 3.5, 3.9, 3.12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import sqlalchemy as sa

from hoglab.flags.matching.outcome import FlagFailure, FlagReason
from hoglab.people.person_cache import PersonCache, StoredPerson
from hoglab.storage.database import PreparedSelect
from hoglab.storage.database.tables import (
    cohort_person,
    flag_hash_key_override,
    group,
    person,
    person_distinct_id,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.storage.database import Database


class PointReader:
    """A connection kept open for point reads on the event loop.

    With the embedded database such a read takes a few microseconds and waits for nothing; taking a connection from
    the pool and going through a thread would each cost more. All reads of one turn of the loop share a transaction,
    for beginning one costs as much as the read: every reader of a turn asked before it began, so every read sees
    what was committed before it was requested.

    Persons are remembered in ``known``, to which every writer of persons must report; without it, each person is
    read.
    """

    def __init__(self, database: Database, known: PersonCache | None = None) -> None:
        self._database = database
        self._known = known or PersonCache(max_names=0)
        self._version = 0  # of what is known, when the transaction began
        self._stack = ExitStack()
        self._connection: Any = None
        self._driver: Any = None
        self._is_reading = False

    def __call__(self, read: PreparedSelect, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows as the database keeps them: JSON as text, moments as microseconds."""
        try:
            if not self._is_reading:
                self._begin()
            text, bound = read.bound(self._connection, values)
            rows: list[tuple[Any, ...]] = self._driver.execute(text, bound).fetchall()
        except Exception:
            self.close()  # the next read starts on a new connection
            raise
        return rows

    def person(self, project_id: int, distinct_id: str) -> StoredPerson | None:
        """Return the person behind a distinct id; None when there is none."""
        person = self._known.get(project_id, distinct_id)
        if person is None:
            person, size_bytes = _read_person(self, project_id, distinct_id)
            if person is not None:
                self._known.keep(project_id, distinct_id, person, size_bytes, self._version)
        return person

    def _begin(self) -> None:
        asyncio.get_running_loop().call_soon(self._end)  # before the snapshot: who comes later sees the next
        if self._connection is None:
            self._connection = self._stack.enter_context(self._database.read(durable=False))
            self._driver = self._connection.connection.driver_connection
        self._version = self._known.version
        self._driver.execute("BEGIN")
        self._is_reading = True

    def _end(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._driver.execute("COMMIT")

    def close(self) -> None:
        """Give the connection back."""
        self._is_reading = False
        self._connection = self._driver = None
        self._stack.close()


Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a `PreparedSelect` with its parameters: a `PointReader`, or a transaction (see `within`)."""


class SnapshotReader:
    """Point reads in one transaction, in a thread that may wait for a network."""

    def __init__(self, connection: Connection) -> None:
        self._run = within(connection)

    def __call__(self, read: PreparedSelect, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows as the database keeps them."""
        return self._run(read, **values)

    def person(self, project_id: int, distinct_id: str) -> StoredPerson | None:
        """Return the person behind a distinct id; None when there is none."""
        return _read_person(self, project_id, distinct_id)[0]


def within(connection: Connection) -> Run:
    """Return a function that runs selects on the connection of a transaction, so that they see its changes."""
    return lambda select, **values: select.stored(connection, **values)


def _read_person(run: Run, project_id: int, distinct_id: str) -> tuple[StoredPerson | None, int]:
    """Return a person and the size of what is stored of it."""
    rows = run(_READ_PERSON, project_id=project_id, distinct_id=distinct_id)
    if not rows:
        return None, 0
    row_id, properties, created_at_us = rows[0]
    return StoredPerson(row_id, orjson.loads(properties), created_at_us), len(properties)


_ids = person_distinct_id.c
_PERSON_OF = (
    _ids.project_id == sa.bindparam("project_id"),
    _ids.distinct_id == sa.bindparam("distinct_id"),
)
_READ_PERSON_ID = PreparedSelect(sa.select(_ids.person_id).where(*_PERSON_OF))
_READ_GROUP = PreparedSelect(
    sa.select(group.c.properties).where(
        group.c.project_id == sa.bindparam("project_id"),
        group.c.group_type_index == sa.bindparam("group_index"),
        group.c.group_key == sa.bindparam("group_key"),
    )
)
_READ_MEMBERSHIP = PreparedSelect(
    sa.select(cohort_person.c.person_id).where(
        cohort_person.c.cohort_id == sa.bindparam("cohort_id"),
        cohort_person.c.person_id == sa.bindparam("person_id"),
    )
)
_READ_HASH_KEYS = PreparedSelect(
    sa.select(flag_hash_key_override.c.feature_flag_key, flag_hash_key_override.c.hash_key).where(
        flag_hash_key_override.c.project_id == sa.bindparam("project_id"),
        flag_hash_key_override.c.person_id == sa.bindparam("person_id"),
    )
)
_READ_PERSON = PreparedSelect(
    sa.select(person.c.id, person.c.properties, person.c.created_at).where(
        *_PERSON_OF, person.c.id == _ids.person_id
    )
)


class StoredHashKeys(msgspec.Struct, frozen=True):
    """The stored bucketing ids of one person, by flag key."""

    person_id: int
    by_flag: dict[str, str]


def hash_keys_of(run: Run, project_id: int, distinct_ids: Iterable[str]) -> list[StoredHashKeys]:
    """Return the stored bucketing ids of the persons behind distinct ids, in their order; unknown ids are left out."""
    hash_keys = []
    for distinct_id in distinct_ids:
        rows = run(_READ_PERSON_ID, project_id=project_id, distinct_id=distinct_id)
        if rows:
            person_id = rows[0][0]
            hash_keys.append(
                StoredHashKeys(
                    person_id, dict(run(_READ_HASH_KEYS, project_id=project_id, person_id=person_id))
                )
            )
    return hash_keys


def merge_hash_keys(stored: Sequence[StoredHashKeys]) -> dict[str, str]:
    """Return one bucketing id for each flag; where persons differ, the first wins."""
    merged: dict[str, str] = {}
    for keys in reversed(stored):
        merged.update(keys.by_flag)
    return merged


class DatabaseFacts:
    """Facts about the subjects of requests, read from the database.

    ``hash_keys``, for one request, are bucketing ids that are known already, or the reason why there are none.
    """

    def __init__(
        self,
        reader: PointReader | SnapshotReader,
        project_id: int,
        *,
        hash_keys: Mapping[str, str] | FlagReason | None = None,
    ) -> None:
        self._reader = reader
        self._project_id = project_id
        self._hash_keys = hash_keys

    def person(self, distinct_id: str) -> StoredPerson | None:
        return self._reader.person(self._project_id, distinct_id)

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:
        rows = self._reader(
            _READ_GROUP, project_id=self._project_id, group_index=group_type_index, group_key=group_key
        )
        properties: dict[str, Any] | None = orjson.loads(rows[0][0]) if rows else None
        return properties

    def is_listed_in_cohort(self, cohort_id: int, person_id: int) -> bool:
        return bool(self._reader(_READ_MEMBERSHIP, cohort_id=cohort_id, person_id=person_id))

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        if isinstance(self._hash_keys, FlagReason):
            raise FlagFailure(self._hash_keys)
        if self._hash_keys is None:
            return merge_hash_keys(hash_keys_of(self._reader, self._project_id, distinct_ids))
        return self._hash_keys


class StoredFactsNeededError(BaseException):
    """An evaluation asked for a stored fact where it must not wait for it.

    It is no `Exception`, because the flag that asked did not fail.
    """


class FactsElsewhere:
    """Facts that are not available here: each question raises the same error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def person(self, _distinct_id: str) -> StoredPerson | None:
        raise self._error

    def group_properties(self, _group_type_index: int, _group_key: str) -> Mapping[str, Any] | None:
        raise self._error

    def is_listed_in_cohort(self, _cohort_id: int, _person_id: int) -> bool:
        raise self._error

    def hash_keys(self, _distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        raise self._error
