"""Events that share uuids, on every way in and out: those with another identity stay, of equal ones the last counts."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests import waiting
from tests.conftest import StartServer
from tests.storage.event_rows import event_row
from tests.transfer.test_commands import Place, hoglab, write_lines

from hoglab.backup.making import make_backup
from hoglab.backup.restoring import restore_backup
from hoglab.storage.event_store import EventBatch
from hoglab.storage.event_store.duckdb import DuckDbEventStore

pytestmark = pytest.mark.slow

MIDNIGHT = datetime(2024, 3, 2, tzinfo=UTC)
PEOPLE = ("ann", "bob", "cy")
Identity = tuple[str, str, str, str]
"""uuid, name, distinct id, day."""

wait_for = partial(waiting.wait_for, every_s=0.1)


def records(seed: int) -> list[dict[str, Any]]:
    """Events of few uuids, names, people and days, in the order in which they are sent; each says something new."""
    drawn = random.Random(seed)
    return [
        {
            "uuid": str(UUID(int=drawn.randrange(1, 5))),
            "event": drawn.choice(["buy", "buy", "view"]),
            "distinct_id": drawn.choice(PEOPLE),
            "timestamp": (MIDNIGHT + timedelta(hours=drawn.choice([-1, 0, 5]))).isoformat(),
            "properties": {"n": number},
        }
        for number in range(150)
    ]


def identity(event: dict[str, Any]) -> Identity:
    day = datetime.fromisoformat(event["timestamp"]).astimezone(UTC).date()
    return event["uuid"], event["event"], event["distinct_id"], day.isoformat()


def oracle(sent: list[dict[str, Any]]) -> dict[Identity, int]:
    """What is stored in the end: the number of the last record of each event."""
    return {identity(record): record["properties"]["n"] for record in sent}


def stored(place: Place) -> dict[Identity, int]:
    events = place.get("/events/", limit=1000)["results"]
    kept = {identity(event): event["properties"]["n"] for event in events}
    assert len(kept) == len(events)
    return kept


def put(place: Place, folder: Path, name: str, sent: list[dict[str, Any]]) -> None:
    done = hoglab(*place.importing(write_lines(folder / name, sent)), folder=folder)
    assert done.returncode == 0, done.stderr


def further_place(place: Place) -> Place:
    made = httpx.post(
        f"{place.server.url}/api/organizations/@current/projects/",
        json={"name": "Further"},
        headers={"Authorization": f"Bearer {place.server.api_key}"},
    ).json()
    return Place(place.server, made["id"], made["api_token"])


@pytest.fixture
def place(start_server: StartServer) -> Place:
    server = start_server()
    return Place(server, 1, server.project_token)


def test_every_way_keeps_what_shares_a_uuid(place: Place, tmp_path: Path) -> None:
    """Import, import of the rest, export and import elsewhere, backup and restore, and erasure of one person."""
    sent = records(1)
    expected = oracle(sent)
    assert len(expected) > 30
    assert len({uuid for uuid, _, _, _ in expected}) == 4
    put(place, tmp_path, "first.jsonl", sent[:90])
    wait_for(lambda: stored(place) == oracle(sent[:90]))
    put(place, tmp_path, "overlapping.jsonl", sent[60:])
    wait_for(lambda: stored(place) == expected)

    for kind in ("jsonl", "csv", "parquet"):
        target = tmp_path / f"out.{kind}"
        where = ("--project", place.project, "--data", place.server.data)
        done = hoglab("export", "events", "--to", target, *where, folder=tmp_path)
        assert done.stdout == f"{target}: {len(expected)} events\n", done.stderr
        other = further_place(place)
        for time in ("once", "again"):  # without the journal of the first time everything is sent again
            journal = tmp_path / f"{kind}-{time}"
            done = hoglab(*other.importing(target), "--journal", journal, folder=tmp_path)
            assert done.returncode == 0, done.stderr
        wait_for(lambda other=other: stored(other) == expected)

    [ann] = place.get("/persons/", distinct_id="ann")["results"]
    httpx.request(
        "DELETE",
        f"{place.server.url}/api/projects/{place.project}/persons/{ann['id']}/",
        params={"delete_events": "true"},
        headers={"Authorization": f"Bearer {place.server.api_key}"},
    ).raise_for_status()
    left = {key: number for key, number in expected.items() if key[2] != "ann"}
    wait_for(lambda: stored(place) == left)
    put(place, tmp_path, "again.jsonl", sent)  # ann comes back, and nobody else twice
    wait_for(lambda: stored(place) == expected)

    place.server.stop()
    make_backup(place.server.data, tmp_path / "backups")
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    store = DuckDbEventStore(tmp_path / "restored" / "events.duckdb")
    try:
        offset = store.position() + 1
        again = [
            event_row(
                offset,
                uuid=UUID(uuid),
                event=name,
                distinct_id=person,
                timestamp=datetime.fromisoformat(day).replace(tzinfo=UTC),
                properties=b'{"n":-1}',
            )
            for uuid, name, person, day in expected
        ]
        assert store.append(EventBatch(again), log_offset=offset) == []  # each is known, and corrected
        with store.reader() as reader:
            sql = "SELECT count(*), count(*) FILTER (properties->>'n' = '-1') FROM stored_events WHERE project_id = 1"
            assert reader.execute(sql) == [(len(expected), len(expected))]
    finally:
        store.close()
