from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.apps import app_of
from tests.databases import Template, template

from hoglab.accounts.bootstrap import FirstStart, bootstrap
from hoglab.accounts.routes import routers
from hoglab.accounts.service import AccountService
from hoglab.storage.database import Database


class Clock:
    """Wall clock and monotonic clock that go on only when told."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def migrated(request: pytest.FixtureRequest) -> Template:
    """An empty database to copy."""
    return template(request, "migrated")


@pytest.fixture
def database(tmp_path: Path, migrated: Template) -> Iterator[Database]:
    with migrated.copied(tmp_path) as address:
        database = Database.open(address)
        yield database
        database.dispose()


@pytest.fixture
def accounts(database: Database, clock: Clock) -> AccountService:
    return AccountService(database, clock, clock.seconds)


@pytest.fixture
def first(database: Database, accounts: AccountService) -> FirstStart:
    made = bootstrap(database, accounts)
    assert made is not None
    return made


@pytest.fixture
def owner(accounts: AccountService, first: FirstStart) -> int:
    return accounts.owner_id()


@pytest.fixture
def call(
    database: Database, accounts: AccountService, first: FirstStart
) -> Iterator[Callable[..., httpx.Response]]:
    """Calls the API: ``call(method, path, key=…, json=…)``, with the first key unless told otherwise."""
    app = app_of(accounts, *routers(accounts, database, lambda *_: None))
    with asyncio.Runner() as runner:

        def request(method: str, path: str, *, key: str | None = None, **options: Any) -> httpx.Response:
            async def go() -> httpx.Response:
                transport = httpx.ASGITransport(app, raise_app_exceptions=False)
                headers = {"Authorization": f"Bearer {key or first.api_key}"}
                async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                    return await client.request(method, path, headers=headers, **options)

            return runner.run(go())

        yield request
    app.close()
