"""Looking a data directory through, beside a server or without one: whether all files can be read and fit together."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hoglab.capture.records import RecordError, decode_record
from hoglab.functions.secrets.box import SecretBox, SecretsError
from hoglab.functions.secrets.sealed_check import unreadable_secrets
from hoglab.storage.database import Database, DatabaseError, tables
from hoglab.storage.database.log_damage import lost_commits
from hoglab.storage.database.migrations import HEADS
from hoglab.storage.directory import DataDirectory, DirectoryLockedError
from hoglab.storage.event_log import LogStats
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.examination import StoreReport, examine
from hoglab.storage.identity import Installation, Present
from hoglab.transfer.running import MAX_EXAMINATION_S, CutOffError, NotServedError, running_examination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAX_PROBLEMS = 20
"""Problems told of one file."""
RECORDS_AT_ONCE = 200

_RECORDS = 'SELECT "offset", payload FROM event_log_record WHERE "offset" > ? ORDER BY "offset" LIMIT ?'


@dataclass(slots=True)
class Report:
    """What was found: facts of files that are sound, and problems, a line each."""

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Log:
    """What `Installation` asks of an event log."""

    known: LogStats

    def last_offset(self) -> int:
        return self.known.last_offset

    def stats(self) -> LogStats:
        return self.known


@dataclass(frozen=True, slots=True)
class _Store:
    """What `Installation` asks of an event store."""

    report: StoreReport

    def position(self) -> int:
        return self.report.position

    def identity(self) -> tuple[str, int, int] | None:
        return self.report.identity


def check(data: Path, secret_keys: Sequence[str] = (), *, full: bool = False) -> Report:
    """Look through the files of a directory. ``full``: every page, row and secret, else what is quick.

    Changes nothing. Raises `DirectoryError`.
    """
    report = Report()
    with DataDirectory.open(data, exclusive=False) as directory:
        present = Present.in_directory(directory)
        databases = (directory.metadata_path, directory.queue_path)
        lost = _lost_commits(directory, databases)
        report.problems += lost.values()
        sound = [path not in lost and _check_sqlite(path, report, full=full) for path in databases]
        store = _check_store(directory, report, full=full)
        if not all(sound):
            return report
        with _opened(directory, report) as opened:
            if opened is None:
                return report
            database, queue = opened
            if rows := database.damaged_tables():
                report.problems.append(
                    f"hoglab.db is damaged: rows of {', '.join(rows)} are not what was written; restore a backup, or "
                    "look at them and start `hoglab serve --accept-loss`"
                )
            stats = _check_log(directory.queue_path, report, full=full)
            if store is not None:
                files = Installation(directory, present, database, queue, _Log(stats), _Store(store))
                report.problems += files.findings()
            _check_secrets(directory, database, secret_keys, report, full=full)
    return report


def _lost_commits(directory: DataDirectory, databases: Sequence[Path]) -> dict[Path, str]:
    """What the write-ahead logs lack; of a server that runs its readiness tells."""
    try:
        own = DataDirectory.open(directory.path)
    except DirectoryLockedError:
        return {}
    with own:
        found = {path: lost_commits(path) for path in databases}
    return {
        path: f"{text} Restore a backup, or start without what is missing"
        for path, text in found.items()
        if text is not None
    }


def _check_sqlite(path: Path, report: Report, *, full: bool) -> bool:
    if not path.exists():
        report.problems.append(f"{path.name} is missing: restore a backup")
        return False
    problems: list[str] = []
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("PRAGMA query_only=ON")
            how = "integrity_check" if full else "quick_check"
            found = [text for (text,) in connection.execute(f"PRAGMA {how}({MAX_PROBLEMS})")]
            problems += [text for text in found if text != "ok"]
            broken = connection.execute("PRAGMA foreign_key_check").fetchmany(MAX_PROBLEMS)
            problems += [
                f"a row of {table} refers to one of {parent} that is not there"
                for table, _, parent, _ in broken
            ]
            if full and not problems:
                problems += _unreadable_values(connection)
            rows = 0 if problems else _rows(connection)
    except sqlite3.Error as error:
        problems.append(str(error))
    report.problems += [f"{path.name} is damaged: {text}; restore a backup" for text in problems]
    if not problems:
        report.facts.append(f"{path.name}: {rows:,} rows")
    return not problems


def _tables(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "AND sql NOT LIKE 'CREATE VIRTUAL TABLE%'"  # an index for searches cannot be read as a whole
    )
    return [name for (name,) in names]


def _rows(connection: sqlite3.Connection) -> int:
    counts = (f'SELECT count(*) FROM "{name}"' for name in _tables(connection))  # noqa: S608
    return sum(connection.execute(query).fetchone()[0] for query in counts)


def _unreadable_values(connection: sqlite3.Connection) -> list[str]:
    """Columns of JSON with values that are none: SQLite itself takes any text."""
    problems = []
    existing = set(_tables(connection))
    for metadata in (tables.metadata, tables.queue_metadata):
        for table in metadata.tables.values():
            if table.name not in existing:
                continue
            known = {row[1] for row in connection.execute(f'PRAGMA table_info("{table.name}")')}
            for column in table.columns:
                if type(column.type).__name__ != "Json" or column.name not in known:
                    continue
                bad = f'"{column.name}" IS NOT NULL AND NOT json_valid("{column.name}")'
                query = f'SELECT count(*) FROM "{table.name}" WHERE {bad}'  # noqa: S608
                count = connection.execute(query).fetchone()[0]
                if count:
                    problems.append(f"{count} values of {table.name}.{column.name} cannot be read")
    return problems


@contextmanager
def _opened(directory: DataDirectory, report: Report) -> Iterator[tuple[Database, Database] | None]:
    """Both databases; None when they are of another version, which opening them would change."""
    for path, schema in ((directory.metadata_path, "main"), (directory.queue_path, "queue")):
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is None or row[0] != HEADS[schema]:
            report.facts.append(
                f"{path.name} is of another version of hoglab: what it holds was not looked at"
            )
            yield None
            return
    try:
        database = Database.open(directory.metadata_path)
        queue = Database.open(directory.queue_path, tables.queue_metadata)
    except DatabaseError as error:
        report.problems.append(str(error))
        yield None
        return
    try:
        yield database, queue
    finally:
        queue.dispose()
        database.dispose()


def _check_log(path: Path, report: Report, *, full: bool) -> LogStats:
    damaged: list[int] = []
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        first, last, count = connection.execute(
            'SELECT min("offset"), max("offset"), count(*) FROM event_log_record'
        ).fetchone()
        given = connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'event_log_record'"
        ).fetchone()
        last = max(last or 0, 0 if given is None else given[0])
        after = 0
        while full and (records := connection.execute(_RECORDS, (after, RECORDS_AT_ONCE)).fetchall()):
            for offset, payload in records:
                try:
                    decode_record(payload)
                except RecordError:
                    damaged.append(offset)
            after = records[-1][0]
        waiting = connection.execute("SELECT count(*) FROM quarantined_record").fetchone()[0]
    report.facts.append(f"event log: {count:,} records, the last one given out is {last}")
    if damaged:
        shown = ", ".join(map(str, damaged[:MAX_PROBLEMS]))
        report.problems.append(f"{len(damaged)} records of the event log are damaged: {shown}")
    if waiting:
        report.facts.append(f"quarantine: {waiting:,} records, see `hoglab ingestion quarantine list`")
    return LogStats(first or 0, last, count, 0)


def _check_store(directory: DataDirectory, report: Report, *, full: bool) -> StoreReport | None:
    if not directory.events_path.exists():
        report.problems.append("events.duckdb is missing: restore a backup")
        return None
    try:
        found = _examined(directory, full=full)
    except (EventStoreUnavailableError, NotServedError, CutOffError) as error:
        report.problems.append(f"events.duckdb cannot be read: {error}")
        return None
    report.problems += [f"events.duckdb is damaged: {text}; restore a backup" for text in found.problems]
    if not found.problems:
        report.facts.append(
            f"events.duckdb: {found.rows.get('events', 0):,} events, up to record {found.position}"
        )
    return found


def _examined(directory: DataDirectory, *, full: bool) -> StoreReport:
    try:
        own = DataDirectory.open(directory.path)
    except DirectoryLockedError:
        return running_examination(directory.socket_path, full=full)
    with own:
        store = DuckDbEventStore(directory.events_path)
        try:
            return examine(store, full=full, timeout_s=MAX_EXAMINATION_S)
        finally:
            store.close()


def _check_secrets(
    directory: DataDirectory, database: Database, keys: Sequence[str], report: Report, *, full: bool
) -> None:
    if not keys and not directory.secret_keys_path.exists():
        report.problems.append(
            "secret-keys is missing: without it the secrets of functions cannot be read; put it back"
        )
        return
    try:
        unread = unreadable_secrets(database, SecretBox.open(directory, keys), full=full)
    except SecretsError as error:
        report.problems.append(str(error))
        return
    if unread:
        report.problems.append(
            f"{unread} secrets cannot be read with the present secret keys: put the right ones back"
        )
    else:
        report.facts.append("secrets: readable")
