"""Streaks of failures of functions, in the server's log: their beginning, growth and end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from hoglab.storage.invocations import InvocationResult

LOGGED_AT = frozenset({1, 10, 100, 1_000, 10_000, 100_000, 1_000_000})
"""Numbers of failures in a row that are logged."""
QUIET_S = 60.0
"""Minimum time in seconds between log lines about a function whose streaks are short."""
MAX_KNOWN = 10_000
"""Maximum number of functions whose last line is remembered; beyond that all are forgotten."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Streak:
    failures: int = 0
    is_told: bool = False


class Streaks:
    """Logs streaks of failures. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._streaks: dict[str, _Streak] = {}
        self._told_at: dict[str, float] = {}

    def note(self, result: InvocationResult) -> None:
        """Record the result of a turn. A request that is to be repeated is a failure, too."""
        if result.error_message is not None and result.status in ("failed", "running"):
            self._failed(result)
        elif result.status == "succeeded":
            streak = self._streaks.pop(result.function_id, None)
            if streak is not None and streak.is_told:
                _logger.info(
                    "function_recovered",
                    function_id=result.function_id,
                    project_id=result.project_id,
                    failures=streak.failures,
                )

    def _failed(self, result: InvocationResult) -> None:
        function_id, now = result.function_id, self._clock()
        streak = self._streaks.setdefault(function_id, _Streak())
        streak.failures += 1
        if streak.failures not in LOGGED_AT:
            return
        if streak.failures == 1 and now - self._told_at.get(function_id, -QUIET_S) < QUIET_S:
            return
        if len(self._told_at) > MAX_KNOWN:
            self._told_at.clear()
        self._told_at[function_id] = now
        streak.is_told = True
        _logger.warning(
            "function_fails",
            function_id=function_id,
            project_id=result.project_id,
            failures=streak.failures,
            error=result.error_message,
        )
