"""Data of a server go from a directory to PostgreSQL, ClickHouse and Kafka and back, by commands that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.conftest import StartServer
from tests.e2e.test_clickhouse import KEY, TOKEN, an_event, check_results, exposure, launched
from tests.e2e.test_roles import serve, wait_for
from tests.embedded import EmbeddedEventLog
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

from hoglab.capture.partitioning import append_record
from hoglab.capture.records import derived_uuid, encode_record, new_header, read_header
from hoglab.storage.engines import EngineOptions, SharedEngines
from hoglab.storage.table_files import TableDirectory

ACCOUNT = {"HOGLAB_BOOTSTRAP_API_KEY": KEY, "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN}
LATE = datetime.now(UTC) - timedelta(days=40)


def migrate_to(target: str, data: Path, *more: str, kill_at: str | None = None, **environment: str) -> str:
    """What the command says in the end; ``kill_at``: it is killed when it has told of that."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("HOGLAB_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hoglab", "migrate-to", target, "--data", str(data), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**known, **environment},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if kill_at is not None and line.startswith(kill_at):
            process.kill()
    said = process.stdout.read()
    process.wait()
    expected = 0 if kill_at is None else -signal.SIGKILL
    assert process.returncode == expected, "".join(told)
    return said


def refused(target: str, data: Path, *more: str, **environment: str) -> str:
    with pytest.raises(AssertionError) as error:
        migrate_to(target, data, *more, **environment)
    return str(error.value)


def record_of(*who: str) -> tuple[bytes, list[str]]:
    """A record as capture writes it, of events without uuids, and the uuids that they will have."""
    batch = [{"event": "tail", "distinct_id": each, "properties": {"$set": {"tail": True}}} for each in who]
    header = new_header(
        project_id=1, received_at=datetime.now(UTC), is_gzip=False, is_engage=False, ip=None, sent_at_ms=None,
        max_event_bytes=1_000_000,
    )  # fmt: skip
    record = encode_record(header, orjson.dumps({"api_key": TOKEN, "batch": batch}))
    made, _ = read_header(record)
    return record, [str(derived_uuid(made, index)) for index in range(len(who))]


class Client:
    """The management API of a server, and what is in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.api = httpx.Client(
            base_url=f"{url}/api/projects/1", headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE_S
        )

    def send(self, batch: list[dict[str, Any]]) -> None:
        sent = {"api_key": TOKEN, "batch": batch}
        assert httpx.post(f"{self.url}/batch/", json=sent, timeout=PATIENCE_S).status_code == 200

    def events(self) -> dict[str, Any]:
        """Events by uuid, without the persons as they are by now."""
        found = self.api.get("/events/", params={"limit": 1000, "after": "2020-01-01"}).json()["results"]
        return {event["id"]: {**event, "person": None} for event in found}

    def person(self, who: str) -> Any:
        [found] = self.api.get("/persons/", params={"distinct_id": who}).json()["results"]
        return found

    def daily(self, experiment: int, *, anew: bool = False) -> dict[str, int]:
        """The sums of the daily results by variant; ``anew``: calculated now."""
        [metric] = self.api.get(f"/experiments/{experiment}/").json()["metrics"]
        if anew:
            body = {"metric": metric, "fingerprint": metric["fingerprint"]}
            assert self.api.post(f"/experiments/{experiment}/recalculate_timeseries/", json=body).is_success
        query = {"metric_uuid": metric["uuid"], "fingerprint": metric["fingerprint"]}
        path = f"/experiments/{experiment}/timeseries_results/"

        def completed() -> Any:
            found = self.api.get(path, params=query).json()
            return found["recalculation_status"] is None and found["status"] == "completed" and found

        [*_, last] = wait_for(completed, "the daily results")["timeseries"].values()
        return {each["key"]: each["sum"] for each in (last["baseline"], *last["variant_results"])}


def _is_erased(metadata: Path) -> bool:
    """Whether nobody waits to be erased any more."""
    with closing(sqlite3.connect(metadata)) as connection:
        rows = connection.execute("SELECT finished_at FROM person_erasure").fetchall()
    return bool(rows) and all(finished_at is not None for (finished_at,) in rows)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_there_and_back(
    start_server: StartServer, postgres_url: str, events_url: str, kafka: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    topic = f"kafka://{kafka}/{new_topic()}?partitions=3"
    cluster = {
        "HOGLAB_DATABASE_URL": postgres_url,
        "HOGLAB_EVENT_STORE_URL": events_url,
        "HOGLAB_EVENT_LOG_URL": topic,
    }
    server = start_server(data=data, **ACCOUNT)
    client = Client(server.url)
    experiment = launched(client.api)
    batch = [
        an_event("hello", f"user-{number}", number=number, text="a\0\N{SNOWMAN}") for number in range(40)
    ]
    batch += [exposure(f"user-{number}", "test" if number % 2 else "control") for number in range(40)]
    batch += [an_event("purchase", f"user-{number}", value=number) for number in range(0, 40, 4)]
    batch.append(an_event("$identify", "user-0", **{"$anon_distinct_id": "user-1", "$set": {"plan": "pro"}}))
    batch.append(an_event("late", "user-2") | {"timestamp": LATE.isoformat()})
    batch.append(an_event("grouped", "user-3", **{"$groups": {"company": "c-1"}}))
    batch.append(an_event("gone", "somebody"))
    client.send(batch)
    wait_for(lambda: len(client.events()) == len(batch), "the events")
    gone = client.api.delete(f"/persons/{client.person('somebody')['id']}/", params={"delete_events": "true"})
    assert gone.is_success, gone.text
    wait_for(lambda: _is_erased(data / "hoglab.db"), "the erasure")
    assert len(client.events()) == len(batch) - 1
    check_results(client.api, experiment)
    assert client.daily(experiment, anew=True) == {"control": 9, "test": 0}
    known = client.events()
    server.stop()

    tail, uuids = record_of("user-5", "user-6", "user-7", "new")
    with closing(EmbeddedEventLog(data / "queue.db")) as log:
        asyncio.run(log.append(tail, owner=1))
    named = ("--event-store", events_url, "--event-log", topic)
    estimated = migrate_to(postgres_url, data, "--dry-run", *named)
    lines = {line.split()[0]: line.split()[1] for line in estimated.splitlines()}
    assert lines["events"] == str(len(known))
    for place in ("project:", "events:", "events compared:"):
        migrate_to(postgres_url, data, *named, kill_at=place)
    there = migrate_to(postgres_url, data, *named)
    assert f"{len(known)} events, equal on both sides" in there
    assert "records that wait to be ingested" in there
    with_file = serve("--data", str(data), HOGLAB_DATABASE_URL=postgres_url)
    assert with_file.returncode == 1
    assert "different generations" in with_file.stderr

    server = start_server(data=data, **ACCOUNT, **cluster)
    client = Client(server.url)
    wait_for(lambda: len(client.events()) == len(known) + len(uuids), "what waited")
    assert client.events().keys() == known.keys() | set(uuids)
    assert {uuid: each for uuid, each in client.events().items() if uuid in known} == known
    assert client.person("user-5")["properties"]["tail"] is True
    assert sorted(client.person("user-1")["distinct_ids"]) == ["user-0", "user-1"]
    check_results(client.api, experiment)
    assert client.daily(experiment) == {"control": 9, "test": 0}
    resent = [each for each in batch if each["event"] != "gone"]
    client.send([*resent, an_event("purchase", "user-2")])
    wait_for(lambda: len(client.events()) == len(known) + len(uuids) + 1, "one more event")
    assert client.daily(experiment, anew=True) == {"control": 10, "test": 0}
    known = client.events()
    server.stop()

    tail, uuids = record_of("user-5", "user-8", "newer")
    options = EngineOptions(TableDirectory(data / "warehouse"), postgres_url, events_url, topic)
    with SharedEngines.on_server(options) as engines:
        assert engines.leased is not None
        asyncio.run(append_record(engines.leased.source, tail))
    assert "is in Kafka: name it with --event-log" in refused(
        "directory", data, **{**cluster, "HOGLAB_EVENT_LOG_URL": ""}
    )
    migrate_to("directory", data, kill_at="events:", **cluster)
    assert f"{len(known)} events, equal on both sides" in migrate_to("directory", data, **cluster)
    assert [each.name for each in data.rglob("*") if each.stat().st_mode & 0o077] == []
    moved = serve("--data", str(tmp_path / "another"), **cluster)
    assert "was moved to" in moved.stderr

    client = Client(start_server(data=data, **ACCOUNT).url)
    wait_for(lambda: len(client.events()) == len(known) + len(uuids), "what waited in Kafka")
    assert client.events().keys() == known.keys() | set(uuids)
    assert {uuid: each for uuid, each in client.events().items() if uuid in known} == known
    assert client.daily(experiment) == {"control": 10, "test": 0}
    client.send([*resent, an_event("purchase", "user-2"), an_event("purchase", "user-6")])
    wait_for(lambda: len(client.events()) == len(known) + len(uuids) + 1, "one more event")
    assert client.daily(experiment, anew=True) == {"control": 11, "test": 0}
