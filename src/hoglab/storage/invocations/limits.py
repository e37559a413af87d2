"""Limits of the runs of functions, beside the queue: circuit breakers, rate limits, and destinations that are away.

Circuit breakers (spec: hog-runtime 6) are kept between two lives of a process. On all three, several processes that run
functions agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class BreakerState:
    """State and bucket of one function's circuit breaker at the moment ``tokens_at``."""

    function_id: str
    state: int
    tokens: int
    tokens_at: datetime
    locked_until: datetime | None = None


class Granted(NamedTuple):
    """``number``: how many runs may begin; ``wait_s``: how long until there may be another one."""

    number: int
    wait_s: float
