"""A small API of widgets on real accounts: what the shared furniture is tested with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx
import pytest
from tests.accounts.conftest import database, first, migrated
from tests.apps import app_of

from hoglab.accounts.bootstrap import FirstStart
from hoglab.accounts.scopes import KNOWN
from hoglab.accounts.service import AccountService
from hoglab.http import errors
from hoglab.http.app import HoglabApp
from hoglab.http.fields.fields import (
    Bool,
    Choice,
    Int,
    JsonAny,
    JsonList,
    JsonObject,
    Moment,
    Text,
    WireModel,
)
from hoglab.http.management.call import Call
from hoglab.http.management.config import HttpConfig
from hoglab.http.management.pagination import envelope
from hoglab.http.management.routing import ANY_KEY, IntId, ResourceRouter, TextId, UuidId, either
from hoglab.http.responses import json_response
from hoglab.storage.database import Database

__all__ = ["database", "first", "migrated"]  # fixtures

WIDGETS = 25
"""How many widgets there are to list."""


class WidgetIn(WireModel):
    name: Annotated[str, Text(max_length=20)]
    note: Annotated[str, Text(blank=True)] | None = None
    big: Annotated[bool, Bool()] = False
    size: Annotated[int, Int(min=1, max=9)] | None = None
    kind: Annotated[str, Choice("round", "square")] | None = None
    made_at: Annotated[Any, Moment()] | None = None
    tags: Annotated[list[str], JsonList(Text())] | None = None
    parts: Annotated[dict[str, Any], JsonObject()] | None = None
    extra: Annotated[Any, JsonAny()] = None


class WidgetOut(WireModel):
    id: int
    name: str


class WidgetQuery(WireModel):
    limit: Annotated[int, Int()] | None = None
    offset: Annotated[int, Int()] | None = None


@dataclass
class Gate:
    """What slow handlers wait for."""

    entered: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)


def widgets(gate: Gate) -> ResourceRouter:
    router = ResourceRouter("/widgets", tag="widgets", scopes=("widget:read", "widget:write"))

    @router.get("/", query=WidgetQuery, summary="List widgets")
    def list_widgets(call: Call) -> dict[str, Any]:
        page = call.page()
        items = list(range(WIDGETS))[page.offset : page.offset + page.limit]
        return envelope(call, items, WIDGETS)

    @router.post("/", body=WidgetIn, response=WidgetOut, status=201)
    def create_widget(call: Call) -> dict[str, Any]:
        """Create a widget.

        Says what it understood.
        """
        return call.validate(WidgetIn).sent()

    @router.get("/special")
    def special(call: Call) -> dict[str, Any]:
        return {"special": True}

    @router.get("/{widget_id}", response=WidgetOut)
    def read_widget(call: Call, widget_id: IntId) -> dict[str, Any]:
        if widget_id >= WIDGETS:
            raise errors.not_found()
        level = call.access_level(created_by_id=call.principal.user.id if widget_id == 7 else None)
        return {"id": widget_id, "project": call.project.id, "user_access_level": level}

    @router.patch("/{widget_id}", body=WidgetIn)
    def update_widget(call: Call, widget_id: IntId) -> dict[str, Any]:
        if widget_id >= WIDGETS:
            raise errors.not_found()
        return {"id": widget_id, **call.body}

    @router.put("/{widget_id}", body=WidgetIn)
    def replace_widget(call: Call, widget_id: IntId) -> dict[str, Any]:
        return update_widget(call, widget_id)

    router.forbid_delete("/{widget_id}")

    @router.post("/{widget_id}/paint", scope=("widget:write", "paint:write"))
    def paint(call: Call, widget_id: IntId) -> dict[str, Any]:
        return {"painted": widget_id}

    @router.get("/{widget_id}/colour", scope=either("colour:read", "widget:read"))
    def colour(call: Call, widget_id: IntId) -> dict[str, Any]:
        return {"colour": "red"}

    @router.get("/{widget_id}/session_only", scope=None)
    def session_only(call: Call, widget_id: IntId) -> dict[str, Any]:
        return {}

    @router.delete("/{widget_id}/paint", status=204)
    def remove_paint(call: Call, widget_id: IntId) -> None:
        return None

    @router.get("/by_uuid/{uuid}", scope=ANY_KEY)
    async def by_uuid(call: Call, uuid: UuidId) -> dict[str, Any]:
        return {"uuid": uuid}

    @router.get("/by_name/{name}", scope=ANY_KEY)
    def by_name(call: Call, name: TextId) -> dict[str, Any]:
        return {"name": name, "thread": threading.current_thread().name}

    @router.post("/echo", scope=ANY_KEY)
    def echo(call: Call) -> Any:
        return json_response(call.raw_json)

    @router.get("/slow", scope=ANY_KEY, heavy=True)
    def slow(call: Call) -> dict[str, Any]:
        gate.entered.set()
        return {"opened": gate.open.wait(10)}

    @router.post("/trouble", scope=ANY_KEY)
    def trouble(call: Call) -> Any:
        raise RuntimeError("the phx_0123456789abcdef0123456789abcdef boiler burst")

    return router


def outside() -> ResourceRouter:
    router = ResourceRouter("/api/things", tag="things", project_scoped=False)

    @router.get("/", scope=ANY_KEY)
    def things(call: Call) -> dict[str, Any]:
        return {"organization": call.principal.organization_id}

    @router.get("/open", scope=ANY_KEY, limited_keys=True, reads_events=True)
    def open_things(call: Call) -> dict[str, Any]:
        return {"open": True}

    return router


@dataclass
class Client:
    """Calls the application in this process, with the first key unless told otherwise."""

    app: HoglabApp
    key: str | None
    runner: asyncio.Runner
    gate: Gate

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, url, headers=headers, **options)

        return self.runner.run(go())

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self.request("POST", url, **options)

    def with_key(self, key: str | None) -> Client:
        return Client(self.app, key, self.runner, self.gate)


@pytest.fixture
def accounts(database: Database) -> AccountService:
    return AccountService(database, scope_objects=KNOWN | {"widget", "colour", "paint"})


@pytest.fixture
def new_key(accounts: AccountService, first: FirstStart) -> Callable[..., str]:
    """Makes a key of the owner with some scopes and limits."""

    def make(scopes: Sequence[str] = ("*",), **limits: Any) -> str:
        return accounts.create_key(accounts.owner_id(), "test", scopes, **limits).value

    return make


@pytest.fixture
def make_client(accounts: AccountService, first: FirstStart) -> Iterator[Callable[..., Client]]:
    apps: list[HoglabApp] = []
    with asyncio.Runner() as runner:

        def make(config: HttpConfig | None = None, **options: Any) -> Client:
            gate = Gate()
            app = app_of(accounts, widgets(gate), outside(), config=config or HttpConfig(), **options)
            apps.append(app)
            return Client(app, first.api_key, runner, gate)

        yield make
        for app in apps:
            app.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
