"""Looking a data directory through, beside a server or without one: whether all files can be read and fit together."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hoglab.capture.records import RecordError, decode_record
from hoglab.functions.secrets import SecretBox, SecretsError, unreadable_secrets
from hoglab.storage.database import Database, DatabaseError, lost_commits, tables
from hoglab.storage.database.integrity import MAX_PROBLEMS, examined, examined_log, schema_revision
from hoglab.storage.database.migrations import HEADS
from hoglab.storage.directory import DataDirectory, DirectoryLockedError
from hoglab.storage.engines import EventFile
from hoglab.storage.event_log import LogStats, Offset, SequenceNumber
from hoglab.storage.event_log.extent import log_stats, unread_records
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.event_store.examination import StoreReport, examine
from hoglab.storage.identity import ExistingFiles, Installation
from hoglab.transfer.running import MAX_EXAMINATION_S, CutOffError, NotServedError, running_examination

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(slots=True)
class CheckReport:
    """Report of a check: facts of files that are sound, and problems, a line each."""

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Log:
    """Event log as far as `Installation` needs it."""

    known: LogStats

    def last_offset(self) -> Offset:
        return self.known.last_offset

    def stats(self) -> LogStats:
        return self.known


@dataclass(frozen=True, slots=True)
class _Store:
    """Event store as far as `Installation` needs it."""

    report: StoreReport

    def position(self) -> SequenceNumber:
        return SequenceNumber(self.report.position)

    def identity(self) -> tuple[str, int, int] | None:
        return self.report.identity


def check(
    data: Path, secret_keys: Sequence[str] = (), *, full: bool = False, database_url: str | None = None
) -> CheckReport:
    """Read every page of the databases of a directory, and look whether they fit together.

    ``full``: also whether indexes, values, records of the log and secrets are what they should be.

    ``database_url``: of the PostgreSQL database beside it. Changes nothing. Raises `DirectoryError`.
    """
    report = CheckReport()
    with DataDirectory.open(data, exclusive=False) as directory:
        if database_url is not None:
            _check_beside(directory, database_url, secret_keys, report, full=full)
            return report
        existing = ExistingFiles.in_directory(directory)
        databases = (directory.metadata_path, directory.queue_path)
        lost = _lost_commits(directory, databases)
        report.problems += lost.values()
        sound = [path not in lost and _check_database(path, report, full=full) for path in databases]
        store = _check_store(directory, report)
        if not all(sound):
            return report
        with _opened(directory, report) as opened:
            if opened is None:
                return report
            database, queue = opened
            if rows := [row for file in database.files for row in file.damaged_tables()]:
                report.problems.append(
                    f"hoglab.db is damaged: rows of {', '.join(rows)} are not what was written; restore a backup, or "
                    "look at them and start `hoglab serve --accept-loss`"
                )
            if full and any(file.search_is_damaged() for file in database.files):
                report.problems.append(
                    "hoglab.db: the index for searching persons is damaged, and lacks somebody; stop the server, "
                    "and run `hoglab repair`"
                )
            stats = _check_log(directory.queue_path, report, full=full)
            if store is not None:
                files = Installation(directory, existing, database, queue, _Log(stats), _Store(store))
                report.problems += files.findings()
            _check_secrets(directory, database, secret_keys, report, full=full)
    return report


def _check_beside(
    directory: DataDirectory, url: str, secret_keys: Sequence[str], report: CheckReport, *, full: bool
) -> None:
    """Check the events, and whether a database and its secrets go with them, but not the rows of PostgreSQL."""
    store = _check_store(directory, report)
    with ExitStack() as opened:
        try:
            database = Database.open(url)
            opened.callback(database.dispose)
            queue = Database.open(url, tables.queue_metadata)
            opened.callback(queue.dispose)
            with queue.read() as connection:
                stats = log_stats(connection)
                damaged = unread_records(connection, _is_record) if full else []
        except DatabaseError as error:
            report.problems.append(str(error))
            return
        if damaged:
            shown = ", ".join(map(str, damaged[:MAX_PROBLEMS]))
            report.problems.append(f"{len(damaged)} records of the event log are damaged: {shown}")
        report.facts.append(
            f"event log: {stats.records:,} records, the last one given out is {stats.last_offset}"
        )
        if store is not None:
            existing = ExistingFiles.on_server(directory)
            files = Installation(directory, existing, database, queue, _Log(stats), _Store(store))
            report.problems += files.findings()
        _check_secrets(directory, database, secret_keys, report, full=full)


def _lost_commits(directory: DataDirectory, databases: Sequence[Path]) -> dict[Path, str]:
    """Return commits that write-ahead logs lack, by database.

    None beside a running server, whose readiness reports them.
    """
    try:
        own = DataDirectory.open(directory.path)
    except DirectoryLockedError:
        return {}
    with own:
        losses = {path: lost_commits(path) for path in databases}
    return {
        path: f"{text} Restore a backup, or start without what is missing"
        for path, text in losses.items()
        if text is not None
    }


def _check_database(path: Path, report: CheckReport, *, full: bool) -> bool:
    if not path.exists():
        report.problems.append(f"{path.name} is missing: restore a backup")
        return False
    problems, rows = examined(path, full=full)
    report.problems += [f"{path.name} is damaged: {text}; restore a backup" for text in problems]
    if not problems:
        report.facts.append(f"{path.name}: {rows:,} rows")
    return not problems


@contextmanager
def _opened(directory: DataDirectory, report: CheckReport) -> Iterator[tuple[Database, Database] | None]:
    """Open both databases; yield None when they are of another version, because opening would upgrade them."""
    for path, schema in ((directory.metadata_path, "main"), (directory.queue_path, "queue")):
        if schema_revision(path) != HEADS[schema]:
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


def _check_log(path: Path, report: CheckReport, *, full: bool) -> LogStats:
    log = examined_log(path, _is_record, full=full)
    report.facts.append(f"event log: {log.count:,} records, the last one given out is {log.last}")
    if log.deferred:
        report.facts.append(f"event log: {log.deferred:,} more records wait for others of their project")
    for name, keys in log.damaged.items():
        if keys:
            shown = ", ".join(map(str, keys[:MAX_PROBLEMS]))
            report.problems.append(f"{len(keys)} {name} of the event log are damaged: {shown}")
    if log.quarantined:
        report.facts.append(
            f"quarantine: {log.quarantined:,} records, see `hoglab ingestion quarantine list`"
        )
    return LogStats(Offset(log.first), Offset(log.last), log.count, 0)


def _is_record(payload: bytes) -> bool:
    try:
        decode_record(payload)
    except RecordError:
        return False
    return True


def _check_store(directory: DataDirectory, report: CheckReport) -> StoreReport | None:
    if not directory.events_path.exists():
        report.facts.append(
            "events.duckdb is missing; of its events a start ingests again what the event log has"
        )
        return StoreReport(0, {}, None, [])
    try:
        store = _examined(directory)
    except (EventStoreUnavailableError, NotServedError, CutOffError) as error:
        report.problems.append(f"events.duckdb cannot be read: {error}")
        return None
    report.problems += [f"events.duckdb is damaged: {text}; restore a backup" for text in store.problems]
    if not store.problems:
        report.facts.append(
            f"events.duckdb: {store.rows.get('events', 0):,} events, up to record {store.position}"
        )
    return store


def _examined(directory: DataDirectory) -> StoreReport:
    try:
        own = DataDirectory.open(directory.path)
    except DirectoryLockedError:
        return running_examination(directory.socket_path)
    with own:
        store = EventFile(directory.events_path)
        try:
            return examine(store, timeout_s=MAX_EXAMINATION_S)
        finally:
            store.close()


def _check_secrets(
    directory: DataDirectory, database: Database, keys: Sequence[str], report: CheckReport, *, full: bool
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
