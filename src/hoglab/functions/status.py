"""Status of a function at run time, as the API shows it (spec: hog-functions-api 12)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

Status = Mapping[str, int]
"""``{"state": int, "tokens": int}``; both must be integers on the wire."""

UNKNOWN: Status = {"state": 0, "tokens": 0}
HEALTHY: Status = {"state": 1, "tokens": 10_000}

DISABLED_STATE = 3
DEGRADED_STATE = 2


class FunctionStates(Protocol):
    """The part of the runtime that watches functions."""

    def statuses(self, function_ids: Collection[str]) -> Mapping[str, Status]:
        """Return the states of functions that have one; a function that never ran may be missing."""
        ...

    def function_saved(self, function_id: str) -> None:
        """Let an enabled function that was saved run again if the circuit breaker had stopped it."""
        ...


class AllHealthy:
    """Stands in where nothing runs functions: every enabled function counts as healthy."""

    def statuses(self, function_ids: Collection[str]) -> Mapping[str, Status]:
        return dict.fromkeys(function_ids, HEALTHY)

    def function_saved(self, function_id: str) -> None:
        """Do nothing: no function was ever stopped."""


def status_of(function_id: str, *, enabled: bool, known: Mapping[str, Status]) -> Status:
    """Return the status to show: unknown for disabled functions, healthy for enabled ones that never ran."""
    return known.get(function_id, HEALTHY) if enabled else UNKNOWN
