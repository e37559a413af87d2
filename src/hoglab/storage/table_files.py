"""Tables that are files in one directory of the server: Parquet, and CSV with the names of its columns.

What a user says is a pattern relative to the directory (``orders/*.parquet``). It never leads out of it: not by
``..``, not from the root, and not over a symbolic link; the engine itself is allowed nothing outside either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final

import duckdb

from hoglab.patterns import searched

MAX_FILES = 1_000
"""Maximum number of files of one table."""
MAX_PATTERN = 500
"""The longest pattern, in characters."""
MAX_COLUMNS = 2_000
"""Maximum number of columns of a table."""
MAX_LOOKED_AT = 10_000
"""Number of tables for which the state of their files is remembered."""
DESCRIBE_MEMORY = "256MB"
"""Memory limit for looking at the columns of a table."""

_ENGINE_WILDCARDS = searched(r"[*?\[\]{}]")
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_BROAD_INTEGERS = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})


class TableFileError(ValueError):
    """A table cannot be read; the message is one line for a person and names no path outside the directory."""


class FileFormat(StrEnum):
    """Format of the files of a table, in PostHog's words."""

    PARQUET = "Parquet"
    CSV = "CSVWithNames"


class ColumnType(StrEnum):
    """Type of the values of a column, in PostHog's words. A column of an ``unknown`` type cannot be used in metrics."""

    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    BOOLEAN = "boolean"
    DATETIME = "datetime"
    DATE = "date"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table as it was registered."""

    name: str
    format: FileFormat
    pattern: str
    columns: tuple[tuple[str, ColumnType], ...]

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type of a column; None when there is none of that name."""
        return dict(self.columns).get(column)


FilesState = tuple[tuple[str, int, int, int], ...]
"""Path, size in bytes, time of writing (nanoseconds) and inode number of each file."""

READERS: Final = {
    FileFormat.PARQUET: "read_parquet({files}, hive_partitioning = false)",
    FileFormat.CSV: "read_csv({files}, header = true, hive_partitioning = false{types})",
}
"""Calls by which DuckDB reads the files of a table: ``files`` is a list of paths, ``types`` those of some columns."""


class TableDirectory:
    """The one directory whose files may be tables. It need not exist as long as there are none."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._looked_at: dict[FileTable, FilesState] = {}

    def files(self, pattern: str) -> tuple[str, ...]:
        """Return the paths of the files that a pattern means, in order. Raises `TableFileError`."""
        parts = _parts(pattern)
        try:
            root = self.path.resolve(strict=True)
            _refuse_links(root, parts if _ENGINE_WILDCARDS.search(parts[-1]) is None else parts[:-1])
            paths = sorted(
                path for path in islice(root.glob("/".join(parts)), MAX_FILES + 1) if path.is_file()
            )
        except TableFileError:
            raise
        except (OSError, ValueError) as error:
            raise TableFileError(f"The directory of tables cannot be read: {_reason(error)}.") from error
        if len(paths) > MAX_FILES:
            raise TableFileError(f"{pattern} means more than {MAX_FILES:,} files.")
        for path in paths:
            shown = path.relative_to(root)
            if path.resolve() != path:
                raise TableFileError(f"{shown} is a link, which is not followed.")
            if _ENGINE_WILDCARDS.search(str(path)):
                raise TableFileError(f"{shown} has a character in its name that stands for others.")
        if not paths:
            raise TableFileError(f"There is no file {pattern} in the directory of tables.")
        return tuple(map(str, paths))

    def files_of(self, table: FileTable) -> tuple[str, ...]:
        """Return the files of a table, after a look at whether they still have its columns.

        The look is an engine's of its own, for one that reads a damaged file may give up for good. It is taken
        again when the files have changed. Raises `TableFileError`.
        """
        state = self.state_of(table)
        if self._looked_at.get(table) != state:
            present = dict(self.columns(table.pattern, table.format))
            for name, kind in table.columns:
                found_kind = present.get(name)
                if found_kind is None:
                    raise TableFileError(f"its files have no column {name} any more.")
                # What a CSV column holds is a guess from some rows; reading it as another type is an error then.
                if found_kind is not kind and table.format is not FileFormat.CSV:
                    raise TableFileError(
                        f"its column {name} was {kind} and is {found_kind} now: refresh its schema."
                    )
            if len(self._looked_at) >= MAX_LOOKED_AT:
                self._looked_at.clear()
            self._looked_at[table] = state
        return tuple(path for path, *_ in state)

    def state_of(self, table: FileTable) -> FilesState:
        """Return the state of the files of a table, which differs after they were changed. Raises `TableFileError`."""
        files = self.files(table.pattern)
        try:
            stats = [(path, Path(path).stat()) for path in files]
        except OSError as error:
            raise TableFileError(f"{table.pattern} cannot be read: {_reason(error)}.") from error
        return tuple((path, status.st_size, status.st_mtime_ns, status.st_ino) for path, status in stats)

    def columns(self, pattern: str, format_: FileFormat) -> tuple[tuple[str, ColumnType], ...]:
        """Return names and types of the columns of a table. Raises `TableFileError`."""
        files = self.files(pattern)
        reader = READERS[format_].format(files="$files", types="")
        try:
            with contextlib.closing(self._engine()) as engine:
                rows = engine.execute(f"DESCRIBE SELECT * FROM {reader}", {"files": list(files)}).fetchall()  # noqa: S608 - a constant
        except duckdb.Error as error:
            raise TableFileError(f"{pattern} cannot be read as {format_}: {self.explained(error)}") from error
        if len(rows) > MAX_COLUMNS:
            raise TableFileError(f"{pattern} has more than {MAX_COLUMNS:,} columns.")
        return tuple((name, column_type(kind)) for name, kind, *_ in rows)

    def explained(self, error: object) -> str:
        """Return text of an engine's error about a file, without the place of the directory on the server."""
        line = str(error).strip().partition("\n")[0]
        return line.replace(f"{self.path.resolve()}/", "").replace(f"{self.path}/", "")

    def _engine(self) -> Any:
        engine = duckdb.connect(
            config={
                "memory_limit": DESCRIBE_MEMORY,
                "threads": 1,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_community_extensions": False,
                "python_enable_replacements": False,
            }
        )
        confine(engine, [self.path.resolve()])
        return engine


def confine(connection: Any, directories: Sequence[Path]) -> None:
    """Let a DuckDB connection read these directories and nothing else, from now on."""
    allowed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in directories)
    for setting in (
        *((f"allowed_directories = [{allowed}]",) if directories else ()),
        "TimeZone = 'UTC'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def column_type(kind: str) -> ColumnType:
    """Return the type of a column by the name that DuckDB gives it."""
    if kind in _INTEGERS:
        return ColumnType.INTEGER
    if kind in ("DOUBLE", "FLOAT") or kind in _BROAD_INTEGERS or kind.startswith("DECIMAL("):
        return ColumnType.FLOAT
    if kind in ("VARCHAR", "UUID", "JSON") or kind.startswith("ENUM("):
        return ColumnType.STRING
    if kind == "BOOLEAN":
        return ColumnType.BOOLEAN
    if kind.startswith("TIMESTAMP"):
        return ColumnType.DATETIME
    return ColumnType.DATE if kind == "DATE" else ColumnType.UNKNOWN


def _parts(pattern: str) -> Sequence[str]:
    if not pattern or len(pattern) > MAX_PATTERN or "\0" in pattern or "\\" in pattern:
        raise TableFileError(f"A pattern of files has 1 to {MAX_PATTERN} characters, and no backslash.")
    path = PurePosixPath(pattern)
    if path.is_absolute() or ".." in path.parts or "://" in pattern or not path.parts:
        raise TableFileError(
            f"{pattern} must be relative to the directory of tables and stay inside it (orders/*.parquet)."
        )
    return path.parts


def _refuse_links(root: Path, parts: Sequence[str]) -> None:
    """Raise `TableFileError` if a part of a pattern is a link; where it has wildcards, if they mean one to a directory.

    Nothing behind a link is looked at: neither the error nor its absence tells what is there.
    """
    directories = [root]
    for part in parts:
        inner: dict[Path, None] = {}
        has_wildcards = _ENGINE_WILDCARDS.search(part) is not None
        for directory in directories:
            # Without wildcards `glob` looks whether the path exists, which follows a link.
            for path in directory.glob(part) if has_wildcards else (directory / part,):
                if path.is_symlink() and (path.is_dir() or not has_wildcards):
                    raise TableFileError(f"{path.relative_to(root)} is a link, which is not followed.")
                if path.is_dir():
                    inner[path] = None
                if len(inner) > MAX_FILES:
                    raise TableFileError(f"{'/'.join(parts)} means more than {MAX_FILES:,} directories.")
        directories = list(inner)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
