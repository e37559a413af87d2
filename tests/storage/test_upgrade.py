"""A directory of an old version, opened by this one: everything is there, and the copies made before are whole.

``upgrades`` has directories as old versions left them when they were killed, and beside each what that version
answered. ``revision_0012`` is named by the revision of its tables, ``events_3`` by the version of the layout of its
events, known by their uuids alone: some are sealed, and of some the persons were written and the event not yet.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.http.asgi import Answer, ask
from tests.waiting import wait_for

from hoglab.app import Hoglab
from hoglab.functions.secrets.box import SecretBox
from hoglab.settings import Settings
from hoglab.storage.directory import DataDirectory

UPGRADES = Path(__file__).parent / "upgrades"
VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in UPGRADES.glob("*.tar.xz"))


@dataclass
class Upgraded:
    hoglab: Hoglab
    runner: asyncio.Runner
    data: Path
    before: dict[str, Any]
    """What the old version answered."""

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
        headers = [(b"content-type", b"application/json")]
        if key is not None:
            headers.append((b"authorization", f"Bearer {key}".encode()))
        parts = [] if body is None else [orjson.dumps(body)]
        path, _, query = path.partition("?")
        return self.runner.run(ask(self.hoglab.http, method, path, headers, query=query.encode(), body=parts))

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(method, f"/api/projects/1/{path}", body, self.before["key"])
        assert answer.status == 200, (path, answer.body)
        return orjson.loads(answer.body)


@pytest.fixture(scope="module", params=VERSIONS)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    folder = tmp_path_factory.mktemp("upgraded")
    with tarfile.open(UPGRADES / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    before = json.loads((UPGRADES / f"{request.param}.json").read_text())
    hoglab = Hoglab.open(Settings(data=folder / "data", access_log=False))
    hoglab.start()
    try:
        wait_for(lambda: hoglab.engines.store.position() >= hoglab.engines.log.last_offset())
        with asyncio.Runner() as runner:
            yield Upgraded(hoglab, runner, folder / "data", before)
    finally:
        hoglab.stop()


def test_there_are_old_directories() -> None:
    assert VERSIONS == ["events_3", "revision_0012"]


def test_every_acknowledged_event_is_there_once(upgraded: Upgraded) -> None:
    with upgraded.hoglab.engines.store.reader() as reader:
        [(rows, different)] = reader.execute("SELECT count(*), count(DISTINCT uuid) FROM stored_events")
    assert rows == different == upgraded.before["events"]


def test_flags_have_the_values_that_they_had(upgraded: Upgraded) -> None:
    for who, expected in upgraded.before["flags"].items():
        answer = upgraded.ask("POST", "/flags/?v=2", {"token": upgraded.before["token"], "distinct_id": who})
        assert answer.status == 200, answer.body
        flags = orjson.loads(answer.body)["flags"]
        assert {"button": flags["button"]["variant"], "plain": flags["plain"]["enabled"]} == expected


def test_results_are_those_that_were(upgraded: Upgraded) -> None:
    experiment = upgraded.before["experiment"]
    for metric, expected in zip(
        upgraded.ok("GET", f"experiments/{experiment}/")["metrics"], upgraded.before["results"], strict=True
    ):
        query = {"kind": "ExperimentQuery", "experiment_id": experiment, "metric": metric}
        found = upgraded.ok("POST", "query/", {"query": query, "refresh": "force_blocking"})
        for name in ("number_of_samples", "sum", "sum_squares"):
            assert found["baseline"][name] == pytest.approx(expected["baseline"][name], rel=1e-12)
            assert [each[name] for each in found["variant_results"]] == pytest.approx(
                [each[name] for each in expected["variant_results"]], rel=1e-12
            )


def test_functions_and_their_secrets_are_there(upgraded: Upgraded) -> None:
    function = upgraded.ok("GET", f"hog_functions/{upgraded.before['function']}/")
    assert function["inputs"]["token"] == {"secret": True}
    with upgraded.hoglab.engines.database.read() as connection:
        (sealed,) = connection.exec_driver_sql("SELECT encrypted_inputs FROM hog_function").one()
    with DataDirectory.open(upgraded.data, exclusive=False) as directory:
        assert "hidden-token" in repr(SecretBox.open(directory).unseal(sealed))


def test_the_copies_made_before_are_of_the_old_version_and_whole(upgraded: Upgraded, tmp_path: Path) -> None:
    copies = sorted(upgraded.data.glob("*.before-*"))
    assert {copy.name.partition(".before-")[0] for copy in copies} == set(upgraded.before["copies"])
    for copy in copies:
        shutil.copy(copy, tmp_path)
        with closing(sqlite3.connect(tmp_path / copy.name)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (
                copy.name.partition(".before-")[2],
            )


def test_events_of_the_old_version_are_known_by_their_identity(upgraded: Upgraded) -> None:
    """Last, for it changes what is stored: the same again, a correction, and another event with the uuid."""

    def send(*batch: dict[str, Any]) -> None:
        body = {"api_key": upgraded.before["token"], "batch": batch}
        assert upgraded.ask("POST", "/batch/", body).status == 200
        engines = upgraded.hoglab.engines
        wait_for(lambda: engines.store.position() >= engines.log.last_offset())

    def stored(*columns: str) -> list[tuple[Any, ...]]:
        with upgraded.hoglab.engines.store.reader() as reader:
            return reader.execute(f"SELECT {', '.join(columns)} FROM stored_events ORDER BY seq")  # noqa: S608

    before = stored("*")
    known = stored("uuid", "event", "distinct_id", "timestamp", "whole_properties")
    events = [
        {
            "uuid": str(uuid),
            "event": name,
            "distinct_id": distinct_id,
            "timestamp": f"{timestamp}+00:00",
            "properties": orjson.loads(properties),
        }
        for uuid, name, distinct_id, timestamp, properties in (known[3], known[-7], known[-1])
    ]
    send(*events)
    assert stored("*") == before
    for number, event in enumerate(events):
        send({**event, "properties": {"corrected": number}})
        send({**event, "event": f"other {number}"})
    rows = stored("uuid", "event", "properties")
    assert len(rows) == len(before) + len(events)
    for number, event in enumerate(events):
        properties_by_name = {name: text for uuid, name, text in rows if str(uuid) == event["uuid"]}
        assert properties_by_name.keys() == {event["event"], f"other {number}"}
        assert orjson.loads(properties_by_name[event["event"]])["corrected"] == number
