"""Exporting events and persons of a data directory that no server uses."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import orjson

from hoglab.people.reading import every_person
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.export import copy_events, copy_query, file_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from hoglab.storage.database import Database
    from hoglab.storage.directory import DataDirectory

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


class ExportError(Exception):
    """Nothing was exported; the text is one line."""


def export_events(
    directory: DataDirectory,
    target: Path,
    *,
    project_id: int,
    event: str | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
) -> int:
    """Write the events of a project into a file; how many. The directory must be held. Raises `ExportError`."""

    def copy(draft: Path, file_format: str) -> int:
        if not directory.events_path.exists():
            raise ExportError(f"{directory.path} holds no events")
        return copy_events(
            directory.events_path,
            draft,
            file_format=file_format,
            project_id=project_id,
            event=event,
            after=after,
            before=before,
        )

    return _whole(target, copy)


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
            types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
            query = (
                f"SELECT {', '.join(columns)} FROM read_json({_quoted(lines.name)}, "  # noqa: S608 - our own names
                f"format = 'newline_delimited', columns = {{{types}}}, maximum_object_size = 67108864)"
            )
            return copy_query(connection, query, None, draft, file_format)

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
    draft = target.with_name(f".{target.name.removesuffix(kind)}.part{kind}")
    try:
        rows = copy(draft, _FORMATS[kind])
        draft.replace(target)
    except (OSError, duckdb.Error, EventStoreUnavailableError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"{target} was not written: {reason}") from error
    else:
        return rows
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
