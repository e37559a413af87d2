"""The data directory: one server at a time, clear refusals, secrets for the owner alone."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hoglab.storage.directory import (
    DataDirectory,
    DirectoryLockedError,
    DirectoryMissingError,
    DirectoryUnreadableError,
    served_at,
)

HOLDER = """
import sys
from hoglab.storage.directory import DataDirectory
directory = DataDirectory.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that has the directory open until it is told to end or is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_missing_directory_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path / "a" / "data", create=True) as directory:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        names = [directory.metadata_path.name, directory.queue_path.name, directory.events_path.name]
        assert names == ["hoglab.db", "queue.db", "events.duckdb"]


def test_a_directory_in_use_names_the_process_that_uses_it(tmp_path: Path) -> None:
    with hold(tmp_path) as holder:
        with pytest.raises(DirectoryLockedError) as caught:
            DataDirectory.open(tmp_path)
        assert caught.value.pid == holder.pid
        assert str(caught.value).startswith(f"{tmp_path} is in use by process {holder.pid}: ")
        DataDirectory.open(tmp_path, exclusive=False).close()  # commands beside a running server
        holder.communicate("")
    DataDirectory.open(tmp_path).close()


def test_the_address_of_a_server_is_found_while_it_runs(tmp_path: Path) -> None:
    assert served_at(tmp_path) is None
    with DataDirectory.open(tmp_path) as directory:
        assert served_at(tmp_path) is None
        directory.note_address("http://127.0.0.1:8000")
        assert served_at(tmp_path) == "http://127.0.0.1:8000"
        with pytest.raises(DirectoryLockedError, match=f"in use by process {os.getpid()}"):
            DataDirectory.open(tmp_path)
    assert served_at(tmp_path) is None


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    with hold(tmp_path) as holder:
        holder.kill()
    with DataDirectory.open(tmp_path):
        pass


def test_the_same_process_is_kept_out_too_until_it_closes(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    with pytest.raises(DirectoryLockedError):
        DataDirectory.open(tmp_path)
    directory.close()
    directory.close()
    DataDirectory.open(tmp_path).close()


@pytest.mark.parametrize("exclusive", [True, False])
def test_only_who_says_so_makes_a_directory(tmp_path: Path, exclusive: bool) -> None:
    with pytest.raises(DirectoryMissingError, match=r"there is no directory .*--data"):
        DataDirectory.open(tmp_path / "none", exclusive=exclusive)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inside", ["file", "file/below"])
def test_a_path_that_cannot_be_a_directory(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DirectoryUnreadableError, match="cannot be used as data directory: ") as caught:
        DataDirectory.open(tmp_path / inside, create=True)
    assert "\n" not in str(caught.value)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root may write everywhere, so a test that is run by root goes on as somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    if user == 0:
        os.seteuid(user)


def test_a_directory_without_permission(tmp_path: Path, ordinary_user: None) -> None:
    with contextlib.suppress(
        PermissionError
    ):  # somebody else's directory is as good as a write-protected one
        tmp_path.chmod(0o500)
    with pytest.raises(DirectoryUnreadableError, match="Permission denied"):
        DataDirectory.open(tmp_path)


def test_a_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    counter = itertools.count()

    def make() -> bytes:
        return f"secret {next(counter)}".encode()

    with DataDirectory.open(tmp_path) as directory:
        assert directory.secret("key", make) == b"secret 0"
        assert directory.secret("key", make) == b"secret 0"
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hoglab.lock", "key"]


def test_a_secret_that_another_process_made_meanwhile_wins(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path) as directory:

        def make() -> bytes:
            (tmp_path / "key").write_bytes(b"theirs")
            return b"ours"

        assert directory.secret("key", make) == b"theirs"
