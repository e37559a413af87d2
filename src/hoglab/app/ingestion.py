"""Ingestion of a process: the loop over the log, or over the partitions that the process has leases of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hoglab.app.problems import in_role, ingestion_problems, shared_problems
from hoglab.app.roles import Capability
from hoglab.app.shared import SharedServices
from hoglab.functions.runtime.transformations import Supervision, Transformations
from hoglab.http.fields.dates import utc_now
from hoglab.ingestion.flag_calls import FlagCalls
from hoglab.ingestion.loop import LAG_SECONDS, LogIngestion
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.settings.rooms import ingestion_limits
from hoglab.storage.event_log.progress import IngestionProgress

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hoglab.accounts.service import AccountService
    from hoglab.background import Service
    from hoglab.functions.secrets.box import SecretBox
    from hoglab.http.health import Problem
    from hoglab.settings import Settings
    from hoglab.storage.engines import Engines, IngestionEngines, SharedEngines
    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_log.progress import LeasedLog
    from hoglab.storage.event_store import EventStore


@dataclass(frozen=True, slots=True)
class IngestionView:
    """Ingestion as seen by a process that reads events, whichever process ingests them."""

    service: LogIngestion | None
    """The loop of this process, if it has one."""
    stored: Callable[[], SequenceNumber]
    """The number of the record up to which everything is stored."""
    done: Callable[[], SequenceNumber]
    """The number of the record up to which everything is stored, and dispatched as well."""
    newest_place: Callable[[], int] | None
    """The place up to which all events are stored; None where the store knows by itself."""
    waiting: Callable[[], int]
    """Number of records that wait for ingestion, roughly."""
    lag_s: Callable[[], float]
    """Seconds for which the oldest waiting record has waited."""

    def hurry(self) -> None:
        """Let the loop of this process, if it has one, ingest at once what waits."""
        if self.service is not None:
            self.service.hurry()

    @classmethod
    def of(cls, services: SharedServices, engines: Engines, quarantine: Quarantine) -> IngestionView:
        """Build the loop that the event log needs, and return the view of it."""
        log, store = engines.sole_log, engines.store
        if log is None:
            return cls._of_partitions(services, engines, quarantine)
        steps = _steps(services, store, quarantine)
        steps.at_rest += [file.checkpoint for file in engines.files]
        alone = LogIngestion.alone(log, steps)

        def done() -> SequenceNumber:
            return alone.position

        def waiting() -> int:
            return max(0, log.last_offset() - alone.position)

        return cls(alone, partial(store.position, 0), done, None, waiting, alone.lag_s)

    @classmethod
    def _of_partitions(
        cls, services: SharedServices, engines: Engines, quarantine: Quarantine
    ) -> IngestionView:
        leased = _leased(engines)
        loop = None
        if Capability.INGESTION in services.role.capabilities:
            loop = _shared_ingestion(services, engines, quarantine)
        else:
            LAG_SECONDS.set_function(leased.source.lag_s)
        progress = IngestionProgress(leased)
        # Places of events are of the same count as numbers of records.
        place = progress.position
        return cls(
            loop,
            progress.position,
            progress.position,
            place,
            leased.source.pending_offsets,
            leased.source.lag_s,
        )


def _leased(engines: SharedEngines) -> LeasedLog:
    if engines.leased is None:
        raise ValueError("the event log of one process is ingested by the one with the API")
    return engines.leased


def _shared_ingestion(
    services: SharedServices, engines: Engines | IngestionEngines, quarantine: Quarantine
) -> LogIngestion:
    """Return the loop over the partitions that this process has leases of."""
    store = engines.shared_store
    if store is None:
        raise ValueError("partitions of an event log are ingested into a store that several processes write")
    return LogIngestion.shared(_leased(engines), store, _steps(services, store, quarantine))


def _steps(services: SharedServices, store: EventStore, quarantine: Quarantine) -> BatchSteps:
    return BatchSteps(
        store,
        services.people,
        services.accounts.project,
        quarantine,
        dispatcher=services.delivery.dispatcher,
        transformer=_transformations(services),
        flag_calls=FlagCalls(services.shared_engines.database),
        limits=ingestion_limits(services.settings),
    )


def _transformations(services: SharedServices) -> Transformations:
    delivery = services.delivery
    return Transformations(
        services.functions,
        delivery.transforming,
        Supervision(
            delivery.record,
            delivery.function_breakers.is_disabled,
            delivery.function_breakers.is_degraded,
            delivery.observe_transformation,
        ),
        delivery.shares,
        site_url=services.settings.public_url,
        now=utc_now,
    )


class IngestionServices(SharedServices):
    """The services of a process that does nothing but ingest."""

    def __init__(
        self,
        settings: Settings,
        engines: IngestionEngines,
        secrets: SecretBox,
        accounts: AccountService,
        resources: ExitStack,
    ) -> None:
        super().__init__(settings, engines, secrets, accounts, resources)
        self._store = engines.store
        self._quarantine = Quarantine(engines.quarantine, max_bytes=settings.quarantine_max_bytes)
        self.ingestion = _shared_ingestion(self, engines, self._quarantine)

    def background(self) -> list[Service]:
        """Return the background services, in the order of starting."""
        return [*super().background(), self.ingestion]

    def problems(self) -> list[Problem]:
        """Return problems of the process now."""
        problems = shared_problems(self.components)
        return in_role([*ingestion_problems(self._store, self.ingestion), *problems], self.role)
