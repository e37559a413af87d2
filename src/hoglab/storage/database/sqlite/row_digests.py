"""Digests of tables, because SQLite has no checksums: a flipped bit that leaves a row readable is noticed by them.

Each is the exclusive or of the digests of all rows of a table. Triggers, which only the connections of `Database` have,
change it in the transaction that changes a row, so that it always fits what was written. Like the index for searches
the digests belong to the file, not to the schema: they are made when a file is opened that lacks them, and again
after an upgrade. A change costs some four microseconds, which makes a fifth of ingesting the first event of a person,
and looking through a million rows takes some four seconds. Queues have none: records of the event log have checksums of
their own.
"""

# ruff: noqa: S608 - names of our own tables and columns

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from sqlalchemy import Connection

GUARDED = (
    "organization",
    "project",
    "user",
    "membership",
    "personal_api_key",
    "feature_flag",
    "experiment",
    "experiment_holdout",
    "experiment_record",
    "experiment_saved_metric",
    "saved_metric",
    "metric_result",
    "hog_function",
    "action",
    "cohort",
    "group_type",
    "warehouse_table",
    "person",
    "person_distinct_id",
    "group",
)
"""Tables of what people enter, of the results of that, and of the people that events are about."""

_MADE = "CREATE TABLE IF NOT EXISTS row_digest (name TEXT PRIMARY KEY, revision TEXT NOT NULL, digest INTEGER NOT NULL)"
_KNOWN = "SELECT name, revision, digest FROM row_digest"
_KEEP = "INSERT OR REPLACE INTO row_digest (name, revision, digest) VALUES (?, ?, ?)"
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_REVISION = "SELECT version_num FROM alembic_version"
_RULE = 2
"""Version of the rule for digests: digests of another version are computed again, as after a change of the schema."""
_DIGEST, _DIGEST_OF_ALL = "row_digest_with", "row_digest_of_all"


def make(connection: Connection, *, force: bool = False) -> None:
    """Compute the digests that are missing or of an earlier schema, in a transaction. ``force``: all digests."""
    names = _guarded(connection.exec_driver_sql(_TABLES))
    if not names:
        return
    connection.exec_driver_sql(_MADE)
    revision = f"{connection.exec_driver_sql(_REVISION).scalar_one()}/{_RULE}"
    known = {name: kept_revision for name, kept_revision, _ in connection.exec_driver_sql(_KNOWN)}
    for name in names:
        if force or known.get(name) != revision:
            connection.exec_driver_sql(_KEEP, (name, revision, _digest_of_table(connection, name)))


def damaged(connection: Connection) -> list[str]:
    """Return the tables with rows that are not what was written."""
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_schema WHERE name = 'row_digest'").first() is None:
        return []
    known = connection.exec_driver_sql(_KNOWN).all()
    return [name for name, _, digest in known if _digest_of_table(connection, name) != digest]


def _digest_of_table(connection: Connection, name: str) -> int:
    columns = _columns(connection.exec_driver_sql(f'PRAGMA table_info("{name}")'), "")
    query = f'SELECT {_DIGEST_OF_ALL}({columns}) FROM "{name}"'
    return int(connection.exec_driver_sql(query).scalar() or 0)  # without rows there is none


def provide(connection: sqlite3.Connection) -> None:
    """Register the functions that `make`, `damaged` and triggers need."""
    connection.create_function(_DIGEST, -1, _with, deterministic=True)
    connection.create_aggregate(_DIGEST_OF_ALL, -1, _OfAll)  # type: ignore[arg-type]


def keep_up(connection: sqlite3.Connection) -> None:
    """Make the triggers of a connection that writes."""
    tables = [name for (name,) in connection.execute(_TABLES)]
    if "row_digest" not in tables:
        return
    for name in _guarded((table,) for table in tables):
        info = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        old, new = _columns(info, "old."), _columns(info, "new.")
        for event, changed in (
            ("INSERT", f"{_DIGEST}(digest, {new})"),
            ("DELETE", f"{_DIGEST}(digest, {old})"),
            ("UPDATE", f"{_DIGEST}({_DIGEST}(digest, {old}), {new})"),
        ):
            connection.execute(
                f'CREATE TEMP TRIGGER "{name}_digest_{event}" AFTER {event} ON main."{name}" '
                f"BEGIN UPDATE row_digest SET digest = {changed} WHERE name = '{name}'; END"
            )


def _guarded(tables: Iterable[tuple[str]]) -> list[str]:
    existing = {name for (name,) in tables}
    return [name for name in GUARDED if name in existing]


def _columns(info: Iterable[tuple[object, ...]], prefix: str) -> str:
    # As bytes, so that text which is none any more can be looked at, and mended; with the types, for bytes are the same
    # where a text became a blob.
    names = [f'{prefix}"{row[1]}"' for row in info]
    types = " || ".join(f"typeof({name})" for name in names)
    return ", ".join([types, *(f"CAST({name} AS BLOB)" for name in names)])


def _with(digest: int, types: str, *cells: bytes | None) -> int:
    hash_ = blake2b(types.encode(), digest_size=8)
    for cell in cells:
        hash_.update(b"-" if cell is None else len(cell).to_bytes(4, "big"))
        hash_.update(cell or b"")
    return digest ^ int.from_bytes(hash_.digest(), "big", signed=True)


class _OfAll:
    """The digest of all rows."""

    def __init__(self) -> None:
        self._digest = 0

    def step(self, types: str, *cells: bytes | None) -> None:
        self._digest = _with(self._digest, types, *cells)

    def finalize(self) -> int:
        return self._digest
