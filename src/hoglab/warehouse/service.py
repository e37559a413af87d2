"""The rules of warehouse tables: which files may be a table, and which columns they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from uuid_utils import uuid7

from hoglab.http.errors import not_found, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.patterns import anchored
from hoglab.storage.table_files import FileFormat, TableDirectory, TableFileError
from hoglab.warehouse import store
from hoglab.warehouse.store import TableRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.storage.database import Database

MAX_TABLES_PER_PROJECT = 200
MAX_NAME = 128
_NAME = anchored(rf"[A-Za-z_][A-Za-z0-9_.]{{0,{MAX_NAME - 1}}}")
_SUFFIXES = {".parquet": FileFormat.PARQUET, ".csv": FileFormat.CSV}


class WarehouseService:
    """Tables of all projects. Broken rules are raised as 400 of the wire."""

    def __init__(
        self, database: Database, directory: TableDirectory, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.database = database
        self.directory = directory
        self._now = now

    def get(self, connection: Connection, project_id: int, table_id: str) -> TableRow:
        """Return a table. Raises 404."""
        row = store.by_id(connection, project_id, table_id)
        if row is None:
            raise not_found()
        return row

    def add(
        self, project_id: int, user_id: int | None, *, name: str, url_pattern: str, format_: str | None = None
    ) -> TableRow:
        """Register files as a table; without a format, the extension of their names decides."""
        if _NAME.fullmatch(name) is None:
            raise validation_error(
                f"A name starts with a letter or an underscore, has only letters, digits, underscores and "
                f"dots, and at most {MAX_NAME} of them.",
                "name",
            )
        values = self._files(url_pattern, format_)
        with self.database.write() as tx:
            if store.by_name(tx.connection, project_id, name) is not None:
                raise validation_error("A table with this name already exists.", "name", "unique")
            if store.count_tables(tx.connection, project_id) >= MAX_TABLES_PER_PROJECT:
                raise validation_error(f"A project has at most {MAX_TABLES_PER_PROJECT} tables.")
            now = self._now()
            own = {"id": str(uuid7()), "project_id": project_id, "name": name, "created_by_id": user_id}
            return store.insert_table(tx.connection, {**own, **values, "created_at": now, "updated_at": now})

    def change(self, project_id: int, table_id: str, data: Mapping[str, Any]) -> TableRow:
        """Change the files of a table, or (without any field) read its files again. Raises 404."""
        with self.database.read() as connection:
            row = self.get(connection, project_id, table_id)
        if data.get("name", row.name) != row.name:
            raise validation_error("The name of a table cannot be changed: metrics know it by it.", "name")
        pattern = data.get("url_pattern") or row.url_pattern
        values = self._files(
            pattern, data.get("format") or (row.format if pattern == row.url_pattern else None)
        )
        with self.database.write() as tx:
            self.get(tx.connection, project_id, table_id)
            return store.update_table(tx.connection, table_id, {**values, "updated_at": self._now()})

    def remove(self, project_id: int, table_id: str) -> None:
        """Delete a table; its files stay. Raises 404."""
        with self.database.write() as tx:
            store.delete_table(tx.connection, self.get(tx.connection, project_id, table_id).id)

    def _files(self, url_pattern: str, format_: str | None) -> dict[str, Any]:
        """Return the columns of the row that depend on the files."""
        file_format = FileFormat(format_) if format_ is not None else _format_of(url_pattern)
        try:
            columns = self.directory.columns(url_pattern, file_format)
        except TableFileError as error:
            raise validation_error(str(error), "url_pattern") from error
        return {
            "format": file_format.value,
            "url_pattern": url_pattern,
            "columns": [[name, kind.value] for name, kind in columns],
        }


def _format_of(url_pattern: str) -> FileFormat:
    for suffix, file_format in _SUFFIXES.items():
        if url_pattern.lower().endswith(suffix):
            return file_format
    formats = " or ".join(FileFormat)
    raise validation_error(
        f"The names of the files do not tell their format: say {formats}.", "format", "required"
    )
