"""The two kinds of places: the files of a directory, and a PostgreSQL database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Database, tables
from hoglab.storage.database.connections import open_connections
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.moving.moving import Location, MoveError

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.storage.directory import DataDirectory

OTHERS_WAIT_S = 5.0
"""Time for which connections of processes that are just ending are waited for."""


def directory_place(directory: DataDirectory) -> Location:
    """The files of a directory."""
    return Location(directory.metadata_path, directory.queue_path, str(directory.path))


def server_as_it_is(url: str) -> Location:
    """A PostgreSQL database that is reached, whoever uses it. Raises `DatabaseError`."""
    Database.other_sessions(url)
    return Location(url, url, open_connections(url, tables.metadata).name)


def server_place(url: str) -> Location:
    """A PostgreSQL database that nobody uses, with its tables. Raises `MoveError` and `DatabaseError`."""
    name = open_connections(url, tables.metadata).name
    deadline = time.monotonic() + OTHERS_WAIT_S
    while others := Database.other_sessions(url):
        if time.monotonic() > deadline:
            raise MoveError(
                f"{name} is in use ({others} connections): stop every server and command that works with it"
            )
        time.sleep(0.1)
    upgrade_databases(url)
    return Location(url, url, name)


def make_room(directory: DataDirectory, source: Location) -> Path | None:
    """Set files aside whose content moved to the source before; the folder with them.

    Files of any other installation stay, and will be refused.
    """
    if not directory.metadata_path.exists():
        return None
    database = Database.open(directory.metadata_path, moving=True)
    try:
        with database.read() as connection:
            mark = connection.scalar(sa.select(tables.installation.c.move))
    finally:
        database.dispose()
    if mark != {"step": "left", "other": source.name}:
        return None
    return directory.set_aside([directory.metadata_path, directory.queue_path])
