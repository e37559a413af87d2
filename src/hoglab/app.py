"""Putting the rooms together: one server on one data directory."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from hoglab.accounts import routes as account_routes
from hoglab.accounts.bootstrap import FirstStart, bootstrap
from hoglab.accounts.service import AccountService
from hoglab.capture.routes import capture_routes
from hoglab.capture.service import Capture, CaptureLimits
from hoglab.experiments.eligible import eligible_flags
from hoglab.experiments.extras import ExperimentExtras
from hoglab.experiments.holdouts import HoldoutService
from hoglab.experiments.lifecycle import Lifecycle
from hoglab.experiments.linkage import linked_experiments
from hoglab.experiments.routes import experiments_router, holdouts_router, saved_metrics_router
from hoglab.experiments.saved_metrics import SavedMetricService
from hoglab.experiments.service import ExperimentService
from hoglab.flags import routes as flag_routes
from hoglab.flags.evaluation import FlagEvaluator
from hoglab.flags.registry import FlagRegistry
from hoglab.flags.sdk_routes import hot_routes, sdk_routes
from hoglab.flags.service import FlagService
from hoglab.functions import routes as function_routes
from hoglab.functions import template_routes
from hoglab.functions.secrets import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.app import HoglabApp, HttpSettings, build_app
from hoglab.ingestion.loop import Ingestion
from hoglab.ingestion.parking import Parking
from hoglab.ingestion.routes import events_router
from hoglab.people import PersonService
from hoglab.people import routes as people_routes
from hoglab.storage.database import Database, DatabaseError, tables
from hoglab.storage.directory import DataDirectory
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.sqlite import SqliteEventLog
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError
from hoglab.storage.event_store.duckdb import DuckDbEventStore

if TYPE_CHECKING:
    from hoglab.http.call import Call
    from hoglab.http.routing import ResourceRouter
    from hoglab.settings import Settings

REFRESH_CHANGES_S = 0.5
"""How late a change by another process (``hoglab keys revoke``, say) may be noticed."""
GC_THRESHOLDS = (20_000, 20, 100)
STOP_BUDGET_S = 8.0
"""How long the background services may take together to finish what they are doing."""

T = TypeVar("T")

_log = structlog.get_logger("hoglab")


class Hoglab:
    """Everything that one server consists of. Made with `open`; `start` and `stop` its background services."""

    def __init__(self, settings: Settings, directory: DataDirectory, resources: ExitStack) -> None:
        self.settings = settings
        self.first_start: FirstStart | None = None
        self._resources = resources
        self._background: list[Any] = []
        self._open(directory)

    @classmethod
    def open(cls, settings: Settings) -> Hoglab:
        """Take the data directory and open everything in it.

        Raises `DirectoryError`, `DatabaseError`, `EventStoreUnavailableError`, `AccountError`, `SecretsError`:
        all with a message of one line.
        """
        with ExitStack() as resources:
            directory = resources.enter_context(DataDirectory.open(settings.data))
            hoglab = cls(settings, directory, resources)
            hoglab._resources = resources.pop_all()
            return hoglab

    def _open(self, directory: DataDirectory) -> None:
        settings = self.settings
        database = self._opened(Database.open(directory.metadata_path), Database.dispose)
        accounts = AccountService(database)
        self.first_start = bootstrap(
            database,
            accounts,
            api_key=settings.bootstrap_api_key,
            project_token=settings.bootstrap_project_token,
        )
        secrets = SecretBox.open(directory, settings.secret_keys)
        log = self._opened(
            SqliteEventLog(
                directory.queue_path,
                max_backlog_bytes=settings.event_log_max_bytes,
                min_free_disk_bytes=settings.min_free_disk_bytes,
            ),
            SqliteEventLog.close,
        )
        queue = self._opened(Database.open(directory.queue_path, tables.queue_metadata), Database.dispose)
        store = self._opened(
            DuckDbEventStore(
                directory.events_path,
                memory=settings.event_store_memory,
                query_timeout_s=settings.query_timeout_s,
                min_free_disk_bytes=settings.min_free_disk_bytes,
            ),
            DuckDbEventStore.close,
        )
        people = PersonService(database)
        capture = self._opened(
            Capture(
                log, accounts.project_by_token, limits=CaptureLimits(batch_body=settings.max_request_bytes)
            ),
            Capture.close,
        )
        ingestion = Ingestion(log, store, people, accounts.project, Parking(queue))

        flags = FlagService(database, experiments=linked_experiments)
        registry = FlagRegistry(database, experiments=linked_experiments)
        evaluator = self._opened(
            FlagEvaluator(database, registry, accounts.project_by_token), FlagEvaluator.close
        )
        flag_views = flag_routes.FlagViews(database, flags)
        experiments = ExperimentService(database, flags)
        functions = FunctionService(database, secrets)

        self._background = [_ChangeWatch(database), accounts.usage, ingestion]
        self.http: HoglabApp = self._opened(
            build_app(
                [
                    *account_routes.routers(accounts, database),
                    *_experiment_routers(
                        experiments, accounts, lambda call: eligible_flags(call, registry, flag_views)
                    ),
                    events_router(store, database),
                    people_routes.persons_router(database),
                    people_routes.groups_router(database),
                    flag_routes.router(database, flags, evaluator),
                    template_routes.router(database),
                    function_routes.router(functions),
                ],
                {**capture_routes(capture), **hot_routes(evaluator, accounts)},
                accounts,
                HttpSettings(
                    public_url=settings.site_url,
                    rate_limit_enabled=settings.rate_limit_enabled,
                    access_log=settings.access_log,
                    max_body_bytes=settings.max_request_bytes,
                ),
                sdk_routes=sdk_routes(evaluator),
                readiness=lambda: _unready(log, store, ingestion),
            ),
            HoglabApp.close,
        )

    def _opened(self, thing: T, close: Callable[[T], object]) -> T:
        """Remember to close something, in the reverse order of opening."""
        self._resources.callback(close, thing)
        return thing

    def start(self) -> None:
        """Start the background services."""
        for service in self._background:
            service.start()
        _calm_garbage_collector()

    def stop(self) -> None:
        """Let the background services finish what they are doing, then close everything."""
        deadline = time.monotonic() + STOP_BUDGET_S
        for service in reversed(self._background):
            service.stop(max(0.1, deadline - time.monotonic()))
        self._resources.close()


def _calm_garbage_collector() -> None:
    """Keep what lives as long as the server out of every collection, and collect less often.

    Batches of events are many objects without cycles; looking at them all the time took 10–20 % of ingestion.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class _ChangeWatch:
    """Notices what other processes change in the metadata database: the commands of ``hoglab``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="change-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.wait(REFRESH_CHANGES_S):
            try:
                self._database.refresh_changes()
            except DatabaseError as error:
                _log.warning("changes_not_read", error=str(error))


def _experiment_routers(
    experiments: ExperimentService,
    accounts: AccountService,
    eligible: Callable[[Call], dict[str, Any]],
) -> list[ResourceRouter]:
    extras = ExperimentExtras(experiments, flag_property_seen=lambda *_: False)
    return [
        experiments_router(
            experiments,
            Lifecycle(experiments),
            extras,
            project_by_id=accounts.project,
            eligible_flags=eligible,
        ),
        holdouts_router(HoldoutService(experiments)),
        saved_metrics_router(SavedMetricService(experiments)),
    ]


def _unready(log: SqliteEventLog, store: DuckDbEventStore, ingestion: Ingestion) -> list[str]:
    """Why the server cannot take events now, in words; nothing when it can."""
    reasons = []
    try:
        log.check()
    except EventLogFullError as error:
        reasons.append(f"event log: {error}")
    try:
        store.check()
    except (EventStoreUnavailableError, QueryError) as error:
        reasons.append(f"event store: {error}")
    if not ingestion.is_alive():
        reasons.append("ingestion is not running")
    return reasons
