from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.apps import app_of
from tests.embedded import EmbeddedEventLog
from tests.waiting import PATIENCE_S

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.capture import Capture, CaptureLimits, RefusedRequests, capture_routes
from hoglab.capture.records import DecodedRecord, decode_record
from hoglab.http.app import HoglabApp
from hoglab.http.server import Address, claim, serve
from hoglab.storage.database import Database

ONE, TWO = "phc_first_project", "phc_second_project"
LIMITS = CaptureLimits(
    batch_body=200_000, event_body=50_000, discarded_body=20_000, event=20_000, ai_event=80_000
)


@dataclass
class Server:
    """The event endpoints over a real log, without a network."""

    log: EmbeddedEventLog
    app: HoglabApp
    client: httpx.AsyncClient
    refused: RefusedRequests

    def records(self) -> list[DecodedRecord]:
        """What the log holds."""
        return [decode_record(each.payload) for each in self.log.read(0, max_records=1000, max_bytes=2**30)]

    def events(self) -> list[tuple[int, str, str]]:
        """(project, event, distinct id) of everything in the log."""
        return [
            (record.header.project_id, event.event or "", event.distinct_id)
            for record in self.records()
            for event in record.envelope.events
        ]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data files with the projects 1 and 2, whose tokens are `ONE` and `TWO`."""
    folder = tmp_path_factory.mktemp("capture")
    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts, project_token=ONE)
    accounts.create_project(accounts.projects()[0].organization_id, "Second", token=TWO)
    database.dispose()
    EmbeddedEventLog(folder / "queue.db").close()
    return folder


@pytest.fixture
def folder(tmp_path: Path, prepared: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "data"))


@pytest.fixture
def database(folder: Path) -> Iterator[Database]:
    opened = Database.open(folder / "hoglab.db")
    yield opened
    opened.dispose()


@pytest.fixture
def log(folder: Path) -> Iterator[EmbeddedEventLog]:
    opened = EmbeddedEventLog(folder / "queue.db")
    yield opened
    opened.close()


@pytest.fixture
def limits() -> CaptureLimits:
    return LIMITS


@pytest.fixture
def server(database: Database, log: EmbeddedEventLog, limits: CaptureLimits) -> Iterator[Server]:
    accounts = AccountService(database)
    refused = RefusedRequests(database)
    capture = Capture(log, accounts.project_by_token, limits=limits, refused=refused)
    app = app_of(accounts, hot=capture_routes(capture))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    client = httpx.AsyncClient(transport=transport, base_url="http://hoglab.test")
    yield Server(log, app, client, refused)
    capture.close()
    app.close()


@pytest.fixture
def address(server: Any) -> Iterator[Address]:
    """The app of ``server`` on a port of its own."""
    ready: list[Address] = []
    started = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        with claim("127.0.0.1", 0) as claimed:
            await serve(
                server.app, claimed, stop=stop, ready=lambda at: (ready.append(at), started.set()), grace_s=2
            )

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(10)
    wait_until_it_answers(ready[0])
    yield ready[0]
    loop, stop = loops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def wait_until_it_answers(address: Address) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((address.host, address.port), timeout=10).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
        else:
            return
