"""Ingestion of a process: a loop over a log of one order, or over the partitions of a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoglab.app.problems import in_role, ingestion_problems, shared_problems
from hoglab.app.roles import Capability
from hoglab.app.shared import SharedServices
from hoglab.functions.runtime.transformations import Supervision, Transformations
from hoglab.http.fields.dates import utc_now
from hoglab.ingestion.flag_calls import FlagCalls
from hoglab.ingestion.loop import LAG_SECONDS, LogIngestion
from hoglab.ingestion.partitions import PartitionedIngestion
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.storage.catching_up import StoredPosition
from hoglab.storage.event_log.progress import IngestionProgress
from hoglab.storage.event_store import PartitionedEventStore

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hoglab.accounts.service import AccountService
    from hoglab.background import Service
    from hoglab.functions.secrets.box import SecretBox
    from hoglab.http.health import Problem
    from hoglab.settings import Settings
    from hoglab.storage.engines import Engines, IngestionEngines
    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import EventStore


@dataclass(frozen=True, slots=True)
class IngestionView:
    """Ingestion as seen by a process that reads events, whichever process ingests them."""

    service: LogIngestion | PartitionedIngestion | None
    """The loop of this process, if it has one."""
    stored: StoredPosition
    done: Callable[[], SequenceNumber]
    """The number of the record up to which everything is stored, and dispatched as well."""
    newest_place: Callable[[], int] | None
    """The place up to which all events are stored; None where the store knows by itself."""
    waiting: Callable[[], int]
    """Number of records that wait for ingestion, roughly."""
    lag_s: Callable[[], float]
    """Seconds for which the oldest waiting record has waited."""

    @classmethod
    def of(cls, services: SharedServices, engines: Engines, quarantine: Quarantine) -> IngestionView:
        """Build the loop that the event log needs, and return the view of it."""
        log, store = engines.log, engines.store
        if isinstance(log, IngestionProgress):
            loop = None
            if Capability.INGESTION in services.role.capabilities:
                loop = _partitioned(services, store, quarantine)
            LAG_SECONDS.set_function(log.source.lag_s)
            # Places of events are of the same count as numbers of records.
            place = log.position
            return cls(loop, log, log.position, place, log.source.pending_offsets, log.source.lag_s)
        alone = LogIngestion(
            log,
            store,
            services.people,
            services.accounts.project,
            quarantine,
            dispatcher=services.delivery.dispatcher,
            transformer=_transformations(services),
            flag_calls=FlagCalls(engines.database),
        )

        def done() -> SequenceNumber:
            return alone.position

        def waiting() -> int:
            return max(0, log.last_offset() - alone.position)

        return cls(alone, store, done, None, waiting, alone.lag_s)


def _partitioned(services: SharedServices, store: EventStore, quarantine: Quarantine) -> PartitionedIngestion:
    """Return the loop over the partitions that this process has leases of."""
    leased = services.shared_engines.leased
    if leased is None or not isinstance(store, PartitionedEventStore):
        raise ValueError("partitions of an event log are ingested into a store that several processes write")
    from hoglab.capture.partitioning import DividedLog  # its hash is installed where Kafka's client is

    steps = BatchSteps(
        store,
        services.people,
        services.accounts.project,
        quarantine,
        dispatcher=services.delivery.dispatcher,
        transformer=_transformations(services),
        flag_calls=FlagCalls(services.shared_engines.database),
    )
    LAG_SECONDS.set_function(leased.source.lag_s)
    append = DividedLog(leased.source).append_again
    return PartitionedIngestion(leased, store, steps, append=append)


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
        self.ingestion = _partitioned(self, engines.store, self._quarantine)

    def background(self) -> list[Service]:
        """Return the background services, in the order of starting."""
        return [*super().background(), self.ingestion]

    def problems(self) -> list[Problem]:
        """Return problems of the process now."""
        problems = shared_problems(self.components)
        return in_role([*ingestion_problems(self._store, self.ingestion), *problems], self.role)
