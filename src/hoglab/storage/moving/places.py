"""The kinds of places: the files of a directory, a PostgreSQL database, a topic of Kafka."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hoglab.storage.database import Database, tables
from hoglab.storage.database.connections import open_connections
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.moving.duckdb_events import file_place
from hoglab.storage.moving.errors import MoveError
from hoglab.storage.moving.location import Location
from hoglab.storage.moving.log import TopicPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.moving.events import EventsPlace

OTHERS_WAIT_S = 5.0
"""Time for which connections of processes that are just ending are waited for."""


def directory_place(directory: DataDirectory) -> Location:
    """Return the files of a directory."""
    return Location(directory.metadata_path, directory.queue_path, str(directory.path))


def events_in(directory: DataDirectory) -> EventsPlace:
    """Return the file of a directory that has events."""
    return file_place(directory.events_path)


def server_as_it_is(url: str) -> Location:
    """Return a PostgreSQL database that can be reached, also while others use it. Raises `DatabaseError`."""
    Database.other_sessions(url)
    return Location(url, url, open_connections(url, tables.metadata).name)


def server_place(url: str) -> Location:
    """Return a PostgreSQL database that nobody uses, with its tables. Raises `MoveError` and `DatabaseError`."""
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


@contextmanager
def _topic(url: str) -> Iterator[KafkaEventLog]:
    from hoglab.storage.event_log.kafka import KafkaEventLog
    from hoglab.storage.event_log.kafka_topic import KafkaAddress

    with closing(KafkaEventLog(KafkaAddress.parse(url), finished=dict, max_backlog_bytes=0)) as log:
        yield log


def topic_place(url: str) -> TopicPlace:
    """Return a topic of Kafka, made when it is opened and missing. Raises `DatabaseError`."""
    from hoglab.storage.event_log import kafka_topic  # it says what is missing

    address = kafka_topic.KafkaAddress.parse(url)
    return TopicPlace(address.name, address.partitions, partial(_topic, url))


def make_room(directory: DataDirectory, source: Location, *, events: bool = False) -> Path | None:
    """Set files aside whose content moved to the source before; the folder with them.

    ``events``: also those with events, and what is known of events there. Files of any other installation stay, and
    will be refused.
    """
    files: list[Path] = []
    if directory.metadata_path.exists():
        mark = _home_in(directory.metadata_path).get("move")
        if mark == {"step": "left", "other": source.name}:
            files += [directory.metadata_path, directory.queue_path]
    if events:
        if directory.remote_keys_path.exists():
            files.append(directory.remote_keys_path)
        if directory.events_path.exists() and _moved_before(directory, source):
            files += [directory.events_path, directory.known_keys_path, directory.aggregate_cache_path]
    return directory.set_aside(files) if files else None


def _moved_before(directory: DataDirectory, source: Location) -> bool:
    """Return whether the events of a directory are those that the source had at a time."""
    with source.opened() as opened:
        home = opened.home()
    with events_in(directory).opened() as stored:
        known = stored.identity()
    return (
        home is not None
        and known is not None
        and known[0] == home["installation_id"]
        and known[1] < home["generation"]
    )


def is_home(place: Path | str) -> bool:
    """Return whether an installation is in a file, or a database of a server, or is about to leave it."""
    if isinstance(place, Path) and not place.exists():
        return False
    home = _home_in(place)
    return bool(home) and (home["move"] is None or home["move"]["step"] == "leaving")


def _home_in(place: Path | str) -> Mapping[str, Any]:
    """Return the row of the installation; nothing where there is none."""
    database = Database.open(place, moving=True)
    try:
        with database.read() as connection:
            row = connection.execute(sa.select(tables.installation)).mappings().first()
    finally:
        database.dispose()
    return {} if row is None else dict(row)
