"""Repositories of backups: files cut into parts that are named by their digests; unchanged parts are kept once.

``backups/<name>.json`` lists the files of one backup with the digests of their parts, ``parts/<two digits>/<digest>``
holds these. A part is written as a whole or not at all, and a backup is one when its list is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from hoglab.storage.engines import STORE_HEADER_BYTES

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 2
"""Format of backups without the databases, which a PostgreSQL server has."""
FILES_FORMAT = 1
"""Format of backups with all files."""
PART_BYTES = 1024 * 1024
FOLDER_MODE = 0o700
FILE_MODE = 0o600
MAX_NAMES = 5
"""Backups that a refusal names."""


class BackupError(Exception):
    """A backup cannot be made, or is not whole; the text is one line."""


class KeptFile(msgspec.Struct, frozen=True):
    """A file of a backup. ``parts``: BLAKE2b digests, in order."""

    name: str
    size: int
    parts: list[str]


class Manifest(msgspec.Struct, frozen=True):
    """One backup: all files as they were at one position of the event log."""

    format: int
    name: str
    made_at: str
    version: str
    """Version of hoglab that made the backup."""
    installation_id: str
    generation: int
    position: int
    """The record of the event log up to which events are stored; later ones are in the log."""
    log_last_offset: int
    files: list[KeptFile]
    has_databases: bool = True
    """Whether `hoglab.db` and `queue.db` are in it; else a PostgreSQL server has what would be there."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


class BackupRepository:
    """A folder with backups of one installation, however many."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lists = path / "backups"
        self._parts = path / "parts"
        self.new_bytes = 0
        """Number of bytes that were written because they were not stored yet."""

    # --- writing

    def prepare(self) -> None:
        """Make the folders. Raises `BackupError`."""
        try:
            for folder in (self.path, self._lists, self._parts):
                folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise BackupError(f"{self.path} cannot be used for backups: {error.strerror}") from error

    def keep(self, name: str, source: Path) -> KeptFile:
        """Keep a file that nobody changes meanwhile."""
        parts, size = [], 0
        with source.open("rb") as file:
            for data in _parts_of(name, file):
                parts.append(self._keep_part(data))
                size += len(data)
        return KeptFile(name, size, parts)

    def _keep_part(self, data: bytes) -> str:
        digest = hashlib.blake2b(data, digest_size=32).hexdigest()
        target = self._part(digest)
        if not target.exists():
            target.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
            _write_whole(target, data)
            self.new_bytes += len(data)
        return digest

    def finish(self, manifest: Manifest) -> None:
        """Make a backup of what was kept. All its parts are on disk then."""
        for folder in sorted(self._parts.iterdir()):
            _sync(folder)
        _sync(self._parts)
        _write_whole(
            self._lists / f"{manifest.name}.json", msgspec.json.format(msgspec.json.encode(manifest))
        )
        _sync(self._lists)
        _sync(self.path)

    def forget(self, keep: int) -> int:
        """Delete all but the newest backups, with parts that no other needs, and return how many backups went."""
        names = self.names()
        gone = names[:-keep]
        for name in gone:
            (self._lists / f"{name}.json").unlink()
        needed = {part for name in names[-keep:] for file in self.read(name).files for part in file.parts}
        for folder in self._parts.iterdir() if gone else ():
            for part in folder.iterdir():
                if part.name not in needed:
                    part.unlink()
        return len(gone)

    # --- reading

    def names(self) -> list[str]:
        """Return the backups, oldest first."""
        if not self._lists.is_dir():
            return []
        return sorted(path.stem for path in self._lists.glob("*.json"))

    def read(self, name: str) -> Manifest:
        """Return the list of a backup. Raises `BackupError`."""
        path = self._lists / f"{name}.json"
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            known = ", ".join(self.names()[-MAX_NAMES:]) or "none"
            raise BackupError(f"there is no backup {name} in {self.path}; the newest are {known}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise BackupError(f"{path} cannot be read: {error}") from error
        if manifest.format > FORMAT:
            raise BackupError(f"{path} was written by a newer version of hoglab")
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Read every part again. Raises `BackupError` for one that is missing or is not what it was."""
        for file in manifest.files:
            size = sum(len(data) for data in self._read_parts(file))
            if size != file.size:
                raise BackupError(
                    f"{file.name} of the backup {manifest.name} has {size} of {file.size} bytes"
                )

    def write(self, file: KeptFile, target: Path) -> None:
        """Put a file of a backup together again, verified and on disk."""
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as out:
            for data in self._read_parts(file):
                out.write(data)
            out.flush()
            os.fsync(out.fileno())

    def _read_parts(self, file: KeptFile) -> Iterator[bytes]:
        for digest in file.parts:
            try:
                data = self._part(digest).read_bytes()
            except OSError as error:
                raise BackupError(f"a part of {file.name} cannot be read: {error.strerror}") from error
            if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
                raise BackupError(f"a part of {file.name} is damaged: {self._part(digest)}")
            yield data

    def _part(self, digest: str) -> Path:
        return self._parts / digest[:2] / digest


def _parts_of(name: str, file: BinaryIO) -> Iterator[bytes]:
    # The first part of an event store, so that the others hold whole blocks.
    size = STORE_HEADER_BYTES if name.endswith(".duckdb") else PART_BYTES
    while data := file.read(size):
        yield data
        size = PART_BYTES


def _write_whole(target: Path, data: bytes) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise BackupError(f"{target} cannot be written: {error.strerror}") from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
