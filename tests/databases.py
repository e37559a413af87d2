"""Databases for tests on the engine that ``HOGLAB_TEST_DATABASE`` names: files of SQLite, or PostgreSQL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.postgres import PostgresServer

from hoglab.storage.database import Database

ENGINE = os.environ.get("HOGLAB_TEST_DATABASE", "sqlite")
ENGINES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Template:
    """A database that was filled once, to copy: migrating one takes longer than most tests."""

    name: str
    server: PostgresServer | None

    @contextmanager
    def copied(self, folder: Path) -> Iterator[str | Path]:
        """A copy during the block: an address, or a file ``hoglab.db`` in a folder."""
        if self.server is None:
            yield shutil.copy(self.name, folder / "hoglab.db")
            return
        url = self.server.database(self.name)
        try:
            yield url
        finally:
            self.server.drop(url)


def template(
    request: pytest.FixtureRequest,
    name: str,
    fill: Callable[[Database], None] = lambda _: None,
    engine: str = ENGINE,
) -> Template:
    """A template of a name: a database that has its tables, and what ``fill`` puts in."""
    if engine == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path_factory").mktemp(name)
        _fill(folder / "hoglab.db", fill)
        return Template(str(folder / "hoglab.db"), None)
    server: PostgresServer = request.getfixturevalue("postgres")

    def begin(url: str) -> None:
        Database.upgrade(url)
        _fill(url, fill)

    return Template(server.template(name, begin), server)


def _fill(address: str | Path, fill: Callable[[Database], None]) -> None:
    database = Database.open(address)
    fill(database)
    database.dispose()
