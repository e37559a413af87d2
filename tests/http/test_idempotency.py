"""POST requests with an ``Idempotency-Key``: carried out once, answered as often as they are sent."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select
from structlog.testing import capture_logs
from tests.apps import app_of
from tests.databases import template

from hoglab.accounts.bootstrap import FirstStart
from hoglab.accounts.service import AccountService
from hoglab.functions.secrets.box import SecretBox
from hoglab.http import errors
from hoglab.http.app import HoglabApp
from hoglab.http.management.call import Call
from hoglab.http.management.idempotency import (
    KEPT_FOR,
    LEASE,
    MAX_ANSWER_BYTES,
    MAX_KEY_CHARACTERS,
    Idempotency,
)
from hoglab.http.management.routing import ANY_KEY, ResourceRouter
from hoglab.storage.database import Database, sqlite, tables

START = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass
class Shop:
    """Sells numbered tickets; each is an entry of the activity log, so that a sale is a change in the database."""

    database: Database
    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)
    crash: str = ""
    suffix: str = ""
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    """What happens just before a sale is stored, and just after."""

    def price(self, call: Call) -> dict[str, Any]:
        """Changes nothing."""
        self.after()
        return {"price": 5}

    def sell(self, call: Call) -> dict[str, Any]:
        wish = call.body
        self.entered.set()
        if wish.get("wait"):
            assert self.gate.wait(10)
        if self.crash == "before":
            raise KeyboardInterrupt
        self.before()
        with self.database.write() as tx:
            row = {
                "id": wish["ticket"] + self.suffix,
                "project_id": call.project.id,
                "activity": "sold",
                "scope": "Ticket",
                "item_id": "1",
                "detail": {},
                "created_at": call.now,
            }
            tx.execute(tables.activity_log.insert(), row)
            if wish.get("refuse"):
                raise errors.validation_error("Sold out.")
        self.after()
        if self.crash == "after":
            raise KeyboardInterrupt
        return {"ticket": wish["ticket"], "secret": "s3cret", "padding": "x" * wish.get("padding", 0)}

    def sold(self) -> list[str]:
        with self.database.read() as connection:
            return list(connection.scalars(select(tables.activity_log.c.id)))


@dataclass
class Server:
    app: HoglabApp
    key: str
    clock: list[datetime]

    def post(self, body: dict[str, Any], key: str | None = "k1", path: str = "tickets") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        if key is not None:
            headers["Idempotency-Key"] = key

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(f"/api/projects/1/{path}/", headers=headers, json=body)

        return asyncio.run(go())


def selling(
    database: Database, box: SecretBox, accounts: AccountService, shop: Shop, clock: list[datetime]
) -> HoglabApp:
    """The application of a shop."""
    routes = ResourceRouter("/tickets", tag="tickets")
    routes.add("POST", "/", shop.sell, scope=ANY_KEY, status=201)
    routes.add("POST", "/dear", shop.sell, scope=ANY_KEY, status=201)
    routes.add("POST", "/price", shop.price, scope=ANY_KEY)
    idempotency = Idempotency(database, box)
    return app_of(accounts, routes, idempotency=idempotency, now=lambda: clock[0])


@pytest.fixture
def shop(database: Database) -> Shop:
    return Shop(database)


@pytest.fixture
def start(
    database: Database, accounts: AccountService, first: FirstStart, shop: Shop
) -> Iterator[Callable[..., Server]]:
    apps: list[HoglabApp] = []
    box = SecretBox([Fernet.generate_key().decode()])

    def make(key: str | None = None) -> Server:
        clock = [START]
        apps.append(selling(database, box, accounts, shop, clock))
        return Server(apps[-1], key or first.api_key, clock)

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start()


def test_a_request_sent_again_gets_the_first_answer(server: Server, shop: Shop) -> None:
    first = server.post({"ticket": "a"})
    second = server.post({"ticket": "a"})

    assert (first.status_code, first.json()["ticket"]) == (201, "a")
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers["content-type"] == first.headers["content-type"]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert shop.sold() == ["a"]


def test_without_a_key_every_request_counts(server: Server, shop: Shop) -> None:
    server.post({"ticket": "a"}, None)
    server.post({"ticket": "b"}, None)
    assert shop.sold() == ["a", "b"]


@pytest.mark.parametrize(("body", "path"), [({"ticket": "b"}, "tickets"), ({"ticket": "a"}, "tickets/dear")])
def test_another_request_under_the_same_key_is_refused(
    server: Server, shop: Shop, body: dict[str, Any], path: str
) -> None:
    server.post({"ticket": "a"})
    answer = server.post(body, path=path)
    assert answer.status_code == 422
    assert answer.json()["code"] == "idempotency_key_reused"
    assert shop.sold() == ["a"]


def test_keys_of_different_users_do_not_meet(
    start: Callable[..., Server], accounts: AccountService, server: Server, shop: Shop, database: Database
) -> None:
    server.post({"ticket": "a"})
    with database.write() as tx:
        other = dict(tx.execute(select(tables.user)).mappings().one())
        other.update(id=99, uuid="0" * 8, email="other@example.com", distinct_id="other")
        tx.execute(tables.user.insert(), other)
        membership = tx.execute(select(tables.membership)).mappings().one()
        tx.execute(tables.membership.insert(), {**membership, "user_id": 99})
    others = start(accounts.create_key(99, "other", ["*"]).value)
    assert others.post({"ticket": "b"}).json()["ticket"] == "b"
    assert shop.sold() == ["a", "b"]


def test_another_key_of_the_user_gets_no_answer_that_it_did_not_ask_for(
    start: Callable[..., Server], accounts: AccountService, server: Server, first: FirstStart, shop: Shop
) -> None:
    """What was answered may hold a secret, and what a key may have depends on its scopes."""
    server.post({"ticket": "a"})
    user_id = accounts.keys()[0]["user_id"]
    for scopes in (["*"], ["experiment:write"]):
        other = start(accounts.create_key(user_id, "other", scopes).value)
        answer = other.post({"ticket": "a"})
        assert answer.status_code in (403, 422)
        assert "ticket" not in answer.json()
    assert shop.sold() == ["a"]


@pytest.mark.parametrize("changes", [{"scopes": ["experiment:write", "*"]}, {"scoped_projects": [1]}])
def test_a_key_with_other_rights_than_then_gets_no_former_answer(
    start: Callable[..., Server],
    accounts: AccountService,
    first: FirstStart,
    shop: Shop,
    changes: dict[str, Any],
) -> None:
    key = accounts.create_key(accounts.keys()[0]["user_id"], "k", ["*"])
    server = start(key.value)
    assert server.post({"ticket": "a"}).status_code == 201
    assert server.post({"ticket": "a"}).headers["idempotency-replayed"] == "true"
    accounts.update_key(key.id, changes)
    answer = server.post({"ticket": "a"})
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert shop.sold() == ["a"]


def test_a_refused_request_leaves_its_key_free(server: Server, shop: Shop) -> None:
    assert server.post({"ticket": "a", "refuse": True}).status_code == 400
    assert server.post({"ticket": "a"}).status_code == 201
    assert shop.sold() == ["a"]


def test_while_the_first_request_runs_the_second_is_told_to_wait(server: Server, shop: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, {"ticket": "a", "wait": True})
        assert shop.entered.wait(10)
        second = server.post({"ticket": "a", "wait": True})
        shop.gate.set()
        assert first.result().status_code == 201
    assert second.status_code == 409
    assert second.json()["code"] == "idempotency_key_in_use"
    assert second.headers["retry-after"] == "1"
    assert shop.sold() == ["a"]


def test_while_the_first_request_runs_another_one_under_its_key_is_refused(
    server: Server, shop: Shop
) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, {"ticket": "a", "wait": True})
        assert shop.entered.wait(10)
        second = server.post({"ticket": "b"})
        shop.gate.set()
        assert first.result().status_code == 201
    assert (second.status_code, second.json()["code"]) == (422, "idempotency_key_reused")
    assert shop.sold() == ["a"]


def test_the_answer_is_given_to_several_at_once(server: Server, shop: Shop, database: Database) -> None:
    first = server.post({"ticket": "a"})
    with ThreadPoolExecutor(2) as pool:
        with database.write():  # keeps the one that comes first waiting inside
            both = [pool.submit(server.post, {"ticket": "a"}) for _ in range(2)]
            done, _ = wait(both, timeout=10, return_when=FIRST_COMPLETED)
            assert [answer.result().content for answer in done] == [first.content]
        answers = [answer.result() for answer in both]
    assert [answer.content for answer in answers] == [first.content] * 2
    assert all("idempotency-replayed" in answer.headers for answer in answers)
    assert shop.sold() == ["a"]


def test_a_key_is_forgotten_after_a_day(server: Server, shop: Shop) -> None:
    server.post({"ticket": "a"})
    server.clock[0] = START + KEPT_FOR - timedelta(seconds=1)
    assert "idempotency-replayed" in server.post({"ticket": "a"}).headers
    server.clock[0] = START + KEPT_FOR
    assert server.post({"ticket": "b"}).status_code == 201
    assert shop.sold() == ["a", "b"]


@pytest.mark.parametrize("key", ["", "two words", "x" * (MAX_KEY_CHARACTERS + 1)])
def test_a_key_that_is_none_is_refused(server: Server, shop: Shop, key: str) -> None:
    answer = server.post({"ticket": "a"}, key)
    assert answer.status_code == 400
    assert answer.json()["attr"] == "Idempotency-Key"
    assert shop.sold() == []


def test_answers_are_kept_encrypted(server: Server, database: Database) -> None:
    server.post({"ticket": "a"})
    with database.read() as connection:
        row = connection.execute(select(tables.idempotency_key)).mappings().one()
    assert row["status"] == 201
    assert "s3cret" not in str(dict(row))


def test_a_long_answer_is_not_kept_and_its_request_not_repeated(server: Server, shop: Shop) -> None:
    body = {"ticket": "a", "padding": MAX_ANSWER_BYTES}
    assert server.post(body).status_code == 201
    answer = server.post(body)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotent_answer_lost")
    assert shop.sold() == ["a"]


class TestLockedDatabase:
    """Another program keeps the database locked for longer than we wait, at different moments of a request."""

    @pytest.fixture
    def database(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Database]:
        monkeypatch.setattr(sqlite.connections, "BUSY_TIMEOUT_S", 0.01)
        with template(request, "migrated", engine="sqlite").copied(tmp_path) as address:
            database = Database.open(address)
            yield database
            database.dispose()

    @pytest.fixture
    def program(self, database: Database, tmp_path: Path) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(
            tmp_path / "hoglab.db", isolation_level=None, timeout=0, check_same_thread=False
        )
        yield connection
        connection.close()

    def test_before_the_key_is_reserved(
        self, server: Server, shop: Shop, program: sqlite3.Connection
    ) -> None:
        program.execute("BEGIN IMMEDIATE")
        assert server.post({"ticket": "a"}).status_code == 503
        program.execute("ROLLBACK")

        assert server.post({"ticket": "a"}).status_code == 201
        assert shop.sold() == ["a"]

    def test_before_anything_is_changed(
        self, server: Server, shop: Shop, program: sqlite3.Connection
    ) -> None:
        shop.before = lambda: program.execute("BEGIN IMMEDIATE")
        with capture_logs() as logs:
            assert server.post({"ticket": "a"}).status_code == 503
        assert "idempotency_key_not_released" in [entry["event"] for entry in logs]
        program.execute("ROLLBACK")
        shop.before = lambda: None

        assert server.post({"ticket": "b"}).status_code == 201
        assert "idempotency-replayed" in server.post({"ticket": "b"}).headers
        assert shop.sold() == ["b"]

    def test_before_the_answer_is_kept(self, server: Server, shop: Shop, program: sqlite3.Connection) -> None:
        shop.after = lambda: program.execute("BEGIN IMMEDIATE")
        with capture_logs() as logs:
            first = server.post({"ticket": "a"})
        assert (first.status_code, first.json()["ticket"]) == (201, "a")
        assert "idempotent_answer_not_kept" in [entry["event"] for entry in logs]
        program.execute("ROLLBACK")

        again = server.post({"ticket": "a"})
        assert (again.status_code, again.json()["code"]) == (409, "idempotent_answer_lost")
        other = server.post({"ticket": "b"})
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        assert shop.sold() == ["a"]

    def test_before_the_answer_is_kept_of_a_request_that_changed_nothing(
        self, server: Server, shop: Shop, program: sqlite3.Connection
    ) -> None:
        shop.after = lambda: program.execute("BEGIN IMMEDIATE")
        assert server.post({}, path="tickets/price").json() == {"price": 5}
        program.execute("ROLLBACK")
        shop.after = lambda: None

        again = server.post({}, path="tickets/price")
        assert (again.status_code, again.json()) == (200, {"price": 5})
        assert "idempotency-replayed" not in again.headers
        assert "idempotency-replayed" in server.post({}, path="tickets/price").headers


def test_a_request_that_failed_after_a_change_is_not_repeated(server: Server, shop: Shop) -> None:
    shop.crash = "after"
    with pytest.raises(KeyboardInterrupt):
        server.post({"ticket": "a"})
    shop.crash = ""
    answer = server.post({"ticket": "a"})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotent_answer_lost")
    assert shop.sold() == ["a"]


class TestAfterACrash:
    """The process ends in the middle of a request; the client sends it again to the next one.

    Where others may share the database, the next one has to wait for the end of the lease.
    """

    def crashed(self, server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
        shop.crash = when
        # A process that is gone forgets no key: what the crash leaves is what the database holds.
        monkeypatch.setattr(Idempotency, "_release", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            server.post({"ticket": "a"})
        monkeypatch.undo()
        shop.crash = ""

    def after_the_lease(self, server: Server, shop: Shop) -> Server:
        if shop.database.is_shared:
            assert server.post({"ticket": "a"}).status_code == 409
            server.clock[0] += LEASE
        return server

    def test_before_anything_was_changed_the_request_runs_again(
        self, start: Callable[..., Server], server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.crashed(server, shop, monkeypatch, "before")
        assert self.after_the_lease(start(), shop).post({"ticket": "a"}).status_code == 201
        assert shop.sold() == ["a"]

    def test_after_the_change_it_does_not(
        self, start: Callable[..., Server], server: Server, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.crashed(server, shop, monkeypatch, "after")
        answer = self.after_the_lease(start(), shop).post({"ticket": "a"})
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotent_answer_lost")
        assert shop.sold() == ["a"]
