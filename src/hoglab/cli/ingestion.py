"""``hoglab ingestion``: quarantined records of a data directory that a server may be using."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, JsonOption, existing_settings
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.storage.event_log.quarantine import QuarantinedRecord

ingestion_app = typer.Typer(help="The way of events into the store.", no_args_is_help=True)
quarantine_app = typer.Typer(
    help="Records of events that could not be processed. They stay until they are replayed or discarded.",
    no_args_is_help=True,
)
ingestion_app.add_typer(quarantine_app, name="quarantine")

IdsArgument = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Ids of records, as `list` shows them.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All records.")]


@contextmanager
def opened_quarantine(data: Path | None) -> Iterator[Quarantine]:
    """Provide the quarantine of a directory. Needs no lock: a running server sees what is changed."""
    from hoglab.ingestion.quarantine import Quarantine
    from hoglab.storage.database import DatabaseError
    from hoglab.storage.directory import DataDirectory, DirectoryError
    from hoglab.storage.engines import open_quarantine_store

    settings = existing_settings(data)
    try:
        place = settings.database_address or DataDirectory.open(settings.data, exclusive=False).queue_path
        with open_quarantine_store(place) as store:
            yield Quarantine(store)
    except (DirectoryError, DatabaseError) as error:
        raise OperatorError(str(error)) from error


@quarantine_app.command("list")
def list_records(as_json: JsonOption = False, data: DataOption = None) -> None:
    """List the records, oldest first, and why each could not be processed."""

    from hoglab.reports.tables import light_table, whole

    with opened_quarantine(data) as quarantine:
        records = quarantine.records()
    if as_json:
        echo(json.dumps([_shown(record) for record in records]))
        return
    table = light_table(None, whole("Id"), "Project", "Since", whole("Bytes"), "Reason")
    for record in records:
        project = "?" if record.project_id is None else str(record.project_id)
        reason = f"{record.reason} (replaying)" if record.is_replaying else record.reason
        table.add_row(
            str(record.offset), project, f"{record.quarantined_at:%Y-%m-%d %H:%M}", str(record.size), reason
        )
    plain_console().print(table)


@quarantine_app.command()
def show(
    record_id: Annotated[int, typer.Argument(metavar="ID", help="Id of a record.")], data: DataOption = None
) -> None:
    """Print a record as JSON, with its events as they were sent."""
    from hoglab.ingestion.quarantine import events_in

    with opened_quarantine(data) as quarantine:
        record, payload = _found(quarantine, record_id)
    events = events_in(payload)
    shown = _shown(record) | ({"events": events} if events is not None else {"payload_hex": payload.hex()})
    echo(json.dumps(shown, indent=2))


@quarantine_app.command()
def replay(ids: IdsArgument = None, every: AllOption = False, data: DataOption = None) -> None:
    """Replay quarantined records: now, if a server runs, else when it is started."""
    wanted = _wanted(ids, every)
    with opened_quarantine(data) as quarantine:
        for record_id in wanted or ():
            _found(quarantine, record_id)
        echo(f"replaying {quarantine.replay(wanted)} records")


@quarantine_app.command()
def discard(ids: IdsArgument = None, every: AllOption = False, data: DataOption = None) -> None:
    """Delete records for good."""
    wanted = _wanted(ids, every)
    with opened_quarantine(data) as quarantine:
        for record_id in wanted or ():
            _found(quarantine, record_id)
        echo(f"discarded {quarantine.discard(wanted)} records")


def _wanted(ids: list[int] | None, every: bool) -> list[int] | None:
    if bool(ids) == every:
        raise OperatorError("name the ids of records, or --all of them")
    return ids or None


def _found(quarantine: Quarantine, record_id: int) -> tuple[QuarantinedRecord, bytes]:
    """Return a record with its payload. Raises `OperatorError`."""
    record = quarantine.get(record_id)
    if record is None:
        raise OperatorError(
            f"there is no record {record_id}: `hoglab ingestion quarantine list` shows the ids"
        )
    return record


def _shown(record: QuarantinedRecord) -> dict[str, Any]:
    return {
        "id": record.offset,
        "project_id": record.project_id,
        "reason": record.reason,
        "size": record.size,
        "quarantined_at": record.quarantined_at.isoformat(),
        "is_replaying": record.is_replaying,
    }
