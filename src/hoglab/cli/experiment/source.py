"""Sources of answers for the commands about experiments: a running server, or the data directory itself."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hoglab.cli.accounts.opening import opened_accounts
from hoglab.cli.api_client import ApiClient, RequestRefusedError
from hoglab.cli.errors import OperatorError
from hoglab.cli.options import existing_settings
from hoglab.http.logs import configure_logging

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.settings import Settings
    from hoglab.storage.directory import DataDirectory

TIMEOUT_S = 600.0
SCOPES = ("experiment:read", "query:read", "project:read")
ASK_AGAIN_S = 0.5
"""Interval in seconds at which a server is asked again for results that it is still computing."""
KEY_LASTS = timedelta(minutes=5)
"""Lifetime of the key of a command, should the command not live to revoke it; a command that lives renews it."""
PAGE = 100
"""Number of experiments that are read at once for a list."""
RENEW_S = 60.0
"""Interval at which the key of a command is renewed."""


class AnswerError(Exception):
    """A question that has no answer; the text is one line."""


class Source(Protocol):
    """Answers in the API's JSON. Raises `AnswerError`."""

    def experiment(self, experiment_id: int) -> dict[str, Any]:
        """Return an experiment in full form."""
        ...

    def experiments(self) -> Iterator[dict[str, Any]]:
        """Yield the experiments that are not archived in full form, the newest first."""
        ...

    def defaults(self) -> dict[str, Any]:
        """Return defaults for experiments of the project; empty for callers who may not read them."""
        ...

    def results(self, experiment_id: int) -> dict[str, Any]:
        """Return all present results: metrics, exposures, health and the verdict."""
        ...

    def series(self, experiment_id: int, metric: Mapping[str, Any]) -> dict[str, Any]:
        """Return the daily results of one of its metrics."""
        ...

    def query(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a query."""
        ...


@contextmanager
def opened_source(
    data: Path | None, project_id: int, *, host: str | None = None, key: str | None = None
) -> Iterator[Source]:
    """Provide the server at ``host``, else the data directory, else the server that has it. Raises `OperatorError`.

    Without a ``key`` one is made for the command, which may only read, and is revoked at its end.
    """
    from hoglab.storage.directory import DataDirectory, DirectoryError, DirectoryLockedError

    if host is not None and key is not None:
        yield _Remote(host, key, project_id)
        return
    settings = existing_settings(data)
    try:
        directory = None if host is not None else DataDirectory.open(settings.data)
    except DirectoryLockedError:
        directory = None
    except DirectoryError as error:
        raise OperatorError(str(error)) from error
    if directory is not None:
        with directory, _local(settings, directory, project_id) as local:
            yield local
        return
    with opened_accounts(settings.data) as accounts:
        _project(accounts, project_id)
        with _temporary_key(accounts, project_id, key) as usable:
            yield _Remote(host or settings.public_url, usable, project_id)


@contextmanager
def _temporary_key(accounts: AccountService, project_id: int, given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    key = accounts.create_key(
        accounts.owner_id(),
        f"hoglab experiment {secrets.token_hex(3)}",
        list(SCOPES),
        scoped_projects=[project_id],
        expires_at=datetime.now(UTC) + KEY_LASTS,
    )
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(accounts, key.id, ended), daemon=True)
    renewing.start()
    try:
        yield key.value
    finally:
        ended.set()
        renewing.join()
        accounts.revoke_key(key.id)


def _renew(accounts: AccountService, key_id: str, ended: threading.Event) -> None:
    """Let a key live on until the command ends."""
    while not ended.wait(RENEW_S):
        accounts.update_key(key_id, {"expires_at": datetime.now(UTC) + KEY_LASTS})


def _project(accounts: AccountService, project_id: int) -> Any:
    project = accounts.project(project_id)
    if project is None:
        raise OperatorError(f"there is no project {project_id}")
    return project


class _Remote:
    """A server, by its API."""

    def __init__(self, host: str, key: str, project_id: int) -> None:
        self._api = ApiClient(host, key, project_id, timeout_s=TIMEOUT_S)

    def experiment(self, experiment_id: int) -> dict[str, Any]:
        return self._answer(self._api.get, f"/experiments/{experiment_id}/")

    def experiments(self) -> Iterator[dict[str, Any]]:
        return self._api.pages("/experiments/")

    def defaults(self) -> dict[str, Any]:
        try:
            return self._answer(self._api.get, "/experiments_config/")
        except RequestRefusedError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # a key that was given may be for experiments alone
                return {}
            raise

    def results(self, experiment_id: int) -> dict[str, Any]:
        path, deadline = f"/experiments/{experiment_id}/results/", time.monotonic() + TIMEOUT_S
        results = self._answer(self._api.get, path, refresh="true")
        while results["status"] == "partial" and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN_S)
            results = self._answer(self._api.get, path)
        return results

    def series(self, experiment_id: int, metric: Mapping[str, Any]) -> dict[str, Any]:
        asked = {"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]}
        return self._answer(self._api.get, f"/experiments/{experiment_id}/timeseries_results/", **asked)

    def query(self, query: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer(self._api.post, "/query/", {"query": query})

    @staticmethod
    def _answer(ask: Callable[..., Any], *asked: Any, **more: Any) -> dict[str, Any]:
        try:
            return dict(ask(*asked, **more))
        except RequestRefusedError as error:
            if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise
            raise AnswerError(error.reason) from error


@contextmanager
def _local(settings: Settings, directory: DataDirectory, project_id: int) -> Iterator[Source]:
    """Provide the rooms behind the API, on a directory that no server has."""
    from hoglab.accounts.service import AccountService
    from hoglab.settings.rooms import engine_options
    from hoglab.storage.database import Database, DatabaseError
    from hoglab.storage.engines import open_event_store
    from hoglab.storage.event_store import EventStoreUnavailableError

    with ExitStack() as opened:
        opened.enter_context(_quiet())
        try:
            database = Database.open(settings.database_address or directory.metadata_path)
            opened.callback(database.dispose)
            # The lock of the directory is ours, so that no server has the aggregate cache open.
            events = opened.enter_context(open_event_store(directory, engine_options(settings)))
        except (DatabaseError, EventStoreUnavailableError) as error:
            raise OperatorError(str(error)) from error
        accounts = AccountService(database)
        yield _Local(database, events, accounts, _project(accounts, project_id), settings)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence log lines below errors: the answer says why a result is missing; defects are still shown."""
    import structlog

    root = logging.getLogger()
    before, handlers, level = structlog.get_config(), root.handlers[:], root.level
    configure_logging("error")
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
        structlog.configure(**before)


class _Local:
    """The rooms that answer the API's requests, without the requests."""

    def __init__(
        self, database: Any, events: Any, accounts: AccountService, project: Any, settings: Settings
    ) -> None:
        from hoglab.analysis.api import LiveResults
        from hoglab.analysis.execution import Computer
        from hoglab.analysis.incremental import AggregateCache, CacheLimits
        from hoglab.analysis.results import ExperimentResults, ExposureCounts
        from hoglab.analysis.timeseries import ResultsConfig, ResultsService, stored_groups
        from hoglab.experiments.api.reading import ExperimentReads
        from hoglab.experiments.service import ExperimentService
        from hoglab.flags.service import FlagService
        from hoglab.people.cohorts import CohortService
        from hoglab.storage.job_leases import JobLeases
        from hoglab.storage.table_files import TableDirectory

        self._reads = ExperimentReads(database)
        self._accounts = accounts
        self._project = project
        jobs = JobLeases(database)
        if settings.event_store_address is None:  # else a server may be at work that has another directory
            jobs.take_over()
        computer = Computer(
            events,
            stored_groups(database),
            timeout_s=settings.query_timeout_s,
            tables=TableDirectory(settings.warehouse_directory),
            aggregate_cache=AggregateCache(
                events,
                timeout_s=settings.query_timeout_s,
                limits=CacheLimits(bytes=settings.aggregate_cache_max_bytes),
            ),
        )
        self._results = ResultsService(
            database,
            computer,
            ExperimentService(database, FlagService(database), CohortService(database)),
            accounts.project,
            jobs,
            events.position,
            ResultsConfig(query_timeout_s=settings.query_timeout_s),
        )
        exposures = ExposureCounts(self._results)
        self._live = LiveResults(self._results, exposures)
        self._whole = ExperimentResults.of(self._results, events, budget_s=None)

    def experiment(self, experiment_id: int) -> dict[str, Any]:
        with _as_answers():
            experiment: dict[str, Any] = json.loads(self._reads.read(self._actor(), experiment_id).body)
            return experiment

    def experiments(self) -> Iterator[dict[str, Any]]:
        from hoglab.http.responses import encode_json

        actor, offset, count = self._actor(), 0, 1
        while offset < count:
            with _as_answers():
                page, count = self._reads.page(actor, lambda _: None, limit=PAGE, offset=offset)
            yield from json.loads(encode_json(page))
            offset += PAGE

    def defaults(self) -> dict[str, Any]:
        return dict(self._project.experiment_defaults)

    def _actor(self) -> Any:
        """Return the owner at work: a user of the directory may see everything in it."""
        from hoglab.experiments.actor import Actor

        return Actor(self._project, self._owner(), self._results.now())

    def _owner(self) -> Any:
        from hoglab.http.identity import Level, Principal

        user_id = self._accounts.owner_id()
        user = self._accounts.users([user_id])[user_id]
        organization = self._project.organization_id
        return Principal(user, "", frozenset({"*"}), {organization: Level.OWNER}).at(organization)

    def results(self, experiment_id: int) -> dict[str, Any]:
        from hoglab.http.responses import encode_json

        with _as_answers():
            results = self._whole.read(self._project, experiment_id, refresh=True)
            # As it comes from a server.
            shown: dict[str, Any] = json.loads(encode_json(results))
            return shown

    def series(self, experiment_id: int, metric: Mapping[str, Any]) -> dict[str, Any]:
        with _as_answers():
            return self._results.timeseries(
                self._project, experiment_id, metric["uuid"], metric["fingerprint"]
            )

    def query(self, query: Mapping[str, Any]) -> dict[str, Any]:
        from hoglab.analysis.api import QueryBody

        with _as_answers():
            answer, _ = self._live.answer(self._project, QueryBody(query=dict(query)))
            return answer


@contextmanager
def _as_answers() -> Iterator[None]:
    """Translate refusals of a request into `AnswerError`."""
    from hoglab.http.errors import WireError

    try:
        yield
    except WireError as error:
        raise AnswerError(str((error.body or {}).get("detail"))) from error
