"""Steps that a turn takes, and the services and settings that it works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.delivery.bodies.pool import Compute
from hoglab.delivery.execution.batches import merge
from hoglab.delivery.execution.logins import Logins
from hoglab.delivery.outbound import Email, FetchRequest
from hoglab.delivery.runs.globals import EventGlobals

if TYPE_CHECKING:
    from hoglab.delivery.execution.retries import RetryPolicy
    from hoglab.delivery.outbound import Outbound
    from hoglab.delivery.runs.globals import Site
    from hoglab.delivery.runs.results import Versions
    from hoglab.delivery.runs.state import Timing
    from hoglab.functions.runtime import FunctionRegistry
    from hoglab.functions.secrets import SecretBox
    from hoglab.people import PersonService
    from hoglab.storage.invocations import (
        AppMetric,
        ClaimedInvocation,
        InvocationOutcome,
        InvocationResult,
        LogEntry,
        NewInvocation,
    )


@dataclass(frozen=True, slots=True)
class Perform:
    """Request that the worker sends; `Turn.answered` then continues the turn."""

    request: FetchRequest | Email

    @property
    def is_login(self) -> bool:
        return isinstance(self.request, FetchRequest) and self.request.is_login


@dataclass(frozen=True, slots=True)
class TurnResult:
    """Result of a turn, to be written in one piece."""

    outcome: InvocationOutcome
    logs: list[LogEntry]
    metrics: list[AppMetric]
    results: list[InvocationResult]
    """One result; for a batch, one for each of its events."""
    function_id: str
    timings: list[Timing]
    """Timings of the whole invocation when it is over; else empty."""
    captured: dict[str, Any] | None = None
    """An event to capture before anything is written."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """Services and settings that runs are begun and executed with."""

    registry: FunctionRegistry
    box: SecretBox
    people: PersonService
    outbound: Outbound
    site: Site
    retries: RetryPolicy
    versions: Versions
    now: Callable[[], datetime]
    logins: Logins = field(default_factory=Logins)
    event_globals: EventGlobals = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "event_globals", self.new_event_globals())

    def new_event_globals(self) -> EventGlobals:
        """Return globals of events with a cache of groups of their own."""
        return EventGlobals(self.site, self.people)

    def batch_size(self, function_id: str) -> int:
        """Return the maximum number of events in a run of a function.

        1 when it does not run, so that each run reports so.
        """
        known = self.registry.find(function_id)
        batch = None if known is None else known[1].delivery.batch
        return 1 if batch is None else batch.max_events

    def merge(self, claimed: list[ClaimedInvocation]) -> tuple[NewInvocation | None, list[InvocationResult]]:
        """Return one run of many; see `batches`."""
        known = self.registry.find(claimed[0].function_id)
        return merge(claimed, self.versions, self.now(), None if known is None else known[1].hog)

    def rate_limit_of(self, function_id: str) -> float | None:
        """Return the maximum number of runs of a function per second, None for any number."""
        known = self.registry.find(function_id)
        return None if known is None else known[1].delivery.per_s


Step = Perform | TurnResult | Compute["Perform | TurnResult"]
"""Next step of a turn."""
