"""The API of hog functions on a real database, called in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from tests.apps import app_of
from tests.databases import Template, template

from hoglab.accounts.bootstrap import FirstStart, bootstrap
from hoglab.accounts.service import AccountService
from hoglab.delivery.bodies.transforming import TransformationProcess
from hoglab.functions.api import routes, template_routes
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.hog.program import ensure_stack
from hoglab.http.app import HoglabApp
from hoglab.http.identity import Project
from hoglab.storage.database import Database

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"

ensure_stack()  # before Hypothesis looks at the limit, as compiling Hog would do in the middle of a test


@dataclass
class Api:
    """Calls the application with the first key."""

    app: HoglabApp
    key: str | None
    runner: asyncio.Runner
    base: str = "/api/projects/1"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """``path`` is relative to the project unless it begins with ``/api``."""
        url = path if path.startswith("/api") else f"{self.base}{path}"
        headers = dict(options.pop("headers", {}))
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
                return await client.request(method, url, headers=headers, **options)

        return self.runner.run(go())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, json=body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, json=body, **options)

    def create(self, **body: Any) -> dict[str, Any]:
        """A function made from ``body`` with some code unless there is a template."""
        if "template_id" not in body:
            body.setdefault("hog", "return 1")
        answer = self.post("/hog_functions/", body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def change(self, function: dict[str, Any], **body: Any) -> dict[str, Any]:
        answer = self.patch(f"/hog_functions/{function['id']}/", body)
        assert answer.status_code == 200, answer.text
        changed: dict[str, Any] = answer.json()
        return changed

    def refused(self, **body: Any) -> dict[str, Any]:
        """The error that a create with this body gets."""
        if "template_id" not in body:
            body.setdefault("hog", "return 1")
        answer = self.post("/hog_functions/", body)
        assert answer.status_code == 400, answer.text
        error: dict[str, Any] = answer.json()
        return error

    def change_refused(self, function: dict[str, Any], **body: Any) -> dict[str, Any]:
        answer = self.patch(f"/hog_functions/{function['id']}/", body)
        assert answer.status_code == 400, answer.text
        error: dict[str, Any] = answer.json()
        return error


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Template:
    """A database with an organization, a project and a key, to be copied by each test."""

    def first_start(database: Database) -> None:
        bootstrap(database, AccountService(database), api_key=KEY, project_token=TOKEN)

    return template(request, "functions", first_start)


@pytest.fixture
def database(tmp_path: Path, prepared: Template) -> Iterator[Database]:
    with prepared.copied(tmp_path) as address:
        database = Database.open(address)
        yield database
        database.dispose()


@pytest.fixture
def accounts(database: Database) -> AccountService:
    return AccountService(database)


@pytest.fixture
def first() -> FirstStart:
    return FirstStart(1, KEY, TOKEN)


@pytest.fixture
def project(accounts: AccountService, first: FirstStart) -> Project:
    project = accounts.project(1)
    assert project is not None
    return project


@pytest.fixture
def box() -> SecretBox:
    return SecretBox([Fernet.generate_key().decode()])


@pytest.fixture
def service(database: Database, box: SecretBox) -> FunctionService:
    return FunctionService(database, box)


@pytest.fixture
def make_api(
    database: Database, accounts: AccountService, first: FirstStart
) -> Iterator[Callable[[FunctionService], Api]]:
    apps: list[HoglabApp] = []
    with asyncio.Runner() as runner:

        def make(service: FunctionService) -> Api:
            app = app_of(
                accounts,
                routes.router(service),
                template_routes.router(database),
                public=template_routes.public_routes(database),
            )
            apps.append(app)
            return Api(app, first.api_key, runner)

        yield make
        for app in apps:
            app.close()


@pytest.fixture
def api(make_api: Callable[[FunctionService], Api], service: FunctionService) -> Api:
    return make_api(service)


@pytest.fixture(scope="module")
def process() -> Iterator[TransformationProcess]:
    """What runs the bodies of transformations."""
    process = TransformationProcess()
    yield process
    process.close()
