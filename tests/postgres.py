"""A PostgreSQL server for tests: Debian's, started once a run, with a new database for each test that wants one.

It listens on a socket in a folder of its own, not on the network, and does not sync the disk. The processes of a run
share it (`tests.shared_server`).
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.shared_server import alone, keep, short_folder, used
from tests.waiting import PATIENCE_S

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "1000",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "10min",
    "log_min_messages": "fatal",
}


class PostgresServer:
    """A running server, and how to get databases on it."""

    def __init__(self, note: Path, folder: Path) -> None:
        self._note = note
        self._folder = folder
        self._numbers = itertools.count()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def database(self, template: str = "template0") -> str:
        """The address of a new database: empty, or a copy of a template."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database and whoever is connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {name_in(url)} WITH (FORCE)")

    def disconnect(self, url: str) -> None:
        """End all connections to a database, and to no other: tests of other processes are at work beside."""
        ours = f"datname = '{name_in(url)}'"
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")  # noqa: S608

    def close(self, url: str) -> None:
        """Let nobody connect to a database any more, and end the connections that there are."""
        self.execute(f"ALTER DATABASE {name_in(url)} ALLOW_CONNECTIONS false")
        self.disconnect(url)

    def reopen(self, url: str) -> None:
        self.execute(f"ALTER DATABASE {name_in(url)} ALLOW_CONNECTIONS true")

    def template(self, name: str, fill: Callable[[str], None]) -> str:
        """The name of a template, which the first process of the run to ask for it fills: ``fill`` gets its address."""
        with alone(self._note / "template"):
            if not (self._note / f"template-{name}").exists():
                self.execute(f"DROP DATABASE IF EXISTS template_{name}")
                self.execute(f"CREATE DATABASE template_{name} TEMPLATE template0")
                fill(self.url(f"template_{name}"))
                (self._note / f"template-{name}").touch()
        return f"template_{name}"

    def execute(self, statement: str) -> None:
        """Run a statement outside of any of the tests' databases."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def owner(self, url: str, name: str, password: str) -> str:
        """Give a database to a new role that is asked for its password; the address for it, without the password."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            role, secret = sql.Identifier(name), sql.Literal(password)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, secret))
            database = sql.Identifier(name_in(url))
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, role))
        rules = self._folder / "data" / "pg_hba.conf"
        with alone(self._note / "rules"):
            rules.write_text(f"local all {name} scram-sha-256\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")
        return url.replace("//postgres@", f"//{name}@")


def name_in(url: str) -> str:
    """The name of the database that an address leads to."""
    return url.partition("?")[0].rpartition("/")[2]


@contextmanager
def running(note: Path) -> Iterator[PostgresServer]:
    """The server of all who name the same folder, during the block. Skips the test where there is no PostgreSQL."""
    programs = _programs()
    if programs is None:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    with used(note):
        with alone(note / "start"):
            if not (note / "ready").exists():
                for old in note.glob("template-*"):
                    old.unlink()
                (note / "ready").write_text(str(_start(programs, note)))
        yield PostgresServer(note, Path((note / "ready").read_text()))


def _programs() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _start(programs: Path, note: Path) -> Path:
    """Start a server; the folder of its socket, whose path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="hoglab-pg-", dir=short_folder()))
    # PostgreSQL refuses to run as root.
    as_user: list[str] = []
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    folder.chmod(0o755)
    # A locale that does not sort by code points, as most installations have: no order may depend on it.
    how = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
    how += ["--locale-provider=icu", "--icu-locale=en-US"]
    made = [*as_user, str(programs / "initdb"), "-D", str(folder / "data"), *how]
    subprocess.run(made, check=True, capture_output=True, cwd="/")
    options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
    server = [*as_user, str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), *options]
    with (note / "log").open("ab") as log:
        process = subprocess.Popen(
            server, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
    keep(note, process.pid, folder)
    deadline = time.monotonic() + PATIENCE_S
    while subprocess.run([programs / "pg_isready", "-q", "-h", folder], check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(note / 'log').read_text()}")
        time.sleep(0.05)
    return folder
