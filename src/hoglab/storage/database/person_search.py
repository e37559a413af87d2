"""An index for searching persons, as each engine keeps it: `sqlite.person_search`, `postgres.person_search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from hoglab.storage.database.engine_modules import engine_module

if TYPE_CHECKING:
    from sqlalchemy import Connection


class PersonSearch(Protocol):
    """An index of what persons are called."""

    def find(self, connection: Connection, text: str, most: int, /) -> tuple[list[int], int | None] | None:
        """Return row ids of all persons who may have a text in their email, name or a distinct id, and up to which row.

        The case does not count, and the persons are of any project. The row is None where all are in the index.
        None: nobody can tell, or there are more than ``most``.
        """
        ...

    def is_full(self, connection: Connection, /) -> bool:
        """Return whether all persons are in it."""
        ...

    def fill(self, connection: Connection, /) -> bool:
        """Put in the next persons, in a transaction, and return whether there are more."""
        ...

    def reset(self, connection: Connection, /) -> None:
        """Empty the index, so that former names leave it, in a transaction. `fill` puts the persons in again."""
        ...


def person_search(connection: Connection) -> PersonSearch:
    """Return the implementation for the engine of a connection."""
    return cast("PersonSearch", engine_module(connection, "person_search"))
