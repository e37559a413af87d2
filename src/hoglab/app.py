"""Putting the rooms together: one server on one data directory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import structlog

from hoglab.accounts import activity
from hoglab.accounts import routes as account_routes
from hoglab.accounts.bootstrap import FirstStart, first_start
from hoglab.accounts.service import AccountService
from hoglab.actions.routes import actions_router
from hoglab.actions.service import ActionService
from hoglab.actions.store import names as action_names
from hoglab.analysis.api import routes as results_routes
from hoglab.analysis.definitions.flag_properties import flag_property_seen
from hoglab.analysis.definitions.metric_problems import exposure_problem, metric_problem
from hoglab.analysis.execution.behaviour import performers, performers_on_request
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, BusyError
from hoglab.analysis.incremental.aggregate_cache import Limits as StateLimits
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsService
from hoglab.background import Service
from hoglab.capture import Capture, CaptureLimits, capture_routes
from hoglab.capture.reference import capture_paths
from hoglab.delivery.api import routes as delivery_routes
from hoglab.delivery.api.backfill_routes import backfill_router
from hoglab.delivery.api.dead_letter_routes import dead_event_router
from hoglab.delivery.api.run_routes import run_router
from hoglab.delivery.api.sample_routes import sample_router
from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import FetchLimits
from hoglab.delivery.replay.backfills import Backfills
from hoglab.delivery.runs.state import without_persons
from hoglab.delivery.service import Delivery
from hoglab.delivery.trials.cases import TestCases
from hoglab.delivery.webhooks.reference import webhook_paths
from hoglab.delivery.webhooks.routes import webhook_routes
from hoglab.experiments.api.reading import ExperimentReads
from hoglab.experiments.api.routes import experiments_router, holdouts_router, saved_metrics_router
from hoglab.experiments.eligible import eligible_flags
from hoglab.experiments.exposed import ExposureCohorts
from hoglab.experiments.extras import ExperimentExtras
from hoglab.experiments.holdouts import HoldoutService
from hoglab.experiments.lifecycle import Lifecycle
from hoglab.experiments.linkage import linked_experiments
from hoglab.experiments.project_config import project_config_router
from hoglab.experiments.saved_metrics import SavedMetricService
from hoglab.experiments.service import ExperimentService
from hoglab.flags.api import routes as flag_routes
from hoglab.flags.api.reference import flag_paths
from hoglab.flags.evaluation.endpoint import FlagEvaluator
from hoglab.flags.evaluation.sdk_routes import hot_routes, sdk_routes
from hoglab.flags.matching.registry import FlagRegistry
from hoglab.flags.service import FlagService
from hoglab.flags.store import flags_naming_cohort
from hoglab.functions.api import routes as function_routes
from hoglab.functions.api import template_routes
from hoglab.functions.defaults import GeoIpByDefault
from hoglab.functions.runtime.geoip import GeoIp
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.runtime.transformations import Transformations
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.secrets.sealed_check import check_secrets, keep_check
from hoglab.functions.service import FunctionService
from hoglab.functions.site.functions import SiteFunctions
from hoglab.functions.state_changes import StateChanges
from hoglab.hog.rt.context import EXPRESSION_LIMITS
from hoglab.http.app import HoglabApp, HttpSettings, build_app
from hoglab.http.health import Problem
from hoglab.http.management.idempotency import Idempotency
from hoglab.http.streams import Streams
from hoglab.ingestion.flag_calls import FlagCalls
from hoglab.ingestion.loop import Ingestion
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.quarantine_routes import quarantine_router
from hoglab.ingestion.retention import EventRetention
from hoglab.ingestion.routes import events_router
from hoglab.ingestion.warnings import warnings_router
from hoglab.people import PersonService
from hoglab.people import routes as people_routes
from hoglab.people.cohorts import CohortCalculator, CohortService
from hoglab.people.cohorts.routes import cohorts_router
from hoglab.people.erasing import PersonErasing
from hoglab.settings import engine_options
from hoglab.storage.catching_up import CatchUp
from hoglab.storage.change_watch import ChangeWatch
from hoglab.storage.database import DatabaseError
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.database.log_damage import lost_commits
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import Engines, EventStoreEngine
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError
from hoglab.storage.event_store.upkeep import Chore, Upkeep
from hoglab.storage.identity import Installation, Present, Witness, check_metadata_present
from hoglab.storage.invocations.holding import held_runs, release
from hoglab.transfer.running import ExportService
from hoglab.warehouse.routes import warehouse_router
from hoglab.warehouse.service import WarehouseService

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.http.management.routing import ResourceRouter
    from hoglab.settings import Settings

ERASE_EVERY_S = 5.0
"""How soon after a request somebody's data begin to be erased, where nothing is to be ingested before."""
FILL_EVERY_S = 10.0
"""How often persons who are new are put into the index for searches."""
TIDY_EVERY_S = 3_600.0
"""How often what is too old, or too much, is looked for."""
STOP_BUDGET_S = 6.0
"""How long the background services may take together to finish what they are doing."""
HTTP_GRACE_S = 2.5
"""How long requests may take to finish before that; the contract with operators is ten seconds in all."""
LATE_S = 60.0
"""From when on health tells that events wait to be ingested."""
GC_THRESHOLDS = (20_000, 20, 100)

T = TypeVar("T")

_log = structlog.get_logger("hoglab")


class Hoglab:
    """Everything that one server consists of. Made with `open`; then `start`, serve `http`, and `stop`."""

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        resources: ExitStack,
        *,
        accept_loss: bool,
        deliver: bool,
    ) -> None:
        self._settings = settings
        self._resources = resources
        self._started: list[Service] = []
        engines, secrets = self._open_engines(directory, accept_loss=accept_loss, deliver=deliver)
        self.engines = engines
        self.witness = Witness(engines.database, engines.queue_database)
        accounts = AccountService(engines.database)
        self._unannounced = directory.unannounced_path
        self.first_start: FirstStart | None = first_start(
            engines.database,
            accounts,
            self._unannounced,
            api_key=settings.bootstrap_api_key,
            project_token=settings.bootstrap_project_token,
        )
        self._build(engines, secrets, directory.socket_path, accounts)

    @classmethod
    def open(cls, settings: Settings, *, accept_loss: bool = False, deliver: bool = False) -> Hoglab:
        """Take the data directory and open everything in it.

        ``accept_loss``: go on when files are missing or older than others, without what is lost by that. ``deliver``:
        let go the runs that are held since a restore.

        Raises `DirectoryError`, `DatabaseError`, `EventStoreUnavailableError`, `AccountError`, `SecretsError`,
        `InvalidAllowanceError` and `GeoIpError`: all with a message of one line.
        """
        with ExitStack() as resources:
            directory = resources.enter_context(DataDirectory.open(settings.data))
            hoglab = cls(settings, directory, resources, accept_loss=accept_loss, deliver=deliver)
            hoglab._resources = resources.pop_all()
            return hoglab

    def _open_engines(
        self, directory: DataDirectory, *, accept_loss: bool, deliver: bool
    ) -> tuple[Engines, SecretBox]:
        """The engines of the directory, which belong together and to the secret keys."""
        settings = self._settings
        present = Present.in_directory(directory)
        present = check_metadata_present(directory, present, accept_loss=accept_loss)
        self._lost_commits = {
            path.name: text
            for path in (directory.metadata_path, directory.queue_path)
            if (text := lost_commits(path)) is not None
        }
        for text in self._lost_commits.values():
            _log.error("commits_lost", finding=text)
        engines = self._resources.enter_context(Engines.on(directory, engine_options(settings)))
        if deliver:
            _log.info("held_runs_released", runs=release(engines.queue_database))
        secrets = SecretBox.open(directory, settings.secret_keys)
        files = Installation(
            directory, present, engines.database, engines.queue_database, engines.log, engines.store
        )
        files.check(accept_loss=accept_loss)
        check_secrets(engines.database, secrets, directory, accept_loss=accept_loss)
        if accept_loss:
            engines.database.accept_rows()
        files.begin(engines.store)
        keep_check(engines.database, secrets)
        return engines, secrets

    def _build(
        self, engines: Engines, secrets: SecretBox, socket_path: Path, accounts: AccountService
    ) -> None:
        settings, database, store = self._settings, engines.database, engines.store
        people = PersonService(database)
        capture = self._opened(
            Capture(
                engines.log,
                accounts.project_by_token,
                accounts.project,
                has_several_projects=accounts.has_several_projects,
                limits=CaptureLimits(batch_body=settings.max_request_bytes),
            ),
            Capture.close,
        )
        geoip = (
            None
            if settings.geoip_database is None
            else self._opened(GeoIp(settings.geoip_database), GeoIp.close)
        )
        functions = FunctionRegistry(
            database,
            secrets,
            geoip=None if geoip is None else geoip.city,
            limits=replace(EXPRESSION_LIMITS, time_s=settings.filter_time_s),
        )
        delivery = Delivery(
            engines.invocations,
            engines.queue_database,
            functions,
            people,
            secrets,
            AddressGuard.create(settings.fetch_allow_cidrs, settings.fetch_allow_hosts),
            site_url=settings.public_url,
            capture=capture.accept_own,
            on_state_change=StateChanges(database),
            bodies=BodyLimits(
                time_s=settings.function_time_s,
                calls=settings.function_calls,
                program_bytes=settings.function_program_bytes,
                processes=settings.function_processes,
                memory_bytes=settings.function_memory_bytes,
            ),
            fetch_limits=FetchLimits(
                total_s=settings.fetch_timeout_s,
                max_request_bytes=settings.fetch_max_request_bytes,
                max_response_bytes=settings.fetch_max_response_bytes,
            ),
            geoip_database=settings.geoip_database,
            mail_server=settings.mail_server,
            retries=settings.retries,
        )
        quarantine = Quarantine(engines.queue_database, max_bytes=settings.quarantine_max_bytes)
        ingestion = Ingestion(
            engines.log,
            store,
            people,
            accounts.project,
            quarantine,
            dispatcher=delivery.dispatcher,
            transformer=Transformations(
                functions,
                delivery.transforming,
                record=delivery.record,
                is_stopped=delivery.watcher.is_disabled,
                is_slowed=delivery.watcher.is_degraded,
                watch=delivery.observe_transformation,
                shares=delivery.shares,
                site_url=settings.public_url,
            ),
            flag_calls=FlagCalls(database),
        )
        erasing = PersonErasing(
            database,
            engines.queue_database,
            people.known,
            engines.log,
            store,
            ingested=lambda: ingestion.position,
            without=without_persons,
            forget_results=lambda: kept_for_results.forget(),
        )
        flags = FlagService(database, experiments=linked_experiments, cipher=secrets)
        evaluator = self._opened(
            FlagEvaluator(
                database,
                FlagRegistry(database, experiments=linked_experiments),
                accounts.project_by_token,
                people.known,
                None if geoip is None else geoip.place,
            ),
            FlagEvaluator.close,
        )
        catch_up = CatchUp(engines.log, store)
        cohort_service = CohortService(
            database, users=flags_naming_cohort, actions=action_names, catch_up=catch_up
        )
        experiments = ExperimentService(
            database,
            flags,
            cohort_service,
            metric_problem=metric_problem,
            exposure_problem=exposure_problem,
        )
        kept_for_results = AggregateCache(
            store,
            timeout_s=settings.query_timeout_s,
            limits=StateLimits(bytes=settings.results_state_max_bytes),
        )
        results = ResultsService(
            database,
            store,
            experiments,
            projects=accounts.project,
            query_timeout_s=settings.query_timeout_s,
            refresh_s=settings.results_refresh_s,
            tables=engines.tables,
            state=kept_for_results,
        )
        function_service = FunctionService(
            database, secrets, delivery.states, check_tests=TestCases(delivery)
        )
        integrity = IntegrityWatch({"hoglab.db": database, "queue.db": engines.queue_database})
        self.problems: Callable[[], list[Problem]] = lambda: _problems(
            engines, ingestion, quarantine, functions, delivery, integrity, self._lost_commits
        )
        streams = Streams()
        backfills = Backfills(delivery, store, catch_up=catch_up)
        calculator = CohortCalculator(database, behaviour=performers(database, store), catch_up=catch_up)
        # In the order of starting; stopped the other way round, so that nothing feeds what has ended.
        self._background: list[Service] = [
            ChangeWatch(database, self.witness),
            integrity,
            accounts.usage,
            *(() if geoip is None else (GeoIpByDefault(database, secrets),)),
            Recompiler(database, secrets),
            calculator,
            delivery,
            delivery.internal_events(database),
            backfills,
            ingestion,
            ResultsRunner(results, catch_up=catch_up),
            ExportService(store, socket_path, catch_up=catch_up),
            Upkeep(store, chores=_chores(settings, engines, accounts, erasing, kept_for_results)),
        ]
        self.http: HoglabApp = self._opened(
            build_app(
                [
                    *account_routes.routers(accounts, database),
                    *_experiment_routers(experiments, accounts, store, flags, evaluator, catch_up),
                    *results_routes.routers(results, store),
                    actions_router(ActionService(database)),
                    warehouse_router(WarehouseService(database, engines.tables)),
                    flag_routes.router(database, flags, evaluator),
                    template_routes.router(database),
                    function_routes.router(function_service),
                    dead_event_router(delivery),
                    backfill_router(backfills, database),
                    sample_router(delivery, function_service, database, store, catch_up),
                    run_router(delivery, database),
                    delivery_routes.router(delivery, function_service, database, streams),
                    events_router(store, database),
                    warnings_router(database),
                    quarantine_router(quarantine),
                    people_routes.persons_router(database, erasing),
                    people_routes.groups_router(database),
                    cohorts_router(database, cohort_service, calculator.progress),
                ],
                {**capture_routes(capture), **hot_routes(evaluator, accounts)},
                accounts,
                HttpSettings(
                    public_url=settings.site_url,
                    rate_limit_enabled=settings.rate_limit_enabled,
                    access_log=settings.access_log,
                    max_body_bytes=settings.max_request_bytes,
                    body_budget_bytes=settings.request_memory_bytes,
                    metrics_token=settings.metrics_secret,
                ),
                sdk_routes=sdk_routes(
                    evaluator, sdk_files=settings.sdk_files, site_apps=SiteFunctions(database)
                ),
                public_routes=[
                    *webhook_routes(delivery.webhooks),
                    *template_routes.public_routes(database),
                ],
                extra_paths={
                    **capture_paths(),
                    **flag_paths(),
                    **webhook_paths(),
                    **template_routes.public_paths(),
                },
                checks=self.problems,
                idempotency=Idempotency(database, secrets),
                streams=streams,
                lag_s=ingestion.lag_s,
            ),
            HoglabApp.close,
        )

    def _opened(self, thing: T, close: Callable[[T], object]) -> T:
        """Remember to close something, in the reverse order of opening."""
        self._resources.callback(close, thing)
        return thing

    def announced(self) -> None:
        """Note that the operator was shown `first_start`."""
        self._unannounced.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the background services."""
        for service in self._background:
            service.start()
            self._started.append(service)
        calm_garbage_collector()

    def stop(self) -> None:
        """Let the background services finish what they are doing, then close everything."""
        deadline = time.monotonic() + STOP_BUDGET_S
        for service in reversed(self._started):
            service.stop(max(0.1, deadline - time.monotonic()))
        self._resources.close()
        gc.unfreeze()  # or the interpreter's end finds objects that nothing collects


def _chores(
    settings: Settings,
    engines: Engines,
    accounts: AccountService,
    erasing: PersonErasing,
    kept: AggregateCache,
) -> list[Chore]:
    """What is done by and by, so that nothing grows for ever and nobody stays who is to be forgotten."""
    database, failures = engines.database, (DatabaseError, BusyError)
    retention = EventRetention(
        database,
        engines.store,
        accounts.projects,
        most_days=settings.event_retention_days,
        forget_results=kept.forget,
    )
    return [
        Chore("erasure", ERASE_EVERY_S, erasing.carry_out, failures),
        Chore("person search", FILL_EVERY_S, erasing.fill_search, failures),
        Chore("event retention", TIDY_EVERY_S, retention.expire, failures),
        Chore("activity log", TIDY_EVERY_S, lambda: activity.forget_old(database), failures),
        Chore("space", TIDY_EVERY_S, database.give_back, failures),
    ]


def _experiment_routers(
    experiments: ExperimentService,
    accounts: AccountService,
    store: EventStoreEngine,
    flags: FlagService,
    evaluator: FlagEvaluator,
    catch_up: CatchUp,
) -> list[ResourceRouter]:
    views = flag_routes.FlagViews(experiments.database, flags)
    return [
        experiments_router(
            experiments,
            ExperimentReads(experiments.database),
            Lifecycle(experiments, performers_on_request(experiments.database, store, catch_up=catch_up)),
            ExperimentExtras(experiments, flag_property_seen=flag_property_seen(store)),
            ExposureCohorts(experiments),
            project_by_id=accounts.project,
            eligible_flags=lambda call: eligible_flags(call, evaluator.registry, views),
        ),
        project_config_router(accounts),
        holdouts_router(HoldoutService(experiments)),
        saved_metrics_router(SavedMetricService(experiments)),
    ]


def _problems(
    engines: Engines,
    ingestion: Ingestion,
    quarantine: Quarantine,
    functions: FunctionRegistry,
    delivery: Delivery,
    integrity: IntegrityWatch,
    lost: Mapping[str, str],
) -> list[Problem]:
    """What does not work as it should now. ``lost``: what write-ahead logs lacked at the start, by database files."""
    problems = [
        Problem(
            "database",
            f"{name} is damaged ({text}): run `hoglab check --full`, restore a backup",
            blocks=False,
        )
        for name, text in integrity.damages().items()
    ]
    problems += [
        Problem(
            "database" if name == "hoglab.db" else "queue",
            f"{text} Unless the power failed, changes that were answered are lost: restore a backup, or start again",
            blocks=False,
        )
        for name, text in lost.items()
    ]
    for database, name in ((engines.database, "database"), (engines.queue_database, "queue")):
        try:
            database.check()
        except DatabaseError as error:
            problems.append(Problem(name, str(error), blocks=False))
    try:
        engines.log.check()
    except EventLogFullError as error:
        problems.append(Problem("event log", str(error)))
    try:
        engines.store.check()
    except (EventStoreUnavailableError, QueryError) as error:
        problems.append(Problem("event store", str(error)))
    if engines.store.damage is not None:
        text = (
            f"events.duckdb is damaged ({engines.store.damage}): run `hoglab check --full`, restore a backup"
        )
        problems.append(Problem("event store", text, blocks=False))
    if not ingestion.is_alive():
        problems.append(Problem("ingestion", "is not running; restart the server"))
    elif (fault := ingestion.fault) is not None:
        problems.append(Problem("ingestion", fault, blocks=False))
    elif (lag_s := ingestion.lag_s()) > LATE_S:
        problems.append(Problem("ingestion", f"events wait {lag_s:.0f} s to be stored", blocks=False))
    with suppress(DatabaseError):  # told above
        kept = quarantine.state()
        if kept.records:
            size = f"{kept.records} records ({kept.bytes} bytes of {quarantine.max_bytes})"
            text = f"{size} could not be processed: look at them with `hoglab ingestion quarantine list`"
            problems.append(Problem("quarantine", text, blocks=False))
    if unusable := functions.unusable():
        text = f"{unusable} enabled functions cannot be loaded and do not run: the server's log says why"
        problems.append(Problem("functions", text, blocks=False))
    with suppress(DatabaseError):
        if held := held_runs(engines.queue_database):
            text = f"{held} runs from before the restore are held: `hoglab serve --deliver` lets them go"
            problems.append(Problem("delivery", text, blocks=False))
    if not delivery.is_alive():
        problems.append(Problem("delivery", "is not running; restart the server"))
    problems += [Problem("delivery", text, blocks=False) for text in delivery.problems()]
    return problems


def calm_garbage_collector() -> None:
    """Keep what lives as long as the server out of every collection, and collect less often.

    Batches of events are many objects without cycles; looking at them all the time took 10–20 % of ingestion.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
