"""Limits of the runs of functions, beside the queue: circuit breakers, rate limits, and destinations that are away.

Circuit breakers (spec: hog-runtime 6) are kept between two lives of a process. On all three, several processes that run
functions agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class BreakerState:
    """State and bucket of one function's circuit breaker at the moment ``tokens_at``."""

    function_id: str
    state: int
    tokens: int
    tokens_at: datetime
    locked_until: datetime | None = None


class BreakerStates(Protocol):
    """Store of circuit breakers' states. Blocking methods, called from any thread; they raise `DatabaseError`."""

    def read(self) -> list[BreakerState]:
        """Return the circuit breakers of all functions that have one."""
        ...

    def change(
        self,
        function_ids: Collection[str],
        decide: Callable[[Mapping[str, BreakerState]], Sequence[BreakerState]],
    ) -> None:
        """Replace the states of functions with what ``decide`` returns for them; nobody changes them meanwhile."""
        ...


class Granted(NamedTuple):
    """``number``: how many runs may begin; ``wait_s``: how long until there may be another one."""

    number: int
    wait_s: float


class RateLimits(Protocol):
    """The token buckets of functions that limit how often they run. Blocking methods; they raise `DatabaseError`."""

    def take(self, function_id: str, wanted: int, *, per_s: float, size: float) -> Granted:
        """Take up to ``wanted`` whole tokens of a bucket that holds ``size`` at most and one at first."""
        ...

    def give_back(self, function_id: str, number: int) -> None:
        """Put tokens back that were taken and not needed."""
        ...


class Outages(Protocol):
    """The functions whose destination some process found away. Blocking methods; they raise `DatabaseError`."""

    def tell(self, function_ids: Collection[str]) -> None:
        """Replace what this process reported before; a report that is not repeated is forgotten."""
        ...

    def told(self) -> frozenset[str]:
        """Return the outages that all processes reported."""
        ...
