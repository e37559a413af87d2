from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flags.conftest import Server

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.storage.database import Database


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database that was started for the first time."""
    path = tmp_path_factory.mktemp("cohorts") / "hoglab.db"
    database = Database.open(path)
    bootstrap(database, AccountService(database), api_key=Server.key, project_token=Server.token)
    database.dispose()
    return path


@pytest.fixture
def server(tmp_path: Path, prepared: Path) -> Iterator[Server]:
    """Flags and cohorts behind the real application; cohorts are calculated when the test says so."""
    shutil.copy(prepared, tmp_path / "hoglab.db")
    server = Server(tmp_path)
    yield server
    server.close()
