"""Lanes: the functions that have available invocations, found step by step, with one probe of an index each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.storage.invocations.claims import BEFORE_ALL
from hoglab.storage.invocations.sqlite.rows import SQL
from hoglab.storage.invocations.tables import Lane, claimed_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hoglab.storage.invocations.invocation import ClaimedInvocation
    from hoglab.storage.invocations.tables import Row

T = TypeVar("T", int, str)


class SqliteCandidates:
    """See `Candidates`. An invocation is locked when it is taken."""

    def __init__(
        self, connection: sqlite3.Connection, queue: str, priorities: Sequence[int], token: str, now: int
    ) -> None:
        self.priorities = priorities
        self._connection = connection
        self._values = {"queue": queue, "token": token, "now": now}
        self._locked: list[Row] = []

    def lane(self, priority: int) -> _Waiting:
        """Return the available invocations of one priority."""
        return _Waiting(self._connection, self._values | {"priority": priority}, self._locked)

    def lock(self) -> list[ClaimedInvocation]:
        """Return what was taken."""
        return list(map(claimed_of, self._locked))

    def may_have_more(self) -> bool:
        """Return False: everything can be taken."""
        return False


class _Waiting:
    """See `Waiting`."""

    def __init__(self, connection: sqlite3.Connection, values: dict[str, Any], locked: list[Row]) -> None:
        self._connection = connection
        self._values = values
        self._locked = locked
        self.next_project: Callable[[int], int | None] = _following(connection, "next_project", values)

    def next_function(self, project_id: int, after: str) -> str | None:
        values = self._values | {"project_id": project_id}
        function_id: str | None = _following(self._connection, "next_function", values)(after)
        return function_id

    def take(self, project_id: int, function_id: str, most: int) -> list[Row]:
        """Lock the oldest due invocations of a function."""
        values = self._values | {"project_id": project_id, "function_id": function_id, "most": most}
        rows = self._connection.execute(SQL["claim"], values).fetchall()
        self._locked += rows
        return rows


def queues_of(connection: sqlite3.Connection) -> list[str]:
    """Return the queues with available invocations."""
    return list(_all_after("", _following(connection, "next_queue", {})))


def priorities_of(connection: sqlite3.Connection, queue: str) -> list[int]:
    """Return the priorities with available invocations, lowest first."""
    return list(_all_after(BEFORE_ALL, _following(connection, "next_priority", {"queue": queue})))


def lanes_of(
    connection: sqlite3.Connection, queue: str, priority: int, apart_from: Collection[str] = ()
) -> Iterator[Lane]:
    """Yield the lanes of a queue and priority, apart from those of some functions."""
    values = {"queue": queue, "priority": priority}
    for project_id in _all_after(BEFORE_ALL, _following(connection, "next_project", values)):
        functions = _following(connection, "next_function", values | {"project_id": project_id})
        for function_id in _all_after("", functions):
            if function_id not in apart_from:
                yield Lane(queue, priority, project_id, function_id)


def first_scheduled(connection: sqlite3.Connection, lane: Lane) -> int | None:
    """Return the moment when the first invocation of a lane is due."""
    moment: int | None = connection.execute(SQL["first_scheduled"], lane._asdict()).fetchone()[0]
    return moment


def count_due(
    connection: sqlite3.Connection, lanes: Iterator[Lane], until: int, most: int, most_of_project: int
) -> int:
    """Return the number of invocations of lanes that are due at a moment.

    Counted up to ``most``, and of each project up to ``most_of_project``.
    """
    counted: Counter[int] = Counter()
    for lane in lanes:
        left = min(most - counted.total(), most_of_project - counted[lane.project_id])
        if left > 0:
            values = {**lane._asdict(), "until": until, "most": left}
            counted[lane.project_id] += connection.execute(SQL["count_due"], values).fetchone()[0]
        if counted.total() >= most:
            break
    return counted.total()


def is_ready(connection: sqlite3.Connection, lane: Lane, size: int, now: int) -> bool:
    """Return whether ``size`` invocations wait in a lane, or one that is due."""
    first = first_scheduled(connection, lane)
    if first is None:
        return False
    values = {**lane._asdict(), "number": size - 1}
    return first <= now or connection.execute(SQL["has_more_than"], values).fetchone() is not None


def _following(connection: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function that gives the next value after a given one, None after the last."""
    return lambda after: connection.execute(SQL[name], {**values, "after": after}).fetchone()[0]


def _all_after(before_all: T, following: Callable[[T], T | None]) -> Iterator[T]:
    place = following(before_all)
    while place is not None:
        yield place
        place = following(place)
