"""The services of a server: everything that it does, put together from the rooms."""

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
from hoglab.analysis.execution.behaviour import performers
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, BusyError
from hoglab.analysis.incremental.aggregate_cache import CacheLimits as StateLimits
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsService
from hoglab.app.ingesting import Ingesting
from hoglab.app.problems import problems
from hoglab.app.shared import SharedServices
from hoglab.app.system_status import SystemStatus
from hoglab.background import Service
from hoglab.delivery.replay.backfills import Backfills
from hoglab.delivery.runs.state import without_persons
from hoglab.delivery.trials.cases import TestCases
from hoglab.experiments.linkage import linked_experiments
from hoglab.experiments.service import ExperimentService
from hoglab.flags.service import FlagService
from hoglab.flags.store import flags_naming_cohort
from hoglab.functions.defaults import GeoIpByDefault
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.health import Problem
from hoglab.http.streams import Streams
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.retention import EventRetention
from hoglab.people.cohorts import CohortCalculator, CohortService
from hoglab.people.erasing import PersonErasing
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.change_watch import ChangeWatch
from hoglab.storage.database import DatabaseError
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import Engines
from hoglab.storage.event_store.upkeep import Chore, Upkeep
from hoglab.storage.identity import Witness
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


class Services(SharedServices):
    """The services of one server, and those that run in the background, in the order of starting."""

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
        """``resources`` closes what is opened here. ``lost_commits``: see `problems`."""
        super().__init__(settings, engines, secrets, accounts, resources)
        self.engines = engines
        self._lost_commits = lost_commits
        database, store = engines.database, engines.store
        people, delivery = self.people, self.delivery
        self.sessions = sessions = SessionService(database, accounts)
        self.quarantine = quarantine = Quarantine(engines.quarantine, max_bytes=settings.quarantine_max_bytes)
        self.ingesting = ingesting = Ingesting.of(self, engines, quarantine)
        self.erasing = erasing = PersonErasing(
            database,
            engines.invocations.erasing,
            people.known,
            engines.log,
            store,
            ingested=ingesting.done,
            without=without_persons,
            forget_results=lambda: _forget(self.kept_results),
        )
        self.flags = flags = FlagService(database, experiments=linked_experiments, cipher=secrets)
        self.catch_up = catch_up = CatchUp(engines.log, ingesting.stored)
        self.cohorts = cohorts = CohortService(
            database, users=flags_naming_cohort, actions=action_names, catch_up=catch_up
        )
        self.experiments = experiments = ExperimentService(
            database,
            flags,
            cohorts,
            metric_problem=partial(metric_problem, store.dialect),
            exposure_problem=partial(exposure_problem, store.dialect),
        )
        self.kept_results = kept_results = (
            None
            if engines.event_file is None
            else AggregateCache(
                engines.event_file,
                timeout_s=settings.query_timeout_s,
                limits=StateLimits(bytes=settings.results_state_max_bytes),
            )
        )
        # Nobody else is at the jobs of this database: no other server is at work on it, or in its directory.
        jobs = JobLeases(database)
        jobs.take_over()
        self.results = results = ResultsService(
            database,
            store,
            experiments,
            projects=accounts.project,
            query_timeout_s=settings.query_timeout_s,
            refresh_s=settings.results_refresh_s,
            tables=engines.tables,
            state=kept_results,
            jobs=jobs,
            position=ingesting.stored.position,
        )
        self.function_service = FunctionService(
            database, secrets, delivery.states, check_tests=TestCases(delivery)
        )
        self.integrity = integrity = IntegrityWatch(
            {"hoglab.db": database, "queue.db": engines.queue_database}
        )
        self.witness = Witness(database, engines.queue_database)
        self.streams = streams = Streams()
        self.status = SystemStatus(
            engines,
            delivery,
            streams,
            data=directory.path,
            log_limit_bytes=settings.event_log_max_bytes,
            waiting_records=ingesting.waiting,
            lag_s=ingesting.lag_s,
            problems=self.problems,
        )
        self.backfills = backfills = Backfills(
            delivery, store, catch_up=catch_up, newest=ingesting.newest_place
        )
        self.calculator = calculator = CohortCalculator(
            database, behaviour=performers(database, store), catch_up=catch_up, jobs=jobs
        )
        # In the order of starting; stopped the other way round, so that nothing feeds what has ended.
        self.background: list[Service] = [
            *(() if engines.sole_server is None else (engines.sole_server,)),
            *(() if engines.database_load is None else (engines.database_load,)),
            ChangeWatch(database, self.witness),
            integrity,
            accounts.usage,
            sessions.usage,
            *delivery.watches(),
            *(() if self.geoip is None else (GeoIpByDefault(database, secrets),)),
            Recompiler(database, secrets),
            jobs,
            calculator,
            delivery,
            delivery.internal_events(database),
            backfills,
            *(() if ingesting.service is None else (ingesting.service,)),
            ResultsRunner(results, catch_up=catch_up),
            ExportService(store, directory.socket_path, catch_up=catch_up),
            Upkeep(
                engines.event_file,
                chores=[
                    *_chores(settings, engines, accounts, sessions, erasing, kept_results),
                    *(
                        Chore(name, TIDY_EVERY_S, forget, (DatabaseError,))
                        for name, forget in (
                            ("jobs", jobs.forget_old),
                            ("queries", results.queries.forget_old),
                        )
                    ),
                ],
            ),
        ]

    def problems(self) -> list[Problem]:
        """Problems now."""
        return problems(
            self.engines,
            self.ingesting.service,
            self.ingesting.lag_s(),
            self.quarantine,
            self.functions,
            self.delivery,
            self.integrity,
            self._lost_commits,
            self.role,
        )


def _forget(kept: AggregateCache | None, before: datetime | None = None) -> None:
    """Have results begin anew without what they keep of events, where they keep anything."""
    if kept is not None:
        kept.forget(before)


def _chores(
    settings: Settings,
    engines: Engines,
    accounts: AccountService,
    sessions: SessionService,
    erasing: PersonErasing,
    kept: AggregateCache | None,
) -> list[Chore]:
    """Periodic chores: erasure, retention and upkeep, so that nothing grows for ever."""
    database, failures = engines.database, (DatabaseError, BusyError)
    retention = EventRetention(
        database,
        engines.store,
        accounts.projects,
        most_days=settings.event_retention_days,
        forget_results=partial(_forget, kept),
    )
    return [
        Chore("erasure", ERASE_EVERY_S, erasing.carry_out, failures),
        Chore("person search", FILL_EVERY_S, erasing.fill_search, failures),
        Chore("event retention", TIDY_EVERY_S, retention.expire, failures),
        Chore("sessions", TIDY_EVERY_S, sessions.forget_old, failures),
        Chore("activity log", TIDY_EVERY_S, lambda: activity.forget_old(database), failures),
        Chore("space", TIDY_EVERY_S, database.give_back, failures),
    ]
