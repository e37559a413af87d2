"""``hoglab warehouse``: warehouse tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hoglab.cli.accounts.opening import opened_database
from hoglab.cli.errors import OperatorError
from hoglab.cli.options import DataOption, JsonOption, ProjectOption, load_settings
from hoglab.terminal import echo, plain_console

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.warehouse.service import WarehouseService
    from hoglab.warehouse.store import TableRow

warehouse_app = typer.Typer(
    help="Tables beside the events: Parquet and CSV files that metrics may be computed from.",
    no_args_is_help=True,
)
NameArgument = Annotated[str, typer.Argument(help="Name of the table, as metrics call it.")]


@warehouse_app.command()
def add(
    name: NameArgument,
    pattern: Annotated[
        str,
        typer.Argument(
            help="Files below $HOGLAB_WAREHOUSE (default: warehouse/ in the data directory), such as "
            "'orders/*.parquet'."
        ),
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Parquet or CSVWithNames (default: by the names of the files).",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = 1,
    data: DataOption = None,
) -> None:
    """Register files as a table of a project, and print its columns."""
    from hoglab.http.errors import ApiError
    from hoglab.storage.table_files import FileFormat

    if file_format is not None and file_format not in list(FileFormat):
        raise OperatorError(f"--format: {file_format} is neither {' nor '.join(FileFormat)}")
    with _opened(data, project) as (warehouse, accounts):
        try:
            row = warehouse.add(
                project, accounts.owner_id(), name=name, url_pattern=pattern, format_=file_format
            )
        except ApiError as error:
            raise OperatorError(str(error)) from error
    _print_columns(row)


@warehouse_app.command("list")
def list_tables(project: ProjectOption = 1, as_json: JsonOption = False, data: DataOption = None) -> None:
    """List the tables of a project."""

    from hoglab.reports.tables import light_table, whole
    from hoglab.warehouse import store
    from hoglab.warehouse.service import MAX_TABLES_PER_PROJECT

    with _opened(data, project) as (warehouse, _), warehouse.database.read() as connection:
        rows, _count = store.list_tables(connection, project, limit=MAX_TABLES_PER_PROJECT, offset=0)
    if as_json:
        shown = [
            {
                "id": row.id,
                "name": row.name,
                "format": row.format,
                "url_pattern": row.url_pattern,
                "columns": dict(row.columns),
            }
            for row in rows
        ]
        echo(json.dumps(shown))
        return
    table = light_table(None, whole("Name"), "Format", "Files", "Columns")
    for row in rows:
        table.add_row(row.name, row.format, row.url_pattern, ", ".join(name for name, _ in row.columns))
    plain_console().print(table)


@warehouse_app.command()
def remove(name: NameArgument, project: ProjectOption = 1, data: DataOption = None) -> None:
    """Delete a table. Its files stay."""
    from hoglab.warehouse import store

    with _opened(data, project) as (warehouse, _):
        with warehouse.database.read() as connection:
            row = store.by_name(connection, project, name)
        if row is None:
            raise OperatorError(f"project {project} has no table {name}")
        warehouse.remove(project, row.id)


@contextmanager
def _opened(data: Path | None, project: int) -> Iterator[tuple[WarehouseService, AccountService]]:
    from hoglab.storage.table_files import TableDirectory
    from hoglab.warehouse.service import WarehouseService

    directory = TableDirectory(load_settings(data=data).warehouse_directory)
    with opened_database(data) as (database, accounts):
        if accounts.project(project) is None:
            raise OperatorError(f"there is no project {project}")
        yield WarehouseService(database, directory), accounts


def _print_columns(row: TableRow) -> None:
    for name, kind in row.columns:
        echo(f"{name}\t{kind}")
