"""Typed columns: properties that statements ask for again and again, outside of their JSON.

The engine fills one as events are inserted, and computes it from the JSON in parts of the table from before. So a
column tells the truth from its first moment on, and becomes fast month by month, the newest first, as
`TypedColumns.maintain_columns` has it written. A column that nobody asked for in a while leaves the views, and is
dropped the next time.

The table's own metadata say which columns there are and where they are written: what was cut off goes on from there.
"""

# ruff: noqa: S608 - names of our own, and literals

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.clickhouse.erasing import AT_ONCE
from hoglab.storage.event_store.clickhouse.schema import EVENTS, USES, views
from hoglab.storage.event_store.dialects.clickhouse import (
    PropertyForm,
    literal,
    number_in_json,
    text_in_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hoglab.storage.event_store.clickhouse.connection import Connection

MAX_COLUMNS: Final = 100
"""Maximum number of typed columns; each is written with every event."""
MAX_KEY_LENGTH: Final = 200
"""The longest key of a property that becomes a column, in characters."""
MAX_ASKED: Final = 1_000
"""Maximum number of properties that a process remembers until it notes them."""
AGAIN: Final = timedelta(minutes=1)
"""Time between two statements that ask for a property, so that one question alone makes no column."""
UNUSED: Final = timedelta(days=30)
"""A column that nobody asked for so long goes."""
FRESH_S: Final = 30.0
"""Time for which is believed what was read of the columns. Shorter than the pause between two rounds, since a column is
dropped a round after it left the views."""

_PREFIX: Final = "typed_"
_JSON_COLUMNS: Final = frozenset({"properties", "person_properties"})
_FORMS: Final = {
    PropertyForm.TEXT: ("Nullable(String)", text_in_json),
    PropertyForm.NUMBER: ("Nullable(Float64)", number_in_json),
}
_THIS_TABLE: Final = f"database = currentDatabase() AND table = '{EVENTS}'"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A property in a form, of a JSON column."""

    form: PropertyForm
    json_column: str
    key: str

    @property
    def name(self) -> str:
        """The column's name, which has nothing of the key: that may be any text."""
        place = repr((self.form.value, self.json_column, self.key))
        return _PREFIX + hashlib.sha256(place.encode()).hexdigest()[:20]

    @property
    def definition(self) -> str:
        """The column as ``ALTER TABLE`` adds it."""
        kind, read = _FORMS[self.form]
        return f"{self.name} {kind} MATERIALIZED {read(self.json_column, literal(self.key))} CODEC(ZSTD(1))"


class TypedColumns:
    """The typed columns of a database. For all threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._read_at = -FRESH_S
        self._asked: dict[str, _Asked] = {}

    def column(self, form: PropertyForm, json_column: str, key: str) -> str | None:
        """Return the column of a property, if there is one; that it was asked for is noted."""
        if json_column not in _JSON_COLUMNS or len(key) > MAX_KEY_LENGTH or not _can_be_written(key):
            return None
        asked = _Asked(form, json_column, key)
        if len(self._asked) < MAX_ASKED:
            self._asked[asked.name] = asked
        self._refresh()
        return asked.name if asked.name in self._known else None

    def _refresh(self) -> None:
        if time.monotonic() - self._read_at < FRESH_S:
            return
        with self._lock:
            if time.monotonic() - self._read_at < FRESH_S:
                return
            try:
                self._known = frozenset(self._columns_of("resolved_events"))
            except EventStoreUnavailableError:  # the statement will say so
                self._known = frozenset()
            self._read_at = time.monotonic()

    def _columns_of(self, table: str) -> list[str]:
        rows = self._connection.rows(
            "SELECT name FROM system.columns WHERE database = currentDatabase() "
            f"AND table = '{table}' AND startsWith(name, '{_PREFIX}')"
        )
        return [name for (name,) in rows]

    def maintain_columns(self, now: datetime | None = None) -> bool:
        """Return a round: have the columns that are asked for, drop others, and write those of one month.

        Whether there is more to write. Raises `EventStoreUnavailableError`; what was cut off is done by the next round.
        """
        moment = _second_of(now)
        self.flush_usage(moment)
        there, shown = self._columns_of(EVENTS), self._columns_of("resolved_events")
        wanted = self._wanted(moment)
        if gone := [name for name in there if name not in wanted and name not in shown]:
            self._alter(f"DROP COLUMN IF EXISTS {name}" for name in gone)
            there = [name for name in there if name not in gone]
        room = MAX_COLUMNS - len(there)
        if new := [asked for name, asked in wanted.items() if name not in there][: max(room, 0)]:
            self._alter(f"ADD COLUMN IF NOT EXISTS {asked.definition}" for asked in new)
        # As they are now: another process may have added some meanwhile.
        usable = sorted(name for name in self._columns_of(EVENTS) if name in wanted)
        if usable != sorted(shown):
            for statement in views(usable):
                self._connection.command(statement)
            self._read_at = -FRESH_S
        return self._write(usable)

    def flush_usage(self, now: datetime | None = None) -> None:
        """Write down what was asked for since the last time. Raises `EventStoreUnavailableError`."""
        moment = _second_of(now)
        noted, self._asked = self._asked, {}
        asked = list(noted.values())
        types = {"name": "String", "form": "String", "json_column": "String", "key": "String"}
        types |= dict.fromkeys(("first_at", "used_at"), "DateTime('UTC')")
        if asked:
            columns: dict[str, Sequence[Any]] = {
                "name": [use.name for use in asked],
                "form": [use.form.value for use in asked],
                "json_column": [use.json_column for use in asked],
                "key": [use.key for use in asked],
                "first_at": [moment] * len(asked),
                "used_at": [moment] * len(asked),
            }
            self._connection.insert(USES, types, columns)

    def _wanted(self, now: datetime) -> dict[str, _Asked]:
        """Return the properties that are worth a column, those asked for last first."""
        long_ago = f"toDateTime('{now - UNUSED:%Y-%m-%d %H:%M:%S}', 'UTC')"
        rows = self._connection.rows(
            f"SELECT name, form, json_column, key FROM {USES} GROUP BY name, form, json_column, key "
            f"HAVING max(used_at) > {long_ago} AND max(used_at) >= min(first_at) + {AGAIN.total_seconds():.0f} "
            f"ORDER BY max(used_at) DESC, name LIMIT {MAX_ASKED}"
        )
        return {name: _Asked(PropertyForm(form), column, key) for name, form, column, key in rows}

    def _alter(self, changes: Iterable[str], *, wait: bool = True) -> None:
        self._connection.command(f"ALTER TABLE {EVENTS} {', '.join(changes)}", AT_ONCE if wait else None)

    def _write(self, usable: Iterable[str]) -> bool:
        """Let the engine write the columns of the newest month that lacks any, and return whether there is one.

        Nobody waits for the engine, which takes as long as reading a month. While it is at work nothing else is begun.
        """
        sql = f"SELECT count() FROM system.mutations WHERE {_THIS_TABLE} AND NOT is_done"
        if self._connection.rows(sql)[0][0]:
            return True
        rows = self._connection.rows(
            f"SELECT toUInt32(partition_id), column, count() FROM system.parts_columns WHERE {_THIS_TABLE} AND active "
            f"AND (column = 'uuid' OR startsWith(column, '{_PREFIX}')) GROUP BY 1, 2"
        )
        parts = {(month, column): count for month, column, count in rows}
        for month in sorted({month for month, _ in parts}, reverse=True):
            lacking = [name for name in usable if parts.get((month, name), 0) < parts[month, "uuid"]]
            if lacking:
                self._alter(
                    (f"MATERIALIZE COLUMN {name} IN PARTITION ID '{month}'" for name in lacking), wait=False
                )
                return True
        return False


def _second_of(now: datetime | None) -> datetime:
    return (datetime.now(UTC) if now is None else now).replace(microsecond=0)


def _can_be_written(key: str) -> bool:
    """Return whether a statement can have the key as a literal."""
    with contextlib.suppress(UnicodeEncodeError):
        return b"\0" not in key.encode()
    return False
