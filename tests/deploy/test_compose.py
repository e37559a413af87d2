"""The services of docs/deploy/compose.yaml as plain processes, behind a real nginx with its own configuration."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography.fernet import Fernet
from tests.conftest import free_port
from tests.deploy.machine import Machine, block, machine, needed
from tests.deploy.test_operate import take_tour

COMPOSE = Path(__file__).parents[2] / "docs" / "deploy" / "compose.yaml"
COUNTS = {"core": 1, "edge-1": 1, "edge-2": 1, "deliver": 3}
LIMIT_S = 240


def services(host: Machine) -> dict[str, Any]:
    """Those of the file, with what ``.env`` would have."""
    values = {
        "POSTGRES_PASSWORD": "not asked for",
        "HOGLAB_SECRET_KEYS": Fernet.generate_key().decode(),
        "HOGLAB_SITE_URL": host.proxy,
    }
    text = re.sub(r"\$\{(\w+):\?\}", lambda found: values[found[1]], COMPOSE.read_text())
    known: dict[str, Any] = yaml.safe_load(text)["services"]
    return known


class Service:
    """One process of a service, at a port of its own."""

    def __init__(self, host: Machine, name: str, known: dict[str, Any]) -> None:
        self.name, self.port = name, free_port()
        self.address = known["networks"]["hoglab"].get("ipv4_address")
        self.environment = {
            **host.environment,
            **known["environment"],
            "HOGLAB_DATABASE_URL": f"postgresql://hoglab@/hoglab?host={host.database}",
        }
        assert known["environment"]["HOGLAB_DATABASE_URL"].endswith("@database/hoglab")
        command = known["command"].replace("--port 8000", f"--port {self.port}")
        command = command.replace("0.0.0.0", "127.0.0.1")
        words = shlex.split(command.replace("/var/lib/hoglab", str(host.folder / "var/lib/hoglab")))
        self.command = [host.placed("/opt/hoglab/bin/hoglab"), *words[1:]]
        assert words[0] == "hoglab"

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/_readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    @contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        with (folder / f"{self.name}-{self.port}.log").open("wb") as log:
            process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log, cwd="/")
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tour_through_the_proxy(tmp_path: Path) -> None:
    needed("nginx", "nginx")
    needed("curl", "curl")
    with machine(tmp_path) as host:
        host.run(block("database"))
        known = services(host)
        assert {
            name: each.get("deploy", {}).get("replicas", 1)
            for name, each in known.items()
            if name not in ("database", "migrate", "proxy")
        } == COUNTS
        migrate = Service(host, "migrate", known["migrate"])
        subprocess.run(migrate.command, env=migrate.environment, check=True, cwd="/")
        processes = [Service(host, name, known[name]) for name, count in COUNTS.items() for _ in range(count)]
        proxied(host, processes)
        with _all_running(host, processes):
            take_tour(host, host.proxy, {**processes[0].environment})


@contextmanager
def _all_running(host: Machine, processes: list[Service]) -> Iterator[None]:
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process.running(host.folder))
        deadline = time.monotonic() + LIMIT_S
        while not all(process.is_ready() for process in processes):
            assert time.monotonic() < deadline, [each.name for each in processes if not each.is_ready()]
            time.sleep(0.2)
        yield


def proxied(host: Machine, processes: list[Service]) -> None:
    """Give nginx the files that the service mounts, with the processes' addresses here."""
    text = (COMPOSE.parent / "compose-nginx.conf").read_text()
    for process in processes:
        if process.address is not None:
            assert f"server {process.address}:8000" in text
            text = text.replace(f"{process.address}:8000", f"127.0.0.1:{process.port}")
    assert "172." not in text
    nginx = host.folder / "etc" / "nginx"
    (nginx / "conf.d" / "default.conf").write_text(text.replace("listen 8080", f"listen {host.proxy[7:]}"))
    (nginx / "hoglab-locations.conf").write_text((COMPOSE.parent / "hoglab-locations.conf").read_text())
    host.run("nginx -t; nginx -s reload")
