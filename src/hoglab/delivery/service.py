"""The delivery room as the application sees it: one object to build, start and stop.

`start` goes after the queue was opened and before ingestion starts, `stop` after ingestion has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import structlog

from hoglab.delivery.bodies.transforming import TransformationProcess
from hoglab.delivery.dispatch import (
    DeadLetterRetry,
    EventDispatcher,
    InternalEventDispatcher,
    Subscribers,
    internal_subscribers,
    read_unreadable,
    stored_subscribers,
)
from hoglab.delivery.execution import RunContext
from hoglab.delivery.limits import Backpressure, Breakers, DestinationBreakers, OutageWatch
from hoglab.delivery.limits.function_breaker import BreakerWatch, FunctionBreakers, cost_of
from hoglab.delivery.outbound import Mailer, Outbound
from hoglab.delivery.queue_gauges import QueueGauges
from hoglab.delivery.runs.dead_letters import INTERNAL
from hoglab.delivery.runs.globals import Site
from hoglab.delivery.runs.results import Versions
from hoglab.delivery.runs.state import Timing
from hoglab.delivery.webhooks import Webhooks
from hoglab.delivery.worker import Worker
from hoglab.fairness.compute_shares import ComputeShares
from hoglab.functions.runtime import FunctionSet
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from hoglab.background import Service
    from hoglab.delivery.bodies.pool import BodyPool
    from hoglab.delivery.config import DeliveryConfig
    from hoglab.delivery.execution import EventSink
    from hoglab.functions.runtime import FunctionRegistry
    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.status import FunctionStates
    from hoglab.people import PersonService
    from hoglab.storage.database import Database
    from hoglab.storage.invocations import AppMetric, InvocationStores, LogEntry
    from hoglab.storage.job_leases import JobLeases

_logger = structlog.get_logger(__name__)


def run_context(
    registry: FunctionRegistry,
    box: SecretBox,
    people: PersonService,
    stores: InvocationStores,
    config: DeliveryConfig,
    now: Callable[[], datetime],
) -> RunContext:
    """Return what runs of the functions of ``registry`` are begun and executed with."""
    return RunContext(
        registry,
        box,
        people,
        Outbound(config.guard, config.fetch, Mailer(config.mail_server, config.mail)),
        Site(config.site_url),
        config.retries,
        Versions(stores.runs.last_version()),
        now,
    )


class Delivery:
    """Runs hog functions on stored events."""

    def __init__(
        self,
        stores: InvocationStores,
        context: RunContext,
        function_breakers: FunctionBreakers,
        bodies: BodyPool,
        capture: EventSink,
        config: DeliveryConfig,
    ) -> None:
        """Create the room.

        ``capture`` (see `hoglab.delivery.execution.capturing`) takes the events that functions capture.
        """
        self._runs = config.runs
        self.stores = stores
        self.context = context
        self.queue = queue = stores.queue
        self.registry = context.registry
        self.people = context.people
        self.site = context.site
        self.now = context.now
        self.bodies = bodies
        self.transforming = TransformationProcess(bodies.limits, geoip=config.geoip_database)
        """Transformations of ingestion."""
        self.trying_transformations = TransformationProcess(bodies.limits, geoip=config.geoip_database)
        """Transformations of test runs, which must not delay ingestion."""
        self.on_rerun: Callable[[], None] = lambda: None
        """Called when running past invocations again is left to the background."""
        self.function_breakers = function_breakers
        self.breakers = DestinationBreakers()
        breakers = Breakers(function_breakers, self.breakers)
        self.backpressure = Backpressure(queue, context.registry, breakers, context.now)
        self.shares = ComputeShares()
        """Shares of projects in ingestion's computing time, transformations included."""
        self.dispatcher = EventDispatcher(
            stores,
            context,
            function_breakers,
            self.backpressure,
            stored_subscribers(context.new_event_globals()),
            self.shares,
        )
        self.worker = Worker(stores, context, breakers, bodies, capture, config.worker)
        self.webhooks = Webhooks(
            queue,
            context,
            function_breakers,
            bodies,
            capture,
            has_capacity=self.backpressure.for_one,
            limits=config.webhooks,
        )

    def internal_events(self, database: Database, jobs: JobLeases) -> InternalEventDispatcher:
        """Return the service that dispatches the waiting internal events of the metadata database."""
        subscribers = internal_subscribers(self.context.new_event_globals())
        return InternalEventDispatcher(database, self._dispatcher(subscribers), jobs)

    def dispatcher_for(self, project_id: int, source: str, function_id: str | None) -> EventDispatcher | None:
        """Return the dispatcher of past events to one function, or (None) to all that receive events of a source.

        It begins no run that was begun before. None when none of the functions runs.
        """
        event_globals = self.context.new_event_globals()
        subscribers = (
            internal_subscribers(event_globals) if source == INTERNAL else stored_subscribers(event_globals)
        )
        functions = self.registry.for_project(project_id)
        subscribed = () if functions is None else subscribers.functions(functions).functions
        wanted = [function for function in subscribed if function_id in (None, function.id)]
        if not wanted:
            return None
        if function_id is not None:
            only = FunctionSet(wanted)
            subscribers = replace(subscribers, functions=lambda _functions: only)
        return self._dispatcher(subscribers, once=True)

    def _dispatcher(self, subscribers: Subscribers, *, once: bool = False) -> EventDispatcher:
        return EventDispatcher(
            self.stores,
            self.context,
            self.function_breakers,
            self.backpressure,
            subscribers,
            ComputeShares(),
            once=once,
        )

    @property
    def dead_letter_retry(self) -> DeadLetterRetry:
        """Return the service that retries events that did not become invocations."""
        return DeadLetterRetry(self.stores.dead_letters, self.dispatcher_for, read_unreadable)

    @property
    def states(self) -> FunctionStates:
        """The states that the API shows as ``status``; saved functions are reported to them."""
        return self.function_breakers

    def watches(self) -> list[Service]:
        """Return the services that share the state of delivery between processes with the same queue.

        None where one process has the queue alone.
        """
        if self.stores.outages is None:
            return []
        watches: list[Service] = [
            BreakerWatch(self.function_breakers),
            OutageWatch(self.breakers, self.stores.outages),
        ]
        return watches if self._runs else [*watches, QueueGauges(self.queue, self.breakers)]

    def start(self) -> None:
        """Start working on the queue, if this process runs functions."""
        if self._runs:
            self.worker.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish or put back the current work. Return whether that was done in time."""
        self.webhooks.close()
        stopped = self.worker.stop(timeout_s)
        self.transforming.close()
        self.trying_transformations.close()
        return stopped

    def record(self, metrics: Sequence[AppMetric], logs: Sequence[LogEntry]) -> None:
        """Store logs and metrics of transformations. A lost metric delays no event."""
        try:
            self.stores.runs.write_metrics(metrics)
            self.stores.runs.write_logs(logs)
        except DatabaseError as error:
            _logger.warning("transformation_traces_lost", error=str(error))

    def observe_transformation(self, function_id: str, computing_ms: float) -> None:
        """Report the cost of one run of a transformation to the circuit breaker."""
        cost = cost_of([Timing("hog", computing_ms)])
        if cost:
            self.function_breakers.observe({function_id: cost})

    def problems(self) -> list[str]:
        """Return problems for health checks, one line each: threads that make no progress."""
        problems = []
        for progress, what in (
            (self.dispatcher.progress, "functions are not asked about events"),
            (self.worker.progress, "no runs are begun or ended"),
        ):
            still_s = progress.stands_still_s()
            if still_s is not None:
                problems.append(f"{what} for {still_s:.0f} s; look at the log and at the load of the machine")
        return problems

    def is_alive(self) -> bool:
        """Return whether the worker runs, if this process runs functions, for health checks."""
        return self.worker.is_alive() or not self._runs
