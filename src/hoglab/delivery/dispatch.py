"""From newly stored events to invocations in the queue (spec: hog-runtime 0)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from prometheus_client import Counter as Metric

from hoglab.delivery.globals import EventGlobals, GroupProperties, Site, quick_globals
from hoglab.delivery.masking import Masked, decide, mask_of
from hoglab.delivery.program_run import MAX_ERROR_CHARS, clipped
from hoglab.delivery.results import INPUTS_FAILED, Versions, kept_globals
from hoglab.delivery.state import State, Timing, encode_state, invocation_id, raw_json
from hoglab.delivery.watcher import cost_of
from hoglab.filters.hog import FilterFailure
from hoglab.functions.globals import filter_globals
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt.values import from_json
from hoglab.http.dates import utc_now
from hoglab.storage.invocations import AppMetric, InvocationResult, LogEntry, MaskingCount, NewInvocation

if TYPE_CHECKING:
    from hoglab.delivery.globals import KnownProject, People
    from hoglab.delivery.watcher import Watcher
    from hoglab.functions.compile import CompiledFunction, CompiledMapping, FunctionSet
    from hoglab.functions.registry import FunctionRegistry, ProjectFunctions
    from hoglab.storage.event_store.ingested import IngestedEvent
    from hoglab.storage.invocations import InvocationQueue

CONSUMER = "dispatch"
"""Name of the dispatcher's position in the event log."""

MAX_BACKLOG = 100_000
"""With more invocations unfinished, ingestion waits until the worker has caught up with those that are due;
capture goes on until the event log is full."""
MAX_WAITING = 1_000_000
"""With more unfinished, ingestion waits even if they only sleep."""
CAUGHT_UP = timedelta(seconds=5)
"""The worker has caught up when nothing is due for longer."""

FRESH_PRIORITY, DEGRADED_PRIORITY = 0, 2
OVERFLOW_QUEUE = "hogoverflow"
"""Where functions go that are slow, so that they hold up nobody else."""

METRIC_KINDS = {
    "triggered": "other",
    "filtered": "other",
    "filtering_failed": "other",
    "masked": "other",
    "inputs_failed": "failure",
    "disabled_permanently": "failure",
}

_DISPATCHED = Metric(
    "hoglab_delivery_dispatched", "What became of functions asked about events.", ["outcome"]
)


@dataclass(slots=True)
class Candidate:
    """One run that is to happen unless it is masked."""

    project_id: int
    function: CompiledFunction
    mapping: CompiledMapping | None
    event: IngestedEvent
    globals: msgspec.Raw
    masked: Masked | None


@dataclass(slots=True)
class _Batch:
    """What one call of `Dispatcher.dispatch` is going to write."""

    now: datetime
    counts: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    logs: list[LogEntry] = field(default_factory=list)
    results: list[InvocationResult] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    costs: Counter[str] = field(default_factory=Counter)

    def count(self, function: CompiledFunction, name: str, number: int = 1) -> None:
        if number:
            self.counts[function.project_id, function.id, name] += number

    def log_error(self, function: CompiledFunction, text: str, instance_id: str | None = None) -> None:
        self.logs.append(
            LogEntry(
                function.project_id,
                function.id,
                instance_id or str(uuid4()),
                self.now,
                "error",
                clipped(text),
            )
        )

    def metrics(self) -> list[AppMetric]:
        return [
            AppMetric(project_id, function_id, METRIC_KINDS[name], name, count, self.now)
            for (project_id, function_id, name), count in self.counts.items()
        ]


@dataclass(frozen=True, slots=True)
class Audience:
    """Who is asked about events. ``functions``: those of a project; ``globals``: makes what they see of an event."""

    functions: Callable[[ProjectFunctions], FunctionSet]
    globals: Callable[[KnownProject, IngestedEvent], dict[str, Any]]


class EventDispatcher:
    """Asks the functions of projects about events and enqueues what they are to do: the destinations, unless another
    audience is named.

    Used by one thread: that of ingestion calls `dispatch` for each batch that it has stored.
    """

    def __init__(
        self,
        queue: InvocationQueue,
        registry: FunctionRegistry,
        people: People,
        watcher: Watcher,
        site: Site,
        *,
        versions: Versions | None = None,
        audience: Audience | None = None,
        max_backlog: int = MAX_BACKLOG,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._watcher = watcher
        self._groups = GroupProperties(people)
        self._audience = audience or Audience(
            attrgetter("destinations"), EventGlobals(site, people, self._groups).of
        )
        self._site = site
        self._versions = versions or Versions()
        self._max_backlog = max_backlog
        self._now = now

    # --- what ingestion calls

    def position(self) -> int:
        """The log offset up to which everything was dispatched, 0 at first."""
        return self._queue.position(CONSUMER)

    def has_room(self) -> bool:
        """Whether more may be enqueued now. Invocations that sleep or wait for their next attempt are no load."""
        backlog = self._queue.backlog()
        if backlog < self._max_backlog or backlog >= MAX_WAITING:
            return backlog < self._max_backlog
        due = self._queue.next_due()
        return due is None or due > self._now() - CAUGHT_UP

    def dispatch(self, events: Sequence[IngestedEvent], *, log_offset: int | None) -> None:
        """Enqueue the runs that events cause, and the position, in one transaction.

        Events that come from elsewhere than the event log have no position.
        """
        batch = _Batch(self._now())
        by_project: dict[int, list[IngestedEvent]] = {}
        for event in events:
            by_project.setdefault(event.row.project_id, []).append(event)
        for project_id, ours in by_project.items():
            functions = self._registry.for_project(project_id)
            if functions is not None and self._audience.functions(functions):
                self._ask(functions, ours, batch)
        invocations, masking = self._unmasked(batch)
        self._queue.enqueue(
            invocations,
            consumer=None if log_offset is None else CONSUMER,
            log_offset=log_offset,
            metrics=batch.metrics(),
            logs=batch.logs,
            results=batch.results,
            masking=masking,
        )
        for (_, _, name), count in batch.counts.items():
            _DISPATCHED.labels(name).inc(count)
        if batch.costs:
            self._watcher.observe(batch.costs)

    # --- filters

    def _ask(self, functions: ProjectFunctions, events: Sequence[IngestedEvent], batch: _Batch) -> None:
        asked = self._audience.functions(functions)
        reads = asked.reads
        hits: Counter[int] = Counter()
        for event in events:
            if not asked.dispatcher.concerns(event.row.event):
                continue
            seen = filter_globals(quick_globals(event, self._groups, reads), reads)
            matches = asked.dispatcher.match(seen)
            for place, message in matches.failed:
                hits[place] += 1
                batch.count(asked.functions[place], "filtering_failed")
                batch.log_error(asked.functions[place], f"Error filtering event {event.row.uuid}: {message}")
            if matches.matched:
                hits.update(matches.matched)
                matched = [asked.functions[place] for place in matches.matched]
                self._matched(functions, matched, event, seen, batch)
        for place, function in enumerate(asked.functions):
            batch.count(function, "filtered", len(events) - hits[place])

    def _matched(
        self,
        functions: ProjectFunctions,
        matched: Sequence[CompiledFunction],
        event: IngestedEvent,
        seen: dict[str, Any],
        batch: _Batch,
    ) -> None:
        """Build the runs of one event."""
        made = self._audience.globals(functions.project, event)
        raw = raw_json(made)
        values: dict[str, Any] | None = None
        for function in matched:
            for mapping in self._mappings(function, event, seen, batch):
                if values is None:
                    values = from_json(made)
                    values.setdefault("person", None)
                self._candidate(function, mapping, event, values, raw, batch)

    def _mappings(
        self, function: CompiledFunction, event: IngestedEvent, seen: dict[str, Any], batch: _Batch
    ) -> list[CompiledMapping | None]:
        """The mappings that apply; one None for a function without any."""
        if function.mappings is None:
            return [None]
        found: list[CompiledMapping | None] = []
        for mapping in function.mappings:
            try:
                if mapping.filter.matches(seen):
                    found.append(mapping)
                else:
                    batch.count(function, "filtered")
            except FilterFailure as failure:
                batch.count(function, "filtering_failed")
                batch.log_error(function, f"Error filtering event {event.row.uuid}: {failure}")
        return found

    # --- inputs, watcher, masking

    def _candidate(
        self,
        function: CompiledFunction,
        mapping: CompiledMapping | None,
        event: IngestedEvent,
        values: dict[str, Any],
        raw: msgspec.Raw,
        batch: _Batch,
    ) -> None:
        """Build the inputs, which must succeed, ask the watcher, and find out what masking counts."""
        globals_ = {**values, "source": self._site.source(function)}
        try:
            if not function.has_fixed_inputs or mapping is not None or function.masking is not None:
                started = perf_counter()
                globals_["inputs"] = function.build_inputs(globals_, mapping)
                took_ms = (perf_counter() - started) * 1000
                batch.costs[function.id] += cost_of([Timing("hog", took_ms)])
        except (HogRuntimeError, HogThrow, HogLimit) as error:
            self._inputs_failed(function, mapping, event, raw, error, batch)
            return
        if self._watcher.is_disabled(function.id):
            batch.count(function, "disabled_permanently")
            return
        masked = None if function.masking is None else mask_of(function.id, function.masking, globals_)
        batch.candidates.append(Candidate(function.project_id, function, mapping, event, raw, masked))

    def _inputs_failed(
        self,
        function: CompiledFunction,
        mapping: CompiledMapping | None,
        event: IngestedEvent,
        raw: msgspec.Raw,
        error: Exception | HogLimit,
        batch: _Batch,
    ) -> None:
        """Count and log it, and keep what it takes to run it once the inputs are mended."""
        uuid = str(event.row.uuid)
        message = function.input_failure(error)
        index = None if mapping is None else mapping.index
        run_id = invocation_id(function.id, uuid, index)
        batch.count(function, "inputs_failed")
        batch.log_error(function, f"Error building inputs for event {uuid}: {message}")
        batch.results.append(
            InvocationResult(
                invocation_id=run_id,
                project_id=function.project_id,
                function_id=function.id,
                status="failed",
                attempts=1,
                version=self._versions.next(batch.now),
                scheduled_at=batch.now,
                first_scheduled_at=batch.now,
                finished_at=batch.now,
                duration_ms=0,
                error_kind=INPUTS_FAILED,
                error_message=clipped(message, MAX_ERROR_CHARS),
                event_uuid=uuid,
                distinct_id=event.row.distinct_id,
                person_id=None if event.row.person_id is None else str(event.row.person_id),
                invocation_globals=kept_globals(raw, index),
            )
        )

    def _unmasked(self, batch: _Batch) -> tuple[list[NewInvocation], list[MaskingCount]]:
        candidates = batch.candidates
        keys = list(dict.fromkeys(one.masked.key for one in candidates if one.masked is not None))
        known = {(one.function_id, one.hash): one for one in self._queue.masking_counts(keys)} if keys else {}
        passed, counts = decide([one.masked for one in candidates], known, batch.now)
        invocations = []
        for candidate, passes in zip(candidates, passed, strict=True):
            batch.count(candidate.function, "triggered" if passes else "masked")
            if passes:
                invocations.append(self._invocation(candidate))
        return invocations, counts

    def _invocation(self, candidate: Candidate) -> NewInvocation:
        row, function = candidate.event.row, candidate.function
        uuid = str(row.uuid)
        mapping = None if candidate.mapping is None else candidate.mapping.index
        degraded = self._watcher.is_degraded(function.id)
        state = State(
            globals=candidate.globals,
            event_uuid=uuid,
            distinct_id=row.distinct_id,
            person_id=None if row.person_id is None else str(row.person_id),
            mapping=mapping,
        )
        return NewInvocation(
            id=invocation_id(function.id, uuid, mapping),
            project_id=candidate.project_id,
            function_id=function.id,
            state=encode_state(state),
            queue=OVERFLOW_QUEUE if degraded else "hog",
            priority=DEGRADED_PRIORITY if degraded else FRESH_PRIORITY,
            log_offset=row.log_offset,
        )
