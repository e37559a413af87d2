"""Stored facts about the subject of a request, read from the database (spec: sdk-wire 3.5, 3.9, 3.12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import sqlalchemy as sa

from hoglab.flags.outcome import FlagFailure, Reason
from hoglab.flags.subject import StoredPerson
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


class PointRead:
    """A statement with positional parameters that is compiled once and then run by the driver alone.

    What SQLAlchemy adds to each execution costs twenty times as much as SQLite takes for an indexed read.
    Values come as the driver has them: JSON as text, moments as microseconds.
    """

    def __init__(
        self,
        parameters: tuple[str, ...],
        *columns: sa.ColumnElement[Any],
        where: Sequence[sa.ColumnElement[bool]],
    ) -> None:
        self._parameters = parameters
        self._statement = sa.select(*columns).where(*where)
        self._text: str | None = None

    def text(self, connection: Connection) -> str:
        """The statement in the dialect of a connection. Raises `ValueError` when it counts differently."""
        if self._text is None:
            compiled = self._statement.compile(dialect=connection.dialect)
            if tuple(compiled.positiontup or ()) != self._parameters:
                raise ValueError(f"parameters must be given in the order {compiled.positiontup}")
            self._text = str(compiled)
        return self._text


class PointReader:
    """A connection kept open for point reads on the event loop.

    With the embedded database such a read takes a few microseconds and waits for nobody; taking a connection
    from the pool and going through a thread would each cost more. Every read sees the latest commit.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stack = ExitStack()
        self._connection: Connection | None = None
        self._driver: Any = None

    def __call__(self, read: PointRead, *values: Any) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = self._stack.enter_context(self._database.read())
            self._driver = self._connection.connection.driver_connection
        try:
            cursor = self._driver.cursor()
            cursor.execute(read.text(self._connection), values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        except Exception:
            self.close()  # the next read starts on a new connection
            raise
        return rows

    def close(self) -> None:
        """Give the connection back."""
        self._connection = self._driver = None
        self._stack.close()


Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a `PointRead` with its parameters: a `PointReader`, or a transaction (see `within`)."""


def within(connection: Connection) -> Run:
    """Runs point reads on the connection of a transaction, so that they see what it did."""

    def run(read: PointRead, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.exec_driver_sql(read.text(connection), values)]

    return run


_ids = person_distinct_id.c
_PERSON_OF = (
    _ids.project_id == sa.bindparam("project_id"),
    _ids.distinct_id == sa.bindparam("distinct_id"),
)
_READ_PERSON_ID = PointRead(("project_id", "distinct_id"), _ids.person_id, where=_PERSON_OF)
_READ_GROUP = PointRead(
    ("project_id", "group_index", "group_key"),
    group.c.properties,
    where=(
        group.c.project_id == sa.bindparam("project_id"),
        group.c.group_type_index == sa.bindparam("group_index"),
        group.c.group_key == sa.bindparam("group_key"),
    ),
)
_READ_MEMBERSHIP = PointRead(
    ("cohort_id", "person_id"),
    cohort_person.c.person_id,
    where=(
        cohort_person.c.cohort_id == sa.bindparam("cohort_id"),
        cohort_person.c.person_id == sa.bindparam("person_id"),
    ),
)
_READ_HASH_KEYS = PointRead(
    ("project_id", "person_id"),
    flag_hash_key_override.c.feature_flag_key,
    flag_hash_key_override.c.hash_key,
    where=(
        flag_hash_key_override.c.project_id == sa.bindparam("project_id"),
        flag_hash_key_override.c.person_id == sa.bindparam("person_id"),
    ),
)


def _read_persons(count: int) -> PointRead:
    names = tuple(f"distinct_id_{number}" for number in range(count))
    return PointRead(
        ("project_id", *names),
        _ids.distinct_id,
        person.c.id,
        person.c.properties,
        person.c.created_at,
        where=(
            _ids.project_id == sa.bindparam("project_id"),
            _ids.distinct_id.in_([sa.bindparam(name) for name in names]),
            person.c.id == _ids.person_id,
        ),
    )


_BATCHES = {count: _read_persons(count) for count in (1, 8, 32)}
_LARGEST_BATCH = max(_BATCHES)


_PersonFuture = asyncio.Future[StoredPerson | None]


class PersonLoader:
    """Reads the persons of all requests that ask during one turn of the event loop together.

    Under load one statement then serves many requests; a request alone waits for nobody.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: dict[int, dict[str, list[_PersonFuture]]] = {}

    def load(self, project_id: int, distinct_id: str) -> _PersonFuture:
        """The stored person behind a distinct id, None for an unknown one."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._read_all)
        # One future for each who asks: a request that is cancelled must not take others along.
        future: _PersonFuture = loop.create_future()
        self._waiting.setdefault(project_id, {}).setdefault(distinct_id, []).append(future)
        return future

    def _read_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for project_id, asked in waiting.items():
            distinct_ids = list(asked)
            for start in range(0, len(distinct_ids), _LARGEST_BATCH):
                chunk = distinct_ids[start : start + _LARGEST_BATCH]
                try:
                    found = self._read(project_id, chunk)
                except Exception as error:
                    _settle(asked, chunk, {}, error)
                else:
                    _settle(asked, chunk, found, None)

    def _read(self, project_id: int, distinct_ids: list[str]) -> dict[str, StoredPerson]:
        size = min(count for count in _BATCHES if count >= len(distinct_ids))
        padded = distinct_ids + distinct_ids[-1:] * (size - len(distinct_ids))
        return {
            distinct_id: StoredPerson(person_id, orjson.loads(properties), created_at)
            for distinct_id, person_id, properties, created_at in self._run(
                _BATCHES[size], project_id, *padded
            )
        }


def _settle(
    asked: Mapping[str, list[_PersonFuture]],
    distinct_ids: list[str],
    found: Mapping[str, StoredPerson],
    error: Exception | None,
) -> None:
    for distinct_id in distinct_ids:
        for future in asked[distinct_id]:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(found.get(distinct_id))


class StoredHashKeys(msgspec.Struct, frozen=True):
    """The stored bucketing ids of one person, by flag key."""

    person_id: int
    by_flag: dict[str, str]


def hash_keys_of(run: Run, project_id: int, distinct_ids: Iterable[str]) -> list[StoredHashKeys]:
    """Stored bucketing ids of the persons behind distinct ids, in their order; unknown ones are left out."""
    found = []
    for distinct_id in distinct_ids:
        rows = run(_READ_PERSON_ID, project_id, distinct_id)
        if rows:
            person_id = rows[0][0]
            found.append(StoredHashKeys(person_id, dict(run(_READ_HASH_KEYS, project_id, person_id))))
    return found


def merge_hash_keys(stored: Sequence[StoredHashKeys]) -> dict[str, str]:
    """One bucketing id for each flag; where persons differ, the first wins."""
    merged: dict[str, str] = {}
    for each in reversed(stored):
        merged.update(each.by_flag)
    return merged


class DatabaseFacts:
    """What the database knows about the subject of one request.

    The person is read beforehand (see `PersonLoader`): ``person`` is that, None for an unknown one, or why
    reading failed. ``hash_keys`` are bucketing ids that are known already, or why there are none.
    """

    def __init__(
        self,
        run: Run,
        project_id: int,
        *,
        person: StoredPerson | Exception | None = None,
        hash_keys: Mapping[str, str] | Reason | None = None,
    ) -> None:
        self._run = run
        self._project_id = project_id
        self._person = person
        self._hash_keys = hash_keys

    def person(self, distinct_id: str) -> StoredPerson | None:  # noqa: ARG002 - it is the request's own
        if isinstance(self._person, Exception):
            raise self._person
        return self._person

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:
        rows = self._run(_READ_GROUP, self._project_id, group_type_index, group_key)
        properties: dict[str, Any] | None = orjson.loads(rows[0][0]) if rows else None
        return properties

    def is_in_static_cohort(self, cohort_id: int, person_id: int) -> bool:
        return bool(self._run(_READ_MEMBERSHIP, cohort_id, person_id))

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        if isinstance(self._hash_keys, Reason):
            raise FlagFailure(self._hash_keys)
        if self._hash_keys is None:
            self._hash_keys = merge_hash_keys(hash_keys_of(self._run, self._project_id, distinct_ids))
        return self._hash_keys
