"""The delivery room as the application sees it: one object to build, start and stop.

    delivery = Delivery(
        engines.invocations,
        FunctionRegistry(database, secrets),
        people,
        secrets,
        AddressGuard.create(settings.fetch_allow_cidrs, settings.fetch_allow_hosts),
        site_url="http://127.0.0.1:8000",
        capture=capture,
    )
    functions = FunctionService(database, secrets, delivery.states)
    ingestion = Ingestion(..., dispatcher=delivery.dispatcher)
    routers = [..., router(delivery, functions, database)]
    public = webhook_routes(delivery.webhooks)

``capture`` (see `hoglab.delivery.execution.capturing`) is awaited on the worker's own event loop and returns when the
event is in the event log; the event is a dictionary as SDKs send it (``event``, ``distinct_id``, ``uuid``,
``timestamp``, ``properties``). ``start`` goes after the queue was opened and before ingestion starts, ``stop`` after
ingestion has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import structlog

from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.bodies.pool import BodyPool
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
from hoglab.delivery.execution import TurnContext
from hoglab.delivery.execution.retries import LASTING, RetryPolicy
from hoglab.delivery.limits import Backpressure, DestinationBreakers, OutageWatch
from hoglab.delivery.limits.function_breaker import BreakerWatch, FunctionBreakers, cost_of
from hoglab.delivery.outbound import Mailer, MailLimits, MailServer
from hoglab.delivery.queue_gauges import QueueGauges
from hoglab.delivery.runs.dead_letters import INTERNAL
from hoglab.delivery.runs.globals import EventGlobals, GroupProperties, Site
from hoglab.delivery.runs.results import Versions
from hoglab.delivery.runs.state import Timing
from hoglab.delivery.webhooks import WebhookLimits, Webhooks
from hoglab.delivery.worker import Worker, WorkerLimits
from hoglab.fairness.compute_shares import ComputeShares
from hoglab.functions.runtime import FunctionSet
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.background import Service
    from hoglab.delivery.execution import EventSink
    from hoglab.delivery.limits.function_breaker import StateChange
    from hoglab.delivery.outbound import AddressGuard, FetchLimits
    from hoglab.delivery.runs.globals import People
    from hoglab.functions.runtime import FunctionRegistry
    from hoglab.functions.secrets import SecretBox
    from hoglab.functions.status import FunctionStates
    from hoglab.storage.database import Database
    from hoglab.storage.invocations import AppMetric, InvocationStores, LogEntry
    from hoglab.storage.job_leases import JobLeases

CLOSE_BODIES_S = 0.2
"""Time in seconds for bodies that still compute at the end of a stop to end by themselves."""

_logger = structlog.get_logger(__name__)


class Delivery:
    """Runs hog functions on stored events."""

    def __init__(
        self,
        stores: InvocationStores,
        registry: FunctionRegistry,
        people: People,
        box: SecretBox,
        guard: AddressGuard,
        *,
        site_url: str,
        capture: EventSink | None = None,
        retries: RetryPolicy | None = None,
        worker_limits: WorkerLimits | None = None,
        bodies: BodyPool | BodyLimits | None = None,
        geoip_database: Path | None = None,
        fetch_limits: FetchLimits | None = None,
        mail_server: MailServer | None = None,
        mail_limits: MailLimits | None = None,
        webhook_limits: WebhookLimits | None = None,
        auto_disable: bool = True,
        runs: bool = True,
        on_state_change: StateChange | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Create the room.

        ``bodies`` is a pool that outlives this object, or the limits of a pool of its own. ``geoip_database`` is
        the database in which transformations look up addresses. ``mail_server`` sends the e-mails of functions,
        None for none. ``runs`` says whether queued runs are executed here, and not only in other processes.
        """
        self._runs = runs
        self.stores = stores
        self.queue = queue = stores.queue
        self.registry = registry
        self.people = people
        self.guard = guard
        self.site = Site(site_url)
        self.fetch_limits = fetch_limits
        self.mailer = Mailer(mail_server, mail_limits)
        self._owns_bodies = not isinstance(bodies, BodyPool)
        self.bodies = bodies if isinstance(bodies, BodyPool) else BodyPool(bodies)
        self.transforming = TransformationProcess(self.bodies.limits, geoip=geoip_database)
        """Transformations of ingestion."""
        self.trying_transformations = TransformationProcess(self.bodies.limits, geoip=geoip_database)
        """Transformations of test runs, which must not delay ingestion."""
        self.now = now
        self.on_rerun: Callable[[], None] = lambda: None
        """Called when running past invocations again is left to the background."""
        self.function_breakers = FunctionBreakers(
            stores.breakers,
            auto_disable=auto_disable,
            now=now,
            on_change=on_state_change or (lambda _function_id, _before, _after: None),
        )
        self.breakers = DestinationBreakers()
        self.backpressure = Backpressure(queue, registry, self.function_breakers, self.breakers, now=now)
        self.event_globals = EventGlobals(self.site, people, GroupProperties(people))
        versions = Versions(stores.runs.last_version())
        self.shares = ComputeShares()
        """Shares of projects in ingestion's computing time, transformations included."""
        self.dispatcher = EventDispatcher(
            stores,
            registry,
            people,
            self.function_breakers,
            self.backpressure,
            self.site,
            versions=versions,
            shares=self.shares,
            now=now,
        )
        self._versions = versions
        context = TurnContext(
            registry,
            box,
            self.site,
            self.event_globals,
            now,
            retries=retries or LASTING,
            versions=versions,
            mail_limits=self.mailer.limits,
        )
        self.worker = Worker(
            queue,
            context,
            guard,
            self.function_breakers,
            self.breakers,
            self.bodies,
            capture=capture,
            limits=worker_limits,
            fetch_limits=fetch_limits,
            mailer=self.mailer,
            rate_limits=stores.rate_limits,
        )

        self.webhooks = Webhooks(
            queue,
            context,
            self.function_breakers,
            self.bodies,
            capture=capture,
            has_capacity=self.backpressure.for_one,
            limits=webhook_limits,
        )

    def internal_events(self, database: Database, jobs: JobLeases) -> InternalEventDispatcher:
        """Return the service that dispatches the waiting internal events of the metadata database."""
        event_globals = EventGlobals(self.site, self.people, GroupProperties(self.people))
        return InternalEventDispatcher(database, self._dispatcher(internal_subscribers(event_globals)), jobs)

    def dispatcher_for(self, project_id: int, source: str, function_id: str | None) -> EventDispatcher | None:
        """Return the dispatcher of past events to one function, or (None) to all that receive events of a source.

        It begins no run that was begun before. None when none of the functions runs.
        """
        event_globals = EventGlobals(self.site, self.people, GroupProperties(self.people))
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
            self.registry,
            self.people,
            self.function_breakers,
            self.backpressure,
            self.site,
            versions=self._versions,
            subscribers=subscribers,
            once=once,
            now=self.now,
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
        if self._owns_bodies:
            self.bodies.close(CLOSE_BODIES_S)
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
