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
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from hoglab.storage.invocations.invocation import Allowance

T = TypeVar("T", int, str)
R = TypeVar("R")

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
    """Take the same share of each in turn, until there is no room or nothing is left to take."""
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
