"""Transformations: functions that change or drop events before anything else sees them (spec: hog-runtime 7.2)."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import thread_time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID, uuid4

import orjson
import structlog

from hoglab.fairness.compute_quota import SLOW_RUN_S, ComputeQuota
from hoglab.fairness.compute_shares import ComputeShares
from hoglab.filters.hog import FilterFailure
from hoglab.functions.runtime.globals import filter_globals
from hoglab.functions.runtime.notices import Notices
from hoglab.hog import HogLimit, HogRuntimeError, HogThrow, from_json, to_json
from hoglab.storage.invocations import AppMetric, LogEntry

if TYPE_CHECKING:
    from hoglab.functions.body_run import BodyRun
    from hoglab.functions.runtime.compile import CompiledFunction
    from hoglab.functions.runtime.registry import FunctionRegistry
    from hoglab.functions.secrets import Redact

SUCCEEDED = "$transformations_succeeded"
FAILED = "$transformations_failed"
SKIPPED = "$transformations_skipped"

PROJECT_SLOW_S = 6.0
"""Slow computing time of a project in one batch, in seconds.

Beyond it, its functions are given up earlier: all projects wait for the same batch.
"""

OVER_SHARE = (
    "The transformations of the project took more than their share of the time that all projects wait for, and were "
    "given up for the rest of this batch of events."
)

_logger = structlog.get_logger(__name__)

APPLIED = frozenset({"event", "distinct_id", "properties"})
"""Members of a returned event that take effect, as in PostHog; the others stay what they were."""

_INPUT_ERRORS = (HogRuntimeError, HogLimit, HogThrow)
_MILLISECOND = timedelta(milliseconds=1)

KINDS = {
    "succeeded": "success",
    "failed": "failure",
    "inputs_failed": "failure",
    "disabled_permanently": "failure",
    "dropped": "other",
    "filtered": "other",
    "filtering_failed": "other",
}
"""The kind of each metric."""


class TransformableEvent(Protocol):
    """Event as far as a transformation reads and changes it."""

    event: str
    distinct_id: str
    properties: dict[str, Any]

    @property
    def uuid(self) -> UUID: ...

    @property
    def timestamp(self) -> datetime: ...


EventT = TypeVar("EventT", bound=TransformableEvent)

Record = Callable[[Sequence[AppMetric], Sequence[LogEntry]], None]
"""Function that stores logs and metrics of runs. Best effort: it must not raise."""

Watch = Callable[[str, float], None]
"""Function called for every run, and for slow filters and inputs, with function id and computing time in ms."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What watches transformations, and takes what they leave behind."""

    record: Record
    is_stopped: Callable[[str], bool]
    """Whether the circuit breaker has stopped a function, by its id: it is then skipped."""
    is_slowed: Callable[[str], bool]
    """Whether a function was slow for long, by its id: it is then given up earlier."""
    watch: Watch


class BodyRunner(Protocol):
    """Runs the programs of transformations in isolation."""

    def run(
        self,
        function_id: str,
        source: str,
        shared: bytes,
        events: Iterable[bytes],
        *,
        hurried: bool = False,
        most_s: float = math.inf,
    ) -> Generator[BodyRun, None, None]:
        """Yield one result for each event, in order.

        ``events`` are JSON objects with the globals of each run, ``shared`` is one with their common globals;
        ``hurried`` gives a slow program less time; ``most_s`` is the computing time after which the program is
        given up.
        """
        ...


@dataclass(slots=True)
class _Notes:
    """Logs, counts and computing time of the runs of one batch."""

    project_id: int
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    logs: list[LogEntry] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)
    quota: ComputeQuota = field(default_factory=ComputeQuota)
    slow_s: float = 0.0
    """Computing time of slow runs of all functions so far, in seconds."""
    allowed_s: float = math.inf
    """Computing time that all functions together may use, in seconds."""
    bodies_s: float = 0.0
    """Computing time of their programs so far, in the process that runs them, in seconds."""
    started: float = field(default_factory=thread_time)

    @property
    def used_s(self) -> float:
        """Computing time of the batch so far, in seconds: programs, filters, inputs, and passing events on."""
        return self.bodies_s + thread_time() - self.started

    @property
    def left_s(self) -> float:
        """Computing time left, in seconds."""
        return self.allowed_s - self.used_s

    def slow(self, used_s: float) -> None:
        self.slow_s += max(0.0, used_s - SLOW_RUN_S)

    def count(self, function: CompiledFunction, name: str) -> None:
        self.counts[function.id, name] += 1

    def metrics(self, now: datetime) -> list[AppMetric]:
        return [
            AppMetric(self.project_id, function_id, KINDS[name], name, count, now)
            for (function_id, name), count in self.counts.items()
        ]


@dataclass(slots=True, eq=False)
class _EventInFlight:
    """An event on its way through the functions.

    ``shown`` are the globals they see, made when they are first needed.
    """

    event: Any
    outcomes: dict[str, list[str]]
    shown: dict[str, Any] | None = None
    is_dropped: bool = False


class Transformations:
    """Runs the transformations of projects on batches of events.

    Filters and inputs are computed here, within the language's limits; programs are left to ``bodies``.
    """

    def __init__(
        self,
        registry: FunctionRegistry,
        bodies: BodyRunner,
        supervision: Supervision,
        shares: ComputeShares,
        *,
        site_url: str,
        now: Callable[[], datetime],
    ) -> None:
        """Create the transformations of all projects.

        ``shares`` bounds what projects that wait for each other may take.
        """
        self._registry = registry
        self._bodies = bodies
        self._supervision = supervision
        self._shares = shares
        self._site_url = site_url
        self._now = now
        self._notices = Notices(now)

    def transform(self, project_id: int, events: list[EventT]) -> list[EventT]:
        """Return the remaining events, in order, changed in place."""
        allowed_s = self._shares.allowed_s(project_id, len(events))
        functions = self._registry.for_project(project_id)
        if functions is None or not functions.transformations:
            return events
        notes = _Notes(project_id, allowed_s=allowed_s)
        flights = []
        for event in events:
            for name in (SUCCEEDED, FAILED, SKIPPED):
                event.properties.pop(name, None)
            flights.append(_EventInFlight(event, {SUCCEEDED: [], FAILED: [], SKIPPED: []}))
        left = flights
        for function in functions.transformations.functions:
            self._apply(function, left, notes)
            left = [flight for flight in left if not flight.is_dropped]
        self._shares.spent(project_id, notes.used_s, len(events))
        if notes.left_s < 0:
            _logger.warning(
                "transformations_over_share", project_id=project_id, used_s=round(notes.used_s, 1)
            )
        for flight in left:
            flight.event.properties.update({name: all_ for name, all_ in flight.outcomes.items() if all_})
        if notes.counts or notes.logs:
            self._supervision.record(notes.metrics(self._now()), notes.logs)
        return [flight.event for flight in left]

    def _globals(self, event: TransformableEvent, project_id: int) -> dict[str, Any]:
        properties = event.properties
        stamp = event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "project": {"id": project_id, "name": "", "url": self._site_url},
            "event": {
                "uuid": str(event.uuid),
                "event": event.event,
                "distinct_id": event.distinct_id,
                "properties": properties,
                "elements_chain": properties.get("$elements_chain") or "",
                "timestamp": stamp,
                "url": properties.get("$current_url") or "",
            },
        }

    def _apply(self, function: CompiledFunction, flights: Sequence[_EventInFlight], notes: _Notes) -> None:
        """Run one function on events, and apply its results to them."""
        label = f"{function.label} ({function.id})"
        hurried = notes.slow_s > PROJECT_SLOW_S or self._supervision.is_slowed(function.id)
        if hurried:
            notes.quota.hurry(function.filter)
            notes.quota.hurry(function.id)
        asked: deque[tuple[_EventInFlight, Redact]] = deque()

        def wanted() -> Iterator[bytes]:
            for flight in flights:
                outcome = self._prepare(function, flight, notes)
                if isinstance(outcome, str):
                    flight.outcomes[outcome].append(label)
                else:
                    text, redact = outcome
                    asked.append((flight, redact))
                    yield text

        shared: dict[str, Any] = {"project": {"id": notes.project_id, "name": "", "url": self._site_url}}
        if function.has_fixed_inputs:
            with suppress(*_INPUT_ERRORS):  # reported for each event
                shared["inputs"] = to_json(function.fixed_inputs[0])
        text = orjson.dumps(shared)
        runs = self._bodies.run(
            function.id,
            function.hog,
            text,
            wanted(),
            hurried=hurried,
            most_s=max(0.0, notes.left_s),
        )
        with closing(runs):
            for run in runs:
                flight, redact = asked.popleft()
                outcome = self._settle(function, flight, run, redact, notes)
                if outcome is None:
                    flight.is_dropped = True
                else:
                    flight.outcomes[outcome].append(label)
        notes.logs += [
            self._entry(notes, function, event_uuid, "warn", text, self._now())
            for event_uuid, text in self._notices.due(function.id)
        ]
        excess_s = sum(map(notes.quota.excess_s, (function.filter, function.id)))
        if excess_s:
            notes.slow_s += excess_s
            self._supervision.watch(function.id, (SLOW_RUN_S + excess_s) * 1_000)

    def _prepare(
        self, function: CompiledFunction, flight: _EventInFlight, notes: _Notes
    ) -> str | tuple[bytes, Redact]:
        """Return the globals of a run, as JSON, and the function that hides the secrets among them.

        Returns the name of the event's list of outcomes instead when the function does not run.
        """
        if self._supervision.is_stopped(function.id):
            notes.count(function, "disabled_permanently")
            return SKIPPED
        if notes.left_s < 0:
            self._give_up(function, flight.event, notes)
            return FAILED
        if flight.shown is None:
            flight.shown = self._globals(flight.event, notes.project_id)
        shown = flight.shown
        if not self._matches(function, shown, notes):
            return SKIPPED
        try:
            if function.has_fixed_inputs:
                return orjson.dumps({"event": shown["event"]}), function.fixed_inputs[1]
            event = {**shown["event"], "properties": from_json(shown["event"]["properties"])}
            variables = {"project": shown["project"], "event": event}
            inputs = notes.quota.attempt(function.id, lambda: function.build_inputs(variables))
            return orjson.dumps({"event": shown["event"], "inputs": to_json(inputs)}), function.redactor(
                inputs
            )
        except _INPUT_ERRORS as error:
            notes.count(function, "inputs_failed")
            text = f"Error building inputs: {function.input_failure(error)}"
            self._log(function, flight.event, [], text, str, notes)
            return FAILED

    def _matches(self, function: CompiledFunction, shown: dict[str, Any], notes: _Notes) -> bool:
        expression = function.filter.expression
        if expression is not None and not expression.required and not expression.entries:
            return True
        try:
            if function.filter.matches_in_time(filter_globals(shown), notes.quota):
                return True
        except FilterFailure as failure:
            notes.count(function, "filtering_failed")
            text = f"Error filtering event {shown['event']['uuid']}: {failure}"
            notes.logs.append(self._entry(notes, function, str(uuid4()), "error", text, self._now()))
            return False
        notes.count(function, "filtered")
        return False

    def _settle(
        self, function: CompiledFunction, flight: _EventInFlight, run: BodyRun, redact: Redact, notes: _Notes
    ) -> str | None:
        """Apply the result of a run. Return the event's list of outcomes, None for a dropped event."""
        event = flight.event
        result = None if run.value is None else orjson.loads(run.value)
        error = run.error
        if error is None and result is not None:
            error = _wrong_result(result)
        if not run.given_up:
            notes.slow(run.used_s)
            notes.bodies_s += run.used_s
            self._supervision.watch(function.id, run.used_s * 1_000)
        if (
            not run.given_up or function.id not in notes.given_up
        ):  # logged once: it may be thousands of events
            self._log(function, event, run.lines, error, redact, notes)
        if run.given_up:
            notes.given_up.add(function.id)
        if error is not None:
            notes.count(function, "failed")
            return FAILED
        notes.count(function, "succeeded")
        if result is None:
            notes.count(function, "dropped")
            if not run.returned:
                self._notices.without_value(function.id, str(event.uuid))
            return None
        seen = {} if flight.shown is None else flight.shown["event"]
        ignored = [name for name in result if name not in APPLIED and result[name] != seen.get(name)]
        if ignored:
            self._notices.ignored_members(function.id, str(event.uuid), [redact(name) for name in ignored])
        event.properties = result["properties"]
        event.event = result.get("event", event.event)
        event.distinct_id = result.get("distinct_id", event.distinct_id)
        flight.shown = None
        return SUCCEEDED

    def _give_up(self, function: CompiledFunction, event: TransformableEvent, notes: _Notes) -> None:
        """Skip an event, because the project has used its share."""
        notes.count(function, "failed")
        if function.id not in notes.given_up:
            notes.given_up.add(function.id)
            self._log(function, event, [], OVER_SHARE, str, notes)

    def _log(
        self,
        function: CompiledFunction,
        event: TransformableEvent,
        printed: Sequence[str],
        error: str | None,
        redact: Redact,
        notes: _Notes,
    ) -> None:
        lines = [("info", line) for line in printed]
        if error is not None:
            lines.append(("error", f"Error executing function on event {event.uuid}: {error}"))
        if not lines:
            return
        instance, now = str(event.uuid), self._now()
        for number, (level, text) in enumerate(lines):
            moment = now + number * _MILLISECOND
            notes.logs.append(self._entry(notes, function, instance, level, redact(text), moment))

    def _entry(
        self,
        notes: _Notes,
        function: CompiledFunction,
        instance: str,
        level: str,
        text: str,
        moment: datetime,
    ) -> LogEntry:
        return LogEntry(notes.project_id, function.id, instance, moment, level, text)


def _wrong_result(result: Any) -> str | None:
    """Return the problem of a transformation's result, None for a valid one."""
    if not isinstance(result, dict) or not isinstance(result.get("properties"), dict):
        return "Transformation must return an event object with properties, or null to drop the event"
    for name in ("event", "distinct_id"):
        if name in result and not isinstance(result[name], str):
            return f"Transformation must return an event whose {name} is a string"
    return None
