"""Due invocations, of which a claim takes some in fair shares before it locks them.

One statement counts the due invocations of each function; another locks the shares, without rows that other processes
locked meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from hoglab.storage.invocations.postgres.rows import NO_KEY, SQL
from hoglab.storage.invocations.tables import claimed_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hoglab.storage.database.postgres.session import PostgresSession
    from hoglab.storage.invocations.invocation import ClaimedInvocation

MAX_COUNTED = 64
"""Multiple of a claim's size up to which waiting invocations are counted, all functions together."""


class Due(NamedTuple):
    """Number of due invocations of a function, counted up to ``counted``, and when the first became due."""

    priority: int
    project_id: int
    function_id: str
    first: int
    counted: int
    number: int


class PostgresCandidates:
    """See `Candidates`. Up to ``most`` are counted of a function, and fewer where many functions have some."""

    def __init__(self, session: PostgresSession, queue: str, most: int, token: str, now: int) -> None:
        self._session = session
        self._values = {"queue": queue, "token": token, "now": now, "no_key": NO_KEY}
        values = {"first": queue, "last": queue, "most": most, "counted": most * MAX_COUNTED, "now": now}
        self._due = [Due(*row) for row in session.rows(SQL["due"], values)]
        self.priorities: Sequence[int] = sorted({due.priority for due in self._due})
        self._taken: list[tuple[Due, int]] = []

    def lane(self, priority: int) -> _Waiting:
        """Return the due invocations of one priority."""
        return _Waiting([due for due in self._due if due.priority == priority], self._taken)

    def lock(self) -> list[ClaimedInvocation]:
        """Lock what was taken, as far as others did not lock it meanwhile."""
        numbers: Counter[Due] = Counter()
        for due, number in self._taken:
            numbers[due] += number
        wanted = list(+numbers)
        if not wanted:
            return []
        values = {
            "priorities": [due.priority for due in wanted],
            "projects": [due.project_id for due in wanted],
            "functions": [due.function_id for due in wanted],
            "firsts": [due.first for due in wanted],
            "numbers": [numbers[due] for due in wanted],
        }
        return list(map(claimed_of, self._session.rows(SQL["claim"], self._values | values)))

    def may_have_more(self) -> bool:
        """Return whether some function may have more than was counted, though something of it was taken."""
        return bool(self._taken) and any(due.number >= due.counted for due in self._due)


class _Waiting:
    """See `Waiting`."""

    def __init__(self, lanes: Collection[Due], taken: list[tuple[Due, int]]) -> None:
        functions: defaultdict[int, list[str]] = defaultdict(list)
        for due in lanes:
            functions[due.project_id].append(due.function_id)
        self._projects = sorted(functions)
        self._functions = {project: sorted(ids) for project, ids in functions.items()}
        self._due = {(due.project_id, due.function_id): due for due in lanes}
        self._left = Counter({key: due.number for key, due in self._due.items()})
        self._taken = taken

    def next_project(self, after: int) -> int | None:
        """Return the project after ``after`` that has due invocations, by id; None after all."""
        place = bisect_right(self._projects, after)
        return self._projects[place] if place < len(self._projects) else None

    def next_function(self, project_id: int, after: str) -> str | None:
        """Return the function of a project after ``after`` that has due invocations, by id; None after all."""
        functions = self._functions[project_id]
        place = bisect_right(functions, after)
        return functions[place] if place < len(functions) else None

    def take(self, project_id: int, function_id: str, most: int) -> list[Any]:
        """Note that up to ``most`` invocations of a function are to be locked; a placeholder for each is returned."""
        key = project_id, function_id
        number = min(most, self._left[key])
        if number:
            self._left[key] -= number
            self._taken.append((self._due[key], number))
        return [None] * number
