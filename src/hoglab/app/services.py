"""The services of a process with events: the API and analysis, as far as its role has them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from hoglab.accounts import activity
from hoglab.accounts.service import AccountService
from hoglab.accounts.sessions.service import SessionService
from hoglab.actions.store import names as action_names
from hoglab.analysis.definitions.metric_problems import exposure_problem, metric_problem
from hoglab.analysis.execution.behaviour import performers, rule_problem
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, BusyError, CacheLimits
from hoglab.analysis.results import DECISION_BUDGET_S, ExperimentResults, HarmWatch, judge_by
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsService, stored_groups
from hoglab.app.dependents import cohort_dependents
from hoglab.app.ingestion import IngestionView
from hoglab.app.problems import in_role, problems
from hoglab.app.roles import Capability
from hoglab.app.shared import SharedServices
from hoglab.app.status_warnings import StatusLimits
from hoglab.app.system_status import SystemStatus
from hoglab.background import Service
from hoglab.delivery.replay.backfills import Backfills
from hoglab.delivery.runs.state import without_persons
from hoglab.delivery.trials.cases import TestCases
from hoglab.experiments.linkage import keep_shares, linked_experiments
from hoglab.experiments.service import ExperimentService
from hoglab.flags.matching.continuity import SharedLogIns
from hoglab.flags.service import FlagService
from hoglab.functions.defaults import GeoIpByDefault
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.fields.dates import utc_now
from hoglab.http.health import Problem
from hoglab.http.streams import Streams
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.retention import EventRetention
from hoglab.people.cohorts import CohortCalculator, CohortService
from hoglab.people.erasing import ErasedFrom, PersonErasing
from hoglab.settings.rooms import results_config
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.change_watch import ChangeWatch
from hoglab.storage.database import DatabaseError
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import Engines
from hoglab.storage.event_store.maintenance import Maintenance, PeriodicTask
from hoglab.storage.identity import ChangeCounterMirror
from hoglab.storage.job_leases import JobLeases
from hoglab.transfer.running import ExportService

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.settings import Settings

ERASE_EVERY_S = 5.0
"""Interval of erasures: the delay after a request, where nothing is to be ingested before."""
FILL_EVERY_S = 10.0
"""Interval at which new persons are put into the index for searches."""
TIDY_EVERY_S = 3_600.0
"""Interval at which data that is too old, or too much, is looked for."""
MAINTAIN_COLUMNS_EVERY_S = 60.0
"""Interval at which typed columns are made and written; above `hoglab.storage.event_store.clickhouse`'s ``FRESH_S``."""
LOOK_FOR_JOBS_S = 1.0
"""Interval at which backfills and reruns are looked for that other processes began."""


class Services(SharedServices):
    """The services of one server, or of a process of one that reads events."""

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        engines: Engines,
        secrets: SecretBox,
        accounts: AccountService,
        resources: ExitStack,
        *,
        lost_commits: Mapping[str, str],
    ) -> None:
        """Open the services, which ``resources`` closes. ``lost_commits``: see `problems`."""
        super().__init__(settings, engines, secrets, accounts, resources)
        self.engines = engines
        self._lost_commits = lost_commits
        database, store = engines.database, engines.store
        people, delivery = self.people, self.delivery
        self.sessions = SessionService(database, accounts)
        self.quarantine = quarantine = Quarantine(engines.quarantine, max_bytes=settings.quarantine_max_bytes)
        self.ingestion_view = ingestion_view = IngestionView.of(self, engines, quarantine)
        self.jobs = jobs = JobLeases(database)
        if engines.leased is None:
            # No other server is at work on this database, or in its directory: so nobody else is at its jobs.
            jobs.take_over()
        self.erasing = PersonErasing(
            database,
            jobs,
            engines.log,
            ingestion_view.done,
            ErasedFrom(
                engines.invocations.erasing,
                without_persons,
                engines.erasable,
                people.known,
                lambda: _forget(self.aggregate_cache),
            ),
            utc_now,
        )
        self.flags = flags = FlagService(
            database, experiments=linked_experiments, on_change=keep_shares, cipher=secrets
        )
        self.catch_up = catch_up = CatchUp(engines.log, ingestion_view.stored, ingestion_view.hurry)
        self.cohorts = cohorts = CohortService(
            database,
            users=cohort_dependents,
            actions=action_names,
            rule_problem=partial(rule_problem, store.dialect),
            catch_up=catch_up,
        )
        self.experiments = experiments = ExperimentService(
            database,
            flags,
            cohorts,
            metric_problem=partial(metric_problem, store.dialect),
            exposure_problem=partial(exposure_problem, store.dialect),
        )
        self.aggregate_cache = aggregate_cache = (
            None
            if engines.event_file is None
            else AggregateCache(
                engines.event_file,
                timeout_s=settings.query_timeout_s,
                limits=CacheLimits(bytes=settings.aggregate_cache_max_bytes),
            )
        )
        computer = Computer(
            store,
            stored_groups(database),
            timeout_s=settings.query_timeout_s,
            tables=engines.tables,
            aggregate_cache=aggregate_cache,
        )
        self.results = ResultsService(
            database,
            computer,
            experiments,
            accounts.project,
            jobs,
            ingestion_view.stored,
            results_config(settings),
        )
        experiments.judge = judge_by(ExperimentResults.of(self.results, store, budget_s=DECISION_BUDGET_S))
        self.function_service = FunctionService(
            database, secrets, delivery.states, check_tests=TestCases(delivery)
        )
        self.integrity = IntegrityWatch({"hoglab.db": database, "queue.db": engines.queue_database})
        self.change_counter_mirror = ChangeCounterMirror(database, engines.queue_database)
        self.streams = streams = Streams()
        self.status = SystemStatus(
            engines,
            delivery,
            streams,
            ingestion_view,
            data=directory.path,
            limits=StatusLimits(settings.event_log_max_bytes, settings.min_free_disk_bytes),
            problems=self.problems,
        )
        self.backfills = Backfills(
            delivery,
            store,
            jobs,
            catch_up=catch_up,
            newest=ingestion_view.newest_place,
            look_every_s=None if engines.leased is None else LOOK_FOR_JOBS_S,
        )
        self.calculator = CohortCalculator(
            database, behaviour=performers(database, store), catch_up=catch_up, jobs=jobs
        )
        self._socket = directory.socket_path

    def background(self) -> list[Service]:
        """Return the background services, in the order of starting.

        Stopped the other way round, so that nothing feeds what has ended.
        """
        engines, delivery, capabilities = self.engines, self.delivery, self.role.capabilities
        services: list[Service] = [
            *(() if engines.sole_server is None else (engines.sole_server,)),
            *(() if engines.database_load is None else (engines.database_load,)),
            ChangeWatch(engines.database, self.change_counter_mirror),
            self.integrity,
            *((self.accounts.usage, self.sessions.usage) if Capability.API in capabilities else ()),
            *((self.refused,) if Capability.SDK in capabilities else ()),
            *delivery.watches(),
            *(() if self.geoip is None else (GeoIpByDefault(engines.database, self.secrets),)),
            *((Recompiler(engines.database, self.secrets),) if Capability.ANALYSIS in capabilities else ()),
            self.jobs,
            *((self.calculator,) if Capability.ANALYSIS in capabilities else ()),
            delivery,
            *(self._replays() if Capability.ANALYSIS in capabilities else ()),
            *(() if self.ingestion_view.service is None else (self.ingestion_view.service,)),
            *(self._analysis() if Capability.ANALYSIS in capabilities else self._maintenance_without()),
            self.results.query_runner,
        ]
        return services

    def _replays(self) -> list[Service]:
        return [self.delivery.internal_events(self.engines.database, self.jobs), self.backfills]

    def _analysis(self) -> list[Service]:
        """Return the services that compute from events, and the maintenance of events."""
        results = ResultsRunner(self.results, catch_up=self.catch_up)
        watch = HarmWatch(
            self.results,
            ExperimentResults.of(self.results, self.engines.store, budget_s=None),
            self.experiments.linkage,
        )
        self.jobs.on_expired += [results.wake, watch.wake, self.calculator.wake]
        return [
            results,
            watch,
            ExportService(
                self.engines.store,
                self._socket,
                catch_up=self.catch_up,
                newest=self.ingestion_view.newest_place,
                files=self.engines.files,
            ),
            Maintenance(self.engines.event_file, tasks=_periodic_tasks(self)),
        ]

    def _maintenance_without(self) -> list[Service]:
        """Return the maintenance of a process that does no analysis."""
        store = self.engines.shared_store
        if store is None:
            return []
        return [
            Maintenance(
                None, tasks=[PeriodicTask("uses of properties", MAINTAIN_COLUMNS_EVERY_S, store.flush_usage)]
            )
        ]

    def problems(self) -> list[Problem]:
        """Return problems now."""
        current = problems(
            self.engines,
            self.components,
            self.ingestion_view.service,
            self.ingestion_view.lag_s,
            self.quarantine,
            self.integrity,
            self._lost_commits,
        )
        return in_role(current, self.role)


def _forget(kept: AggregateCache | None, before: datetime | None = None) -> None:
    """Delete the aggregate cache, or what it has of events before a moment."""
    if kept is not None:
        kept.forget(before)


def _periodic_tasks(services: Services) -> list[PeriodicTask]:
    """Return the periodic tasks: erasure, retention and cleaning, so that nothing grows for ever.

    Several processes may do them: what is deleted a second time is not there any more, and who erases claims that.
    """
    database, erasing, jobs = services.engines.database, services.erasing, services.jobs
    failures = (DatabaseError, BusyError)
    retention = EventRetention(
        database,
        services.engines.erasable,
        services.accounts.projects_ever,
        jobs,
        most_days=services.settings.event_retention_days,
        forget_results=partial(_forget, services.aggregate_cache),
    )
    tasks = [
        PeriodicTask("erasure", ERASE_EVERY_S, erasing.carry_out, failures),
        PeriodicTask("person search", FILL_EVERY_S, erasing.fill_search, failures),
        PeriodicTask("event retention", TIDY_EVERY_S, retention.expire, failures),
        PeriodicTask("sessions", TIDY_EVERY_S, services.sessions.forget_old, failures),
        PeriodicTask("activity log", TIDY_EVERY_S, lambda: activity.forget_old(database), failures),
        *(PeriodicTask("space", TIDY_EVERY_S, file.give_back, failures) for file in database.files),
        *(
            PeriodicTask("space of the queue", TIDY_EVERY_S, file.give_back, failures)
            for file in services.engines.queue_database.files
        ),
        PeriodicTask("jobs", TIDY_EVERY_S, jobs.forget_old, (DatabaseError,)),
        PeriodicTask("log-ins", TIDY_EVERY_S, SharedLogIns(database).forget_old, failures),
        PeriodicTask("queries", TIDY_EVERY_S, services.results.query_runner.forget_old, (DatabaseError,)),
    ]
    store = services.engines.shared_store
    if store is not None:
        tasks.append(PeriodicTask("typed columns", MAINTAIN_COLUMNS_EVERY_S, store.maintain_columns))
    return tasks
