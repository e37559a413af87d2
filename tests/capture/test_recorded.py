"""Bodies as SDKs sent them, replayed byte for byte into a store (spec: sdk-wire 1.17, 6.14)."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.embedded import EmbeddedEventStore
from tests.waiting import PATIENCE_S

from hoglab.accounts.service import AccountService
from hoglab.ingestion import LogIngestion, Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log.quarantine import QuarantineStore

pytestmark = pytest.mark.anyio

TOKEN = "phc_first_project"
PYTHON_LIB = {"$lib": "posthog-python", "$lib_version": "7.91.1", "$geoip_disable": True, "$is_server": True}
AT = "2026-11-21T01:03:39.948129+00:00"
PYTHON = {
    "batch": [
        {
            "event": "ev1",
            "distinct_id": "u1",
            "uuid": "7f12aa00-0000-4000-8000-000000000001",
            "timestamp": AT,
            "properties": {
                "k": 1,
                "$set": {"email": "a@b.c"},
                "$os": "Linux",
                "$os_version": "12",
                **PYTHON_LIB,
            },
        },
        {
            "event": "$set",
            "distinct_id": "u1",
            "$set": {"plan": "pro"},
            "properties": PYTHON_LIB,
            "timestamp": AT,
            "uuid": "7f12aa00-0000-4000-8000-000000000002",
        },
        {
            "event": "$set_once",
            "distinct_id": "u1",
            "$set_once": {"first": "x"},
            "properties": {},
            "timestamp": AT,
            "uuid": "7f12aa00-0000-4000-8000-000000000003",
        },
        {
            "event": "$groupidentify",
            "distinct_id": "7f12aa00-0000-4000-8000-00000000000f",
            "properties": {"$group_type": "company", "$group_key": "acme", "$group_set": {"name": "Acme"}},
            "timestamp": AT,
            "uuid": "7f12aa00-0000-4000-8000-000000000004",
        },
        {
            "event": "$create_alias",
            "distinct_id": "anon1",
            "properties": {"distinct_id": "anon1", "alias": "u1"},
            "timestamp": AT,
            "uuid": "7f12aa00-0000-4000-8000-000000000005",
        },
        {
            "event": "ev2",
            "distinct_id": "u1",
            "properties": {"$groups": {"company": "acme"}},
            "timestamp": AT,
            "uuid": "7f12aa00-0000-4000-8000-000000000006",
        },
    ],
    "historical_migration": False,
    "sent_at": "2026-11-21T01:03:40.171843+00:00",
    "api_key": TOKEN,
}
NODE = {
    "api_key": TOKEN,
    "batch": [
        {
            "event": "$identify",
            "properties": {
                "$set": {"plan": "pro"},
                "$set_once": {"first": "x"},
                "$lib": "posthog-node",
                "$lib_version": "5.70.0",
                "$is_server": True,
                "$geoip_disable": True,
            },
            "timestamp": "2026-11-21T01:05:01.967Z",
            "uuid": "01a1fba2-a20f-724b-ae47-4e40b2fe5c02",
            "distinct_id": "u1",
        }
    ],
    "sent_at": "2026-11-21T01:05:02.092Z",
}
DEVICE = "01a1fba3-0000-7000-8000-000000000001"
BROWSER = {
    "api_key": TOKEN,
    "batch": [
        {
            "uuid": "01a1fba3-0000-7000-8000-000000000002",
            "event": "$identify",
            "$set": {"plan": "pro"},
            "$set_once": {"$initial_referrer": "$direct"},
            "timestamp": "2026-11-21T01:06:00.298Z",
            "properties": {
                "$os": "Linux",
                "$browser": "Chrome",
                "$device_type": "Desktop",
                "$current_url": "http://shop.example/",
                "$pathname": "/",
                "$browser_version": 156,
                "$lib": "web",
                "$lib_version": "1.449.2",
                "$insert_id": "pm6ziu8c5ki9zsnn",
                "$time": 1795223160.299,
                "distinct_id": "user-1",
                "$device_id": DEVICE,
                "$user_id": "user-1",
                "$anon_distinct_id": DEVICE,
                "$feature/simple": True,
                "token": TOKEN,
                "$session_id": "01A1FBA3-0000-7000-8000-0000000000AA",
                "$is_identified": True,
                "$process_person_profile": True,
            },
        }
    ],
    "sent_at": "2026-11-21T01:06:00.299Z",
}


class Replay:
    """Sends bodies and ingests them."""

    def __init__(self, server: Any, folder: Path, database: Database) -> None:
        self.client = server.client
        self.people = PersonService(database)
        self.store = EmbeddedEventStore(folder / "events.duckdb")
        self._queue = Database.open(folder / "queue.db", queue_metadata)
        self._log = server.log
        projects = AccountService(database).project
        quarantine = Quarantine(QuarantineStore(self._queue))
        self._loop = LogIngestion.alone(server.log, BatchSteps(self.store, self.people, projects, quarantine))
        self._loop.start()

    async def send(self, path: str, body: bytes, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.client.post(path, content=body, headers=named)
        assert (answer.status_code, answer.json()) == (200, {"status": "Ok"})

    def rows(self, columns: str) -> list[Any]:
        deadline = time.monotonic() + PATIENCE_S
        while self._loop.position < self._log.last_offset():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with self.store.reader() as reader:
            return reader.execute(f"SELECT {columns} FROM resolved_events ORDER BY seq")  # noqa: S608

    def close(self) -> None:
        assert self._loop.stop(10)
        self.store.close()
        self._queue.dispose()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def replay(server: Any, folder: Path, database: Database) -> Iterator[Replay]:
    made = Replay(server, folder, database)
    yield made
    made.close()


@pytest.mark.parametrize("compressed", [False, True])
async def test_posthog_python(replay: Replay, compressed: bool) -> None:
    body = json.dumps(PYTHON).encode()
    headers = {"Content_Type": "application/json", "User_Agent": "posthog-python/7.91.1"}
    if compressed:
        await replay.send("/batch/", gzip.compress(body), Content_Encoding="gzip", **headers)
    else:
        await replay.send("/batch/", body, **headers)
    rows = replay.rows("event, distinct_id, uuid::VARCHAR, group_0, person_id")
    assert [row[:3] for row in rows] == [
        (each["event"], each["distinct_id"], each["uuid"])
        for each in PYTHON["batch"]  # type: ignore[index]
    ]
    assert [row[3] for row in rows] == [None] * 5 + ["acme"]
    # The alias goes from u1 into anon1, who is nobody yet: one person with both ids.
    person = replay.people.person_for(1, "anon1")
    assert person is not None
    assert {row[4] for row in rows if row[1] in ("u1", "anon1")} == {person.uuid}
    assert person.properties == {
        "email": "a@b.c",
        "plan": "pro",
        "first": "x",
    }  # the host's $os is not theirs
    assert replay.people.group_properties(1, 0, "acme") == {"name": "Acme"}


async def test_posthog_node(replay: Replay) -> None:
    body = gzip.compress(json.dumps(NODE).encode())
    await replay.send("/batch/", body, Content_Encoding="gzip", Content_Type="application/json")
    assert replay.rows("event, distinct_id") == [("$identify", "u1")]
    person = replay.people.person_for(1, "u1")
    assert person is not None
    assert person.properties == {"plan": "pro", "first": "x"}
    assert not person.is_identified  # nobody was merged


def as_form(body: bytes) -> bytes:
    return b"data=" + quote(base64.b64encode(body)).encode()


@pytest.mark.parametrize("path", ["/e/", "/i/v0/e/"])
@pytest.mark.parametrize(
    ("query", "wrap", "content_type"),
    [
        ("", gzip.compress, "text/plain"),
        ("", bytes, "application/json"),
        ("?compression=base64", as_form, "application/x-www-form-urlencoded"),
        ("?compression=gzip-js&ver=1.2&_=1795223160299", gzip.compress, "text/plain"),
    ],
)
async def test_posthog_js(
    replay: Replay, path: str, query: str, wrap: Callable[[bytes], bytes], content_type: str
) -> None:
    await replay.send(path + query, wrap(json.dumps(BROWSER).encode()), Content_Type=content_type)
    [(event, distinct_id, session_id)] = replay.rows("event, distinct_id, session_id")
    assert (event, distinct_id) == ("$identify", "user-1")
    assert session_id == "01a1fba3-0000-7000-8000-0000000000aa"
    person = replay.people.person_for(1, DEVICE)
    assert person is not None
    assert person.is_identified
    assert person.properties["plan"] == "pro"
    assert person.properties["$initial_referrer"] == "$direct"
    assert person.properties["$browser"] == person.properties["$initial_browser"] == "Chrome"
    assert replay.people.person_for(1, "user-1") == person
