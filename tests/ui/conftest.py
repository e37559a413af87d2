from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.site import HOST
from tests.conftest import free_port
from tests.forked import ForkedServer
from tests.ui import scenario
from tests.ui.page import Page
from tests.ui.scenario import Client

from hoglab.demo.server import ChildServer

PEOPLE = 3_000
LOPSIDED_PEOPLE = 10_000
ROOM_BYTES = 4_000_000_000
"""What the disk of the spare server can lose until that counts as full: more than others write meanwhile."""
HOSTILE = "<img src=x onerror=document.title='hacked'>\u202etxt.exe"
"""A name that would run, and turn round what comes after it."""


@dataclass(frozen=True)
class Lab:
    """A server with experiments, and what is on it."""

    server: ChildServer
    client: Client
    checkout: dict[str, Any]
    lopsided: dict[str, Any]
    hostile: dict[str, Any]

    def results(self, experiment: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.client.call("GET", f"experiments/{experiment['id']}/results/")
        return found


@pytest.fixture(scope="session")
def browser(node_modules: Path, chromium: str) -> Iterator[NodeProcess]:
    process = NodeProcess("browser_driver.mjs", str(node_modules), chromium, HOST)
    yield process
    process.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server that all tests of a process share.

    The first process that needs one sends it all events; the others start theirs on a copy of its files.
    """
    folder = tmp_path_factory.mktemp("lab")
    server = new_server(folder / "data")
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = tmp_path_factory.getbasetemp().parent / "ui-lab"
        shared.mkdir(exist_ok=True)
        with (shared / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / "seeded.json").exists():
                seeding = new_server(shared / "data")
                seeded = _seeded(seeding)
                seeding.close()
                (shared / "seeded.json").write_text(json.dumps(seeded))
        shutil.copytree(shared / "data", folder / "data")
        seeded = json.loads((shared / "seeded.json").read_text())
        server.api_key, server.project_token = seeded["key"], seeded["token"]
        server.start()
    else:
        seeded = _seeded(server)
    client = Client(server.url, server.api_key, server.project_token)
    yield Lab(server, client, seeded["checkout"], seeded["lopsided"], seeded["hostile"])
    client.close()
    server.close()


def new_server(data: Path, **environment: str) -> ChildServer:
    return ForkedServer(
        data=data,
        host="127.0.0.1",
        port=free_port(),
        environment={"HOGLAB_ACCESS_LOG": "false", **environment},
    )


def _seeded(server: ChildServer) -> dict[str, Any]:
    """Start a server and send it everything."""
    server.start()
    client = Client(server.url, server.api_key, server.project_token)
    made = {
        "checkout": scenario.checkout(client, PEOPLE),
        "lopsided": scenario.lopsided(client, LOPSIDED_PEOPLE),
        "hostile": scenario.hostile(client, HOSTILE),
    }
    for name, people in (("checkout", PEOPLE), ("lopsided", LOPSIDED_PEOPLE), ("hostile", 200)):
        scenario.settle(client, made[name], people)
    client.close()
    return {**made, "key": server.api_key, "token": server.project_token}


@pytest.fixture(scope="session")
def least_free(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many free bytes of the disk the spare server wants."""
    free = shutil.disk_usage(tmp_path_factory.getbasetemp()).free
    return free - min(ROOM_BYTES, free // 2)


@pytest.fixture(scope="session")
def spare(tmp_path_factory: pytest.TempPathFactory, least_free: int) -> Iterator[ChildServer]:
    """A server without events that tests may stop and start again; it says what it is asked for."""
    folder = tmp_path_factory.mktemp("spare")
    server = new_server(folder / "data", HOGLAB_ACCESS_LOG="true", HOGLAB_MIN_FREE_DISK_BYTES=str(least_free))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def profile(browser: NodeProcess, lab: Lab) -> Page:
    """A page of a browser profile that is logged in."""
    page = Page(browser, lab.server.url, "/login")
    page.log_in(lab.server.api_key)
    return page


@pytest.fixture(scope="session")
def tab(browser: NodeProcess, lab: Lab, profile: Page) -> Page:
    """The page of that profile that tests have one after the other: to open one takes longer than to look at most."""
    return Page(browser, lab.server.url, "/p/1/nothing", like=profile)


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """13.9.2: a page that is logged in; any complaint of the browser, and any request elsewhere, fails the test."""
    tab.begin()
    tab.look("light")
    yield tab
    complaints = tab.complaints()
    tab.leave()
    assert complaints == []
