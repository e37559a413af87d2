"""``hoglab import`` and ``hoglab export``."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from hoglab.cli.accounts.opening import opened_accounts
from hoglab.cli.errors import OperatorError
from hoglab.cli.options import (
    DataOption,
    HostOption,
    ProjectOption,
    existing_settings,
    load_settings,
    metadata_place,
)
from hoglab.terminal import echo, plain_console
from hoglab.transfer.exporting import OWNERS_ALONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rich.progress import Progress

    from hoglab.settings import Settings
    from hoglab.storage.directory import DirectoryLockedError
    from hoglab.storage.event_store.export import EventSelection
    from hoglab.transfer.files import RowFile
    from hoglab.transfer.importing import ImportOutcome, Rejected
    from hoglab.transfer.journal import Journal
    from hoglab.transfer.sending import Sender

ROWS_REFUSED = 3
"""Exit status of an import that ended, but refused rows."""

SHOWN_REJECTS = 5

import_app = typer.Typer(help="Bring events from files into a running server.", no_args_is_help=True)
export_app = typer.Typer(help="Write what a data directory holds into files.", no_args_is_help=True)

ToOption = Annotated[
    Path,
    typer.Option(
        "--to", metavar="FILE", help="File to write: .parquet, .csv or .jsonl (or .gz of these two)."
    ),
]


@import_app.callback()
def _import() -> None:
    pass


@import_app.command("events")
def import_events(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="JSON lines, CSV (or .gz), Parquet.")],
    host: HostOption = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="Token of the project (default: from --data).", show_default=False),
    ] = None,
    project: ProjectOption = 1,
    data: DataOption = None,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", metavar="FILE", help="Write refused rows here.", show_default=False),
    ] = None,
    journal: Annotated[
        Path,
        typer.Option("--journal", metavar="FILE", help="File in which the progress of each file is noted."),
    ] = Path("hoglab-import.jsonl"),
) -> None:
    """Send events of files to a running server, as history: no function runs on them.

    Run it again after an interruption: it continues, and nothing is stored twice. Exit status 3 says that rows were
    refused.
    """
    from hoglab.transfer.files import FileError, RowFile
    from hoglab.transfer.journal import Journal, JournalError
    from hoglab.transfer.sending import Sender, SendError

    settings = load_settings(data=data)
    token = token or _token(settings, project)
    try:
        sender = Sender(host or settings.public_url, token)
        opened = [RowFile(path) for path in files]
        with Journal(journal) as notes, _Report(rejects) as report:
            for file in opened:
                report.add(file, _import_one(file, sender, notes, f"{sender.host} {token}", report))
        sender.close()
    except (FileError, JournalError, SendError) as error:
        raise OperatorError(str(error)) from error
    if report.refused:
        raise typer.Exit(ROWS_REFUSED)


def _token(settings: Settings, project_id: int) -> str:
    with opened_accounts(settings.data) as accounts:
        project = accounts.project(project_id)
    if project is None:
        raise OperatorError(f"there is no project {project_id}")
    return project.api_token


def _import_one(
    file: RowFile, sender: Sender, journal: Journal, target: str, report: _Report
) -> ImportOutcome:
    from hoglab.transfer.importing import import_file

    with _bar() as bar:
        task = bar.add_task(file.path.name, total=file.size)
        return import_file(
            file,
            sender,
            journal,
            target=target,
            on_rejected=report.reject(file.path),
            on_progress=lambda: bar.update(task, completed=file.done),
        )


def _bar() -> Progress:
    """Return a progress bar on standard error, where that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = plain_console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _opened_for_notes(path: Path) -> BinaryIO:
    """Return a file to append to, which only its owner can read where it is new. Raises `OSError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, OWNERS_ALONE), "ab")


class _Report:
    """Report on the rows: refused ones in a file, or the first of them on the terminal."""

    def __init__(self, path: Path | None) -> None:
        self.refused = 0
        self._resources = ExitStack()
        try:
            self._file = None if path is None else self._resources.enter_context(_opened_for_notes(path))
        except OSError as error:
            raise OperatorError(f"{path} cannot be written: {error.strerror or error}") from error

    def reject(self, path: Path) -> Callable[[Rejected], None]:
        """Record the refused rows of one file."""

        def take(rejected: Rejected) -> None:
            self.refused += 1
            if self._file is not None:
                note = {"file": str(path), **rejected._asdict()}
                self._file.write(json.dumps(note).encode() + b"\n")
                self._file.flush()
            elif self.refused <= SHOWN_REJECTS:
                echo(f"{path}:{rejected.line}: {rejected.reason}", err=True)
            elif self.refused == SHOWN_REJECTS + 1:
                echo("further refused rows are only counted: give --rejects FILE to see all", err=True)

        return take

    def add(self, file: RowFile, outcome: ImportOutcome) -> None:
        """Report the result of one file."""
        text = f"{file.path}: {outcome.taken} events taken"
        if outcome.refused:
            text += f", {outcome.refused} rows refused"
        if outcome.before:
            text += f", {outcome.before} rows were dealt with before"
        echo(text)

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()


@export_app.command("events")
def export_events(
    to: ToOption,
    project: ProjectOption = 1,
    event: Annotated[
        str | None, typer.Option("--event", help="Only events of this name.", show_default=False)
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Only from this moment on (UTC).", show_default=False)
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", help="Only before this moment (UTC).", show_default=False)
    ] = None,
    data: DataOption = None,
) -> None:
    """Write the events of a project into a file that `hoglab import events` can read.

    A server that runs on the directory is asked for them, and goes on meanwhile.
    """
    from hoglab.storage.directory import DataDirectory, DirectoryError, DirectoryLockedError
    from hoglab.storage.event_store.export import EventSelection
    from hoglab.transfer import exporting

    settings = existing_settings(data)
    selection = EventSelection(
        project_id=project, event=event, after=_moment(after, "--after"), before=_moment(before, "--before")
    )
    try:
        try:
            with DataDirectory.open(settings.data) as directory:
                rows = exporting.export_events(directory, to, selection)
        except DirectoryLockedError as locked:
            rows = _export_beside_server(settings, to, selection, locked)
    except (DirectoryError, exporting.ExportError) as error:
        raise OperatorError(str(error)) from error
    echo(f"{to}: {rows} events")


def _export_beside_server(
    settings: Settings, to: Path, selection: EventSelection, locked: DirectoryLockedError
) -> int:
    from hoglab.storage.directory import DataDirectory
    from hoglab.transfer.exporting import export_events_beside_server
    from hoglab.transfer.running import NotServedError

    with DataDirectory.open(settings.data, exclusive=False) as directory, _bar() as bar:
        task = bar.add_task(to.name, total=None)
        try:
            return export_events_beside_server(
                directory.socket_path,
                to,
                selection,
                on_progress=lambda done, rows: bar.update(task, completed=done, total=rows),
            )
        except NotServedError:  # a server that just starts, or another command
            raise locked from None


@export_app.command("persons")
def export_persons(to: ToOption, project: ProjectOption = 1, data: DataOption = None) -> None:
    """Write the persons of a project into a file, also beside a running server."""
    from hoglab.storage.database import Database, DatabaseError
    from hoglab.storage.directory import DirectoryError
    from hoglab.transfer import exporting

    settings = existing_settings(data)
    try:
        database = Database.open(metadata_place(settings))
        try:
            rows = exporting.export_persons(database, to, project_id=project)
        finally:
            database.dispose()
    except (DirectoryError, DatabaseError, exporting.ExportError) as error:
        raise OperatorError(str(error)) from error
    echo(f"{to}: {rows} persons")


def _moment(text: str | None, option: str) -> datetime | None:
    from hoglab.http.fields.dates import parse_moment

    if text is None:
        return None
    try:
        return parse_moment(text).replace(tzinfo=None)  # the store has moments in UTC without saying so
    except ValueError as error:
        raise OperatorError(f"{option}: {text} is no date and time") from error
