from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import Project
from tests.clients.site import HOST, Site, served
from tests.clients.tap import Tap, tapped

from hoglab.demo.server import ChildServer


@pytest.fixture
def project(shared_server: ChildServer) -> Iterator[Project]:
    project = Project(shared_server)
    yield project
    project.close()


@pytest.fixture(scope="session")
def node(node_modules: Path) -> Iterator[NodeProcess]:
    """The process in which all clients of posthog-node live."""
    process = NodeProcess("node_driver.mjs", str(node_modules))
    yield process
    process.close()


@pytest.fixture(scope="session")
def node_v1(node_modules: Path) -> Iterator[NodeProcess]:
    """The process in which the clients of posthog-node speak the v1 protocol; nothing but this turns it on."""
    environment = {"POSTHOG_CAPTURE_MODE": "v1"}
    process = NodeProcess("node_driver.mjs", str(node_modules), environment=environment)
    yield process
    process.close()


@pytest.fixture(scope="session")
def browser(node_modules: Path, chromium: str) -> Iterator[NodeProcess]:
    """The process that drives Chromium; every page it opens has a profile of its own."""
    process = NodeProcess("browser_driver.mjs", str(node_modules), chromium, HOST)
    yield process
    process.close()


@pytest.fixture(scope="session")
def site(node_modules: Path) -> Iterator[Site]:
    """A web site whose pages can load the SDKs' npm packages."""
    with served(node_modules) as site:
        yield site


@pytest.fixture
def tap(shared_server: ChildServer) -> Iterator[Tap]:
    """A proxy in front of the shared server, to watch and to break what passes."""
    with tapped(shared_server.url) as tap:
        yield tap
