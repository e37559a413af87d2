"""``hoglab backup``, ``restore``, ``check`` and ``repair``: the files of a data directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, JsonOption, existing_settings, load_settings
from hoglab.terminal import echo

if TYPE_CHECKING:
    from hoglab.settings import Settings


def backup(
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="DIR|FILE.tar",
            help="Folder for many backups, of which each writes what is new; or a file.",
        ),
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            help="Number of backups to keep: older ones in the folder are deleted afterwards.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Copy everything, also beside a running server, and read the copy again.

    All files are as they were at one moment. The secret keys are part of it; files of `warehouse` are not. With a
    PostgreSQL database it has the events and the secret keys: copy the database afterwards, with its own tools.
    """
    from hoglab.backup.making import make_backup, packed
    from hoglab.backup.repository import BackupError
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DirectoryError

    settings = existing_settings(data)
    _refuse_remote_events(settings)
    url = settings.database_address
    is_file = to.suffix == ".tar"
    if is_file and keep is not None:
        raise OperatorError("--keep is for a folder of backups")
    try:
        result = (
            packed(settings.data, to.absolute(), database_url=url)
            if is_file
            else make_backup(settings.data, to.absolute(), keep=keep, database_url=url)
        )
    except (BackupError, DatabaseError, DirectoryError, OSError) as error:
        raise OperatorError(str(error)) from error
    manifest = result.manifest
    if as_json:
        facts = {
            "name": manifest.name,
            "position": manifest.position,
            "generation": manifest.generation,
            "bytes": manifest.bytes,
            "new_bytes": result.new_bytes,
        }
        echo(json.dumps(facts))
        return
    echo(
        f"backup {manifest.name}: {manifest.bytes:,} bytes, {result.new_bytes:,} of them new, verified; events up to "
        f"record {manifest.position} of the event log"
    )
    if url is not None:
        echo("now copy the database, with pg_dump say: the two belong together")


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="DIR|FILE.tar", help="Backup that `hoglab backup` wrote.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="NAME", help="Name of the backup (default: the newest).", show_default=False
        ),
    ] = None,
    deliver: Annotated[
        bool,
        typer.Option(
            "--deliver",
            help="Let waiting runs of functions go, also those that the original may have delivered.",
        ),
    ] = False,
    data: DataOption = None,
) -> None:
    """Make a new data directory from a backup.

    With a PostgreSQL database restore that first; it was copied after the backup.
    Runs of functions that waited are held, since the original has delivered them after the backup.
    """
    from hoglab.backup.repository import BackupError
    from hoglab.backup.restoring import restore_backup
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.event_store import EventStoreUnavailableError

    settings = load_settings(data=data)
    _refuse_remote_events(settings)
    target = settings.data.absolute()
    try:
        restored = restore_backup(
            source.absolute(), target, name=at, deliver=deliver, database_url=settings.database_address
        )
    except (BackupError, DatabaseError, EventStoreUnavailableError) as error:
        raise OperatorError(str(error)) from error
    echo(f"restored {restored.manifest.name} to {target}, generation {restored.generation}")
    held = restored.held
    if held is not None and any(held):
        echo(
            f"held: {held.runs} runs of functions (`hoglab serve --deliver` lets them go); {held.events} records of "
            f"events run no functions any more, and {held.backfills} backfills were cancelled (restore with --deliver "
            "to run them)"
        )


def check(
    full: Annotated[
        bool, typer.Option("--full", help="Compare indexes, values, records and secrets, too.")
    ] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Read every page of all databases, and check that files fit together, also beside a running server.

    Exit status 1 if not.
    """
    from hoglab.backup.checking import check as look_through
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DirectoryError

    settings = load_settings(data=data)
    _refuse_remote_events(settings)
    try:
        report = look_through(
            settings.data, settings.secret_keys, full=full, database_url=settings.database_address
        )
    except (DatabaseError, DirectoryError, OSError) as error:
        raise OperatorError(str(error)) from error
    if as_json:
        echo(json.dumps({"facts": report.facts, "problems": report.problems}))
    else:
        for text in report.facts:
            echo(f"ok       {text}")
        for text in report.problems:
            echo(f"PROBLEM  {text}")
    if report.problems:
        raise typer.Exit(1)


def repair(data: DataOption = None) -> None:
    """Set aside a damaged write-ahead log of the event store, and rebuild a damaged index of persons.

    Sound files stay as they are. The server must be stopped. Events that were in the write-ahead log are ingested
    again from the event log at the next start, which reports events that are lost.
    """
    from hoglab.storage.database import Database, DatabaseError
    from hoglab.storage.directory import DataDirectory, DirectoryError
    from hoglab.storage.engines import EventFile
    from hoglab.storage.event_store import EventStoreUnavailableError

    os.umask(0o077)  # what engines make is for its owner alone
    settings = existing_settings(data)
    _refuse_remote_events(settings)
    try:
        with DataDirectory.open(settings.data) as directory:
            if not directory.events_path.exists():  # opening it would create an empty one
                raise OperatorError(
                    f"{directory.events_path} is missing and cannot be made again: restore a backup"
                )
            done = []
            wal = directory.events_path.with_name(f"{directory.events_path.name}.wal")
            try:
                EventFile(directory.events_path).close()
            except EventStoreUnavailableError as error:
                if not wal.exists():
                    raise OperatorError(
                        f"{error}; nothing can be made again here: restore a backup"
                    ) from error
                # Both caches know events that are only in the damaged log, and that are to be ingested again.
                aside = [wal, directory.known_keys_path, directory.aggregate_cache_path]
                names = ", ".join(path.name for path in aside if path.exists())
                folder = directory.set_aside(aside)
                done.append(f"set aside in {folder}: {names}")
                try:
                    EventFile(directory.events_path).close()
                except EventStoreUnavailableError as still:
                    raise OperatorError(
                        f"{still}; restore a backup (what was set aside is in {folder})"
                    ) from still
            if settings.database_url is None:
                database = Database.open(directory.metadata_path)
                if any(file.repair_search() for file in database.files):
                    done.append("the index for searching persons is built again")
                database.dispose()
    except (DatabaseError, DirectoryError) as error:
        raise OperatorError(str(error)) from error
    for text in done:
        echo(text)
    echo("start the server" if done else "nothing is to be repaired here: `hoglab check` looks further")


def _refuse_remote_events(settings: Settings) -> None:
    """Raise `OperatorError` where the events are in no file of the directory."""
    if settings.event_store_address is not None:
        raise OperatorError("the events are in ClickHouse: use its own tools, and those of the database")
