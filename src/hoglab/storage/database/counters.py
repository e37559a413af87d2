"""The last numbers of keys that count up, as each engine keeps them: a number is never given to two rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from hoglab.storage.database.engine_modules import engine_module

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Counters(Protocol):
    """Counters of a database, read inside the transaction of a connection."""

    def last_number(self, connection: Connection, table: str, column: str) -> int:
        """Return the last number that a column of a table was given; 0 for none."""
        ...

    def go_on_after(self, connection: Connection, table: str, column: str, number: int) -> None:
        """Let the next number of a column be larger than ``number``."""
        ...


def counters(connection: Connection) -> Counters:
    """Return the implementation for the engine of a connection."""
    return cast("Counters", engine_module(connection, "counters"))
