"""Runs in flight, and which functions may have more of them: see `hoglab.fairness.thresholds`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hoglab.fairness.thresholds import more_of_member, one_less, room_of_owner

if TYPE_CHECKING:
    from hoglab.delivery.limits.destination_breaker import DestinationBreakers
    from hoglab.delivery.limits.rate_limit import RateLimiter
    from hoglab.storage.invocations import ClaimedInvocation


class Full(NamedTuple):
    """Functions and projects that have as many runs in flight as they may."""

    functions: frozenset[str] = frozenset()
    projects: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Tallies:
    """Numbers of runs in flight by function and project.

    ``most`` is the limit of all; ``per_function`` that of one.
    """

    most: int
    per_function: int
    functions: Counter[str]
    projects: Counter[int]

    @property
    def free(self) -> int:
        """Number of further runs that may be in flight."""
        return self.most - self.projects.total()

    def room_of(self, project_id: int) -> float:
        return room_of_owner(self.free, self.projects.get(project_id, 0))

    def more_of(self, project_id: int, function_id: str) -> int:
        """Return the number of further runs that a function may have in flight."""
        has = self.functions.get(function_id, 0)
        return min(self.per_function - has, more_of_member(has, self.room_of(project_id)))

    def add(self, project_id: int, function_id: str, number: int) -> None:
        self.functions[function_id] += number
        self.projects[project_id] += number


class InFlight:
    """Runs in flight of one event loop."""

    def __init__(self, most: int, per_function: int) -> None:
        self._tallies = Tallies(most, per_function, Counter(), Counter())
        self._project_of: dict[str, int] = {}
        self._passed_over = Full()

    @property
    def free(self) -> int:
        """Number of further runs that may be in flight."""
        return self._tallies.free

    def began(self, claimed: ClaimedInvocation) -> None:
        self._tallies.add(claimed.project_id, claimed.function_id, 1)
        self._project_of[claimed.function_id] = claimed.project_id

    def ended(self, claimed: ClaimedInvocation) -> bool:
        """Record that a run ended. Return whether its function or project was passed over and may have more now."""
        tallies, project_id, function_id = self._tallies, claimed.project_id, claimed.function_id
        one_less(tallies.projects, project_id)
        one_less(tallies.functions, function_id)
        if function_id not in tallies.functions:
            del self._project_of[function_id]
        functions, projects = before = self._passed_over
        if project_id in projects and tallies.room_of(project_id) > 0:
            projects -= {project_id}
        if function_id in functions and tallies.more_of(project_id, function_id) > 0:
            functions -= {function_id}
        self._passed_over = Full(functions, projects)
        return self._passed_over != before

    def pass_over(self) -> Full:
        """Return the functions and projects that the next claim leaves out."""
        tallies = self._tallies
        self._passed_over = Full(
            frozenset(
                function_id
                for function_id, project in self._project_of.items()
                if tallies.more_of(project, function_id) <= 0
            ),
            frozenset(project for project in tallies.projects if tallies.room_of(project) <= 0),
        )
        return self._passed_over

    def is_stale(self, full: Full) -> bool:
        """Return whether a function or project that was passed over may have more by now."""
        return self._passed_over != full

    def quota(self, rate_limits: RateLimiter, breakers: DestinationBreakers) -> Quota:
        """Return the limits of the next claim."""
        tallies = self._tallies
        copies = tallies.functions.copy(), tallies.projects.copy()
        return Quota(Tallies(tallies.most, tallies.per_function, *copies), rate_limits, breakers)


class Quota:
    """Limits of one claim.

    A function gets as many runs as fit beside those in flight, and as its rate limit and its circuit breaker allow.
    Used by the thread that claims.
    """

    def __init__(self, tallies: Tallies, rate_limits: RateLimiter, breakers: DestinationBreakers) -> None:
        self._tallies = tallies
        self._rate_limits = rate_limits
        self._breakers = breakers
        self._taken: Counter[str] = Counter()

    def allowed(self, project_id: int, function_id: str, wanted: int) -> int:
        """Return the number of ``wanted`` runs that a function may have."""
        wanted = min(wanted, self._tallies.more_of(project_id, function_id))
        wanted = self._breakers.allowed(function_id, wanted) if wanted > 0 else 0
        had = self._taken[function_id]
        return max(0, self._rate_limits.allowance(function_id, wanted + had) - had) if wanted > 0 else 0

    def took(self, project_id: int, function_id: str, number: int) -> None:
        """Record that a function was given some runs."""
        if number:
            self._breakers.began(function_id)
        self._taken[function_id] += number
        self._tallies.add(project_id, function_id, number)

    def close(self) -> None:
        """Record in the rate limits what was begun."""
        for function_id, number in self._taken.items():
            self._rate_limits.began(function_id, number)
        self._rate_limits.settle()
