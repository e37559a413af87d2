"""The statements on persons that every batch of events needs, as each engine says them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from hoglab.storage.database.engine_modules import engine_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

PersonValues = tuple[str, bool, int, int, int | None]
"""Properties (JSON), is_identified, version, created_at and last_seen_at (microseconds of Unix time)."""


class PersonRows(Protocol):
    """Loading, making and changing persons by the thousand, inside of the transaction of a connection."""

    def load(
        self, connection: Connection, project_id: int, distinct_ids: Iterable[str]
    ) -> list[tuple[str, int, str, str, int, int, int, int | None]]:
        """Return rows (distinct id, id, uuid, and the `PersonValues`) of distinct ids that have a person."""
        ...

    def next_ids(self, connection: Connection, count: int) -> Iterable[int]:
        """Return ids for ``count`` new persons."""
        ...

    def insert(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write new persons: id, project id, uuid and the `PersonValues`."""
        ...

    def update(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write what changed of persons that are there already: the `PersonValues` and the id."""
        ...

    def claim(self, connection: Connection, versions: Sequence[tuple[int, int]]) -> int:
        """Lock persons (id, version) until the end of the transaction, and return how many have that version."""
        ...

    def moment(self, connection: Connection) -> int:
        """Return the time by the clock that all writers of persons share, in microseconds of Unix time."""
        ...

    def name(self, connection: Connection, rows: Sequence[tuple[int, str, int | None]]) -> None:
        """Write distinct ids that had no person so far: project id, distinct id and person's id."""
        ...


def person_rows(connection: Connection) -> PersonRows:
    """Return the implementation for the engine of a connection."""
    return cast("PersonRows", engine_module(connection, "person_rows"))
