"""Transformations: functions that change or drop events before anything else sees them (spec: hog-runtime 7.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID, uuid4

from hoglab.filters.hog import FilterFailure
from hoglab.functions.globals import filter_globals
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogSourceError, HogThrow
from hoglab.hog.rt.printing import is_truthy
from hoglab.hog.rt.values import from_json, to_json
from hoglab.hog.run import Execution, Finished
from hoglab.http.dates import utc_now
from hoglab.storage.invocations import AppMetric, LogEntry

if TYPE_CHECKING:
    from hoglab.functions.compile import CompiledFunction
    from hoglab.functions.redaction import Redact
    from hoglab.functions.registry import FunctionRegistry, ProjectFunctions

SUCCEEDED = "$transformations_succeeded"
FAILED = "$transformations_failed"
SKIPPED = "$transformations_skipped"

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
    """What a transformation sees and may change of an event."""

    event: str
    distinct_id: str
    properties: dict[str, Any]

    @property
    def uuid(self) -> UUID: ...

    @property
    def timestamp(self) -> datetime: ...


EventT = TypeVar("EventT", bound=TransformableEvent)

Record = Callable[[Sequence[AppMetric], Sequence[LogEntry]], None]
"""Keeps what runs leave behind. Best effort: it must not raise."""

Watch = Callable[[str, float], None]
"""Told of every run: function id and computing time in milliseconds."""


@dataclass(slots=True)
class _Notes:
    """What the runs of one batch leave behind."""

    project_id: int
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    logs: list[LogEntry] = field(default_factory=list)
    fixed: dict[CompiledFunction, tuple[dict[str, Any], Redact]] = field(default_factory=dict)

    def count(self, function: CompiledFunction, name: str) -> None:
        self.counts[function.id, name] += 1

    def metrics(self, now: datetime) -> list[AppMetric]:
        return [
            AppMetric(self.project_id, function_id, KINDS[name], name, count, now)
            for (function_id, name), count in self.counts.items()
        ]


@dataclass(frozen=True, slots=True)
class _Run:
    """How one function fared on one event. ``value`` is what it returned, when nothing went wrong."""

    value: Any = None
    error: str | None = None
    metric: str = "failed"
    printed: Sequence[str] = ()
    redact: Redact = str


class Transformations:
    """Runs the transformations of projects on batches of events, in this process, within the language's limits."""

    def __init__(
        self,
        registry: FunctionRegistry,
        *,
        record: Record = lambda _metrics, _logs: None,
        is_stopped: Callable[[str], bool] = lambda _function_id: False,
        watch: Watch = lambda _function_id, _ms: None,
        site_url: str = "http://localhost:8000",
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """``is_stopped``: whether the watcher has stopped a function, so that it is passed over."""
        self._registry = registry
        self._record = record
        self._is_stopped = is_stopped
        self._watch = watch
        self._site_url = site_url
        self._now = now

    def transform(self, project_id: int, events: list[EventT]) -> list[EventT]:
        """The events that are left, in order, changed in place."""
        functions = self._registry.for_project(project_id)
        if functions is None or not functions.transformations:
            return events
        notes = _Notes(project_id)
        kept = [event for event in events if self._transform(event, functions, notes)]
        if notes.counts or notes.logs:
            self._record(notes.metrics(self._now()), notes.logs)
        return kept

    def _transform(self, event: TransformableEvent, functions: ProjectFunctions, notes: _Notes) -> bool:
        """Run every function on one event; False when one of them drops it."""
        for name in (SUCCEEDED, FAILED, SKIPPED):
            event.properties.pop(name, None)
        outcomes: dict[str, list[str]] = {SUCCEEDED: [], FAILED: [], SKIPPED: []}
        shown = self._globals(event, functions)
        for function in functions.transformations.functions:
            outcome = self._apply(function, event, shown, notes)
            if outcome is None:
                return False
            outcomes[outcome].append(f"{function.label} ({function.id})")
            if outcome == SUCCEEDED:
                shown = self._globals(event, functions)
        for name, labels in outcomes.items():
            if labels:
                event.properties[name] = labels
        return True

    def _globals(self, event: TransformableEvent, functions: ProjectFunctions) -> dict[str, Any]:
        properties = event.properties
        stamp = event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "project": {"id": functions.project.id, "name": "", "url": self._site_url},
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

    def _apply(
        self, function: CompiledFunction, event: TransformableEvent, shown: dict[str, Any], notes: _Notes
    ) -> str | None:
        """Run one function and take over its result. Which list it goes into, None for a dropped event."""
        if self._is_stopped(function.id):
            notes.count(function, "disabled_permanently")
            return SKIPPED
        if not self._matches(function, shown, notes):
            return SKIPPED
        run = self._run(function, shown, notes)
        result, error = run.value, run.error
        if error is None and is_truthy(result):
            error = _wrong_result(result)
        self._log(function, event, run, error, notes)
        if error is not None:
            notes.count(function, run.metric)
            return FAILED
        notes.count(function, "succeeded")
        if not is_truthy(result):
            notes.count(function, "dropped")
            return None
        event.properties = result["properties"]
        event.event = result.get("event", event.event)
        event.distinct_id = result.get("distinct_id", event.distinct_id)
        return SUCCEEDED

    def _matches(self, function: CompiledFunction, shown: dict[str, Any], notes: _Notes) -> bool:
        expression = function.filter.expression
        if expression is not None and not expression.required and not expression.entries:
            return True
        try:
            if function.filter.matches(filter_globals(shown)):
                return True
        except FilterFailure as failure:
            notes.count(function, "filtering_failed")
            text = f"Error filtering event {shown['event']['uuid']}: {failure}"
            notes.logs.append(self._entry(notes, function, str(uuid4()), "error", text, self._now()))
            return False
        notes.count(function, "filtered")
        return False

    def _run(self, function: CompiledFunction, shown: dict[str, Any], notes: _Notes) -> _Run:
        """Build the inputs and run the program to its end."""
        try:
            variables: dict[str, Any] = {
                "project": shown["project"],
                "event": {**shown["event"], "properties": from_json(shown["event"]["properties"])},
            }
        except HogRuntimeError as error:
            return _Run(error=error.message)
        try:
            inputs, redact = self._inputs(function, variables, notes)
        except (HogRuntimeError, HogLimit, HogThrow) as error:
            text = f"Error building inputs: {function.input_failure(error)}"
            return _Run(error=text, metric="inputs_failed")
        seed = f"{function.id}{variables['event']['uuid']}"
        try:
            execution = Execution(function.program, {**variables, "inputs": inputs}, seed=seed)
        except HogSourceError as error:
            return _Run(error=error.message, redact=redact)
        outcome = execution.start()
        if not isinstance(outcome, Finished):
            outcome = execution.fail(f"Unknown async function '{outcome.name}'")
        result = outcome.result
        self._watch(function.id, result.duration_us / 1_000)
        error_text = None if result.error is None else result.error.message
        value = None
        if error_text is None:
            try:
                value = to_json(result.value)
            except HogRuntimeError as error:
                error_text = error.message
        return _Run(value, error_text, "failed", result.printed, redact)

    def _inputs(
        self, function: CompiledFunction, variables: Mapping[str, Any], notes: _Notes
    ) -> tuple[dict[str, Any], Redact]:
        """The inputs of a run and what hides their secrets; if no event changes them, computed once a batch."""
        found = notes.fixed.get(function)
        if found is None:
            inputs = function.build_inputs(variables)
            found = inputs, function.redactor(inputs)
            if function.has_fixed_inputs:
                notes.fixed[function] = found
        return found

    def _log(
        self,
        function: CompiledFunction,
        event: TransformableEvent,
        run: _Run,
        error: str | None,
        notes: _Notes,
    ) -> None:
        lines = [("info", line) for line in run.printed]
        if error is not None:
            lines.append(("error", f"Error executing function on event {event.uuid}: {error}"))
        if not lines:
            return
        instance, now = str(uuid4()), self._now()
        for number, (level, text) in enumerate(lines):
            moment = now + number * _MILLISECOND
            notes.logs.append(self._entry(notes, function, instance, level, run.redact(text), moment))

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
    """What is wrong with what a transformation returned, None when it can be taken over."""
    if not isinstance(result, dict) or not isinstance(result.get("properties"), dict):
        return "Transformation must return an event object with properties, or null to drop the event"
    for name in ("event", "distinct_id"):
        if name in result and not isinstance(result[name], str):
            return f"Transformation must return an event whose {name} is a string"
    return None
