"""Making one invocation of several that wait for each other.

Those that wait stand in a queue of their own, due when they have waited long enough. Functions here work inside the
transaction of the connection that they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.storage.invocations.claims import COLUMNS, lanes_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_MINE = (
    "FROM invocation WHERE status = 'available' AND queue = ? AND priority = ? AND project_id = ? "
    "AND function_id = ? ORDER BY scheduled_at"
)
_DUE = f"SELECT scheduled_at {_MINE} LIMIT 1"
_FULL = f"SELECT 1 {_MINE} LIMIT 1 OFFSET ?"
_OLDEST = f"SELECT {COLUMNS} {_MINE}, rowid LIMIT ?"
_TAKE = "UPDATE invocation SET status = 'completed', finished_at = ?, state = x'' WHERE id = ?"

Lane = tuple[str, int, int, str]
"""Queue, priority, project and function."""


def gathering(connection: sqlite3.Connection, queue: str) -> list[str]:
    """Return the functions that have invocations waiting there: one index probe for each."""
    return list(dict.fromkeys(lane[3] for lane in lanes_of(connection, queue)))


def ready(
    connection: sqlite3.Connection, queue: str, function_id: str, size: int, now: int
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield groups of rows (as in `COLUMNS`), each full or with one that is due; they are taken out of the queue."""
    for lane in _lanes(connection, queue, function_id):
        while _is_ready(connection, lane, size, now):
            rows = connection.execute(_OLDEST, (*lane, size)).fetchall()
            connection.executemany(_TAKE, [(now, row[0]) for row in rows])
            yield rows


def is_ready(connection: sqlite3.Connection, queue: str, function_id: str, size: int, now: int) -> bool:
    """Return whether `ready` would find a group."""
    return any(_is_ready(connection, lane, size, now) for lane in _lanes(connection, queue, function_id))


def _lanes(connection: sqlite3.Connection, queue: str, function_id: str) -> list[Lane]:
    return [lane for lane in lanes_of(connection, queue) if lane[3] == function_id]


def _is_ready(connection: sqlite3.Connection, lane: Lane, size: int, now: int) -> bool:
    first = connection.execute(_DUE, lane).fetchone()
    if first is None:
        return False
    return first[0] <= now or connection.execute(_FULL, (*lane, size - 1)).fetchone() is not None
