"""From newly stored events to invocations in the queue (spec: hog-runtime 0)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import structlog
from prometheus_client import Counter as Metric

from hoglab.delivery.dispatch.masking import decide, mask_of
from hoglab.delivery.dispatch.plan import Asked, Cause, DispatchPlan, PlannedRun, filtered_metrics
from hoglab.delivery.dispatch.restarts import REASON, Restarts
from hoglab.delivery.execution import BATCH_QUEUE, MAX_ERROR_CHARS, clipped
from hoglab.delivery.limits.function_breaker import cost_of
from hoglab.delivery.runs import Heartbeat
from hoglab.delivery.runs.dead_letters import EVENTS, dead_id, dead_letter
from hoglab.delivery.runs.globals import quick_globals
from hoglab.delivery.runs.results import INPUTS_FAILED, QUEUE_FULL, kept_globals
from hoglab.delivery.runs.state import Timing, invocation_id, key_of, raw_json
from hoglab.fairness.compute_quota import SLOW_RUN_S, ComputeQuota
from hoglab.filters.hog import FilterFailure
from hoglab.functions.runtime import filter_globals
from hoglab.functions.status import DEGRADED_STATE, DISABLED_STATE
from hoglab.hog import HogLimit, HogRuntimeError, HogThrow, from_json
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.invocations import (
    ConsumerPosition,
    InvocationBatch,
    InvocationResult,
    MaskingMovedError,
    NewInvocation,
)

if TYPE_CHECKING:
    from hoglab.delivery.execution import RunContext
    from hoglab.delivery.limits import Backpressure
    from hoglab.delivery.limits.function_breaker import FunctionBreakers
    from hoglab.delivery.runs.globals import EventGlobals, GroupProperties
    from hoglab.fairness.compute_shares import ComputeShares
    from hoglab.functions.runtime import (
        CompiledFunction,
        CompiledMapping,
        FunctionSet,
        ProjectFunctions,
    )
    from hoglab.http.identity import Project
    from hoglab.storage.event_log.partitions import PartitionDone
    from hoglab.storage.event_store.ingested import IngestedEvent
    from hoglab.storage.invocations import DeadLetter, InvocationStores, JobStep

T = TypeVar("T")

CONSUMER = "dispatch"
"""Name of the dispatcher's position in the event log."""

FRESH_PRIORITY, DEGRADED_PRIORITY = 0, 2
FILTERED_EVERY_S = 1.0
"""Interval at which metrics of events that filters rejected are written while events arrive.

Written with each batch, they would be a row for each function that does not run; the end of the process may lose
the metrics of the last second.
"""
OVERFLOW_QUEUE = "hogoverflow"
"""Queue of slow functions, so that they delay no others."""

Reached: TypeAlias = "ConsumerPosition | PartitionDone"
"""Function that returns the offset in the event log up to which everything is dispatched."""
NO_EVENTS_FAULT = (DatabaseError, MemoryError, OSError)
"""Errors that another event would meet as well: the event waits until they are over."""

_logger = structlog.get_logger(__name__)

_PUT_ASIDE = Metric("hoglab_delivery_dead_events", "Events put aside on their way to a function.", ["step"])
_DISPATCHED = Metric(
    "hoglab_delivery_dispatched", "Functions that were asked about events, by outcome.", ["outcome"]
)


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The functions that are evaluated on events, and the globals that they see.

    ``functions`` returns those of a project, ``globals`` makes the globals of an event, ``groups`` has the properties
    of its groups, ``source`` says where the events come from.
    """

    functions: Callable[[ProjectFunctions], FunctionSet]
    globals: Callable[[Project, IngestedEvent], dict[str, Any]]
    groups: GroupProperties
    source: str = EVENTS


def stored_subscribers(event_globals: EventGlobals) -> Subscribers:
    """Return the destinations, which are evaluated on stored events."""
    return Subscribers(attrgetter("destinations"), event_globals.of, event_globals.groups)


class EventDispatcher:
    """Evaluates the functions of projects on events and enqueues their runs.

    Used by one thread: that of ingestion calls `dispatch` for each batch that it has stored.
    """

    def __init__(
        self,
        stores: InvocationStores,
        context: RunContext,
        function_breakers: FunctionBreakers,
        backpressure: Backpressure,
        subscribers: Subscribers,
        shares: ComputeShares,
        *,
        once: bool = False,
    ) -> None:
        """Create a dispatcher.

        With ``once``, runs that were begun before are left out, not only those that are still in the queue.
        ``shares`` bounds the computing time of projects that wait for each other; quick runs (`QUICK_RUN_S`) do not
        count, whatever their number.
        """
        self._queue = stores.queue
        self._run_store = stores.runs
        self._dead_letters = stores.dead_letters
        self._registry = context.registry
        self._function_breakers = function_breakers
        self._backpressure = backpressure
        self._subscribers = subscribers
        self._site = context.site
        self._versions = context.versions
        self._once = once
        self._shares = shares
        self._restarts: dict[int | None, Restarts] = {}
        self.progress = Heartbeat()
        """Progress of `dispatch`."""
        self._now = context.now
        self._asked: list[Asked] = []
        self._asked_since = -math.inf

    # --- what ingestion calls

    def position(self) -> SequenceNumber:
        """Return the log offset up to which everything was dispatched; 0 at first."""
        return SequenceNumber(self._queue.position(CONSUMER))

    def has_capacity(self) -> bool:
        """Return whether more may be enqueued now; if not, events wait where they are."""
        return self._backpressure.for_any()

    def dispatch(
        self,
        events: Sequence[IngestedEvent],
        *,
        log_offset: SequenceNumber | None,
        dead: Sequence[DeadLetter] = (),
        done: PartitionDone | None = None,
    ) -> None:
        """Enqueue the runs that events cause, and the position, in one transaction.

        Events from elsewhere than the log have no position; of a partition, ``done`` is the stored one. The position
        moves also when nothing is to be run, and an event that is seen twice is enqueued once. An event that
        no runs can be made of becomes a dead letter, as do the events in ``dead``. Raises `DatabaseError`.
        """
        reached = None if log_offset is None else done or ConsumerPosition(CONSUMER, log_offset)
        self.progress.beat()
        try:
            if log_offset is not None:
                restarts = self._restarts_of(done)
                if events and restarts.are_suspicious(self.position() if done is None else log_offset):
                    self._dispatch_with_care(events)
                    events = ()
            self._dispatch(events, reached, dead)
            if log_offset is not None:
                restarts.got_beyond()
        finally:
            self.progress.rest()

    def _restarts_of(self, done: PartitionDone | None) -> Restarts:
        partition = None if done is None else done.lease.partition
        if partition not in self._restarts:
            self._restarts[partition] = Restarts(self._queue, partition)
        return self._restarts[partition]

    def _dispatch(
        self, events: Sequence[IngestedEvent], reached: Reached | None, dead: Sequence[DeadLetter]
    ) -> None:
        def write(plan: DispatchPlan) -> None:
            plan.dead += dead
            self.commit(plan, reached)

        try:
            self.carry_out(events, write)
        except NO_EVENTS_FAULT:
            raise
        except Exception:
            _logger.exception("events_dispatched_one_by_one", count=len(events))
            for event in events:
                self._dispatch_alone(event)
            plan = DispatchPlan(self._now(), self._subscribers.source)
            plan.dead += dead
            self.commit(plan, reached)

    def dry_run(self, events: Sequence[IngestedEvent]) -> None:
        """Plan the runs that events would cause, and write nothing. Raises the errors of `dispatch`."""
        self.plan(events)

    def _dispatch_with_care(self, events: Sequence[IngestedEvent]) -> None:
        """Dispatch events one by one, each a dead letter until it is done: one that ends the server stays there."""
        source = self._subscribers.source
        ids = {dead_id(source, key_of(event.row), None): event for event in events}
        known = self._dead_letters.known(list(ids))
        for kept_id, event in ids.items():
            if kept_id in known or self._registry.for_project(event.row.project_id) is None:
                continue
            suspect = dead_letter(event, source, None, "process", REASON, self._now())
            self._queue.enqueue(InvocationBatch(dead=[suspect]))
            self._dispatch_alone(event)
            self._queue.enqueue(InvocationBatch(retried=[kept_id]))

    def _dispatch_alone(self, event: IngestedEvent) -> None:
        try:
            self.carry_out([event], self.commit)
        except NO_EVENTS_FAULT:
            raise
        except Exception as error:
            plan = DispatchPlan(self._now(), self._subscribers.source)
            plan.failed(event, None, error)
            self.commit(plan)

    def carry_out(self, events: Sequence[IngestedEvent], write: Callable[[DispatchPlan], T]) -> T:
        """Plan the runs that events cause and let ``write`` commit them.

        Plans again when another plan for the same masking was committed meanwhile. Raises what ``write`` raises,
        which has changed nothing then.
        """
        while True:
            plan = self.plan(events)
            with suppress(MaskingMovedError):
                return write(plan)

    def plan(self, events: Sequence[IngestedEvent]) -> DispatchPlan:
        """Return the plan of the runs that events cause. Changes nothing."""
        batch = DispatchPlan(self._now(), self._subscribers.source)
        by_project: dict[int, list[IngestedEvent]] = {}
        for event in events:
            by_project.setdefault(event.row.project_id, []).append(event)
        for project_id, ours in by_project.items():
            functions = self._registry.for_project(project_id)
            if functions is not None and self._subscribers.functions(functions):
                self._ask(functions, ours, batch)
        self._decide(batch)
        return batch

    def commit(
        self, plan: DispatchPlan, reached: Reached | None = None, *, step: JobStep | None = None
    ) -> int:
        """Write everything in one transaction. Return how many invocations are new.

        Raises `JobOverError`, and `MaskingMovedError` when another plan for the same masking was committed
        meanwhile.
        """
        asked = [*self._asked, *plan.asked]
        is_due = reached is None or time.monotonic() - self._asked_since >= FILTERED_EVERY_S
        new = self._queue.enqueue(
            InvocationBatch(
                plan.invocations,
                position=reached,
                metrics=[*plan.metrics(), *(filtered_metrics(asked, plan.now) if is_due else ())],
                logs=plan.logs,
                results=plan.results,
                masking=plan.masking,
                dead=plan.dead,
                retried=plan.retried,
                step=step,
            )
        )
        self._asked = [] if is_due else asked
        if is_due:
            self._asked_since = time.monotonic()
        totals = Counter(
            filtered=sum(len(asked.functions) * asked.events - asked.hits.total() for asked in plan.asked)
        )
        for (_, _, name), count in plan.counts.items():
            totals[name] += count
        for name, count in totals.items():
            _DISPATCHED.labels(name).inc(count)
        for dead in plan.dead:
            _PUT_ASIDE.labels(dead.step).inc()
        if plan.costs:
            self._function_breakers.observe(plan.costs)
        return new

    def flush(self) -> None:
        """Write the metrics that wait for more events. Raises `DatabaseError`."""
        if self._asked:
            self._run_store.write_metrics(filtered_metrics(self._asked, self._now()))
            self._asked = []

    # --- filters

    def _ask(self, functions: ProjectFunctions, events: Sequence[IngestedEvent], batch: DispatchPlan) -> None:
        asked = self._subscribers.functions(functions)
        project_id = functions.project.id
        allowed_s = self._shares.allowed_s(project_id)
        batch.quota = ComputeQuota(allowed_s)
        self._hold_back(asked, batch)
        hits: Counter[int] = Counter()
        for event in events:
            if not asked.dispatcher.concerns(event.row.event):
                continue
            self.progress.beat()
            try:
                self._ask_about(event, functions, asked, hits, batch)
            except NO_EVENTS_FAULT:
                raise
            except Exception as error:
                batch.failed(event, None, error)
        batch.asked.append(Asked(asked, len(events), hits))
        if batch.quota.was_tried():
            for function in asked.functions:
                self._charge(function, batch)
        self._shares.spent(project_id, batch.quota.shared_s)
        if batch.quota.shared_s > allowed_s:
            _logger.warning(
                "filters_and_inputs_over_share",
                project_id=project_id,
                used_s=round(batch.quota.shared_s, 1),
            )

    def _hold_back(self, asked: FunctionSet, batch: DispatchPlan) -> None:
        """Give functions that were slow for long less time: a stopped function must not cost more."""
        states = self._function_breakers.restrained()
        for function in asked.functions if states else ():
            state = states.get(function.id)
            if state == DISABLED_STATE:
                batch.stopped.add(function.id)
                for compiled in function.filters():
                    batch.quota.refuse(compiled)
            elif state == DEGRADED_STATE:
                for key in (function.id, *function.filters()):
                    batch.quota.hurry(key)

    def _charge(self, function: CompiledFunction, batch: DispatchPlan) -> None:
        """Report the cost of a function's filters, inputs and keys to the circuit breaker."""
        keys = (function.id, *function.filters())
        excess_s = sum(map(batch.quota.excess_s, keys))
        if not excess_s:
            return
        slow_s = [used_s for key in keys for used_s in batch.quota.slow_runs(key)]
        runs_s = slow_s or [SLOW_RUN_S + excess_s]
        batch.costs[function.id] += cost_of(Timing("hog", used_s * 1_000) for used_s in runs_s)
        if function.id not in batch.stopped and any(map(batch.quota.is_over, keys)):
            text = f"Filters or inputs took {excess_s:.1f} s too long on a batch of events and were given up."
            batch.log(function, "warn", f"{text} A function that is slow for long is stopped.")
            _logger.warning(
                "filters_or_inputs_given_up",
                project_id=function.project_id,
                function_id=function.id,
                too_long_s=round(excess_s, 1),
            )

    def _ask_about(
        self,
        event: IngestedEvent,
        functions: ProjectFunctions,
        asked: FunctionSet,
        hits: Counter[int],
        batch: DispatchPlan,
    ) -> None:
        reads = asked.reads
        seen = filter_globals(quick_globals(event, self._subscribers.groups, reads), reads)
        matches = asked.dispatcher.match(seen, batch.quota)
        for place, message in matches.failed:
            hits[place] += 1
            self._filter_failed(asked.functions[place], event, message, batch)
        if matches.matched:
            hits.update(matches.matched)
            matched = [asked.functions[place] for place in matches.matched]
            self._matched(functions, matched, event, seen, batch)

    def _matched(
        self,
        functions: ProjectFunctions,
        matched: Sequence[CompiledFunction],
        event: IngestedEvent,
        seen: dict[str, Any],
        batch: DispatchPlan,
    ) -> None:
        """Build the runs of one event."""
        globals_ = self._subscribers.globals(functions.project, event)
        cause = Cause(event, raw_json(globals_))
        values: dict[str, Any] | None = None
        for function in matched:
            try:
                for mapping in self._mappings(function, event, seen, batch):
                    if values is None:
                        values = from_json(globals_)
                        values.setdefault("person", None)
                    self._candidate(function, mapping, cause, values, batch)
            except NO_EVENTS_FAULT:
                raise
            except Exception as error:
                batch.failed(event, function, error)

    def _mappings(
        self, function: CompiledFunction, event: IngestedEvent, seen: dict[str, Any], batch: DispatchPlan
    ) -> list[CompiledMapping | None]:
        """Return the mappings that apply; [None] for a function without mappings."""
        if function.mappings is None:
            return [None]
        mappings: list[CompiledMapping | None] = []
        for mapping in function.mappings:
            try:
                if mapping.filter.matches_in_time(seen, batch.quota):
                    mappings.append(mapping)
                else:
                    batch.count(function, "filtered")
            except FilterFailure as failure:
                self._filter_failed(function, event, str(failure), batch)
        return mappings

    def _filter_failed(
        self, function: CompiledFunction, event: IngestedEvent, message: str, batch: DispatchPlan
    ) -> None:
        if function.id in batch.stopped:
            batch.count(function, "disabled_permanently")
            return
        batch.count(function, "filtering_failed")
        batch.log_error(function, f"Error filtering event {event.row.uuid}: {message}", str(event.row.uuid))
        batch.add_dead_letter(event, function, "filter", message)

    # --- inputs, circuit breaker, masking

    def _candidate(
        self,
        function: CompiledFunction,
        mapping: CompiledMapping | None,
        cause: Cause,
        values: dict[str, Any],
        batch: DispatchPlan,
    ) -> None:
        """Return a candidate for a run: ask the circuit breaker, build the inputs, and compute the masking key."""
        if self._function_breakers.is_disabled(function.id):
            batch.count(function, "disabled_permanently")
            return
        mapping_id = None if mapping is None else mapping.id
        run_id = invocation_id(function.id, cause.key, mapping_id)
        globals_: dict[str, Any] = {}
        masked = None
        try:
            if not function.has_fixed_inputs or mapping is not None or function.reads_inputs_early:
                globals_ = {**values, "source": self._site.source(function)}
                globals_["inputs"] = batch.quota.attempt(
                    function.id, lambda: function.build_inputs(globals_, mapping)
                )
            if (masking := function.masking) is not None:
                masked = batch.quota.attempt(function.id, lambda: mask_of(function.id, masking, globals_))
        except (HogRuntimeError, HogThrow, HogLimit) as error:
            self._inputs_failed(run_id, function, mapping_id, cause, error, batch)
            return
        order_key = None
        try:
            if function.delivery.order is not None:
                order_key = batch.quota.attempt(function.id, lambda: function.delivery.order_key(globals_))
        except (HogRuntimeError, HogThrow, HogLimit) as error:
            self._unordered(function, cause.event, error, batch)
            return
        batch.candidates.append(PlannedRun(run_id, function, mapping_id, cause, masked, order_key))

    def _unordered(
        self,
        function: CompiledFunction,
        event: IngestedEvent,
        error: Exception | HogLimit,
        batch: DispatchPlan,
    ) -> None:
        """Fail the event for a function whose order key cannot be computed: its run could overtake others."""
        message = f"the order key failed: {function.input_failure(error)}"
        batch.count(function, "inputs_failed")
        batch.log_error(
            function, f"Error preparing a run on event {event.row.uuid}: {message}", str(event.row.uuid)
        )
        batch.add_dead_letter(event, function, "order", message)

    def _inputs_failed(
        self,
        run_id: str,
        function: CompiledFunction,
        mapping_id: str | None,
        cause: Cause,
        error: Exception | HogLimit,
        batch: DispatchPlan,
    ) -> None:
        """Count and log failed inputs, and keep what is needed to run the function once they are corrected."""
        message = function.input_failure(error)
        batch.count(function, "inputs_failed")
        batch.log_error(function, f"Error building inputs for event {cause.uuid}: {message}", cause.uuid)
        failed = PlannedRun(run_id, function, mapping_id, cause, None, None)
        batch.results.append(self._never_begun(failed, INPUTS_FAILED, message, batch.now))

    def _never_begun(self, run: PlannedRun, kind: str, message: str, now: datetime) -> InvocationResult:
        """Return the result of a run that failed before it began, with what is needed to run it."""
        cause = run.cause
        return InvocationResult(
            invocation_id=run.id,
            project_id=run.function.project_id,
            function_id=run.function.id,
            status="failed",
            attempts=1,
            version=self._versions.next(now),
            scheduled_at=now,
            first_scheduled_at=now,
            finished_at=now,
            duration_ms=0,
            error_kind=kind,
            error_message=clipped(message, MAX_ERROR_CHARS),
            event_uuid=cause.uuid,
            distinct_id=cause.event.row.distinct_id,
            person_id=cause.person_id,
            invocation_globals=kept_globals(cause.globals, run.mapping_id),
        )

    def _decide(self, batch: DispatchPlan) -> None:
        """Turn candidates into invocations, except those that were begun before, are masked, or have no room."""
        candidates = batch.candidates
        if self._once and candidates:
            known_ids = self._queue.known_ids([candidate.id for candidate in candidates])
            batch.already_run = len(known_ids)
            candidates = [candidate for candidate in candidates if candidate.id not in known_ids]
        keys = list(
            dict.fromkeys(candidate.masked.key for candidate in candidates if candidate.masked is not None)
        )
        counts = self._queue.masking_counts(keys) if keys else ()
        known = {(count.function_id, count.hash): count for count in counts}
        passed, batch.masking = decide([candidate.masked for candidate in candidates], known, batch.now)
        waiting: Counter[str] = Counter()
        crowded: list[PlannedRun] = []
        for candidate, passes in zip(candidates, passed, strict=True):
            function = candidate.function
            if not passes:
                batch.count(function, "masked")
            elif waiting[function.id] < self._backpressure.left_to(function.id):
                waiting[function.id] += 1
                batch.count(function, "triggered")
                batch.invocations.append(self._invocation(candidate))
            else:
                crowded.append(candidate)
        if crowded:
            self._fail_crowded(crowded, batch)

    def _fail_crowded(self, candidates: Sequence[PlannedRun], batch: DispatchPlan) -> None:
        """Fail the runs of functions with too many waiting runs before they begin. Return the remaining ones."""
        known = self._queue.known_ids([candidate.id for candidate in candidates])
        candidates = [candidate for candidate in candidates if candidate.id not in known]
        message = f"{self._backpressure.max_waiting} runs of the function waited already."
        batch.results += [
            self._never_begun(candidate, QUEUE_FULL, message, batch.now) for candidate in candidates
        ]
        functions = {candidate.function.id: candidate.function for candidate in candidates}
        for function_id, number in Counter(candidate.function.id for candidate in candidates).items():
            function = functions[function_id]
            batch.count(function, "queue_full", number)
            batch.log_error(
                function,
                f"{number} runs failed, for {self._backpressure.max_waiting} wait already. They can be run again.",
            )

    def _invocation(self, candidate: PlannedRun) -> NewInvocation:
        function = candidate.function
        degraded, batch = self._function_breakers.is_degraded(function.id), function.delivery.batch
        queue = OVERFLOW_QUEUE if degraded else "hog"
        scheduled_at = None
        if batch is not None:
            queue, scheduled_at = BATCH_QUEUE, self._now() + timedelta(milliseconds=batch.max_wait_ms)
        return NewInvocation(
            id=candidate.id,
            project_id=function.project_id,
            function_id=function.id,
            state=candidate.cause.state(candidate.mapping_id),
            queue=queue,
            scheduled_at=scheduled_at,
            priority=DEGRADED_PRIORITY if degraded else FRESH_PRIORITY,
            log_offset=candidate.cause.event.row.log_offset,
            order_key=candidate.order_key,
        )
