"""Experiments and their results behind the real application, with a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import httpx
from tests.analysis.events import Event, store_events
from tests.apps import app_of
from tests.embedded import EmbeddedEventStore

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.actions.routes import actions_router
from hoglab.actions.service import ActionService
from hoglab.analysis.api.routes import routers
from hoglab.analysis.definitions.flag_properties import flag_property_seen
from hoglab.analysis.definitions.metric_problems import exposure_problem, metric_problem
from hoglab.analysis.execution import Computer
from hoglab.analysis.execution.behaviour import performers_on_request
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, CacheLimits
from hoglab.analysis.results import ExperimentResults, judge_by
from hoglab.analysis.timeseries.scheduler import ResultsRunner
from hoglab.analysis.timeseries.service import ResultsConfig, ResultsService, stored_groups
from hoglab.experiments import store as experiments_store
from hoglab.experiments.api.reading import ExperimentReads
from hoglab.experiments.api.routes import experiments_router, saved_metrics_router
from hoglab.experiments.exposed import ExposureCohorts
from hoglab.experiments.extras import ExperimentExtras
from hoglab.experiments.lifecycle import Lifecycle
from hoglab.experiments.linkage import keep_shares, linked_experiments
from hoglab.experiments.saved_metrics import SavedMetricService
from hoglab.experiments.service import ExperimentService
from hoglab.flags.service import FlagService
from hoglab.people.cohorts import CohortService
from hoglab.people.cohorts.routes import cohorts_router
from hoglab.storage.database import Database
from hoglab.storage.job_leases import JobLeases
from hoglab.storage.table_files import TableDirectory
from hoglab.warehouse.routes import warehouse_router
from hoglab.warehouse.service import WarehouseService

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)

PURCHASES = {
    "kind": "ExperimentMetric",
    "metric_type": "funnel",
    "name": "Purchase rate",
    "series": [{"kind": "EventsNode", "event": "purchase"}],
}
REVENUE = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Revenue",
    "source": {"kind": "EventsNode", "event": "purchase", "math": "sum", "math_property": "amount"},
}

BOUGHT_AGAIN = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "name": "Bought again",
    "start_event": {"kind": "EventsNode", "event": "purchase"},
    "completion_event": {"kind": "EventsNode", "event": "purchase"},
    "retention_window_start": 1,
    "retention_window_end": 3,
    "retention_window_unit": "day",
    "start_handling": "first_seen",
}


@cache
def _filled_database() -> bytes:
    """Return a file with one project, to begin with: making one takes longer than most tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "hoglab.db"
        database = Database.open(path)
        bootstrap(database, AccountService(database), api_key=KEY, project_token=TOKEN)
        database.dispose()
        return path.read_bytes()


class Lab:
    """A server with one project; ``now`` can be moved. ``keeps``: results keep what they made of events, from the
    first event on."""

    def __init__(
        self,
        path: Path,
        *,
        refresh_s: float = 60,
        keeps: bool = False,
        address: str | Path | None = None,
        beside: Lab | None = None,
    ) -> None:
        """``address``: of the database, if it is not in the folder. ``beside``: another server on the same."""
        self.now = NOW
        if address is None and not (path / "hoglab.db").exists():
            (path / "hoglab.db").write_bytes(_filled_database())
        self.database = Database.open(address or path / "hoglab.db")
        self.accounts = AccountService(self.database)
        bootstrap(self.database, self.accounts, api_key=KEY, project_token=TOKEN)
        self.tables = TableDirectory(path / "tables")
        self.events = (
            EmbeddedEventStore(
                path / "events.duckdb",
                memory="512MB",
                threads=2,
                tables=self.tables,
                cache_path=path / "state.duckdb" if keeps else None,
            )
            if beside is None
            else beside.events
        )
        cohorts = CohortService(self.database)
        self.experiments = experiments = ExperimentService(
            self.database,
            FlagService(
                self.database, experiments=linked_experiments, on_change=keep_shares, now=lambda: self.now
            ),
            cohorts,
            metric_problem=partial(metric_problem, self.events.dialect),
            exposure_problem=partial(exposure_problem, self.events.dialect),
            now=lambda: self.now,
        )
        jobs = JobLeases(self.database)
        if beside is None:
            jobs.take_over()
        computer = Computer(
            self.events,
            stored_groups(self.database),
            timeout_s=30,
            tables=self.tables,
            aggregate_cache=AggregateCache(self.events, timeout_s=30, limits=CacheLimits(min_events=0)),
        )
        self.service = ResultsService(
            self.database,
            computer,
            experiments,
            self.accounts.project,
            jobs,
            self.events.position,
            ResultsConfig(query_timeout_s=30, refresh_s=refresh_s),
        )
        experiments.judge = judge_by(ExperimentResults.of(self.service, self.events, budget_s=None))
        self.runner = ResultsRunner(self.service)
        extras = ExperimentExtras(experiments, flag_property_seen=flag_property_seen(self.events))
        self._app = app_of(
            self.accounts,
            *routers(self.service, self.events),
            saved_metrics_router(SavedMetricService(experiments)),
            actions_router(ActionService(self.database)),
            cohorts_router(self.database, cohorts, lambda _cohort_id: None),
            warehouse_router(WarehouseService(self.database, self.tables)),
            experiments_router(
                experiments,
                ExperimentReads(self.database),
                Lifecycle(experiments, performers_on_request(self.database, self.events)),
                extras,
                ExposureCohorts(experiments),
                project_by_id=self.accounts.project,
                eligible_flags=lambda _call: {"results": [], "count": 0},
            ),
            now=lambda: self.now,
        )
        self._is_beside = beside is not None
        self._loop = asyncio.Runner()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self._app, raise_app_exceptions=False),
            base_url="http://test/api/projects/1",
            headers={"Authorization": f"Bearer {KEY}"},
        )

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return self._loop.run(self._client.request(method, path, **options))

    def together(self, requests: Sequence[tuple[str, str]]) -> list[httpx.Response]:
        """Send several requests without waiting for one another."""

        async def send() -> list[httpx.Response]:
            return await asyncio.gather(*(self._client.request(*request) for request in requests))

        return self._loop.run(send())

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any) -> Any:
        answer = self.call(method, path, body, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def experiment(self, key: str = "checkout", **fields: Any) -> dict[str, Any]:
        body = {
            "name": "Checkout",
            "feature_flag_key": key,
            "exposure_criteria": {"filterTestAccounts": False},
        }
        created: dict[str, Any] = self.ok("POST", "/experiments/", body | fields, status=201)
        return created

    def store_metrics(
        self, experiment: dict[str, Any], metrics: Sequence[dict[str, Any]], *, field: str = "metrics"
    ) -> dict[str, Any]:
        """The experiment with metrics that nobody checked, as those are whose cohort was deleted meanwhile."""
        with self.database.write() as tx:
            kept = [{"uuid": str(uuid4()), **metric} for metric in metrics]
            experiments_store.update(tx.connection, experiment["id"], {field: kept})
            tx.changed("experiments", 1)
        found: dict[str, Any] = self.ok("GET", f"/experiments/{experiment['id']}/")
        return found

    def series(self, experiment: dict[str, Any], index: int = 0) -> dict[str, Any]:
        metric = experiment["metrics"][index]
        answer: dict[str, Any] = self.ok(
            "GET",
            f"/experiments/{experiment['id']}/timeseries_results/",
            params={"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]},
        )
        return answer

    def query(self, query: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
        answer: dict[str, Any] = self.ok("POST", "/query/", {"query": query}, status=status)
        return answer

    def send(self, events: Iterable[Event], **options: Any) -> None:
        store_events(self.events, events, **options)

    def close(self) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()
        self._app.close()
        if not self._is_beside:
            self.events.close()
        self.database.dispose()


def exposed(person: str, variant: str, timestamp: datetime, key: str = "checkout") -> Event:
    properties = {"$feature_flag": key, "$feature_flag_response": variant}
    return Event(person, timestamp, "$feature_flag_called", properties)


def bought(person: str, timestamp: datetime, amount: Any) -> Event:
    return Event(person, timestamp, "purchase", {"amount": amount})
