"""Somebody who is deleted is nowhere any more: not in answers, and not in the bytes of any file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import waiting
from tests.conftest import StartServer

KEY = "phx_" + "e" * 43
TOKEN = "phc_" + "e" * 43
MARK = "zq7Xerasemek93"
MAX_WAIT_S = 90.0

PRINTS = """
print('seen', event.properties.secret, person.properties.email)
let again := fetch('http://127.0.0.1:9/', {})
"""


@pytest.fixture
def client(start_server: StartServer) -> Iterator[httpx.Client]:
    server = start_server(HOGLAB_BOOTSTRAP_API_KEY=KEY, HOGLAB_BOOTSTRAP_PROJECT_TOKEN=TOKEN)
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield client


wait_for = partial(waiting.wait_for, timeout_s=MAX_WAIT_S, every_s=0.1)


def send(client: httpx.Client, events: list[dict[str, Any]]) -> None:
    client.post("/batch/", json={"api_key": TOKEN, "batch": events}).raise_for_status()


def visit(distinct_id: str, number: int, **properties: Any) -> dict[str, Any]:
    return {
        "event": "visit",
        "distinct_id": distinct_id,
        "properties": {"number": number, "$current_url": f"https://shop.example/{number}", **properties},
    }


def listed(client: httpx.Client, **query: str) -> list[dict[str, Any]]:
    answer = client.get("/api/projects/1/events/", params={"limit": "1000", **query})
    answer.raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def holders(data: Path) -> list[str]:
    return sorted(
        path.name for path in data.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()
    )


@pytest.mark.files
def test_a_deleted_person_is_in_no_byte_of_any_file(client: httpx.Client, tmp_path: Path) -> None:
    data = tmp_path / "data"
    function = {
        "type": "destination",
        "name": "Printer",
        "hog": PRINTS,
        "enabled": True,
        "filters": {"events": [{"id": "visit", "type": "events"}]},
    }
    client.post("/api/projects/1/hog_functions/", json=function).raise_for_status()
    somebody = f"somebody-of-the-middle-{MARK}"
    anonymous = f"anonymous-of-the-middle-{MARK}"
    send(client, [visit(f"other-{number % 7}", number, secret="shown") for number in range(200)])
    send(client, [visit(anonymous, number, secret=MARK) for number in range(3)])
    send(
        client,
        [
            {
                "event": "$identify",
                "distinct_id": somebody,
                "properties": {"$anon_distinct_id": anonymous, "$set": {"email": f"{MARK}@a.example"}},
            },
            *[visit(somebody, number, secret=MARK, nested={"deep": [MARK]}) for number in range(20)],
        ],
    )
    wait_for(lambda: len(listed(client, distinct_id=somebody)) == 21)
    [person] = client.get("/api/projects/1/persons/", params={"distinct_id": somebody}).json()["results"]
    wait_for(lambda: "queue.db-wal" in holders(data) or "queue.db" in holders(data))
    assert holders(data)

    answer = client.delete(f"/api/projects/1/persons/{person['id']}/", params={"delete_events": "true"})
    assert (answer.status_code, answer.content) == (202, b"")
    assert client.get(f"/api/projects/1/persons/{person['id']}/").status_code == 404

    wait_for(lambda: not holders(data))
    assert listed(client, distinct_id=somebody) == []
    assert listed(client, distinct_id=anonymous) == []
    assert len(listed(client)) == 200
    entries = client.get("/api/projects/1/activity_log/", params={"scope": "Person"}).json()["results"]
    assert [(each["activity"], each["item_id"]) for each in entries] == [("deleted", person["id"])]
    # Whoever comes back is somebody new.
    send(client, [visit(somebody, 1)])
    wait_for(lambda: len(listed(client, distinct_id=somebody)) == 1)
    [again] = client.get("/api/projects/1/persons/", params={"distinct_id": somebody}).json()["results"]
    assert "email" not in again["properties"]


def test_several_persons_are_deleted_with_or_without_their_events(client: httpx.Client) -> None:
    send(client, [visit(f"user-{number}", number) for number in range(6)])
    wait_for(lambda: len(listed(client)) == 6)
    persons = {
        each["distinct_ids"][0]: each["id"]
        for each in client.get("/api/projects/1/persons/").json()["results"]
    }
    path = "/api/projects/1/persons/bulk_delete/"

    nobody = client.post(path, json={})
    assert nobody.status_code == 400
    assert nobody.json()["detail"] == "You need to specify either distinct_ids or ids"
    assert client.post(path, json={"ids": ["x"]}).status_code == 400
    assert client.post(path, json={"distinct_ids": ["a"] * 1_001}).status_code == 400

    without = client.post(path, json={"ids": [persons["user-0"], persons["user-0"]]})
    assert without.status_code == 202
    assert without.json() == {
        "persons_found": 1,
        "persons_deleted": 1,
        "events_queued_for_deletion": False,
        "recordings_queued_for_deletion": False,
        "deletion_errors": [],
    }
    both = {"ids": [persons["user-1"]], "distinct_ids": ["user-1", "user-2", "nobody"], "delete_events": True}
    answer = client.post(path, json=both).json()
    assert (answer["persons_found"], answer["persons_deleted"]) == (2, 2)
    assert answer["events_queued_for_deletion"] is True
    wait_for(lambda: len(listed(client)) == 4)
    assert {each["distinct_id"] for each in listed(client)} == {"user-0", "user-3", "user-4", "user-5"}
    assert {each["distinct_ids"][0] for each in client.get("/api/projects/1/persons/").json()["results"]} == {
        "user-3", "user-4", "user-5",
    }  # fmt: skip


def test_a_project_says_how_long_it_keeps_events(client: httpx.Client) -> None:
    path = "/api/projects/1/"
    assert client.get(path).json()["event_retention_days"] is None
    changed = client.patch(path, json={"event_retention_days": 30})
    assert (changed.status_code, changed.json()["event_retention_days"]) == (200, 30)
    for wrong in (0, -1, 40_000, "soon", 1.5):
        refused = client.patch(path, json={"event_retention_days": wrong})
        assert (refused.status_code, refused.json()["attr"]) == (400, "event_retention_days")
    assert client.patch(path, json={"name": "Other"}).json()["event_retention_days"] == 30
    assert client.patch(path, json={"event_retention_days": None}).json()["event_retention_days"] is None
