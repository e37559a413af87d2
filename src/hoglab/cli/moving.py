"""``hoglab migrate-to``: from the files of a directory into a PostgreSQL database, and back."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DatabaseOption, DataOption, load_settings

if TYPE_CHECKING:
    from hoglab.storage.moving import Location

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
    data: DataOption = None,
) -> None:
    """Move everything but events between a data directory and a PostgreSQL database.

    Stop the server first. What is where it came from stays there, marked, so that no server takes it for current. When
    it is interrupted, run it again: it goes on where it was. At the end all rows of both sides are compared.
    """
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DataDirectory, DirectoryError
    from hoglab.storage.moving import MoveError, move
    from hoglab.storage.moving import cancel as give_up
    from hoglab.storage.moving.places import directory_place, make_room, server_as_it_is, server_place

    os.umask(0o077)  # what engines make is for its owner alone
    back = target == DIRECTORY
    if not back and "://" not in target:
        raise OperatorError(f"TARGET is an address (postgresql://user@host/database) or the word {DIRECTORY}")
    settings = load_settings(data=data, database_url=database_url if back else target)
    url = settings.database_address
    if url is None:
        raise OperatorError(
            "where from? Name the PostgreSQL database with --database-url or HOGLAB_DATABASE_URL"
        )
    if not (settings.data / "events.duckdb").exists():
        raise OperatorError(
            f"there is no hoglab data in {settings.data.absolute()}: name the directory with --data"
        )
    try:
        if dry_run:
            with DataDirectory.open(settings.data, exclusive=False) as directory:
                files, server = directory_place(directory), server_as_it_is(url)
                _print_estimates(server if back else files)
            return
        with DataDirectory.open(settings.data) as directory:
            files, server = directory_place(directory), server_place(url)
            source, other = (server, files) if back else (files, server)
            if cancel:
                give_up(source)
                typer.echo(f"given up: everything stays in {source.name}")
                return
            aside = make_room(directory, server) if back else None
            if aside is not None:
                typer.echo(f"the files of before are in {aside}")
            moved = move(source, other, _progress)
    except (DatabaseError, DirectoryError, MoveError) as error:
        raise OperatorError(str(error)) from error
    typer.echo(f"moved to {other.name}: {moved.rows:,} rows of {moved.tables} tables, equal on both sides")
    typer.echo(_what_next(directory_name=files.name, back=back))


def _print_estimates(source: Location) -> None:
    from hoglab.storage.moving import estimates

    rows = size = 0
    seconds = 0.0
    typer.echo(f"{'table':<28} {'rows':>13} {'MB':>10} {'minutes':>9}")
    for estimated in estimates(source):
        typer.echo(_line(estimated.table, estimated.rows, estimated.size, estimated.seconds))
        rows, size, seconds = rows + estimated.rows, size + estimated.size, seconds + estimated.seconds
    typer.echo(_line("all", rows, size, seconds))


def _line(name: str, rows: int, size: int, seconds: float) -> str:
    return f"{name:<28} {rows:>13,} {size / 1e6:>10,.1f} {seconds / 60:>9,.1f}"


def _what_next(*, directory_name: str, back: bool) -> str:
    if back:
        return f"Start the server without HOGLAB_DATABASE_URL: hoglab serve --data {directory_name}"
    return (
        f"Start the server with HOGLAB_DATABASE_URL and --data {directory_name}, which has the events. Its files "
        "hoglab.db and queue.db are not used any more: keep them until you have a backup of the database."
    )


def _progress(table: str, rows: int, every: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{table}: {rows:,} of {every:,} rows", err=True, nl=rows == every)
    elif rows == every:
        typer.echo(f"{table}: {rows:,} rows", err=True)
