"""``hoglab import`` and ``hoglab export`` as an operator runs them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from tests import forked, waiting
from tests.conftest import StartServer, free_port
from tests.forked import ForkedServer

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.demo.server import ChildServer
from hoglab.storage.database import Database
from hoglab.storage.directory import DataDirectory

pytestmark = pytest.mark.slow

HOGLAB = [sys.executable, "-m", "hoglab"]
START = datetime(2024, 3, 1, tzinfo=UTC)


def hoglab(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return forked.run(*map(str, arguments), folder=folder)


@dataclass(frozen=True)
class Place:
    """A project on a running server."""

    server: ChildServer
    project: int
    token: str

    def importing(self, *more: object) -> list[object]:
        return ["import", "events", *more, "--host", self.server.url, "--token", self.token]

    def get(self, path: str, **query: Any) -> Any:
        answer = httpx.get(
            f"{self.server.url}/api/projects/{self.project}{path}",
            params=query,
            headers={"Authorization": f"Bearer {self.server.api_key}"},
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stored(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """The events of the store, once there are ``count``."""
        found: list[dict[str, Any]] = wait_for(
            lambda: len(seen := self.get("/events/", limit=1000, **query)["results"]) >= count and seen
        )
        assert len(found) == count
        return found


@pytest.fixture
def new_place(shared_server: ChildServer) -> Callable[[], Place]:
    """Makes projects on the shared server."""

    def make() -> Place:
        made = httpx.post(
            f"{shared_server.url}/api/organizations/@current/projects/",
            json={"name": "Imported"},
            headers={"Authorization": f"Bearer {shared_server.api_key}"},
        ).json()
        return Place(shared_server, made["id"], made["api_token"])

    return make


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The data directory of a server that has stopped, and the events that it showed before."""
    folder = tmp_path_factory.mktemp("house")
    server = ForkedServer(data=folder / "data", host="127.0.0.1", port=free_port(), environment={})
    server.start()
    try:
        place = Place(server, 1, server.project_token)
        given = write_lines(folder / "given.jsonl", special_rows())
        more = write_lines(folder / "more.jsonl", rows(10, event="bought"))
        assert hoglab(*place.importing(given, more), folder=folder).returncode == 0
        return server.data, place.stored(210)
    finally:
        server.close()


def rows(count: int, **columns: Any) -> list[dict[str, Any]]:
    return [
        {
            "event": "viewed",
            "distinct_id": f"user-{n % 50}",
            "timestamp": (START + timedelta(minutes=n)).isoformat(),
            "properties": {"n": n, "text": "é\u2028", "$set": {"plan": f"plan-{n % 3}"}},
            **columns,
        }
        for n in range(count)
    ]


def write_lines(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with its first project and nothing in it."""
    folder = tmp_path_factory.mktemp("empty")
    with DataDirectory.open(folder / "data", create=True) as directory:
        database = Database.open(directory.metadata_path)
        bootstrap(database, AccountService(database))
        database.dispose()
    return folder / "data"


def special_rows() -> list[dict[str, Any]]:
    """Rows of every kind that ingestion treats in a way of its own."""
    given = rows(200)
    given[0] |= {"event": "$identify", "properties": {"$anon_distinct_id": "anon", "$set": {"a": "b,\n'\""}}}
    given[1] |= {"event": "$groupidentify"}
    given[1]["properties"] = {"$group_type": "company", "$group_key": "acme", "$group_set": {"size": 3}}
    given[2]["properties"]["$groups"] = {"company": "acme"}
    given[3]["properties"]["$elements"] = [{"tag_name": "button", "attr__class": "big"}]
    given[4]["properties"]["$process_person_profile"] = False
    return given


wait_for = partial(waiting.wait_for, timeout_s=30, every_s=0.05)


def test_history_comes_in_once_as_it_was(new_place: Callable[[], Place], tmp_path: Path) -> None:
    place = new_place()
    given = rows(300)
    given[7]["properties"] = json.dumps(given[7]["properties"])
    given[9]["uuid"] = "0190a3b2-7c1d-7e45-9f3a-5b6c7d8e9f00"
    lines = write_lines(tmp_path / "history.jsonl", given)
    packed = tmp_path / "packed.jsonl.gz"  # the same content in another file
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    first = hoglab(*place.importing(lines), folder=tmp_path)
    assert (first.returncode, first.stdout) == (0, f"{lines}: 300 events taken\n"), first.stderr
    again = hoglab(*place.importing(lines), folder=tmp_path)
    assert again.stdout == f"{lines}: 0 events taken, 300 rows were dealt with before\n"
    # Without the journal everything is sent again, under the same uuids.
    (tmp_path / "hoglab-import.jsonl").unlink()
    assert hoglab(*place.importing(lines), folder=tmp_path).returncode == 0

    httpx.post(
        f"{place.server.url}/batch/",
        json={"api_key": place.token, "batch": [{"event": "last", "distinct_id": "d"}]},
    )
    place.stored(1, event="last")
    events = {event["properties"]["n"]: event for event in place.stored(300, event="viewed")}
    for n, event in events.items():
        assert event["timestamp"].startswith((START + timedelta(minutes=n)).strftime("%Y-%m-%dT%H:%M:%S"))
        assert event["properties"]["text"] == "é\u2028"
        assert "$ip" not in event["properties"]
        assert "$sent_at" not in event["properties"]
    assert events[9]["uuid"] == given[9]["uuid"]
    (person,) = place.get("/persons/", distinct_id="user-49")["results"]
    assert person["properties"]["plan"] == "plan-2"


def test_refused_rows_are_named_and_the_others_taken(new_place: Callable[[], Place], tmp_path: Path) -> None:
    place = new_place()
    given: list[Any] = rows(20)
    given[3]["event"] = ""
    del given[5]["timestamp"]
    given[8]["properties"] = "{"
    given[11]["properties"] = {"text": "x" * 1_100_000}
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    given[15]["properties"] = {"deep": deep}  # what only the endpoint's own rules find
    lines = write_lines(tmp_path / "x.jsonl", given)
    with lines.open("a") as file:
        file.write("garbage\n")
    done = hoglab(*place.importing(lines, "--rejects", "rejects.jsonl"), folder=tmp_path)
    assert done.returncode == 3
    assert done.stdout == f"{lines}: 15 events taken, 6 rows refused\n"
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert {reject["line"]: reject["reason"].partition(":")[0] for reject in rejects} == {
        4: "the row has no event name",
        6: "the row has no timestamp",
        9: "properties is not valid JSON",
        12: "the event is larger than 1000000 bytes",
        16: "the payload is nested more than 100 levels deep",
        21: "the row is not valid JSON",
    }
    assert rejects[0]["row"]["distinct_id"] == "user-3"
    assert {reject["file"] for reject in rejects} == {str(lines)}
    place.stored(15)

    shown = hoglab(*place.importing(lines, "--journal", "other"), folder=tmp_path)
    assert f"{lines}:4: the row has no event name" in shown.stderr
    assert "--rejects" in shown.stderr


def test_killed_importer_and_killed_server_lose_and_double_nothing(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    place = Place(server, 1, server.project_token)
    count = 30_000
    lines = write_lines(tmp_path / "big.jsonl", rows(count))
    command = [*HOGLAB, *map(str, place.importing(lines))]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "hoglab-import.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # As if the process had been killed between the server's answer and the note of it.
    kept = journal.read_bytes().splitlines(keepends=True)
    assert 0 < len(kept) < count / 2_000
    journal.write_bytes(b"".join(kept[:-1]))

    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: journal.stat().st_size > sum(map(len, kept)))
    server.kill(signal.SIGKILL)
    server.start()  # the importer waits for it
    printed, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "rows were dealt with before" in printed or len(kept) == 1

    wait_for(lambda: place.get("/events/", limit=1)["results"][0]["properties"]["n"] == count - 1)
    server.stop()
    target = tmp_path / "all.parquet"
    done = hoglab("export", "events", "--to", target, "--data", server.data, folder=tmp_path)
    assert done.stdout == f"{target}: {count} events\n", done.stderr
    [(n, total, ids)] = duckdb.execute(
        "SELECT count(DISTINCT (properties::JSON->>'n')::INT), count(*), count(DISTINCT uuid) "
        "FROM read_parquet($1)",
        [str(target)],
    ).fetchall()
    assert (n, total, ids) == (count, count, count)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl.gz"])
def test_round_trip(
    house: tuple[Path, list[dict[str, Any]]], new_place: Callable[[], Place], tmp_path: Path, kind: str
) -> None:
    data, before = house
    target = tmp_path / f"out.{kind}"
    done = hoglab("export", "events", "--to", target, "--data", data, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    other = new_place()
    done = hoglab(*other.importing(target), folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{target}: 210 events taken\n"), done.stderr
    assert by_id(other.stored(210)) == by_id(before)


def by_id(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What must survive; persons get ids and times of their own where they were merged."""
    kept = ("event", "distinct_id", "timestamp", "properties", "elements_chain")
    return {
        event["uuid"]: {name: event[name] for name in kept}
        | {"person": event["person"] and event["person"]["properties"]}
        for event in events
    }


def test_filters_of_an_export(house: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    for options, count in (
        (("--event", "bought"), 10),
        (("--after", "2024-03-01T00:30:00Z"), 170),
        (("--before", "2024-03-01 00:30"), 40),
        (("--project", "9"), 0),
    ):
        done = hoglab("export", "events", "--to", "x.csv", *options, "--data", house[0], folder=tmp_path)
        assert done.stdout == f"x.csv: {count} events\n", done.stderr
    assert not list(tmp_path.glob(".*.part*"))


def test_persons_are_exported_beside_a_running_server(new_place: Callable[[], Place], tmp_path: Path) -> None:
    place = new_place()
    lines = write_lines(tmp_path / "a.jsonl", rows(100))
    assert hoglab(*place.importing(lines), folder=tmp_path).returncode == 0
    place.stored(100)
    where = ("--data", place.server.data, "--project", place.project)
    done = hoglab("export", "persons", "--to", "persons.parquet", *where, folder=tmp_path)
    assert done.stdout == "persons.parquet: 50 persons\n", done.stderr
    [(ids, plan)] = duckdb.execute(
        "SELECT distinct_ids, properties::JSON->>'plan' FROM read_parquet($1) WHERE distinct_ids LIKE '%user-49%'",
        [str(tmp_path / "persons.parquet")],
    ).fetchall()
    assert (ids, plan) == ('["user-49"]', "plan-0")


def test_an_export_beside_a_running_server_is_that_of_the_stopped_one(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    place = Place(server, 1, server.project_token)
    given = write_lines(tmp_path / "given.jsonl", special_rows())
    assert hoglab(*place.importing(given), folder=tmp_path).returncode == 0
    place.stored(200)
    exports = {
        "all.parquet": (),
        "all.csv": (),
        "all.jsonl.gz": (),
        "some.jsonl": (
            "--event",
            "viewed",
            "--after",
            "2024-03-01T00:30:00Z",
            "--before",
            "2024-03-01T01:00Z",
        ),
        "none.csv": ("--project", "9"),
    }

    def export(folder: Path) -> dict[str, str]:
        folder.mkdir()
        printed = {}
        for name, options in exports.items():
            done = hoglab("export", "events", "--to", name, *options, "--data", server.data, folder=folder)
            assert (done.returncode, done.stderr) == (0, "")
            printed[name] = done.stdout
        return printed

    beside = export(tmp_path / "beside")
    assert beside["all.csv"] == "all.csv: 200 events\n"
    assert beside["some.jsonl"] == "some.jsonl: 30 events\n"
    server.stop()
    assert not (server.data / "hoglab.sock").exists()
    assert export(tmp_path / "stopped") == beside
    for name in exports:
        assert content(tmp_path / "beside" / name) == content(tmp_path / "stopped" / name)


def content(path: Path) -> Any:
    if path.suffix == ".parquet":
        found = duckdb.execute("SELECT * FROM read_parquet($1)", [str(path)])
        return [column[:2] for column in found.description], found.fetchall()
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_a_directory_that_is_held_by_something_else_is_not_exported(empty: Path, tmp_path: Path) -> None:
    with DataDirectory.open(empty):
        done = hoglab("export", "events", "--to", "x.parquet", "--data", empty, folder=tmp_path)
    assert done.returncode == 1
    assert f"in use by process {os.getpid()}: stop it first" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("export", "events", "--to", "x.xlsx", "--data", "{data}"), ".parquet"),
        (("export", "events", "--to", "missing/x.csv", "--data", "{data}"), "not a directory"),
        (("export", "events", "--to", "x.csv", "--after", "soon", "--data", "{data}"), "--after"),
        (("export", "persons", "--to", "x.csv", "--data", "nowhere"), "no hoglab data"),
        (("import", "events", "a.jsonl", "--data", "nowhere"), "no hoglab data"),
        (("import", "events", "a.jsonl", "--data", "{data}", "--project", "9"), "no project 9"),
        (("import", "events", "missing.jsonl", "--token", "phc_x"), "No such file"),
        (("import", "events", "a.jsonl", "--token", "phc_x", "--host", "ftp://x"), "not the address"),
        (("import", "events", "a.jsonl", "--token", "phc_x", "--host", "{url}"), "does not know the project token"),
        (("import", "events", "a.jsonl", "--token", "phc_x", "--host", "127.0.0.1:9"), "cannot be reached"),
        (("import", "events", "a.jsonl", "--token", "phx_x", "--host", "{url}"), "personal_api_key"),
    ],
)  # fmt: skip
def test_mistakes(
    shared_server: ChildServer, empty: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    write_lines(tmp_path / "a.jsonl", rows(2))
    filled = [each.format(data=empty, url=shared_server.url) for each in arguments]
    done = hoglab(*filled, folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert reason in line
    assert not os.path.lexists(tmp_path / "nowhere")
