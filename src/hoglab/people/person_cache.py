"""Persons that were read lately, for callers who read the same ones again and again.

A person is dropped as soon as a transaction begins to change it, and not kept again before that transaction has
ended. So the cache returns what a read of the database would return, never anything older.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from hoglab.storage.database.types import from_micros

MAX_KNOWN_NAMES = 20_000
"""Maximum number of remembered distinct ids; the cache is emptied when it is reached."""
MAX_KNOWN_BYTES = 16 * 1024 * 1024
"""Maximum size of the remembered properties, in bytes of their JSON text; the cache is emptied when it is reached."""


class StoredPerson(msgspec.Struct, frozen=True):
    """Stored person behind a distinct id. Shared by readers, so the properties must not be changed."""

    id: int
    properties: dict[str, Any]
    created_at_us: int
    """Microseconds since the Unix epoch."""

    @property
    def created_at(self) -> datetime:
        return from_micros(self.created_at_us)


class PersonCache:
    """Stored persons by distinct id. Read from one thread (an event loop's); changes are reported from any thread."""

    def __init__(self, *, max_names: int = MAX_KNOWN_NAMES, max_bytes: int = MAX_KNOWN_BYTES) -> None:
        self.version = 0
        """Number of changes that ended.

        What is kept must have been read, from its first statement on, under the version that it is kept with.
        """
        self._max_names = max_names
        self._max_bytes = max_bytes
        self._rows: dict[tuple[int, str], int] = {}
        self._persons: dict[int, StoredPerson] = {}
        self._bytes = 0  # of everything that was kept since the cache was last emptied
        self._changing: dict[int, set[int]] = {}
        self._lock = threading.Lock()

    def get(self, project_id: int, distinct_id: str) -> StoredPerson | None:
        """Return the person behind a distinct id when it is remembered."""
        row_id = self._rows.get((project_id, distinct_id))
        return None if row_id is None else self._persons.get(row_id)

    def keep(
        self, project_id: int, distinct_id: str, person: StoredPerson, size_bytes: int, version: int
    ) -> None:
        """Remember a person, unless it may have changed since it was read."""
        if size_bytes > self._max_bytes or not self._max_names:
            return
        with self._lock:
            if version != self.version or any(person.id in rows for rows in self._changing.values()):
                return
            self._bytes += size_bytes
            if self._bytes > self._max_bytes or len(self._rows) >= self._max_names:
                self._rows.clear()
                self._persons.clear()
                self._bytes = size_bytes
            self._rows[project_id, distinct_id] = person.id
            self._persons[person.id] = person

    @contextmanager
    def changing(self) -> Iterator[Callable[[Iterable[int]], None]]:
        """Surround a transaction; before it changes persons, it passes their row ids to the yielded function.

        Distinct ids only ever move to another person when their person is deleted, so they need not be passed.
        """
        rows: set[int] = set()

        def touch(row_ids: Iterable[int]) -> None:
            with self._lock:
                rows.update(row_ids)
                self._forget(rows)

        with self._lock:
            self._changing[id(rows)] = rows
        try:
            yield touch
        finally:
            with self._lock:
                del self._changing[id(rows)]
                self._forget(rows)
                self.version += 1

    def _forget(self, row_ids: Iterable[int]) -> None:
        if self._persons:
            for row_id in row_ids:
                self._persons.pop(row_id, None)
