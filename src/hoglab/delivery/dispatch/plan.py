"""Plan of the runs that events cause, of which nothing is written yet (spec: hog-runtime 0)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import structlog

from hoglab.delivery.execution import clipped
from hoglab.delivery.runs.dead_letters import dead_letter, reason_of
from hoglab.delivery.runs.state import RunState, encode_state, key_of
from hoglab.fairness.compute_quota import ComputeQuota
from hoglab.storage.invocations import AppMetric, InvocationResult, LogEntry, MaskingCount, NewInvocation

if TYPE_CHECKING:
    from hoglab.delivery.dispatch.masking import Masked
    from hoglab.functions.runtime import CompiledFunction, FunctionSet
    from hoglab.storage.event_store.ingested import IngestedEvent
    from hoglab.storage.invocations import DeadLetter

METRIC_KINDS = {
    "triggered": "other",
    "filtered": "other",
    "filtering_failed": "other",
    "masked": "other",
    "inputs_failed": "failure",
    "queue_full": "failure",
    "disabled_permanently": "failure",
}

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """Counts of the events that a set of functions was evaluated on.

    Beside the total, the numbers of events that each function passed or failed on, by its place in the set.
    """

    functions: FunctionSet
    events: int
    hits: Counter[int]


def filtered_metrics(asked: Sequence[Asked], now: datetime) -> list[AppMetric]:
    """Return metrics of the events that filters rejected."""
    totals: Counter[tuple[int, str]] = Counter()
    by_set: dict[int, list[Asked]] = {}
    for question in asked:
        by_set.setdefault(id(question.functions), []).append(question)
    for questions in by_set.values():
        events = sum(question.events for question in questions)
        hits = sum((question.hits for question in questions), Counter[int]())
        for place, function in enumerate(questions[0].functions.functions):
            totals[function.project_id, function.id] += events - hits[place]
    name = "filtered"
    return [
        AppMetric(project_id, function_id, METRIC_KINDS[name], name, count, now)
        for (project_id, function_id), count in totals.items()
        if count
    ]


class Cause:
    """An event that starts functions, and the common data of its runs."""

    __slots__ = ("_states", "event", "globals", "key", "person_id", "uuid")

    def __init__(self, event: IngestedEvent, globals_: msgspec.Raw) -> None:
        row = event.row
        self.event = event
        self.globals = globals_
        self.uuid = str(row.uuid)
        self.key = key_of(row)
        self.person_id = None if row.person_id is None else str(row.person_id)
        self._states: dict[str | None, bytes] = {}

    def state(self, mapping_id: str | None) -> bytes:
        """Return the encoded state that a run starts with."""
        state = self._states.get(mapping_id)
        if state is None:
            state = self._states[mapping_id] = encode_state(
                RunState(
                    globals=self.globals,
                    event_uuid=self.uuid,
                    distinct_id=self.event.row.distinct_id,
                    person_id=self.person_id,
                    mapping_id=mapping_id,
                )
            )
        return state


@dataclass(slots=True)
class PlannedRun:
    """One run that is to happen unless it is masked."""

    id: str
    function: CompiledFunction
    mapping_id: str | None
    cause: Cause
    masked: Masked | None
    order_key: str | None


@dataclass(slots=True)
class DispatchPlan:
    """Consequences planned for some events. Nothing of it is written yet."""

    now: datetime
    source: str
    counts: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    logs: list[LogEntry] = field(default_factory=list)
    results: list[InvocationResult] = field(default_factory=list)
    candidates: list[PlannedRun] = field(default_factory=list)
    costs: Counter[str] = field(default_factory=Counter)
    quota: ComputeQuota = field(default_factory=ComputeQuota)
    stopped: set[str] = field(default_factory=set)
    """Ids of functions that the circuit breaker has stopped."""
    invocations: list[NewInvocation] = field(default_factory=list)
    masking: list[MaskingCount] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    retried: Sequence[str] = ()
    """Ids of dead letters that are retried by this plan."""
    asked: list[Asked] = field(default_factory=list)
    already_run: int = 0
    """Number of runs that are left out because they were begun before."""

    def count(self, function: CompiledFunction, name: str, number: int = 1) -> None:
        if number:
            self.counts[function.project_id, function.id, name] += number

    def log(self, function: CompiledFunction, level: str, text: str, event_uuid: str | None = None) -> None:
        """Add a log line; ``event_uuid`` is the event that it is about, under whose id it is found."""
        instance = event_uuid or str(uuid4())
        self.logs.append(LogEntry(function.project_id, function.id, instance, self.now, level, clipped(text)))

    def log_error(self, function: CompiledFunction, text: str, event_uuid: str | None = None) -> None:
        self.log(function, "error", text, event_uuid)

    def add_dead_letter(
        self, event: IngestedEvent, function: CompiledFunction | None, step: str, reason: str
    ) -> None:
        function_id = None if function is None else function.id
        self.dead.append(dead_letter(event, self.source, function_id, step, reason, self.now))

    def failed(self, event: IngestedEvent, function: CompiledFunction | None, error: Exception) -> None:
        """Make an event a dead letter because of an unexpected error."""
        reason = reason_of(error)
        if function is not None:
            self.log_error(function, f"Error preparing a run on event {event.row.uuid}: {reason}")
        if not any(letter.step == "process" for letter in self.dead):  # one traceback of a batch is enough
            _logger.error("event_became_dead_letter", event_uuid=str(event.row.uuid), exc_info=error)
        self.add_dead_letter(event, function, "process", reason)

    def metrics(self) -> list[AppMetric]:
        return [
            AppMetric(project_id, function_id, METRIC_KINDS[name], name, count, self.now)
            for (project_id, function_id, name), count in self.counts.items()
        ]
