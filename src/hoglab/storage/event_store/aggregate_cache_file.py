"""The file of the aggregate cache, beside the events: what results computed from them. It may be deleted.

The engine has it open together with the events, as the schema `SCHEMA`, so that statements read both and share one
limit of memory. What is in it is the business of `hoglab.analysis`. A file that cannot be read is replaced by an
empty one.

A cache needs no write-ahead log. What changes stays in memory until a checkpoint, which the engine makes by itself
when it is `hoglab.storage.event_store.duckdb.CHECKPOINT_BYTES`, and when the file is closed. A process that is killed
leaves the file as it was at the last one: older, and whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import structlog

from hoglab.patterns import searched

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "aggregate_cache"

_OLD_NAME = "results-state.duckdb"
"""The name of the file in earlier versions; such a file is renamed when it is opened."""

ROW_GROUP_ROWS = 2 * 122_880
"""Number of rows of a row group: twice the engine's default.

Rows of one insert are compressed and written at once when there are more of them, and are added as they are when there
are fewer; a day's events of a log should be the latter."""

TABLE_NAMES = f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{SCHEMA}'"  # noqa: S608, a constant
"""The query for the tables of the file."""

_ATTACH = f"ATTACH '{{place}}' AS {SCHEMA} (RECOVERY_MODE 'no_wal_writes', ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
_DAMAGED_BLOCK = searched(r"match stored checksum (?P<stored>\d+) in block at location (?P<place>\d+)")
_UNWRITTEN = "SELECT parse_formatted_bytes(wal_size) FROM pragma_database_size() WHERE database_name = $1"

_log = structlog.get_logger(__name__)


class AggregateCacheFile:
    """The file, opened by the engine.

    ``is_attached`` is False when not even an empty file could be made: results are then computed without a cache.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_attached = False

    @classmethod
    def attached(cls, connection: Any, path: Path) -> AggregateCacheFile:
        """Open the file in an engine that may still open files; an unreadable one is replaced."""
        file = cls(path)
        file._rename_old()
        if not file._attach(connection):
            file._remove()
            file._attach(connection)
        return file

    def reset(self, connection: Any) -> None:
        """Replace the file by an empty one. No statement may be using it."""
        try:
            if self.is_attached:
                connection.execute(f"DETACH {SCHEMA}")
            self.is_attached = False
            self._remove()
        except (duckdb.Error, OSError) as error:
            _log.error("aggregate_cache_not_reset", path=str(self._path), reason=str(error))
            return
        self._attach(connection)

    def is_source_of(self, text: str) -> bool:
        """Return whether an error text of the engine is about a damaged block of this file."""
        damage = _DAMAGED_BLOCK.search(text)
        if damage is None or not self.is_attached:
            return False
        try:
            with self._path.open("rb") as file:
                file.seek(int(damage["place"]))
                return int.from_bytes(file.read(8), "little") == int(damage["stored"])
        except OSError:
            return False

    def unwritten_bytes(self, connection: Any) -> int:
        """Return the number of bytes that a process that is killed now would lose."""
        rows = connection.execute(_UNWRITTEN, [SCHEMA]).fetchall()
        return int(rows[0][0]) if rows else 0  # it may not be attached

    def _attach(self, connection: Any) -> bool:
        place = str(self._path).replace("'", "''")
        try:
            connection.execute(_ATTACH.format(place=place))
        except duckdb.Error as error:
            _log.warning(
                "aggregate_cache_not_opened", path=str(self._path), reason=str(error).partition("\n")[0]
            )
            return False
        self.is_attached = True
        return True

    def _rename_old(self) -> None:
        old = self._path.with_name(_OLD_NAME)
        try:
            if old.exists():
                old.unlink() if self._path.exists() else old.rename(self._path)
        except OSError as error:
            _log.warning("aggregate_cache_not_renamed", path=str(old), reason=str(error))

    def _remove(self) -> None:
        for path in (self._path, self._path.with_name(f"{self._path.name}.wal")):
            path.unlink(missing_ok=True)
