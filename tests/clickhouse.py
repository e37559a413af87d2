"""ClickHouse for tests: the server that ``HOGLAB_TEST_CLICKHOUSE`` names, else its engine behind `clickhouse_adapter`.

The processes of a run share the adapter, as they share the server of `tests.postgres`.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.shared_server import alone, keep, used
from tests.waiting import PATIENCE_S

SERVER = os.environ.get("HOGLAB_TEST_CLICKHOUSE")
"""The address of a real server, without a database: ``clickhouse://user:password@host:8123``."""


class ClickHouseServer:
    """A running server, and how to get databases on it."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._numbers = itertools.count()

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        return parts.hostname, parts.port or 8123

    def database(self) -> str:
        """The address of a new database, which does not exist yet."""
        return f"{self.address}/test_{os.getpid()}_{next(self._numbers)}"

    def drop(self, url: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} SYNC")

    def execute(self, statement: str) -> None:
        with self._client() as client:
            client.command(statement)

    def load(self, url: str, table: str, data: bytes, form: str) -> None:
        """Put data of some format into a table of a database."""
        with self._client() as client:
            client.raw_insert(f"{url.rpartition('/')[2]}.{table}", insert_block=data, fmt=form)

    def _client(self) -> Any:
        import clickhouse_connect

        parts = urlsplit(self.address)
        return clickhouse_connect.get_client(
            host=parts.hostname, port=parts.port, username=parts.username, password=parts.password or ""
        )


@contextmanager
def running(note: Path) -> Iterator[ClickHouseServer]:
    """The server of all who name the same folder, during the block. Skips the test where there is none."""
    if importlib.util.find_spec("clickhouse_connect") is None:
        pytest.skip("needs clickhouse-connect: pip install clickhouse-connect")
    if SERVER is not None:
        yield ClickHouseServer(SERVER)
        return
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("needs ClickHouse: pip install chdb-core, or name a server with HOGLAB_TEST_CLICKHOUSE")
    with used(note):
        with alone(note / "start"):
            if not (note / "ready").exists():
                _start(note)
        yield ClickHouseServer(f"clickhouse://default@127.0.0.1:{(note / 'ready').read_text()}")


def _start(note: Path) -> None:
    """Start the adapter; its port is then in the file ``ready``."""
    folder = Path(tempfile.mkdtemp(prefix="hoglab-ch-"))
    program = [sys.executable, "-m", "tests.clickhouse_adapter", str(folder), str(note / "ready")]
    with (note / "log").open("ab") as log:
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[1],
            start_new_session=True,
        )
    keep(note, process.pid, folder)
    deadline = time.monotonic() + PATIENCE_S
    while not (note / "ready").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the adapter did not start: {(note / 'log').read_text()}")
        time.sleep(0.05)
