"""A PostgreSQL server for one test or benchmark, which syncs the disk, and may be stopped as if it crashed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.postgres import _programs
from tests.shared_server import short_folder


class OwnServer:
    """A PostgreSQL server of one test, which may be stopped as if it crashed."""

    def __init__(self, folder: Path) -> None:
        programs = _programs()
        if programs is None:
            pytest.skip("needs PostgreSQL: apt install postgresql")
        self._data, self._programs, self._folder = folder / "data", programs, folder
        # For many processes, as docs/operate.md says.
        self._options = f"-c listen_addresses= -c max_connections=300 -k {folder}"
        self._user: list[str] = []
        if os.getuid() == 0:
            subprocess.run(["chown", "postgres", folder], check=True)
            self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        folder.chmod(0o755)
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8")
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.start()

    def start(self) -> None:
        self._run("pg_ctl", "start", "-w", "-l", str(self._folder / "log"), "-o", self._options)

    def stop(self, how: str = "immediate") -> None:
        """``how``: ``immediate`` is as if it crashed, ``fast`` in order."""
        self._run("pg_ctl", "stop", "-m", how)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """All of its processes do nothing during the block."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        pids = [first, *map(int, children)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(self._programs / program), "-D", str(self._data), *arguments]
        subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@contextmanager
def own_server() -> Iterator[OwnServer]:
    with tempfile.TemporaryDirectory(prefix="hoglab-pg-", dir=short_folder()) as folder:
        server = OwnServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()
