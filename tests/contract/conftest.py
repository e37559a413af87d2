"""The whole application in this process, and for each test a project of its own in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update
from tests.contract.described import Described
from tests.split import BESIDE, SHAPE, SplitTransport, secret_key
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.app.server import JoiningProcess
from hoglab.settings import Settings
from hoglab.storage.database import Database
from hoglab.storage.database.tables import cohort

DOCUMENT = Path(__file__).parents[2] / "docs" / "api" / "openapi.json"
OWNER_KEY = "phx_" + "k" * 43
TOKEN = "phc_" + "t" * 43
ABSOLUTE = ("/api", "/batch", "/flags")
POLL_S = 0.02


@dataclass(frozen=True)
class Api:
    """A client of one project. Paths are relative to the project unless they begin with one of `ABSOLUTE`."""

    data: Path
    metadata: str | Path
    client: httpx.AsyncClient
    runner: asyncio.Runner
    project_id: int
    key: str | None = OWNER_KEY

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """The answer, whatever it is. ``body`` is sent as JSON; ``content`` and ``data`` as they are."""
        headers = dict(options.pop("headers", {}))
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        if body is not None:
            options["json"] = body
        url = path if path.startswith(ABSOLUTE) else f"/api/projects/{self.project_id}{path}"
        return self.runner.run(self.client.request(method, url, headers=headers, **options))

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any) -> Any:
        """The body of an answer that must be a success."""
        answer = self.call(method, path, body, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    def refused(
        self, method: str, path: str, body: Any = None, *, status: int = 400, **options: Any
    ) -> dict[str, Any]:
        """The error of an answer that must be one."""
        answer = self.call(method, path, body, **options)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()
        assert list(error) == ["type", "code", "detail", "attr"], error
        return error

    def with_key(self, key: str | None) -> Api:
        return replace(self, key=key)

    def new_key(self, *scopes: str, **limits: Any) -> str:
        """A further key of the owner."""
        body = {"label": "test", "scopes": list(scopes), **limits}
        made: str = self.ok("POST", "/api/personal_api_keys/", body, status=201)["value"]
        return made

    def token(self) -> str:
        """What SDKs of the project send."""
        found: str = self.ok("GET", f"/api/projects/{self.project_id}/")["api_token"]
        return found

    def capture(self, *events: dict[str, Any]) -> None:
        """Send events as an SDK does, and wait until they can be read back. Moments default to now."""
        body = {"api_key": self.token(), "batch": list(events)}
        before = self._stored()
        self.ok("POST", "/batch/", body)
        self.until(lambda: self._stored() >= before + len(events))

    def _stored(self) -> int:
        return len(self.ok("GET", "/events/?limit=1000")["results"])

    def until(self, condition: Callable[[], Any]) -> Any:
        """The first result of ``condition`` that is true; what the background does takes a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < deadline, "waited for too long"
            time.sleep(POLL_S)
        return found

    def variant(self, key: str, distinct_id: str) -> Any:
        """What a flag gives to a person now."""
        body = {"token": self.token(), "distinct_id": distinct_id}
        flags = self.ok("POST", "/flags/?v=2", body)["flags"]
        return flags[key]["variant"] or flags[key]["enabled"]

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The metadata, for what no endpoint can arrange."""
        database = Database.open(self.metadata)
        yield database
        database.dispose()

    def lose_cohort(self, cohort_id: int) -> None:
        """Delete a cohort that is in use, as an earlier version could."""
        with self.database() as database, database.write() as tx:
            deletion = update(cohort).where(cohort.c.id == cohort_id).values(deleted=True)
            assert tx.connection.execute(deletion).rowcount == 1
            tx.changed("cohorts", self.project_id)

    def experiment(self, key: str = "button", **fields: Any) -> dict[str, Any]:
        """A new experiment."""
        body = {"name": "Button", "feature_flag_key": key, **fields}
        made: dict[str, Any] = self.ok("POST", "/experiments/", body, status=201)
        return made


@dataclass(frozen=True)
class Laboratory:
    """One application; ``api`` makes a client for a new project of it."""

    hoglab: Hoglab
    data: Path
    metadata: str | Path
    client: httpx.AsyncClient
    runner: asyncio.Runner

    def api(self) -> Api:
        first = Api(self.data, self.metadata, self.client, self.runner, 1)
        made = first.ok("POST", "/api/organizations/@current/projects/", {"name": "Contract"}, status=201)
        return replace(first, project_id=made["id"])


@pytest.fixture(scope="session")
def open_laboratory(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str | None]
) -> Iterator[Callable[..., Laboratory]]:
    """Open an application with settings of its own. Every answer is held against the OpenAPI document."""
    opened: list[Laboratory] = []
    beside: list[JoiningProcess] = []
    described = Described(json.loads(DOCUMENT.read_bytes()))

    async def check(answer: httpx.Response) -> None:
        await answer.aread()
        described.check(answer)

    with asyncio.Runner() as runner:

        def open_with(**settings: Any) -> Laboratory:
            data = tmp_path_factory.mktemp("contract") / "data"
            url = new_database()
            shared = {"database_url": url, "data": data, "access_log": False, **settings}
            first = {"bootstrap_api_key": OWNER_KEY, "bootstrap_project_token": TOKEN}
            transport: httpx.AsyncBaseTransport
            if SHAPE == "split":
                shared["secret_keys"] = (secret_key(data),)
                hoglab = Hoglab.open(Settings(role="core", **shared, **first))
                others = [JoiningProcess.open(Settings(role=role, **shared)) for role in BESIDE]
                edges = [each.http for role, each in zip(BESIDE, others, strict=True) if role == "edge"]
                transport = SplitTransport(hoglab.http, edges)
            else:
                hoglab, others = Hoglab.open(Settings(**shared, **first)), []
                transport = httpx.ASGITransport(hoglab.http, raise_app_exceptions=False)
            for each in (hoglab, *others):
                each.start()
            beside.extend(others)
            hoglab.http.end_streams()  # this client waits for the end of each answer; streams are refused
            client = httpx.AsyncClient(
                transport=transport, base_url="http://hoglab.test", event_hooks={"response": [check]}
            )
            opened.append(Laboratory(hoglab, data, url or data / "hoglab.db", client, runner))
            return opened[-1]

        yield open_with
        for other in beside:
            other.stop()
        for each in opened:
            runner.run(each.client.aclose())
            each.hoglab.stop()


@pytest.fixture(scope="session")
def laboratory(open_laboratory: Callable[..., Laboratory]) -> Laboratory:
    """The application that most tests share."""
    return open_laboratory()


@pytest.fixture
def api(laboratory: Laboratory) -> Api:
    """A client of a new project."""
    return laboratory.api()
