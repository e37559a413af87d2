"""Two servers on one PostgreSQL database: no change is lost, none is made twice, and nobody is served what was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from tests.databases import Template, template
from tests.experiments.conftest import KEY as EXPERIMENTER
from tests.experiments.conftest import TOKEN, Lab
from tests.flags.conftest import Server as FlagServer
from tests.http.test_idempotency import START, Server, Shop, selling

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.functions.secrets.box import SecretBox
from hoglab.http.management.idempotency import LEASE
from hoglab.storage.change_watch import ChangeWatch
from hoglab.storage.database import Database, DatabaseUnreachableError


def first_start(database: Database) -> None:
    bootstrap(database, AccountService(database), api_key=EXPERIMENTER, project_token=TOKEN)


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> Template:
    return template(request, "two_servers", first_start, engine="postgresql")


@pytest.fixture
def address(prepared: Template, tmp_path: Path) -> Iterator[str]:
    with prepared.copied(tmp_path) as address:
        yield str(address)


def together(*calls: Any) -> list[Any]:
    """The results of calls that begin at the same time."""
    barrier = threading.Barrier(len(calls))

    def run(call: Any) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_of_two_who_read_the_same_one_changes_it(address: str) -> None:
    """Each says with If-Match what was read; who comes second is refused, on whichever server."""
    labs = [Lab(address), Lab(address)]
    made = labs[0].create()
    path = f"/experiments/{made['id']}/"
    for number in range(15):
        labs[0].database.refresh_changes()
        tag = labs[0].call("GET", path).headers["ETag"]
        answers = together(
            *(
                partial(lab.call, "PATCH", path, {"name": f"{number}{name}"}, headers={"If-Match": tag})
                for lab, name in zip(labs, "AB", strict=True)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412]
    for lab in labs:
        lab.close()


@contextmanager
def shops(address: str, count: int) -> Iterator[list[tuple[Shop, Server]]]:
    """Servers that sell tickets; only the database is shared."""
    box = SecretBox([Fernet.generate_key().decode()])
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            database = Database.open(address)
            stack.callback(database.dispose)
            shop, clock = Shop(database), [START]
            app = selling(database, box, AccountService(database), shop, clock)
            stack.callback(app.close)
            opened.append((shop, Server(app, EXPERIMENTER, clock)))
        yield opened


def test_a_request_that_is_sent_to_two_servers_is_carried_out_once(address: str) -> None:
    with shops(address, 2) as [(here, one), (_, other)]:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(one.post, {"ticket": "a", "wait": True})
            assert here.entered.wait(10)
            busy = other.post({"ticket": "a", "wait": True})
            assert (busy.status_code, busy.json()["code"]) == (409, "idempotency_key_in_use")
            here.gate.set()
            assert first.result().status_code == 201
        again = other.post({"ticket": "a", "wait": True})
        assert (again.status_code, again.json()) == (201, first.result().json())
        assert again.headers["Idempotency-Replayed"] == "true"
        assert here.sold() == ["a"]


def test_requests_at_the_same_time_are_carried_out_once(address: str) -> None:
    with shops(address, 2) as [(here, one), (_, other)]:
        for number in range(10):
            sent: dict[str, Any] = {"ticket": f"t{number}"}
            answers = together(*(partial(server.post, sent, f"k{number}") for server in (one, other)))
            assert {answer.status_code for answer in answers} <= {201, 409}
        assert sorted(here.sold()) == [f"t{number}" for number in range(10)]


def test_the_request_of_a_server_that_died_may_run_after_its_lease(address: str) -> None:
    with shops(address, 2) as [(here, one), (_, other)]:
        with ThreadPoolExecutor() as pool:
            here.suffix = "-late"
            slow = pool.submit(one.post, {"ticket": "slow", "wait": True})
            assert here.entered.wait(10)
            other.clock[0] = START + LEASE - timedelta(seconds=1)
            assert other.post({"ticket": "slow", "wait": True}).status_code == 409
            other.clock[0] = START + LEASE + timedelta(seconds=1)
            with shops(address, 1) as [(third, last)]:
                last.clock[0] = other.clock[0]
                third.gate.set()
                assert last.post({"ticket": "slow", "wait": True}).status_code == 201
            here.gate.set()  # it was only slow: what it does now would be done twice
            assert slow.result().status_code == 409
        assert here.sold() == ["slow"]


def test_no_server_serves_a_person_as_another_server_made_them(address: str, tmp_path: Path) -> None:
    class Served(FlagServer):
        key, token = EXPERIMENTER, TOKEN

    one, other = Served(address, tmp_path), Served(address, tmp_path)
    pro = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
    one.create("pro-only", {"groups": [{"properties": [pro], "rollout_percentage": 100}]})
    for number, plan in enumerate(("free", "pro", "free", "pro")):
        one.event("$set", "ada", **{"$set": {"plan": plan}})
        other.database.refresh_changes()
        assert other.flags("ada")["flags"]["pro-only"]["enabled"] is (plan == "pro"), number
    for server in (one, other):
        server.close()


class Nothing:
    def note(self) -> None:
        """Nothing is noted."""


def test_a_change_on_one_server_is_known_to_the_other(address: str) -> None:
    """Without looking again after half a second: the server is told."""
    here, there = Database.open(address), Database.open(address)
    heard = threading.Event()
    there.changes.subscribe("flags", lambda _project: heard.set())
    watch = ChangeWatch(there, Nothing())
    watch.start()
    waits = 0
    while not heard.wait(0.2):
        with here.write() as tx:
            tx.changed("flags", 1)
        waits += 1
        assert waits < 50
    watch.stop()
    for database in (here, there):
        database.dispose()


def test_a_listener_whose_connection_is_gone_listens_again(address: str) -> None:
    here, there = Database.open(address), Database.open(address)
    assert there.await_change(0.01)
    with here.write() as tx:
        listeners = "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
        end = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity {listeners}"  # noqa: S608
        assert tx.connection.exec_driver_sql(end).scalar() == 1
    with pytest.raises(DatabaseUnreachableError):
        there.await_change(5)
    assert there.await_change(0.01)
    with here.write() as tx:
        tx.changed("flags", 1)
    assert there.await_change(30)
    assert there.refresh_changes() == 1
    for database in (here, there):
        database.dispose()
