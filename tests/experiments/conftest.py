"""The experiments room behind the real application, with real flags and accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.apps import app_of
from tests.databases import Template, template

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.actions.references import dependents_of
from hoglab.experiments.api.reading import ExperimentReads
from hoglab.experiments.api.routes import experiments_router, holdouts_router, saved_metrics_router
from hoglab.experiments.exposed import ExposureCohorts
from hoglab.experiments.extras import ExperimentExtras
from hoglab.experiments.holdouts import HoldoutService
from hoglab.experiments.lifecycle import Lifecycle
from hoglab.experiments.linkage import keep_shares, linked_experiments
from hoglab.experiments.saved_metrics import SavedMetricService
from hoglab.experiments.service import ExperimentService
from hoglab.flags.api.routes import router as flags_router
from hoglab.flags.evaluation.endpoint import FlagEvaluator
from hoglab.flags.matching.registry import FlagRegistry
from hoglab.flags.service import FlagService
from hoglab.flags.store import active_flags
from hoglab.people.cohorts import CohortService
from hoglab.storage.database import Database

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Lab:
    """A server with one project; ``now`` can be moved."""

    def __init__(self, address: str | Path) -> None:
        self.now = NOW
        self.database = Database.open(address)
        self.accounts = AccountService(self.database)
        self.flags = FlagService(self.database, experiments=linked_experiments, on_change=keep_shares)
        registry = FlagRegistry(self.database, experiments=linked_experiments)
        self._evaluator = FlagEvaluator(self.database, registry, self.accounts.project_by_token)
        cohorts = CohortService(self.database, users=dependents_of("cohort", [active_flags]))
        self.service = ExperimentService(self.database, self.flags, cohorts)
        self.seen_flag_properties = False
        extras = ExperimentExtras(self.service, flag_property_seen=lambda *_: self.seen_flag_properties)
        self._app = app_of(
            self.accounts,
            experiments_router(
                self.service,
                ExperimentReads(self.database),
                Lifecycle(self.service, lambda _project, _rule: ()),
                extras,
                ExposureCohorts(self.service),
                project_by_id=self.accounts.project,
                eligible_flags=lambda _call: {"results": [], "count": 0},
            ),
            holdouts_router(HoldoutService(self.service)),
            saved_metrics_router(SavedMetricService(self.service)),
            flags_router(self.database, self.flags, self._evaluator),
            now=lambda: self.now,
        )
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(
            transport=transport,
            base_url="http://test/api/projects/1",
            headers={"Authorization": f"Bearer {KEY}"},
        )

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return self._runner.run(self._client.request(method, path, **options))

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = self.call(method, path, body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any = None, *, status: int = 400) -> dict[str, Any]:
        answer = self.call(method, path, body)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()
        return error

    def create(self, key: str = "button-colour", **fields: Any) -> dict[str, Any]:
        body = {"name": "Button colour", "feature_flag_key": key, **fields}
        created: dict[str, Any] = self.ok("POST", "/experiments/", body, status=201)
        return created

    def flag(self, flag_id: int) -> dict[str, Any]:
        flag: dict[str, Any] = self.ok("GET", f"/feature_flags/{flag_id}/")
        return flag

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        self._evaluator.close()
        self._app.close()
        self.database.dispose()


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Template:
    """A database after its first start, made once."""

    def first_start(database: Database) -> None:
        bootstrap(database, AccountService(database), api_key=KEY, project_token=TOKEN)

    return template(request, "experiments", first_start)


@pytest.fixture
def lab(prepared: Template, tmp_path: Path) -> Iterator[Lab]:
    with prepared.copied(tmp_path) as address:
        lab = Lab(address)
        yield lab
        lab.close()
