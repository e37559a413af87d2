"""Making a backup, beside a server or without one: all files as they are at one position of the event log.

While the store's files are read, the server stores no events; it goes on to accept them, and to answer. The databases
are held on to by a snapshot each, metadata first: so persons are never behind events, and the log never behind either.
Where they are in a PostgreSQL database its own tools copy them, afterwards: so they are not behind the events there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from hoglab import __version__
from hoglab.backup.repository import FILES_FORMAT, FORMAT, BackupError, BackupRepository, KeptFile, Manifest
from hoglab.storage.database import Database, tables
from hoglab.storage.database.copies import LAST_LOG_OFFSET, snapshot
from hoglab.storage.directory import DataDirectory, DirectoryLockedError
from hoglab.storage.event_log.extent import last_offset
from hoglab.transfer.running import CutOffError, NotServedError, running_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoglab.storage.database.copies import Snapshot

_IDENTITY = "SELECT installation_id FROM installation"
_GENERATION = "SELECT generation FROM installation"
_POSITION = "SELECT log_offset FROM ingestion_progress WHERE stage = 'people'"


class Made(NamedTuple):
    """A backup that is whole, and how much of it was not there before."""

    manifest: Manifest
    new_bytes: int


def make_backup(data: Path, to: Path, *, keep: int | None = None, database_url: str | None = None) -> Made:
    """Copy a data directory into a folder of backups, and read all of it again.

    Parts of files that exist already are not written again. ``keep``: number of backups to keep.
    ``database_url``: of the PostgreSQL database beside the directory, which is not copied.
    Raises `BackupError`, `DatabaseError` and `DirectoryError`.
    """
    if to.resolve().is_relative_to(data.resolve()):
        raise BackupError(f"{to} is inside of {data}: keep backups elsewhere, best on another machine")
    repository = BackupRepository(to)
    repository.prepare()
    with DataDirectory.open(data, exclusive=False) as directory:
        copy = _copy if database_url is None else partial(_copy_beside, database_url)
        manifest = copy(directory, repository)
    repository.verify(manifest)
    repository.finish(manifest)
    if keep is not None:
        repository.forget(keep)
    return Made(manifest, repository.new_bytes)


def _copy(directory: DataDirectory, repository: BackupRepository) -> Manifest:
    files: list[KeptFile] = []
    with ExitStack() as held, tempfile.TemporaryDirectory(dir=repository.path, prefix=".copying-") as folder:
        with _store_held(directory):
            metadata = held.enter_context(snapshot(directory.metadata_path))
            queue = held.enter_context(snapshot(directory.queue_path))
            files += _kept_events(directory, repository)
        for path, database in ((directory.metadata_path, metadata), (directory.queue_path, queue)):
            copied = Path(folder) / path.name
            database.copy(copied)
            files.append(repository.keep(path.name, copied))
            copied.unlink()
        return _manifest(
            format=FILES_FORMAT,
            installation_id=_text(metadata, _IDENTITY),
            generation=_number(metadata, _GENERATION),
            position=_number(metadata, _POSITION),
            log_last_offset=_number(queue, LAST_LOG_OFFSET),
            files=[*files, *_kept_keys(directory, repository)],
        )


def _copy_beside(url: str, directory: DataDirectory, repository: BackupRepository) -> Manifest:
    """Copy a directory that has the events alone, and return the manifest.

    Positions in the database are read while no events are written.
    """
    database = Database.open(url)
    try:
        queue = Database.open(url, tables.queue_metadata)
        try:
            with _store_held(directory):
                with database.read() as connection:
                    home = connection.execute(sa.select(tables.installation)).mappings().first()
                    applied = connection.scalar(sa.text(_POSITION)) or 0
                with queue.read() as connection:
                    last = last_offset(connection)
                files = _kept_events(directory, repository)
        finally:
            queue.dispose()
    finally:
        database.dispose()
    if home is None:
        raise BackupError(f"no server has worked on {database.name} yet")
    return _manifest(
        format=FORMAT,
        installation_id=home["installation_id"],
        generation=home["generation"],
        position=applied,
        log_last_offset=last,
        files=[*files, *_kept_keys(directory, repository)],
        has_databases=False,
    )


def _kept_events(directory: DataDirectory, repository: BackupRepository) -> list[KeptFile]:
    if not directory.events_path.exists():
        raise BackupError(f"{directory.events_path} is missing: a backup of the rest would lack all events")
    wal = directory.events_path.with_name(f"{directory.events_path.name}.wal")
    return [repository.keep(path.name, path) for path in (directory.events_path, wal) if path.exists()]


def _kept_keys(directory: DataDirectory, repository: BackupRepository) -> list[KeptFile]:
    path = directory.secret_keys_path
    return [repository.keep(path.name, path)] if path.exists() else []


def _manifest(**facts: Any) -> Manifest:
    now = datetime.now(UTC)
    return Manifest(name=f"{now:%Y%m%dT%H%M%S%f}Z", made_at=now.isoformat(), version=__version__, **facts)


@contextmanager
def _store_held(directory: DataDirectory) -> Iterator[None]:
    """Keep the store unchanged during the block: the server that has it open waits, or servers are kept out."""
    try:
        try:
            own = DataDirectory.open(directory.path)
        except DirectoryLockedError:
            with running_hold(directory.socket_path):
                yield
        else:
            with own:
                yield
    except (NotServedError, CutOffError) as error:
        raise BackupError(
            f"the server on {directory.path} does not let its files be copied: {error}"
        ) from error


def _text(database: Snapshot, query: str) -> str:
    value = database.value(query)
    if value is None:
        raise BackupError("the directory was never used by this version: start `hoglab serve` on it once")
    return str(value)


def _number(database: Snapshot, query: str) -> int:
    value = database.value(query)
    return value if isinstance(value, int) else 0


def packed(data: Path, to: Path, *, database_url: str | None = None) -> Made:
    """Make a backup in one file: a tar archive with a folder that holds this backup alone."""
    folder = Path(tempfile.mkdtemp(dir=to.parent, prefix=".packing-"))
    try:
        backup = make_backup(data, folder / "backup", database_url=database_url)
        draft = folder / "backup.tar"
        shutil.make_archive(str(draft.with_suffix("")), "tar", folder / "backup")
        draft.chmod(0o600)
        draft.replace(to)
    except OSError as error:
        raise BackupError(f"{to} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=sys.exc_info()[0] is None)
    return backup
