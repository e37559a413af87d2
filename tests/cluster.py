"""A server of several processes on one PostgreSQL database, and a proxy before them, for tests."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from cryptography.fernet import Fernet
from tests.conftest import free_port
from tests.forked import ForkedServer
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer
from hoglab.storage.engines import upgrade_databases

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"


class RoundRobin:
    """A TCP proxy that hands each connection to the next of several addresses, passing by those that refuse it."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._targets = itertools.cycle([httpx.URL(url) for url in urls])
        self._count = len(urls)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        for _ in range(self._count):
            target = next(self._targets)
            with contextlib.suppress(OSError):
                server = socket.create_connection((target.host, target.port), timeout=5)
                break
        else:
            client.close()
            return
        server.settimeout(None)
        back = threading.Thread(target=_pipe, args=(server, client), daemon=True)
        back.start()
        _pipe(client, server)
        back.join()
        client.close()
        server.close()

    def close(self) -> None:
        self._listener.close()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def send_signal(process: ChildServer, number: signal.Signals) -> None:
    """Send a signal and do not wait for anything."""
    assert process._process is not None
    process._process.send_signal(number)


class Cluster:
    """Processes of roles on one database; they are started in the order in which they are asked for."""

    def __init__(self, folder: Path, database_url: str, **environment: str) -> None:
        """``environment``: further settings of all of them, as the attribute has all that these have in common."""
        self.folder = folder
        self.secret_key = Fernet.generate_key().decode()
        self.environment = {
            "HOGLAB_ACCESS_LOG": "false",
            "HOGLAB_DATABASE_URL": database_url,
            "HOGLAB_BOOTSTRAP_API_KEY": KEY,
            "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN,
            "HOGLAB_SECRET_KEYS": self.secret_key,
            "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.0/8",
            **environment,
        }
        upgrade_databases(database_url)
        self.processes: dict[str, ChildServer] = {}

    def add(self, name: str, role: str, **environment: str) -> ChildServer:
        """A process that is not started yet. Those that have no directory are given one that is none."""
        data = Path("/dev/null/none") if role in ("edge", "deliver") else self.folder / name
        process = ForkedServer(
            data=data,
            host="127.0.0.1",
            port=free_port(),
            environment={**self.environment, "HOGLAB_ROLE": role, **environment},
            start_timeout_s=PATIENCE_S,
        )
        self.processes[name] = process
        return process

    def start(self, *names: str) -> None:
        """Start processes at the same time, and wait until all are ready."""
        threads = [threading.Thread(target=self.processes[name].start) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            assert self.processes[name].alive(), f"{name}: {self.processes[name].output()}"

    def api(self, name: str = "core") -> httpx.Client:
        """A client of the management API of project 1."""
        return httpx.Client(
            base_url=f"{self.processes[name].url}/api/projects/1",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=120,
        )

    def close(self) -> None:
        for process in self.processes.values():
            process.close()


@contextlib.contextmanager
def cluster(folder: Path, database_url: str, **environment: str) -> Iterator[Cluster]:
    """Processes during a block; ``environment``: see `Cluster`."""
    made = Cluster(folder, database_url, **environment)
    try:
        yield made
    finally:
        made.close()
