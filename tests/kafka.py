"""Kafka brokers for tests: Apache Kafka itself, one node that is its own controller, started from its published jars.

`make test-processes` fetches the jars with Maven. The processes of a run share one broker (`tests.shared_server`) and
take topics of their own; tests of what happens while a broker is away start one for themselves.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.shared_server import alone, keep, used
from tests.waiting import PATIENCE_S

JARS = Path(__file__).parent / "jars"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    # Transactions of processes that were killed: how often it is looked for them.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
_CLUSTER = "aG9nbGFiLXRlc3RzLTAwMQ"  # 16 bytes in base64, as names of clusters are
_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broker:
    """A broker of one folder, which keeps its topics over restarts; ``address`` is ``host:port``."""

    def __init__(self, folder: Path, ports: tuple[int, int], linked: tuple[int, int] | None = None) -> None:
        """``ports``: free ones, for clients and for the controller.

        ``linked``: one more for clients, and the port that these are told in its place: that of a proxy before it.
        """
        self.folder = folder
        self.address = f"127.0.0.1:{ports[0]}"
        self._port = ports[0]
        self._settings = folder / "server.properties"
        controller = f"127.0.0.1:{ports[1]}"
        settings = {
            **_SETTINGS,
            "listeners": f"BROKER://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"BROKER://{self.address}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(folder / "data"),
        }
        if linked is not None:
            settings["listener.security.protocol.map"] += ",LINKED:PLAINTEXT"
            settings["listeners"] += f",LINKED://127.0.0.1:{linked[0]}"
            settings["advertised.listeners"] += f",LINKED://127.0.0.1:{linked[1]}"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        made = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings)]
        subprocess.run(self._java(*made), check=True, capture_output=True, cwd=folder)
        self.process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _java(*arguments: str) -> list[str]:
        return ["java", *_JAVA, "-cp", f"{JARS}/*", *arguments]

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka did not start: {(self.folder / 'log').read_text()}") from None
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Let it answer nobody, and keep its connections."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


def new_topic() -> str:
    return f"test-{os.getpid()}-{secrets.token_hex(6)}"


@contextmanager
def running(note: Path) -> Iterator[str]:
    """The address of the broker of all who name the same folder, during the block."""
    _require()
    with used(note):
        with alone(note / "start"):
            if not (note / "ready").exists():
                folder = Path(tempfile.mkdtemp(prefix="hoglab-kafka-"))
                broker = _new(folder)
                broker.start()
                assert broker.process is not None
                keep(note, broker.process.pid, folder)
                (note / "ready").write_text(broker.address)
        yield (note / "ready").read_text()


@contextmanager
def own_broker(folder: Path, linked: tuple[int, int] | None = None) -> Iterator[Broker]:
    """A broker of the test's own during the block, not started. ``linked``: see `Broker`."""
    _require()
    broker = _new(folder, linked)
    try:
        yield broker
    finally:
        broker.kill()


def _new(folder: Path, linked: tuple[int, int] | None = None) -> Broker:
    from tests.conftest import free_port

    return Broker(folder, (free_port(), free_port()), linked)


def can_start() -> bool:
    """Whether there is what a broker needs."""
    return shutil.which("java") is not None and (JARS / ".ready").exists()


def _require() -> None:
    """Skip the test where there is nothing to start a broker with."""
    if not can_start():
        pytest.skip("needs Java, and `make tests/jars/.ready` with Maven present")
