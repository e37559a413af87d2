"""Restoring a backup: a new generation of the installation, which does not do again what its original did meanwhile."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from hoglab.backup.repository import BackupError, BackupRepository, Manifest
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import Database, tables
from hoglab.storage.database.tables import ingestion_progress, installation, queue_installation
from hoglab.storage.directory import DIRECTORY_MODE
from hoglab.storage.engines import write_store_identity
from hoglab.storage.identity import PEOPLE_STAGE, Identity, write_identity
from hoglab.storage.invocations.holding import Held, hold_all

if TYPE_CHECKING:
    from collections.abc import Iterator


_WHERE = {
    True: "the backup {} has hoglab.db and queue.db: restore it without HOGLAB_DATABASE_URL",
    False: "the backup {} has the events alone: name the restored PostgreSQL database with HOGLAB_DATABASE_URL",
}


class Restored(NamedTuple):
    """Result of a restore. ``held``: what does not run before somebody releases it; None: nothing is held."""

    manifest: Manifest
    generation: int
    held: Held | None


def restore_backup(
    source: Path,
    data: Path,
    *,
    name: str | None = None,
    deliver: bool = False,
    database_url: str | None = None,
) -> Restored:
    """Make a data directory from a backup, by default the newest; it must not exist, or be empty.

    ``deliver``: runs of functions that waited, and events that were not handed to functions yet, go their way. Without
    it runs are held, and these events are stored and run nothing: the original delivered them after the backup.
    ``database_url``: the PostgreSQL database that was restored from a copy made after the backup, and that nobody uses.
    Raises `BackupError` and `DatabaseError`.
    """
    if data.exists() and any(data.iterdir()):
        raise BackupError(
            f"{data} is not empty: restore into a new directory, then put it in the place of the old"
        )
    with _opened(source) as repository:
        names = repository.names()
        if not names:
            raise BackupError(f"there is no backup in {source}")
        manifest = repository.read(names[-1] if name is None else name)
        if manifest.has_databases != (database_url is None):
            raise BackupError(_WHERE[manifest.has_databases].format(manifest.name))
        if database_url is not None:
            _check_beside(manifest, database_url)
        draft = data.with_name(f".{data.name}.restoring")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(mode=DIRECTORY_MODE, parents=True)
            for file in manifest.files:
                repository.write(file, draft / Path(file.name).name)
            identity, held = _new_generation(draft, database_url, deliver=deliver)
            if data.exists():
                data.rmdir()
            draft.rename(data)
        except OSError as error:
            raise BackupError(f"{data} cannot be written: {error.strerror or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return Restored(manifest, identity.generation, held)


def _check_beside(manifest: Manifest, url: str) -> None:
    """Make sure that a database goes with the events of a backup. Raises `BackupError`."""
    if others := Database.other_sessions(url):
        raise BackupError(f"the database is in use ({others} connections): stop all processes that use it")
    database = Database.open(url)
    try:
        with database.read() as connection:
            row = connection.execute(sa.select(installation)).first()
            known = sa.select(ingestion_progress.c.log_offset)
            applied = connection.scalar(known.where(ingestion_progress.c.stage == PEOPLE_STAGE)) or 0
    finally:
        database.dispose()
    if row is None or row.installation_id != manifest.installation_id:
        raise BackupError(f"{database.name} is not of the installation of the backup {manifest.name}")
    if row.generation != manifest.generation:
        raise BackupError(
            f"{database.name} is of generation {row.generation}, the backup {manifest.name} of generation "
            f"{manifest.generation}: restore the copy of the database into a new one first"
        )
    if applied < manifest.position:
        raise BackupError(
            f"the copy of {database.name} was made before the backup {manifest.name} (persons are known up to record "
            f"{applied} of the event log, events up to {manifest.position}): take a later one, or an earlier backup"
        )


def _new_generation(folder: Path, url: str | None, *, deliver: bool) -> tuple[Identity, Held | None]:
    database = Database.open(url or folder / "hoglab.db")
    queue = Database.open(url or folder / "queue.db", tables.queue_metadata)
    try:
        with database.read() as connection:
            row = connection.execute(sa.select(installation)).one()
        before = Identity(row.installation_id, row.generation, row.starts)
        identity = replace(before, generation=before.generation + 1)
        held = None if deliver else hold_all(database, queue, utc_now())
        write_store_identity(
            folder / "events.duckdb", identity.installation_id, identity.generation, identity.starts
        )
        write_identity(queue, queue_installation, identity)
        write_identity(database, installation, identity)
    finally:
        queue.dispose()
        database.dispose()
    return identity, held


@contextmanager
def _opened(source: Path) -> Iterator[BackupRepository]:
    """Provide the folder of backups, unpacked when it is an archive."""
    if not source.exists():
        raise BackupError(f"there is nothing at {source}")
    if source.is_dir():
        yield BackupRepository(source)
        return
    with tempfile.TemporaryDirectory(dir=source.parent, prefix=".unpacking-") as folder:
        try:
            with tarfile.open(source) as archive:
                archive.extractall(folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BackupError(f"{source} cannot be unpacked: {error}") from error
        yield BackupRepository(Path(folder))
