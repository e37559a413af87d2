"""One server on one data directory, or a process of one on a database: opened, started and stopped."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import structlog

from hoglab.accounts.bootstrap import FirstStart, first_start
from hoglab.accounts.service import AccountService
from hoglab.app.ingestion import IngestionServices
from hoglab.app.roles import ROLES, Capability
from hoglab.app.services import Services
from hoglab.app.shared import SharedServices
from hoglab.app.web import web, web_joining
from hoglab.background import Service
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.secrets.sealed_check import (
    check_secrets,
    check_shared_secrets,
    is_prepared,
    keep_check,
)
from hoglab.http.app import HoglabApp
from hoglab.settings.rooms import engine_options
from hoglab.storage.database import Database, lost_commits
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import Engines, IngestionEngines, SharedEngines, starting_alone
from hoglab.storage.identity import ExistingFiles, Installation, check_metadata_exists
from hoglab.storage.invocations.holding import release

if TYPE_CHECKING:
    from hoglab.settings import Settings
    from hoglab.storage.event_store import EventStore

STOP_BUDGET_S = 6.0
"""Time for the background services together to finish their work."""
HTTP_GRACE_S = 2.5
"""Time for requests to finish before that; the contract with operators is ten seconds in all."""
CORE_WAIT_S = 60.0
CORE_POLL_S = 0.5
"""Time that a process waits at its start for the core to begin a new database, and interval between its looks."""
GC_THRESHOLDS = (20_000, 20, 100)

_log = structlog.get_logger("hoglab")


class NotPreparedError(Exception):
    """There is no server that a process could work beside; the text is one line for the operator."""


class ServerProcess:
    """A process of a server: call `start`, serve `http`, and call `stop`."""

    def __init__(self, http: HoglabApp, background: Sequence[Service], resources: ExitStack) -> None:
        """Take the services in the order of starting; ``resources`` is closed after all of them have ended."""
        self.http = http
        self._background = background
        self._started: list[Service] = []
        self._resources = resources
        resources.callback(http.close)

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


class JoiningProcess(ServerProcess):
    """A process that begins no installation: it waits until another process of its server has."""

    @classmethod
    def open(cls, settings: Settings) -> JoiningProcess:
        """Open what processes share. Raises what `Hoglab.open` raises, and `NotPreparedError`."""
        with ExitStack() as resources:
            services = _services_joining(settings, resources)
            beside = cls(web_joining(services), services.background(), resources)
            beside._resources = resources.pop_all()
            return beside


def _services_joining(settings: Settings, resources: ExitStack) -> SharedServices:
    """Return the services of such a process; ``resources`` closes what they work with."""
    secrets, options = SecretBox(settings.secret_keys), engine_options(settings)
    capabilities = ROLES[settings.role].capabilities

    def joined(database: Database) -> AccountService:
        _await_core(database)
        check_shared_secrets(database, secrets)
        return AccountService(database)

    if capabilities.isdisjoint({Capability.INGESTION, Capability.ANALYSIS}):
        shared = resources.enter_context(SharedEngines.on_server(options))
        return SharedServices(settings, shared, secrets, joined(shared.database), resources)
    directory = resources.enter_context(DataDirectory.open(settings.data, create=True))
    if Capability.ANALYSIS not in capabilities:
        with starting_alone(options):
            ingesting = resources.enter_context(IngestionEngines.beside(directory, options))
            _advance_sequence(ingesting, ingesting.store)
        return IngestionServices(settings, ingesting, secrets, joined(ingesting.database), resources)
    with starting_alone(options):
        engines = resources.enter_context(Engines.on(directory, options))
    accounts = joined(engines.database)
    return Services(settings, directory, engines, secrets, accounts, resources, lost_commits={})


def _advance_sequence(engines: SharedEngines, store: EventStore) -> None:
    """Have records of partitions numbered beyond every place in the store.

    There are larger ones where events were ingested from another log before, or the database was set back.
    """
    if engines.leased is not None:
        with store.reader() as reader:
            [(next_seq,)] = reader.execute("SELECT next_seq FROM store_state")
        engines.leased.leases.advance_sequence(max(store.position(), next_seq - 1))


def _await_core(database: Database) -> None:
    """Wait until the core of the server has begun to work on a new database. Raises `NotPreparedError`."""
    deadline = time.monotonic() + CORE_WAIT_S
    while not is_prepared(database):
        if time.monotonic() > deadline:
            raise NotPreparedError(
                "no core has worked on this database yet: start one, with --role core (or api), and then this process"
            )
        _log.info("waiting_for_core")
        time.sleep(CORE_POLL_S)


class Hoglab(ServerProcess):
    """Everything that one server consists of, or its core, or a process with its API. Made with `open`."""

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
        engines, secrets = self._open_engines(directory, accept_loss=accept_loss, deliver=deliver)
        self.engines = engines
        self.directory = directory
        self.accounts = accounts = AccountService(engines.database)
        self._unannounced = directory.unannounced_path
        self.first_start: FirstStart | None = first_start(
            engines.database,
            accounts,
            self._unannounced,
            api_key=settings.bootstrap_api_key,
            project_token=settings.bootstrap_project_token,
        )
        services = Services(
            settings,
            directory,
            engines,
            secrets,
            accounts,
            resources,
            lost_commits=self._lost_commits,
        )
        self.change_counter_mirror = services.change_counter_mirror
        self.sessions = services.sessions
        self.status = services.status
        self.problems = services.problems
        super().__init__(web(services), services.background(), resources)

    @classmethod
    def open(cls, settings: Settings, *, accept_loss: bool = False, deliver: bool = False) -> Hoglab:
        """Take the data directory and open everything in it.

        ``accept_loss``: go on when files are missing or older than others, without what is lost by that. ``deliver``:
        let go the runs that are held since a restore.

        Raises `DirectoryError`, `DatabaseError`, `EventStoreUnavailableError`, `AccountError`, `SecretsError`,
        `InvalidAllowanceError`, `GeoIpError` and `AssetError`: all with a message of one line.
        """
        with ExitStack() as resources:
            directory = resources.enter_context(DataDirectory.open(settings.data, create=True))
            with starting_alone(engine_options(settings)):
                hoglab = cls(settings, directory, resources, accept_loss=accept_loss, deliver=deliver)
            hoglab._resources = resources.pop_all()
            return hoglab

    def _open_engines(
        self, directory: DataDirectory, *, accept_loss: bool, deliver: bool
    ) -> tuple[Engines, SecretBox]:
        """Return the engines of the directory, which belong together and to the secret keys."""
        settings = self._settings
        on_server = settings.database_address is not None
        events_on_server = settings.event_store_address is not None
        existing = (
            ExistingFiles.on_server(directory, has_events=events_on_server)
            if on_server
            else ExistingFiles.in_directory(directory)
        )
        existing = check_metadata_exists(directory, existing, accept_loss=accept_loss)
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
            directory, existing, engines.database, engines.queue_database, engines.log, engines.store
        )
        files.check(accept_loss=accept_loss)
        check_secrets(engines.database, secrets, directory, accept_loss=accept_loss)
        if accept_loss:
            for file in engines.database.files:
                file.accept_rows()
        files.begin(engines.store)
        _advance_sequence(engines, engines.store)
        keep_check(engines.database, secrets)
        return engines, secrets

    def announced(self) -> None:
        """Note that the operator was shown `first_start`."""
        self._unannounced.unlink(missing_ok=True)


def calm_garbage_collector() -> None:
    """Keep what lives as long as the server out of every collection, and collect less often.

    Batches of events are many objects without cycles; looking at them all the time took 10–20 % of ingestion.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
