# ruff: noqa: S608 - statements are put together of constants
"""Lanes: the functions that have invocations that wait, and how some of them are taken.

A loose index scan finds each queue, priority, project and function with one probe, however long the lines are. Rows
that are gone may be in the way, as long as somebody has an old snapshot: who looks into a lane begins at its first row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hoglab.storage.database.postgres.session import PostgresSession

MAX_COUNTED = 64
"""Multiple of a claim's size up to which waiting invocations are counted, all functions together."""

_LANE = "queue, priority, project_id, function_id"
LANES = f"""
WITH RECURSIVE lane AS (
    (
        SELECT {_LANE}, scheduled_at AS first FROM invocation
        WHERE status = 'available' AND queue >= %(first)s AND queue <= %(last)s
        ORDER BY {_LANE}, scheduled_at LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM lane CROSS JOIN LATERAL (
        SELECT {_LANE}, scheduled_at AS first FROM invocation WHERE status = 'available' AND queue <= %(last)s
            AND ({_LANE}) > (lane.queue, lane.priority, lane.project_id, lane.function_id)
        ORDER BY {_LANE}, scheduled_at LIMIT 1
    ) AS following
)
"""
"""All lanes of queues from ``first`` to ``last``, and when the first row of each is due."""
_OF_LANE = (
    "invocation.status = 'available' AND invocation.queue = lane.queue AND invocation.priority = lane.priority "
    "AND invocation.project_id = lane.project_id AND invocation.function_id = lane.function_id "
    "AND invocation.scheduled_at >= lane.first"
)
_DUE = f"""{LANES}, number AS (SELECT greatest(1, %(most)s * {MAX_COUNTED} / greatest(count(*), 1)) AS most FROM lane)
SELECT lane.priority, lane.project_id, lane.function_id, lane.first, least(number.most, %(most)s), due.count
FROM number CROSS JOIN lane CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM invocation WHERE {_OF_LANE} AND scheduled_at <= %(now)s
        LIMIT least(number.most, %(most)s)
    ) AS counted_rows
) AS due
WHERE due.count > 0
"""
_COUNT_DUE = f"""{LANES}
SELECT least(%(most)s, coalesce(sum(count), 0))::bigint FROM (
    SELECT least(%(most_of_project)s, sum(due.count)) AS count FROM lane CROSS JOIN LATERAL (
        SELECT count(*) FROM (
            SELECT 1 FROM invocation WHERE {_OF_LANE} AND scheduled_at <= %(until)s LIMIT %(most_of_project)s
        ) AS counted_rows
    ) AS due
    WHERE lane.function_id <> ALL (%(apart)s::text[]) GROUP BY lane.queue, lane.priority, lane.project_id
) AS of_projects
"""
_FIRST_SCHEDULED = f"""{LANES}
SELECT min(lane.first) FROM lane WHERE lane.function_id <> ALL (%(apart)s::text[])
"""
_GATHERING = f"{LANES} SELECT DISTINCT function_id FROM lane"
_READY = f"""{LANES}
SELECT lane.queue, lane.priority, lane.project_id, lane.function_id
FROM lane JOIN unnest(%(functions)s::text[], %(sizes)s::integer[]) AS wanted (function_id, size) USING (function_id)
WHERE EXISTS (SELECT 1 FROM invocation WHERE {_OF_LANE} AND scheduled_at <= %(now)s)
    OR EXISTS (SELECT 1 FROM invocation WHERE {_OF_LANE} OFFSET wanted.size - 1)
"""
_EVERY_QUEUE = {"first": "", "last": "\U0010ffff"}


class Due(NamedTuple):
    """Number of due invocations of a function, counted up to ``counted``, and when the first became due."""

    priority: int
    project_id: int
    function_id: str
    first: int
    counted: int
    number: int


def due_of(session: PostgresSession, queue: str, most: int, now: int) -> list[Due]:
    """Return the functions with due invocations in a queue, each with their number.

    Up to ``most`` are counted of a function, and fewer where many functions have some.
    """
    return [
        Due(*row) for row in session.rows(_DUE, {"first": queue, "last": queue, "most": most, "now": now})
    ]


def count_due(
    session: PostgresSession, until: int, apart_from: Collection[str], most: int, most_of_project: int
) -> int:
    """Return the number of invocations due at a time, up to ``most``.

    At most ``most_of_project`` count of a project, in each queue and priority.
    """
    values = {"until": until, "apart": list(apart_from), "most": most, "most_of_project": most_of_project}
    return int(session.value(_COUNT_DUE, _EVERY_QUEUE | values))


def first_scheduled(session: PostgresSession, apart_from: Collection[str]) -> int | None:
    """Return the time when the first available invocation is due, in microseconds."""
    first: int | None = session.value(_FIRST_SCHEDULED, _EVERY_QUEUE | {"apart": list(apart_from)})
    return first


def gathering(session: PostgresSession, queue: str) -> list[str]:
    """Return the functions with available invocations in a queue."""
    return [function_id for (function_id,) in session.rows(_GATHERING, {"first": queue, "last": queue})]


def ready(
    session: PostgresSession, queue: str, sizes: Mapping[str, int], now: int
) -> list[tuple[str, int, int, str]]:
    """Return lanes in which as many invocations wait as their function wants, or in which one is due."""
    values = {
        "first": queue,
        "last": queue,
        "functions": list(sizes),
        "sizes": list(sizes.values()),
        "now": now,
    }
    return [
        (queue, priority, project, function)
        for queue, priority, project, function in session.rows(_READY, values)
    ]


class Counted:
    """Invocations waiting in a lane (queue and priority), as counted; what is claimed is noted in ``taken``."""

    def __init__(self, due: Collection[Due]) -> None:
        functions: defaultdict[int, list[str]] = defaultdict(list)
        for lane in due:
            functions[lane.project_id].append(lane.function_id)
        self._projects = sorted(functions)
        self._functions = {project: sorted(ids) for project, ids in functions.items()}
        self._left = Counter({(lane.project_id, lane.function_id): lane.number for lane in due})
        self.taken: Counter[tuple[int, str]] = Counter()

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
        number = min(most, self._left[project_id, function_id])
        self._left[project_id, function_id] -= number
        self.taken[project_id, function_id] += number
        return [None] * number
