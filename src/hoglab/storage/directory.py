"""The data directory: everything that one installation keeps, owned by one server process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

DIRECTORY_MODE = 0o700
SECRET_MODE = 0o600
SHARED = frozenset({"warehouse"})
"""Folders whose files others put there."""
_LOCK_BYTES = 4096
BESIDE = ("-wal", "-shm", ".wal")
"""Suffixes of files that engines put beside a file while they use it, or are killed."""


class DirectoryError(Exception):
    """Base of the errors below. Their messages are one line, fit to be shown to an operator."""


class DirectoryLockedError(DirectoryError):
    """Another process is using the directory. ``pid`` is its process id, None when it is unknown."""

    def __init__(self, path: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{path} is in use by {who}: stop it first, or choose another directory")
        self.pid = pid


class DirectoryMissingError(DirectoryError):
    """There is no such directory, and who asked does not make one."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no directory {path}: name it with --data or HOGLAB_DATA")


class DirectoryUnreadableError(DirectoryError):
    """The directory cannot be created, read or written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be used as data directory: {error.strerror or error}")


class DataDirectory:
    """Paths of the files, the lock that keeps other servers out, and secrets kept beside the data.

    The lock belongs to this process and goes with it, however it ends, so there is never a stale one.
    """

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self.metadata_path = path / "hoglab.db"
        self.queue_path = path / "queue.db"
        self.events_path = path / "events.duckdb"
        self.known_keys_path = path / "events.duckdb.keys"
        self.remote_keys_path = path / "events.clickhouse.keys"
        self.aggregate_cache_path = path / "aggregate-cache.duckdb"
        self.secret_keys_path = path / "secret-keys"
        self.socket_path = path / "hoglab.sock"
        self.unannounced_path = path / "first-start"
        self._lock = lock

    @classmethod
    def open(cls, path: str | Path, *, exclusive: bool = True, create: bool = False) -> DataDirectory:
        """Use a directory; with ``create`` it is made (for its owner alone) when it is missing.

        With ``exclusive`` no other process can do the same until `close`; a server needs that. Without it
        no lock is taken: for commands that touch nothing but ``hoglab.db``, which may be shared.
        Raises `DirectoryMissingError`, `DirectoryLockedError` and `DirectoryUnreadableError`.
        """
        path = Path(path).absolute()
        try:
            if create:
                path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            elif not path.exists():
                raise DirectoryMissingError(path)
            _for_the_owner_alone(path)
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13))
            return cls(path, _lock(path) if exclusive else None)
        except OSError as error:
            raise DirectoryUnreadableError(path, error) from error

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the content of a file that only its owner may read, made by ``make`` when it is missing.

        The file appears whole or not at all, and all who ask at the same time get the same secret.
        """
        target = self.path / name
        with contextlib.suppress(FileNotFoundError):
            return target.read_bytes()
        draft = self._draft(name, make())
        with contextlib.suppress(FileExistsError):
            target.hardlink_to(draft)  # unlike a rename, never replaces what another process made first
        draft.unlink()
        _sync_directory(self.path)
        return target.read_bytes()

    def replace_secret(self, name: str, content: bytes) -> None:
        """Change the content of such a file, at once and for good."""
        self._draft(name, content).replace(self.path / name)
        _sync_directory(self.path)

    def _draft(self, name: str, content: bytes) -> Path:
        """Return a file with the content that only its owner may read."""
        draft = self.path / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, SECRET_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return draft

    def set_aside(self, paths: Iterable[Path]) -> Path:
        """Move files, and what engines keep beside them, into a new folder, and return that."""
        folder = self.path / f"set-aside-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        folder.mkdir(mode=DIRECTORY_MODE)
        for path in paths:
            for file in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in BESIDE)):
                if file.exists():
                    file.rename(folder / file.name)
        _sync_directory(folder)
        _sync_directory(self.path)
        return folder

    def note_address(self, url: str) -> None:
        """Leave the address of the server that holds the directory for others to find (`served_at`)."""
        if self._lock is not None:
            _write_lock(self._lock, f"{os.getpid()}\n{url}\n")

    def close(self) -> None:
        """Let other processes in. Calling it again does nothing."""
        if self._lock is not None:
            _write_lock(self._lock, f"{os.getpid()}\n")
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _for_the_owner_alone(path: Path) -> None:
    """Take all rights from others, also on files that are there already. What belongs to somebody else stays."""
    ours = os.geteuid()
    for entry in (path, *path.iterdir()):
        known = entry.lstat()
        if known.st_uid != ours or not known.st_mode & 0o077:
            continue
        if stat.S_ISDIR(known.st_mode) and (entry == path or entry.name not in SHARED):
            entry.chmod(DIRECTORY_MODE)
        elif stat.S_ISREG(known.st_mode):
            entry.chmod(known.st_mode & 0o700)


def _lock(path: Path) -> int:
    """Lock the directory and leave our process id in the lock file for others to name."""
    descriptor = os.open(path / "hoglab.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        text = os.read(descriptor, _LOCK_BYTES).decode(errors="replace").partition("\n")[0].strip()
        os.close(descriptor)
        raise DirectoryLockedError(path, int(text) if text.isdecimal() else None) from error
    except BaseException:
        os.close(descriptor)
        raise
    _write_lock(descriptor, f"{os.getpid()}\n")
    return descriptor


def _write_lock(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the lock holds without a word, and a full disk stops nobody
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def served_at(path: Path) -> str | None:
    """Return the address that the server of a directory noted; None when none runs, or it does not listen yet.

    The lock is not tried for, which could keep a server that is just starting from it. So after a kill this is the
    address of the server that was killed, until the next one starts.
    """
    try:
        with (path / "hoglab.lock").open("rb") as file:
            lines = file.read(_LOCK_BYTES).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    return lines[1] if len(lines) > 1 else None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
