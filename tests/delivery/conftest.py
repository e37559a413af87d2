"""Delivery on real pieces: databases, queue, worker, and HTTP servers on this machine."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from aiohttp import web
from cryptography.fernet import Fernet
from tests.embedded import EmbeddedQueueTables
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import FirstStart, bootstrap
from hoglab.accounts.service import AccountService
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.config import DeliveryConfig
from hoglab.delivery.execution.retries import RetryPolicy
from hoglab.delivery.limits.function_breaker import FunctionBreakers, StateChange
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import FetchLimits
from hoglab.delivery.service import Delivery, run_context
from hoglab.delivery.worker import WorkerLimits
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.http.fields.dates import utc_now
from hoglab.http.identity import Project
from hoglab.people import PersonService
from hoglab.storage.database import Database, tables
from hoglab.storage.event_store import EventRow
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import InvocationQueue
from hoglab.storage.invocations.sql import stores_of

ensure_stack()

SITE = "https://h.example"
NOW = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)
FAST = RetryPolicy(step_s=0.02, jitter_s=0.01, max_retry_after_s=0.2)
KEY = Fernet.generate_key().decode()

Answer = Callable[[web.Request, int], Any]
"""Gives the response to a request, from the request and how many came before it."""


@dataclass
class Hit:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Receiver:
    """An HTTP server on this machine that notes what it gets and answers as it is told."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.answer: Answer = lambda _request, _number: web.json_response({"ok": True})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port: int = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        self.url = f"http://127.0.0.1:{self.port}"

    async def _start(self) -> int:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "0.0.0.0", 0)
        await site.start()
        name: tuple[str, int] = self._runner.addresses[0]
        return name[1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = len(self.hits)
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.hits.append(Hit(request.method, request.path_qs, headers, body, time.monotonic()))
        answer = self.answer(request, number)
        if asyncio.iscoroutine(answer):
            answer = await answer
        made: web.StreamResponse = answer
        return made

    def call(self, step: Callable[[], Any]) -> None:
        """Do something on the loop of the server."""
        self._loop.call_soon_threadsafe(step)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def stored(
    name: str = "purchase",
    properties: dict[str, Any] | None = None,
    *,
    person: dict[str, Any] | None = None,
    distinct_id: str = "u1",
    uuid: UUID | None = None,
    groups: dict[int, str] | None = None,
    log_offset: int = 1,
    chain: str = "",
    project_id: int = 1,
) -> IngestedEvent:
    """An event as ingestion hands it over; without ``person`` it belongs to none."""
    properties = properties or {}
    row = EventRow(
        project_id,
        uuid or uuid4(),
        name,
        distinct_id,
        NOW,
        NOW,
        orjson.dumps(properties),
        UUID(int=77) if person is not None else UUID(int=78),
        orjson.dumps(person or {}),
        NOW if person is not None else None,
        "full" if person is not None else "propertyless",
        chain,
        groups or {},
        log_offset,
        None,
        None,
        None,
    )
    return IngestedEvent(row, properties)


@dataclass
class House:
    """Everything that delivery needs, on one directory. `restart` is like a new process."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `DeliveryConfig` that differ."""
    offset: int = 0
    key: str = KEY
    capture: Callable[[int, dict[str, Any]], Awaitable[None]] | None = None
    """Takes what functions capture, in place of `captured`."""
    bodies: BodyPool | None = None
    """Shared by the houses of one test process, so that not each test starts processes."""
    now: Callable[[], datetime] = utc_now
    on_state_change: StateChange = lambda *_: None

    def open(self) -> None:
        self.database = Database.open(self.folder / "hoglab.db")
        self.queue_database = Database.open(self.folder / "queue.db", tables.queue_metadata)
        self.queue = InvocationQueue(EmbeddedQueueTables(self.folder / "queue.db"))
        self.accounts = AccountService(self.database)
        self.people = PersonService(self.database)
        self.box = SecretBox([self.key])
        self.registry = FunctionRegistry(self.database, self.box)
        config = replace(
            DeliveryConfig(
                SITE,
                guard=AddressGuard.create(["127.0.0.0/8"]),
                retries=FAST,
                worker=WorkerLimits(idle_s=0.05),
                fetch=FetchLimits(total_s=5.0),
            ),
            **self.options,
        )
        self._own_bodies = BodyPool(config.bodies)
        self.captured: list[tuple[int, dict[str, Any]]] = []
        self.stores = stores_of(self.queue, self.queue_database)
        self.delivery = Delivery(
            self.stores,
            run_context(self.registry, self.box, self.people, self.stores, config, self.now),
            FunctionBreakers(self.stores.breakers, self.on_state_change, self.now),
            self.bodies or self._own_bodies,
            self._capture,
            config,
        )
        self.functions = FunctionService(self.database, self.box, self.delivery.states)

    async def _capture(self, project_id: int, event: dict[str, Any], *, insist: bool = False) -> None:
        if self.capture is not None:
            await self.capture(project_id, event)
        else:
            self.captured.append((project_id, event))

    def close(self) -> None:
        assert self.delivery.stop(10)
        self._own_bodies.close()
        self.queue.close()
        self.queue_database.dispose()
        self.database.dispose()

    def restart(self) -> None:
        self.close()
        self.open()

    @property
    def project(self) -> Project:
        found = self.accounts.project(1)
        assert found is not None
        return found

    def create(self, hog: str = "return 1", **body: Any) -> dict[str, Any]:
        """Create an enabled destination; ``schema`` lists the keys of inputs that are no secrets."""
        inputs = body.pop("values", {})
        secrets = body.pop("secrets", {})
        schema = [
            {"key": key, "type": "string" if isinstance(value, str) else "json", "required": True}
            for key, value in inputs.items()
        ]
        schema += [{"key": key, "type": "string", "secret": True} for key in secrets]
        everything = {**inputs, **secrets}
        full = {
            "type": "destination",
            "name": "Test",
            "enabled": True,
            "hog": hog,
            "inputs_schema": schema,
            "inputs": {key: {"value": value} for key, value in everything.items()},
            **body,
        }
        return self.functions.create(self.project, None, FunctionPatch(full))

    def change(self, function: dict[str, Any], **body: Any) -> dict[str, Any]:
        return self.functions.update(self.project, None, function["id"], FunctionPatch(body))

    def dispatch(self, *events: IngestedEvent) -> None:
        self.offset += 1
        self.delivery.dispatcher.dispatch(events, log_offset=self.offset)

    def run(self, *events: IngestedEvent) -> None:
        """Dispatch events and wait until everything is finished."""
        if events:
            self.dispatch(*events)
        if not self.delivery.is_alive():
            self.delivery.start()
        self.wait_idle()

    def wait_idle(self) -> None:
        wait_for(lambda: self.queue.counts.backlog() == 0)

    # --- what was left behind

    def rows(self, table: str, columns: str, order: str) -> list[Any]:
        with self.queue_database.read() as connection:
            found = connection.exec_driver_sql(f"SELECT {columns} FROM {table} ORDER BY {order}")  # noqa: S608
            return [tuple(row) for row in found]

    def logs(self, function: dict[str, Any]) -> list[tuple[str, str]]:
        """Level and message of the function's lines, oldest first."""
        found = self.rows("log_entry", "log_source_id, level, message", "timestamp, id")
        return [(level, message) for source, level, message in found if source == function["id"]]

    def metrics(self, function: dict[str, Any]) -> dict[str, int]:
        totals: dict[str, int] = {}
        for source, name, count in self.rows("app_metric", "app_source_id, metric_name, count", "1"):
            if source == function["id"]:
                totals[name] = totals.get(name, 0) + count
        return totals

    def results(self) -> list[dict[str, Any]]:
        columns = (
            "invocation_id, function_id, status, attempts, is_retry, duration_ms, error_kind, error_message, "
            "event_uuid"
        )
        names = [name.strip() for name in columns.split(",")]
        return [
            dict(zip(names, row, strict=True)) for row in self.rows("invocation_result", columns, "version")
        ]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FirstStart]:
    """Database files with an organization, a project and a key."""
    folder = tmp_path_factory.mktemp("delivery")
    database = Database.open(folder / "hoglab.db")
    made = bootstrap(database, AccountService(database))
    assert made is not None
    database.dispose()
    Database.open(folder / "queue.db", tables.queue_metadata).dispose()
    return folder, made


@pytest.fixture(scope="session")
def bodies() -> Iterator[BodyPool]:
    pool = BodyPool()
    yield pool
    pool.close(1.0)


@pytest.fixture
def house(tmp_path: Path, prepared: tuple[Path, FirstStart], bodies: BodyPool) -> Iterator[House]:
    house = House(Path(shutil.copytree(prepared[0], tmp_path / "data")), bodies=bodies)
    house.open()
    yield house
    house.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
