"""Exporting events and persons of a data directory, whether a server uses it or not."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.people.reading import every_person
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.export import (
    EVENT_TYPES,
    FileEngineError,
    copy_events,
    copy_query,
    file_engine,
)
from hoglab.transfer.running import CutOffError, RunningExport, running_export

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hoglab.storage.database import Database
    from hoglab.storage.directory import DataDirectory
    from hoglab.storage.event_store.export import EventSelection

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv.gz": "csv",
    ".jsonl.gz": "json",
    ".ndjson.gz": "json",
}
_PERSONS = {
    "uuid": "UUID",
    "distinct_ids": "VARCHAR",
    "properties": "VARCHAR",
    "is_identified": "BOOLEAN",
    "created_at": "TIMESTAMP",
}
OWNERS_ALONE = 0o600
"""Mode of files with data, as of those in the data directory and of backups."""
MAX_LINE_BYTES = 64 * 1024 * 1024


class ExportError(Exception):
    """Nothing was exported; the text is one line."""


def export_events(directory: DataDirectory, target: Path, selection: EventSelection) -> int:
    """Write events into a file; how many. The directory must be held. Raises `ExportError`."""

    def copy(draft: Path, file_format: str) -> int:
        if not directory.events_path.exists():
            raise ExportError(f"{directory.path} holds no events")
        return copy_events(directory.events_path, draft, selection, file_format=file_format)

    return _whole(target, copy)


def export_events_beside_server(
    socket_path: Path,
    target: Path,
    selection: EventSelection,
    *,
    on_progress: Callable[[int, int], object] = lambda _done, _rows: None,
) -> int:
    """Export events by asking the server that holds the directory, over its socket; return the number of rows.

    ``on_progress`` gets the numbers of rows so far and in all. Raises `ExportError` and `NotServedError`.
    """

    def copy(draft: Path, file_format: str) -> int:
        with running_export(socket_path, selection) as export, file_engine(threads=1) as connection:
            lines = _Pipe(export, on_progress)
            try:
                rows = copy_query(
                    connection, _from_lines(lines.path, EVENT_TYPES), None, draft, file_format, EVENT_TYPES
                )
            finally:
                lines.close()
            if rows != export.rows:
                raise ExportError(f"{target} was not written: {rows} of {export.rows} events came")
            return rows

    return _whole(target, copy)


class _Pipe:
    """Response of a server as a file that an engine can read: a thread feeds it."""

    def __init__(self, export: RunningExport, on_progress: Callable[[int, int], object]) -> None:
        self._export = export
        self._on_progress = on_progress
        self._end, feeding = os.pipe()
        self.path = f"/dev/fd/{self._end}"
        self._error: CutOffError | None = None
        self._thread = threading.Thread(target=self._feed, args=(feeding,), daemon=True)
        self._thread.start()

    def _feed(self, descriptor: int) -> None:
        rows = 0
        try:
            with open(descriptor, "wb") as pipe:
                for part in self._export.parts:
                    pipe.write(part)
                    rows += part.count(b"\n")
                    self._on_progress(rows, self._export.rows)
        except CutOffError as error:
            self._error = error
        except BrokenPipeError:
            pass  # the engine gave up, and says why

    def close(self) -> None:
        """Raise `CutOffError` when the server did not send everything: what was read is worth nothing then."""
        os.close(self._end)
        self._thread.join()
        if self._error is not None:
            raise self._error


def export_persons(database: Database, target: Path, *, project_id: int) -> int:
    """Write the persons of a project into a file; how many. Raises `ExportError`."""

    with database.read() as reading:
        rows = (
            {
                "uuid": str(person.uuid),
                "distinct_ids": orjson.dumps(distinct_ids).decode(),
                "properties": orjson.dumps(person.properties).decode(),
                "is_identified": person.is_identified,
                "created_at": person.created_at.replace(tzinfo=None).isoformat(),
            }
            for person, distinct_ids in every_person(reading, project_id)
        )
        return write_rows(target, _PERSONS, rows)


def write_rows(target: Path, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows that JSON can hold into a file of the kind that its name says; how many.

    ``columns`` are names with types of the engine, in order. Raises `ExportError`.
    """

    def copy(draft: Path, file_format: str) -> int:
        with (
            tempfile.NamedTemporaryFile(dir=draft.parent, suffix=".jsonl") as lines,
            file_engine() as connection,
        ):
            for row in rows:
                lines.write(orjson.dumps(row) + b"\n")
            lines.flush()
            return copy_query(connection, _from_lines(lines.name, columns), None, draft, file_format, columns)

    return _whole(target, copy)


def _whole(target: Path, copy: Callable[[Path, str], int]) -> int:
    """Let ``copy`` write a draft that takes the target's place when it is complete."""
    kind = next(
        (kind for kind in sorted(_FORMATS, key=len, reverse=True) if target.name.endswith(kind)), None
    )
    if kind is None:
        raise ExportError(
            f"{target}: expected a name that ends in .parquet, .csv or .jsonl (or .gz of the latter)"
        )
    if not target.parent.is_dir():
        raise ExportError(f"{target.parent} is not a directory")
    try:
        with whole_file(target) as draft:
            return copy(draft, _FORMATS[kind])
    except (OSError, FileEngineError, EventStoreUnavailableError, CutOffError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"{target} was not written: {reason}") from error


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Provide a path for a draft, which takes the target's place when it is complete, readable by its owner alone."""
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        yield draft
        draft.chmod(OWNERS_ALONE)
        draft.replace(target)


def _from_lines(path: str, types: Mapping[str, str]) -> str:
    """Return SQL that reads a file of JSON lines. All columns are written in the form that the types take."""
    quoted = path.replace("'", "''")
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in types.items())
    return (
        f"SELECT * FROM read_json('{quoted}', format = 'newline_delimited', columns = {{{columns}}}, "  # noqa: S608
        f"maximum_object_size = {MAX_LINE_BYTES})"
    )
