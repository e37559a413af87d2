"""A server whose data, but for events, is in PostgreSQL: the tour of the README, across restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests import forked
from tests.conftest import StartServer
from tests.postgres import PostgresServer
from tests.waiting import PATIENCE_S

from hoglab.settings import SettingsError, load
from hoglab.storage.database.postgres.driver import Driver
from hoglab.storage.database.postgres.sole_server import ROUND_S, AnotherServerError, SoleServer
from hoglab.storage.engines import upgrade_databases

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"


def hoglab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments, environment={**os.environ, **environment})


def wait_for(look: Any, what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what} did not come")


def test_everything_but_events_is_in_postgres(
    start_server: StartServer, postgres_url: str, tmp_path: Path
) -> None:
    assert "up to date now" in hoglab("migrate", "--database-url", postgres_url).stdout
    assert "were up to date" in hoglab("migrate", HOGLAB_DATABASE_URL=postgres_url).stdout
    environment = {
        "HOGLAB_DATABASE_URL": postgres_url,
        "HOGLAB_BOOTSTRAP_API_KEY": KEY,
        "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN,
    }
    server = start_server(data=tmp_path / "data", **environment)
    api = httpx.Client(
        base_url=f"{server.url}/api/projects/1",
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=PATIENCE_S,
    )
    pro = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
    filters = {"groups": [{"properties": [pro], "rollout_percentage": 100}]}
    made = api.post("/feature_flags/", json={"key": "for-pros", "filters": filters})
    assert made.status_code == 201, made.text

    def send(name: str, **properties: Any) -> None:
        event = {"api_key": TOKEN, "event": name, "distinct_id": "ada", "properties": properties}
        assert httpx.post(f"{server.url}/capture/", json=event, timeout=PATIENCE_S).status_code == 200

    def is_on() -> bool:
        asked = {"token": TOKEN, "distinct_id": "ada"}
        answer = httpx.post(f"{server.url}/flags/?v=2", json=asked, timeout=PATIENCE_S).json()
        assert answer["errorsWhileComputingFlags"] is False
        return bool(answer["flags"]["for-pros"]["enabled"])

    assert not is_on()
    send("hello", **{"$set": {"plan": "pro", "email": "ada@example.com"}})
    wait_for(is_on, "the person's property")
    wait_for(lambda: len(api.get("/events/").json()["results"]) == 1, "the event")
    found = api.get("/persons/", params={"search": "ADA@exam"}).json()["results"]
    assert [person["distinct_ids"] for person in found] == [["ada"]]

    server.kill(signal.SIGKILL)
    server.start()
    assert is_on()
    send("again")
    wait_for(lambda: len(api.get("/events/").json()["results"]) == 2, "the event after the restart")
    assert not (tmp_path / "data" / "hoglab.db").exists()
    assert not (tmp_path / "data" / "queue.db").exists()
    listed = hoglab("keys", "list", "--data", str(tmp_path / "data"), **environment)
    assert listed.returncode == 0, listed.stderr
    _look_without_a_directory(tmp_path / "none", environment)
    api.close()


def _look_without_a_directory(data: Path, environment: dict[str, str]) -> None:
    """Commands that need the database alone work where there is no directory; the others say so, and make none."""
    alone = (
        ["keys", "list"],
        ["ingestion", "quarantine", "list"],
        ["export", "persons", "--to", f"{data}.jsonl"],
    )
    for command in alone:
        done = hoglab(*command, "--data", str(data), **environment)
        assert done.returncode == 0, done.stderr
    with_events = (
        ["backup", "--to", f"{data}-backups"],
        ["export", "events", "--to", f"{data}.jsonl"],
        ["experiment", "results", "1"],
        ["secrets", "rotate"],
        ["check"],
        ["repair"],
    )
    for command in with_events:
        done = hoglab(*command, "--data", str(data), **environment)
        assert (done.returncode, done.stderr) == (
            1,
            f"hoglab: there is no directory {data}: name it with --data or HOGLAB_DATA\n",
        )
    assert not data.exists()


def test_a_database_that_is_gone_for_a_while(
    start_server: StartServer, postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """Flags are answered from memory, everything else says to come again, and comes back by itself."""
    hoglab("migrate", "--database-url", postgres_url)
    server = start_server(
        data=tmp_path / "data",
        HOGLAB_DATABASE_URL=postgres_url,
        HOGLAB_BOOTSTRAP_API_KEY=KEY,
        HOGLAB_BOOTSTRAP_PROJECT_TOKEN=TOKEN,
    )
    client = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE_S)
    pro = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
    for key, properties in (("for-all", []), ("for-pros", [pro])):
        filters = {"groups": [{"properties": properties, "rollout_percentage": 100}]}
        body = {"key": key, "filters": filters}
        assert client.post("/api/projects/1/feature_flags/", json=body).status_code == 201

    def flags() -> Any:
        return client.post("/flags/?v=2", json={"token": TOKEN, "distinct_id": "ada"}).json()

    def capture() -> int:
        event = {"api_key": TOKEN, "event": "hello", "distinct_id": "ada"}
        return client.post("/capture/", json=event).status_code

    assert flags()["errorsWhileComputingFlags"] is False
    assert capture() == 200
    postgres.close(postgres_url)
    gone = flags()
    assert gone["errorsWhileComputingFlags"] is True
    assert gone["flags"]["for-all"]["enabled"] is True
    assert gone["flags"]["for-pros"]["failed"] is True
    refused = client.get("/api/projects/1/persons/")
    assert (refused.status_code, refused.json()["type"]) == (503, "server_error")
    assert capture() == 503
    assert client.get("/_health").status_code in (200, 503)
    postgres.reopen(postgres_url)
    wait_for(lambda: capture() == 200, "capture")
    assert flags()["errorsWhileComputingFlags"] is False
    assert client.get("/api/projects/1/persons/").status_code == 200
    wait_for(lambda: len(client.get("/api/projects/1/events/").json()["results"]) == 2, "events")
    client.close()


def test_one_server_works_on_a_database(start_server: StartServer, postgres_url: str, tmp_path: Path) -> None:
    upgrade_databases(postgres_url)
    first = start_server(data=tmp_path / "data", HOGLAB_DATABASE_URL=postgres_url)
    data = str(tmp_path / "other")
    second = hoglab(
        "serve", "--port", "0", "--data", data, "--database-url", postgres_url, HOGLAB_SERVER_WAIT_S="0.5"
    )
    assert second.returncode == 1
    assert "another server works on" in second.stderr
    assert "Traceback" not in second.stderr
    assert httpx.get(f"{first.url}/_readiness", timeout=PATIENCE_S).status_code == 200


def test_who_finds_another_server_after_a_restart_ends(postgres: PostgresServer, postgres_url: str) -> None:
    driver = Driver(postgres_url, "public")
    connect = partial(driver.connect, autocommit=True)
    ended: list[bool] = []
    first = SoleServer(connect, "it", wait_s=10, on_lost=lambda: ended.append(True))
    with pytest.raises(AnotherServerError):
        SoleServer(connect, "it", wait_s=0)
    assert (first.round(), ended) == (ROUND_S, [])
    postgres.disconnect(postgres_url)
    assert (first.round(), first.round(), ended) == (ROUND_S, ROUND_S, []), "it is taken again"
    with pytest.raises(AnotherServerError):
        SoleServer(connect, "it", wait_s=0)
    postgres.disconnect(postgres_url)
    second = SoleServer(connect, "it", wait_s=10)
    assert first.round() == ROUND_S, "the session is lost"
    assert (first.round(), ended) == (None, [True])
    second.close()
    first.close()


def test_the_password_may_be_in_a_file(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    """The server asks for it; whatever characters it has, and whether or not a line ends behind it."""
    name, password = f"owner_{os.getpid()}", "p@ss w/ör&d?%2F'#=+"
    address, file = postgres.owner(postgres_url, name, password), tmp_path / "password"

    def user(content: str, address: str = address) -> str:
        """Who is logged in with what the settings make of a file."""
        file.write_text(content)
        known = load(database_url=address, database_password_file=file).database_address
        with psycopg.connect(str(known)) as connection:
            return str(connection.execute("SELECT current_user").fetchone())

    for content in ("wrong", ""):
        with pytest.raises(psycopg.OperationalError, match="password"):
            user(content)
    for content in (password, f"{password}\n"):
        assert name in user(content)
    assert name in user(password, f"{address}&sslmode=prefer")
    assert name in user(password, address.replace("?", "?application_name=it&"))
    environment = {"HOGLAB_DATABASE_URL": address, "HOGLAB_DATABASE_PASSWORD_FILE": str(file)}
    assert "up to date now" in hoglab("migrate", **environment).stdout
    file.write_text("wrong")
    refused = hoglab("migrate", **environment)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "password authentication failed" in refused.stderr
    assert "wrong" not in refused.stderr
    file.unlink()
    with pytest.raises(SettingsError, match="HOGLAB_DATABASE_PASSWORD_FILE"):
        load(database_url=address, database_password_file=file)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://localhost/hoglab", "must begin with postgresql://"),
        ("postgresql://hoglab:hush@/none?host=/nowhere", "cannot be reached"),
    ],
)
def test_an_address_that_does_not_work_is_one_line(url: str, told: str) -> None:
    refused = hoglab("migrate", HOGLAB_DATABASE_URL=url)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert "hush" not in refused.stderr
    assert "Traceback" not in refused.stderr
