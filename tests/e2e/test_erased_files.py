"""Somebody who is deleted with their events is in no file any more, wherever they left something."""

# ruff: noqa: S608 - numbers of our own

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.conftest import StartServer
from tests.e2e.file_search import packed_cells, places
from tests.e2e.test_erasure import wait_for
from tests.embedded import EmbeddedEventStore
from tests.waiting import PATIENCE_S

from hoglab.capture.records import encode_record, new_header
from hoglab.ingestion import Quarantine
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_log.quarantine import QuarantineStore

KEY = "phx_" + "e" * 43
TOKEN = "phc_" + "e" * 43
MARK = "zq7Xerasemek93"
SOMEBODY, ALIAS = f"somebody-of-the-middle-{MARK}", f"alias-of-the-middle-{MARK}"
OTHER = f"other-of-the-middle-{MARK}"  # deleted in bulk
KEPT = "user-of-the-middle"
OTHERS = 130_000  # enough that results keep what they read

# No name that can be resolved: the runs wait for hours.
SENDS = "fetch('http://nowhere.invalid/', {'body': {'secret': event.properties.secret}})"
FUNCTIONS: dict[str, dict[str, Any]] = {
    "prints": {"hog": "print('seen', event.properties.secret, person.properties.email)"},
    "fails": {"hog": "throw Error(concat('wrong: ', event.properties.secret))"},
    "waits": {"hog": SENDS},
    "gathers": {
        "hog": "print(events); fetch('http://nowhere.invalid/', {'body': events})",
        "x_delivery": {"batch": {"max_events": 3, "max_wait_ms": 500}},
    },
    "gathered": {
        "hog": "for (let one in events) { print(one.event.properties.secret) }",
        "x_delivery": {"batch": {"max_events": 3, "max_wait_ms": 500}},
    },
    "cannot": {"hog": "return 1", "x_delivery": {"order_key": "{jsonParse(event.properties.secret)}"}},
    "changes": {"hog": "print('changed', event.properties.secret); return event", "type": "transformation"},
}
PLACES = {
    "events.duckdb:events.properties",
    "events.duckdb:events.distinct_id",
    "events.duckdb:sealed_events.properties",
    "events.duckdb:sealed_events.person_properties",
    "events.duckdb:sealed_events.distinct_id",
    "hoglab.db:person.properties",
    "hoglab.db:person_distinct_id.distinct_id",
    "hoglab.db:person_search",
    "hoglab.db:ingestion_warning.details",
    "queue.db:event_log_record.payload",
    "queue.db:quarantined_record.payload",
    "queue.db:invocation.state",
    "queue.db:invocation_result.distinct_id",
    "queue.db:invocation_result.error_message",
    "queue.db:invocation_result.invocation_globals",
    "queue.db:log_entry.message",
    "queue.db:dead_event.payload",
    "queue.db",
    "queue.db (compressed)",
    "hoglab.db",
}
DONE = """
SELECT (SELECT count(*) FROM invocation_result WHERE status = 'succeeded'),
    (SELECT count(*) FROM invocation_result WHERE status = 'failed'),
    (SELECT count(*) FROM invocation WHERE status = 'available' AND finished_at IS NULL)
"""
WAITING = "SELECT state FROM invocation WHERE finished_at IS NULL"
SEARCHABLE = "SELECT done = (SELECT max(id) FROM person) FROM person_search_progress"
ERASED = "SELECT count(*) FROM person_erasure WHERE finished_at IS NOT NULL"
METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "visit", "math": "sum", "math_property": "number"},
}


def asked(data: Path, file: str, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{data / file}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def visit(distinct_id: str, number: int, secret: str) -> dict[str, Any]:
    properties = {"number": number, "$current_url": f"https://shop.example/{number}", "secret": secret}
    return {"event": "visit", "distinct_id": distinct_id, "properties": properties}


def visits() -> list[dict[str, Any]]:
    """By whom is deleted, alone and in a batch with somebody who stays."""
    exposed = {"$feature_flag": "erased", "$feature_flag_response": "test"}
    return [
        {
            "event": "$identify",
            "distinct_id": SOMEBODY,
            "properties": {"$anon_distinct_id": ALIAS, "$set": {"email": f"{MARK}@a.example"}},
        },
        {"event": "$identify", "distinct_id": SOMEBODY, "properties": {"$anon_distinct_id": "null"}},
        *(
            {"event": "$feature_flag_called", "distinct_id": each, "properties": exposed}
            for each in (SOMEBODY, KEPT)
        ),
        *(visit(who, number, MARK) for number in range(5) for who in (SOMEBODY, ALIAS, OTHER)),
        *(visit(KEPT, number, f"of {KEPT}") for number in range(7)),
    ]


class Client(httpx.Client):
    """Of the first project."""

    def ok(self, method: str, path: str, **options: Any) -> Any:
        answer = self.request(method, f"/api/projects/1/{path}", **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def capture(self, events: list[dict[str, Any]]) -> None:
        body = gzip.compress(orjson.dumps({"api_key": TOKEN, "batch": events}))
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        self.post("/batch/", content=body, headers=headers).raise_for_status()


def quarantined(data: Path) -> None:
    """Put a record into quarantine, as ingestion does with one that cannot be processed."""
    header = new_header(
        project_id=1, received_at=datetime.now(UTC), is_gzip=False, is_engage=False, ip=None, sent_at_ms=None,
        max_event_bytes=1_000_000,
    )  # fmt: skip
    payload = encode_record(header, f'{{"batch":[{{"event":"{MARK}"}}]}}'.encode())
    database = Database.open(data / "queue.db", queue_metadata)
    Quarantine(QuarantineStore(database)).put(SequenceNumber(1_000_000), payload, "wrong")
    database.dispose()


def fill(data: Path) -> None:
    """Many events of others, so that those before are sealed and results keep what they read."""
    store = EmbeddedEventStore(data / "events.duckdb")
    with store.reader() as reader:
        [(seq, offset)] = reader.execute("SELECT next_seq, position FROM store_state")
        reader.execute(
            f"""INSERT INTO events BY NAME SELECT {seq} + i AS seq, 1 AS project_id, uuid() AS uuid,
            ['a', 'visit', 'z'][i % 3 + 1] AS event, 'user-' || i % 500 AS distinct_id,
            TIMESTAMP '{datetime.now(UTC):%Y-%m-%d %H:%M:%S}' AS timestamp, timestamp AS captured_at,
            md5('p' || i % 500)::UUID AS person_id, 'full' AS person_mode, {offset} AS log_offset,
            '' AS elements_chain, '{{"number":1}}' AS properties, '{{}}' AS person_properties
            FROM range({OTHERS}) AS numbers(i)""",
            timeout_s=60,
        )
        reader.execute(f"UPDATE store_state SET next_seq = {seq + OTHERS}")
    while store.seal(is_idle=True):
        store.checkpoint()
    store.close()


@pytest.mark.files
def test_a_person_deleted_with_events_is_in_no_file(start_server: StartServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"HOGLAB_BOOTSTRAP_API_KEY": KEY, "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN}

    @contextlib.contextmanager
    def serving() -> Iterator[Client]:
        server = start_server(**settings)
        headers = {"Authorization": f"Bearer {KEY}"}
        with Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
            yield client
        server.stop()

    def sent(client: Client) -> None:
        """Send what is to be erased, and wait until functions have done with it what they do."""
        [before] = asked(data, "queue.db", DONE)
        client.capture(visits())
        wait_for(
            lambda: (
                [now >= was + 15 for now, was in zip(asked(data, "queue.db", DONE)[0], before, strict=True)]
                == [True] * 3
            )
        )

    with serving() as client:
        filters = {"events": [{"id": "visit", "type": "events"}]}
        for name, function in FUNCTIONS.items():
            body = {"name": name, "enabled": True, "type": "destination", "filters": filters, **function}
            client.ok("POST", "hog_functions/", json=body)
        body = {
            "name": "E", "feature_flag_key": "erased", "start_date": "2026-01-01T00:00:00Z", "metrics": [METRIC],
            "exposure_criteria": {"filterTestAccounts": False},
        }  # fmt: skip
        experiment = client.ok("POST", "experiments/", json=body)
        sent(client)
    fill(data)
    quarantined(data)
    with serving() as client:
        sent(client)
        path = f"experiments/{experiment['id']}/recalculate_timeseries/"
        [metric] = experiment["metrics"]
        client.ok("POST", path, json={"metric": metric, "fingerprint": metric["fingerprint"]})
        wait_for(lambda: asked(data, "hoglab.db", "SELECT 1 FROM metric_result WHERE status = 'completed'"))
        wait_for(lambda: asked(data, "hoglab.db", SEARCHABLE) == [(1,)])
        [person] = client.ok("GET", "persons/", params={"distinct_id": SOMEBODY})["results"]
    found = places(data, [MARK])
    assert not PLACES - found
    assert "aggregate-cache.duckdb" in {place.partition(":")[0] for place in places(data, [person["id"]])}
    packed = packed_cells(data, [MARK])
    assert packed
    with serving() as client:
        client.ok("POST", "ingestion_quarantine/discard/", json={"all": True})
        client.ok("DELETE", f"persons/{person['id']}/", params={"delete_events": "true"})
        client.ok("POST", "persons/bulk_delete/", json={"distinct_ids": [OTHER], "delete_events": True})
        wait_for(lambda: asked(data, "hoglab.db", ERASED) == [(2,)])
        shown = client.ok("GET", "events/", params={"event": "visit", "distinct_id": KEPT})["results"]
        assert len(shown) == 14
    assert places(data, [MARK]) == set()
    contents = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    assert not [part for part in packed if any(part in content for content in contents)]
    known = {place for place in places(data, [person["id"]]) if ":" in place}
    assert known == {
        "hoglab.db:activity_log.item_id",
        "hoglab.db:activity_log.detail",
        "hoglab.db:person_erasure.person_id",
    }
    # Whoever stood in one run with somebody who is gone still waits in it.
    waiting = [state for (state,) in asked(data, "queue.db", WAITING) if state]
    batches = [state for state in waiting if json.loads(state).get("items")]
    assert sum(state.count(f"of {KEPT}".encode()) > 0 for state in batches) >= 2
