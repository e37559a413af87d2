"""What servers that the processes of a test run share have in common: started once, stopped when nobody is left.

Each process holds a shared lock on a file; who can lock the file alone sees that nobody is left, even when they were
killed, and then a keeper beside the server stops it.
"""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_FOLDER = 40
"""Characters of a folder in which a socket still has a name that fits."""
_KEEPER = 'kill -QUIT "$2"; rm -f "$1/ready"; sleep 0.5; kill -KILL "$2" 2>/dev/null; rm -rf "$3"'


def short_folder() -> str:
    """Return a folder of temporary files whose name leaves room for the path of a socket, which has about 100 bytes."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < LONGEST_FOLDER else "/tmp"  # noqa: S108


@contextmanager
def used(note: Path) -> Iterator[None]:
    """A block of a process that needs the server of a folder."""
    note.mkdir(exist_ok=True)
    with (note / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """A block that no other process is in at the same time, of those that name the same file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def keep(note: Path, process_id: int, folder: Path) -> None:
    """Let a keeper stop a server, and remove its folder, when all who use it are gone."""
    users, number = str(note / "users"), str(process_id)
    keeper = ["flock", "--exclusive", users, "sh", "-c", _KEEPER, "-", str(note), number, str(folder)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(keeper, cwd="/", start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
