"""Claims of due invocations: in turn, over projects and over the functions of each.

However much one function has waiting, another's first invocation is taken in the next round. A claim looks at as
many rows as it takes, and at one index entry for each function that it passes over: how long a queue is does not
matter.

An invocation with an order key is ``held`` while an earlier one of the same function and key is not finished: it is
not among those that a claim looks at, however many there are.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hoglab.storage.database.types import from_micros
from hoglab.storage.invocations import ClaimedInvocation

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator

    from hoglab.storage.invocations import Allowance

T = TypeVar("T", int, str)
R = TypeVar("R")

COLUMNS = (
    "id, project_id, function_id, parent_run_id, queue, priority, scheduled_at, reset_count, state, "
    "lock_token, created_at"
)
CLAIMED = f"RETURNING {COLUMNS}"
_CLAIM = (  # noqa: S608, constants only
    "UPDATE invocation SET status = 'running', lock_token = ?, heartbeat_at = ? WHERE rowid IN ("
    "SELECT rowid FROM invocation WHERE status = 'available' AND queue = ? AND priority = ? "
    "AND project_id = ? AND function_id = ? AND scheduled_at <= ? ORDER BY scheduled_at LIMIT ?) "
) + CLAIMED
_LANE = "FROM invocation WHERE status = 'available' AND queue = ? AND priority = ?"
NEXT_PRIORITY = (
    "SELECT min(priority) FROM invocation WHERE status = 'available' AND queue = ? AND priority > ?"
)
_NEXT_PROJECT = f"SELECT min(project_id) {_LANE} AND project_id > ?"
_NEXT_FUNCTION = f"SELECT min(function_id) {_LANE} AND project_id = ? AND function_id > ?"
_DUE = f"SELECT 1 {_LANE} AND project_id = ? AND function_id = ? AND scheduled_at <= ? LIMIT ?"
_COUNT_DUE = f"SELECT count(*) FROM ({_DUE})"  # noqa: S608, constants only
_FIRST_SCHEDULED = f"SELECT min(scheduled_at) {_LANE} AND project_id = ? AND function_id = ?"

LOOK_AHEAD = 16
"""Number of waiting members that are counted to find the share of each."""
BEFORE_ALL = -(1 << 62)


class Shares:
    """Shares of functions in one claim. ``begin`` for each lane."""

    def __init__(
        self,
        excluded: Collection[str],
        projects: Collection[int],
        allowance: Allowance | None,
    ) -> None:
        """Divide claims; ``excluded`` functions and ``projects`` get nothing."""
        self._excluded = excluded
        self._projects = projects
        self._allowance = allowance
        self._of_lane: Counter[str] = Counter()
        self._most_each = 0

    def begin(self, most_each: int) -> None:
        self._most_each = most_each
        self._of_lane.clear()

    def has_any(self, project_id: int) -> bool:
        """Return whether the functions of a project may have any."""
        return project_id not in self._projects

    def of(self, project_id: int, function_id: str, wanted: int) -> int:
        """Return the number of ``wanted`` runs that a function may have now."""
        wanted = min(wanted, self._most_each - self._of_lane[function_id])
        if function_id in self._excluded or wanted <= 0:
            return 0
        return wanted if self._allowance is None else self._allowance.allowed(project_id, function_id, wanted)

    def took(self, project_id: int, function_id: str, number: int) -> None:
        self._of_lane[function_id] += number
        if self._allowance is not None:
            self._allowance.took(project_id, function_id, number)


class Waiting(Protocol[R]):
    """The due invocations of a lane (queue and priority), by project and function."""

    def next_project(self, after: int) -> int | None:
        """Return the project after ``after`` that has available invocations, by id; None after all."""
        ...

    def next_function(self, project_id: int, after: str) -> str | None:
        """Return the function of a project after ``after`` that has available invocations, by id; None after all."""
        ...

    def take(self, project_id: int, function_id: str, most: int) -> list[R]:
        """Lock the oldest due invocations of a function, up to ``most``, and return a row for each."""
        ...


class Claims:
    """Memory of whose turn it is. Used by one transaction at a time."""

    def __init__(self) -> None:
        self._projects: dict[tuple[str, int], int] = {}
        self._functions: dict[tuple[str, int, int], str] = {}

    def claim(self, lane: tuple[str, int], waiting: Waiting[R], room: int, shares: Shares) -> list[R]:
        """Take up to ``room`` due invocations of a lane (queue and priority)."""

        def take_of(project: int, most: int) -> list[R]:
            def take(function_id: str, most: int) -> list[R]:
                self._functions[(*lane, project)] = function_id
                most = shares.of(project, function_id, most)
                if most <= 0:
                    return []
                rows = waiting.take(project, function_id, most)
                shares.took(project, function_id, len(rows))
                return rows

            last = self._functions.get((*lane, project), "")
            return _in_turn(lambda: _circle(partial(waiting.next_function, project), last, ""), take, most)

        def take_project(project: int, most: int) -> list[R]:
            self._projects[lane] = project
            return take_of(project, most) if shares.has_any(project) else []

        last = self._projects.get(lane, BEFORE_ALL)
        return _in_turn(lambda: _circle(waiting.next_project, last, BEFORE_ALL), take_project, room)


class WaitingRows:
    """Invocations waiting in a SQLite table, read step by step: one probe of the index each."""

    def __init__(self, connection: sqlite3.Connection, lane: tuple[str, int], token: str, now: int) -> None:
        self._connection = connection
        self._lane = lane
        self._token = token
        self._now = now
        self.next_project = _reader(connection, _NEXT_PROJECT, *lane)

    def next_function(self, project_id: int, after: str) -> str | None:
        function_id: str | None = _reader(self._connection, _NEXT_FUNCTION, *self._lane, project_id)(after)
        return function_id

    def take(self, project_id: int, function_id: str, most: int) -> list[tuple[Any, ...]]:
        """Return rows as in `CLAIMED`."""
        parameters = (self._token, self._now, *self._lane, project_id, function_id, self._now, most)
        return self._connection.execute(_CLAIM, parameters).fetchall()


def first_scheduled(
    connection: sqlite3.Connection, lane: tuple[str, int], apart_from: Collection[str]
) -> int | None:
    """Return the time when the first invocation of a lane is due, in microseconds of Unix time.

    Those of some functions are left out.
    """
    moments: list[int] = []
    for project, function_id in _functions_of(connection, lane, apart_from):
        moment = connection.execute(_FIRST_SCHEDULED, (*lane, project, function_id)).fetchone()[0]
        if moment is not None:
            moments.append(moment)
    return min(moments, default=None)


def count_due(
    connection: sqlite3.Connection,
    lane: tuple[str, int],
    until: int,
    apart_from: Collection[str],
    most: int,
    most_of_project: int,
) -> int:
    """Return the number of invocations of a lane that are due at a time (microseconds), without some functions.

    Counted up to ``most``, and of each project up to ``most_of_project``.
    """
    counted: Counter[int] = Counter()
    for project, function_id in _functions_of(connection, lane, apart_from):
        left = min(most - counted.total(), most_of_project - counted[project])
        if left > 0:
            parameters = (*lane, project, function_id, until, left)
            counted[project] += connection.execute(_COUNT_DUE, parameters).fetchone()[0]
        if counted.total() >= most:
            break
    return counted.total()


def _functions_of(
    connection: sqlite3.Connection, lane: tuple[str, int], apart_from: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield the projects and functions with available invocations in a lane: one index probe for each."""
    for project in _circle(_reader(connection, _NEXT_PROJECT, *lane), BEFORE_ALL, BEFORE_ALL):
        for function_id in _circle(_reader(connection, _NEXT_FUNCTION, *lane, project), "", ""):
            if function_id not in apart_from:
                yield project, function_id


def lanes_of(connection: sqlite3.Connection, queue: str) -> list[tuple[str, int, int, str]]:
    """Return queue, priority, project and function of all that have available invocations in a queue."""
    lanes = []
    priorities = _reader(connection, NEXT_PRIORITY, queue)
    for priority in _circle(priorities, BEFORE_ALL, BEFORE_ALL):
        for project in _circle(_reader(connection, _NEXT_PROJECT, queue, priority), BEFORE_ALL, BEFORE_ALL):
            functions = _reader(connection, _NEXT_FUNCTION, queue, priority, project)
            lanes += [(queue, priority, project, function_id) for function_id in _circle(functions, "", "")]
    return lanes


def _reader(connection: sqlite3.Connection, query: str, *parameters: Any) -> Callable[[Any], Any]:
    """Return the function that gives the next value after a given one, None after the last: one probe of the index."""
    return lambda after: connection.execute(query, (*parameters, after)).fetchone()[0]


def _circle(following: Callable[[T], T | None], last: T, before_all: T) -> Iterator[T]:
    """Yield all values once, from the one after ``last`` around to ``last`` itself."""
    at: T | None = following(last)
    while at is not None:
        yield at
        at = following(at)
    if last == before_all:
        return
    at = following(before_all)
    while at is not None and at <= last:
        yield at
        at = following(at)


def _in_turn(circle: Callable[[], Iterator[T]], take: Callable[[T, int], list[R]], room: int) -> list[R]:
    """Go around, taking the same share of each, until there is no room or nothing more to take."""
    taken: list[R] = []
    while True:
        around = circle()
        first = list(islice(around, LOOK_AHEAD))
        if not first:
            return taken
        share = -(-(room - len(taken)) // len(first))
        hungry = False
        for lane in chain(first, around):
            got = take(lane, min(share, room - len(taken)))
            taken += got
            if len(taken) >= room:
                return taken
            hungry |= len(got) >= share
        if not hungry:
            return taken


def claimed_of(
    row: tuple[str, int, str, str | None, str, int, int, int, bytes, str, int],
) -> ClaimedInvocation:
    """Return a row of `CLAIMED`."""
    (
        id_,
        project_id,
        function_id,
        parent_run_id,
        queue,
        priority,
        scheduled_at,
        resets,
        state,
        token,
        created,
    ) = row
    return ClaimedInvocation(
        id=id_,
        project_id=project_id,
        function_id=function_id,
        parent_run_id=parent_run_id,
        queue=queue,
        priority=priority,
        scheduled_at=from_micros(scheduled_at),
        reset_count=resets,
        state=state,
        lock_token=token,
        created_at=from_micros(created),
    )
