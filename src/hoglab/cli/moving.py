"""``hoglab migrate-to``: from the files of a directory into databases of servers, and back."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DatabaseOption, DataOption, load_settings
from hoglab.terminal import echo, replace_line

if TYPE_CHECKING:
    from hoglab.settings import Settings
    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.moving import Location, Moved
    from hoglab.storage.moving.events import EventsPlace
    from hoglab.storage.moving.log import RecordFormat, TopicPlace

DIRECTORY = "directory"


def migrate_to(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="postgresql://… or, to come back from there, directory.")
    ],
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give up a move that was begun: everything stays where it was.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say what would move, of how many bytes, and about how long it takes; write nothing.",
        ),
    ] = False,
    database_url: DatabaseOption = None,
    event_store: Annotated[
        str | None,
        typer.Option(
            "--event-store",
            metavar="URL",
            help="ClickHouse database for events, or that has them (default: $HOGLAB_EVENT_STORE_URL, or they stay in "
            "the directory).",
            show_default=False,
        ),
    ] = None,
    event_log: Annotated[
        str | None,
        typer.Option(
            "--event-log",
            metavar="URL",
            help="Topic of Kafka for the event log, or that has it (default: $HOGLAB_EVENT_LOG_URL, or it is in the "
            "database).",
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Move a server's data between a data directory and PostgreSQL, with ClickHouse and Kafka if these are named.

    Stop the server first. The data stay in the old place, too, marked so that no server takes them for current.
    After an interruption, run it again: it continues where it was. At the end both sides are compared completely.
    """
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DataDirectory, DirectoryError
    from hoglab.storage.event_store import EventStoreUnavailableError
    from hoglab.storage.moving import MoveError, move
    from hoglab.storage.moving import cancel as give_up
    from hoglab.storage.moving.places import make_room

    os.umask(0o077)  # what engines make is for its owner alone
    back = target == DIRECTORY
    if not back and "://" not in target:
        raise OperatorError(f"TARGET is an address (postgresql://user@host/database) or the word {DIRECTORY}")
    settings = load_settings(
        data=data,
        database_url=database_url if back else target,
        event_store_url=event_store,
        event_log_url=event_log,
    )
    if settings.database_address is None:
        raise OperatorError(
            "where from? Name the PostgreSQL database with --database-url or HOGLAB_DATABASE_URL"
        )
    moves_events = settings.event_store_address is not None
    if not (back and moves_events) and not (settings.data / "events.duckdb").exists():
        raise OperatorError(
            f"there is no hoglab data in {settings.data.absolute()}: name the directory with --data"
        )
    try:
        with DataDirectory.open(settings.data, exclusive=not dry_run, create=not dry_run) as directory:
            source, other = _ends(directory, settings, back=back, is_looked_at=dry_run)
            if dry_run:
                _print_estimates(source, other)
                return
            if cancel:
                give_up(source)
                echo(f"given up: everything stays in {source.name}")
                return
            aside = make_room(directory, source, events=moves_events) if back else None
            if aside is not None:
                echo(f"the files of before are in {aside}")
            moved = move(source, other, _progress, _record_format() if moves_events else None)
    except (DatabaseError, DirectoryError, EventStoreUnavailableError, MoveError) as error:
        raise OperatorError(str(error)) from error
    _print_moved(moved, other, settings, back=back)


def _ends(
    directory: DataDirectory, settings: Settings, *, back: bool, is_looked_at: bool
) -> tuple[Location, Location]:
    """Return the places where the data are, and where they shall be."""
    from hoglab.storage.moving.places import (
        directory_place,
        events_in,
        is_home,
        server_as_it_is,
        server_place,
    )

    url = settings.database_address
    assert url is not None  # noqa: S101 - was asked for
    in_file = events_in(directory)
    files = replace(directory_place(directory), events=in_file)
    server = server_as_it_is(url) if is_looked_at else server_place(url)
    events, topic = _remote(settings)
    whole = replace(server, events=events or in_file, topic=topic)
    if back:
        return whole, files
    if events is not None and not is_home(files.metadata) and is_home(url):
        return replace(server, events=in_file), whole
    return files, whole


def _remote(settings: Settings) -> tuple[EventsPlace | None, TopicPlace | None]:
    """Return the places for events and log on servers, as far as they are named."""
    topic = None
    if settings.event_log_address is not None:
        from hoglab.storage.moving.places import topic_place

        topic = topic_place(settings.event_log_address)
    if settings.event_store_address is None:
        return None, topic
    from hoglab.storage.moving.clickhouse_events import database_place

    partitions = 1 if topic is None else topic.partitions

    def partition_of(project_id: int, distinct_id: str) -> int:
        if partitions == 1:
            return 0
        from hoglab.capture.partitioning import partition_of  # its hash is installed where Kafka's client is

        return partition_of(project_id, distinct_id, partitions)

    return database_place(settings.event_store_address, partitions, partition_of), topic


def _record_format() -> RecordFormat:
    """Return the format of records, as capture has it."""
    from hoglab.capture.records import RecordError, read_header
    from hoglab.storage.moving.log import RecordFormat

    def owner(payload: bytes) -> int | None:
        try:
            return read_header(payload)[0].project_id
        except RecordError:
            return None

    return RecordFormat(_divided, owner)


def _divided(payload: bytes, partitions: int, max_bytes: int) -> list[tuple[int, bytes]]:
    from hoglab.capture.partitioning import divided
    from hoglab.capture.records import RecordError
    from hoglab.capture.refusal import Refusal

    try:
        return divided(payload, partitions, max_bytes)
    except RecordError:  # into quarantine, with what it is
        return [(0, payload)]
    except Refusal as error:
        raise OperatorError(
            f"an event that waits is larger than the topic takes ({max_bytes} bytes): raise its max.message.bytes"
        ) from error


def _print_estimates(source: Location, other: Location) -> None:
    from hoglab.storage.event_store import EventStoreUnavailableError
    from hoglab.storage.moving import estimates

    rows = size = 0
    seconds = 0.0
    echo(f"{'table':<28} {'rows':>13} {'MB':>10} {'minutes':>9}")
    try:
        for estimated in estimates(source, other):
            echo(_line(estimated.table, estimated.rows, estimated.size, estimated.seconds))
            rows, size, seconds = rows + estimated.rows, size + estimated.size, seconds + estimated.seconds
    except EventStoreUnavailableError as error:
        echo(f"events: not known, {error}")
    echo(_line("all", rows, size, seconds))


def _line(name: str, rows: int, size: int, seconds: float) -> str:
    return f"{name:<28} {rows:>13,} {size / 1e6:>10,.1f} {seconds / 60:>9,.1f}"


def _print_moved(moved: Moved, other: Location, settings: Settings, *, back: bool) -> None:
    if moved.tables:
        echo(f"moved to {other.name}: {moved.rows:,} rows of {moved.tables} tables, equal on both sides")
    if moved.events is not None and other.events is not None:
        events = moved.events
        echo(
            f"moved to {other.events.name}: {events.events:,} events, equal on both sides on each of {events.days:,} "
            "days of projects"
        )
        for how, count in sorted(events.different.items()):
            echo(f"  but for {count:,} events: {how}")
    if moved.records is not None:
        log = other.name if other.topic is None else other.topic.name
        echo(f"moved to {log}: {moved.records:,} records that wait to be ingested")
    echo(_what_next(settings, back=back))


def _what_next(settings: Settings, *, back: bool) -> str:
    directory = settings.data.absolute()
    named = {
        "HOGLAB_DATABASE_URL": settings.database_url,
        "HOGLAB_EVENT_STORE_URL": settings.event_store_url,
        "HOGLAB_EVENT_LOG_URL": settings.event_log_url,
    }
    names = ", ".join(name for name, value in named.items() if value is not None)
    if back:
        return f"Start the server without {names}: hoglab serve --data {directory}"
    if settings.event_store_url is not None:
        return (
            f"Start the server with {names} and --data {directory}, which may have the keys to secrets. Its files "
            "hoglab.db, queue.db and events.duckdb are not used any more: keep them until you have backups."
        )
    return (
        f"Start the server with {names} and --data {directory}, which has the events. Its files "
        "hoglab.db and queue.db are not used any more: keep them until you have a backup of the database."
    )


def _progress(table: str, rows: int, every: int) -> None:
    if sys.stderr.isatty():
        replace_line(f"{table}: {rows:,} of {every:,} rows", ends=rows == every)
    elif rows == every:
        echo(f"{table}: {rows:,} rows", err=True)
