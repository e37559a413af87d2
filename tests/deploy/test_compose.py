"""The services of docs/deploy/compose*.yaml as plain processes, behind a real nginx with their own configuration."""

from __future__ import annotations

import os
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
from tests.deploy.machine import ROOT, Machine, block, docker_compose, machine, needed
from tests.deploy.test_operate import take_tour
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

DEPLOY = ROOT / "docs" / "deploy"

COUNTS = {
    "compose.yaml": {"core": 1, "edge-1": 1, "edge-2": 1, "deliver": 3},
    "compose-cluster.yaml": {
        "api-1": 1, "api-2": 1, "edge-1": 1, "edge-2": 1, "ingest": 2, "analysis": 2, "deliver": 2,
    },
}  # fmt: skip
ENGINES = {"database", "kafka", "events", "migrate", "proxy"}
ADDRESSES = {
    "HOGLAB_DATABASE_URL": "postgresql://hoglab:secret@database/hoglab",
    "HOGLAB_EVENT_LOG_URL": "kafka://kafka:9092/hoglab?partitions=16",
    "HOGLAB_EVENT_STORE_URL": "clickhouse://hoglab:secret@events:8123/hoglab",
}
"""Addresses in the place of which processes get those of engines here."""


def services(host: Machine, file: str) -> dict[str, Any]:
    """Those of a file as Docker Compose understands it, with what ``.env`` would have."""
    values = {
        "POSTGRES_PASSWORD": "secret",
        "CLICKHOUSE_PASSWORD": "secret",
        "HOGLAB_SECRET_KEYS": Fernet.generate_key().decode(),
        "HOGLAB_SITE_URL": host.proxy,
    }
    done = subprocess.run(
        [*docker_compose(), "-f", file, "config"],
        cwd=DEPLOY, env={**os.environ, **values}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    known: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return known


class Service:
    """One process of a service, at a port of its own."""

    def __init__(self, host: Machine, name: str, known: dict[str, Any], engines: dict[str, str]) -> None:
        """``engines``: addresses of engines in this place, by settings."""
        self.name, self.port = name, free_port()
        self.address = (known["networks"]["hoglab"] or {}).get("ipv4_address")
        assert {key: value for key, value in known["environment"].items() if key in ADDRESSES} == {
            key: ADDRESSES[key] for key in engines if name != "migrate" or key == "HOGLAB_DATABASE_URL"
        }
        self.environment = {**host.environment, **known["environment"], **engines}
        command = known["command"]
        command = command if isinstance(command, str) else shlex.join(command)
        command = command.replace("--port 8000", f"--port {self.port}").replace("0.0.0.0", "127.0.0.1")
        folder = host.folder / "var/lib/hoglab" / f"{name}-{self.port}"  # each container has its own
        words = shlex.split(command.replace("/var/lib/hoglab", str(folder)))
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
@pytest.mark.parametrize("file", COUNTS)
def test_the_tour_through_the_proxy(file: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    needed("nginx", "nginx")
    needed("curl", "curl")
    with machine(tmp_path) as host:
        host.run(block("database"))
        known, counts = services(host, file), COUNTS[file]
        assert {
            name: each.get("deploy", {}).get("replicas", 1)
            for name, each in known.items()
            if name not in ENGINES
        } == counts
        engines = {"HOGLAB_DATABASE_URL": f"postgresql://hoglab@/hoglab?host={host.database}"}
        if "kafka" in known:
            broker = f"kafka://{request.getfixturevalue('kafka')}/{new_topic()}?partitions=16"
            engines |= {
                "HOGLAB_EVENT_LOG_URL": broker,
                "HOGLAB_EVENT_STORE_URL": request.getfixturevalue("events_url"),
            }
        migrate = Service(host, "migrate", known["migrate"], engines)
        subprocess.run(migrate.command, env=migrate.environment, check=True, cwd="/")
        processes = [
            Service(host, name, known[name], engines) for name, count in counts.items() for _ in range(count)
        ]
        proxied(host, processes, known["proxy"])
        with _all_running(host, processes):
            take_tour(host, host.proxy, {**processes[0].environment})


@contextmanager
def _all_running(host: Machine, processes: list[Service]) -> Iterator[None]:
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process.running(host.folder))
        deadline = time.monotonic() + PATIENCE_S
        while not all(process.is_ready() for process in processes):
            assert time.monotonic() < deadline, [each.name for each in processes if not each.is_ready()]
            time.sleep(0.2)
        yield


def proxied(host: Machine, processes: list[Service], proxy: dict[str, Any]) -> None:
    """Give nginx the files that the service mounts, with the processes' addresses here."""
    mounted = {each["target"]: each["source"] for each in map(_mount, proxy["volumes"])}
    text = Path(mounted["/etc/nginx/conf.d/default.conf"]).read_text()
    for process in processes:
        if process.address is not None:
            assert f"server {process.address}:8000" in text
            text = text.replace(f"{process.address}:8000", f"127.0.0.1:{process.port}")
    assert "172." not in text
    nginx = host.folder / "etc" / "nginx"
    (nginx / "conf.d" / "default.conf").write_text(text.replace("listen 8080", f"listen {host.proxy[7:]}"))
    (nginx / "hoglab-locations.conf").write_text(
        Path(mounted["/etc/nginx/hoglab-locations.conf"]).read_text()
    )
    host.run("nginx -t; nginx -s reload")


def _mount(said: str | dict[str, str]) -> dict[str, str]:
    """A mount as the plugin writes it; the program before it writes one text."""
    if isinstance(said, dict):
        return said
    source, target, _ = said.split(":")
    return {"source": source, "target": target}
