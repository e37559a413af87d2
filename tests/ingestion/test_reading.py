"""Reading back what was captured: events, persons, groups (design.md 5; spec: experiments-api 1.7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest
import sqlalchemy as sa
from tests.apps import app_of

from hoglab.delivery.runs.state import without_persons
from hoglab.http.app import HoglabApp
from hoglab.http.fields.dates import utc_now
from hoglab.ingestion.routes import events_router
from hoglab.people import derived_person_id
from hoglab.people.cohorts import person_test
from hoglab.people.erasing import ErasedFrom, PersonErasing
from hoglab.people.routes import groups_router, persons_router
from hoglab.storage.database.tables import person, person_distinct_id
from hoglab.storage.event_store import ErasableStore
from hoglab.storage.invocations.sql.erasing import RunErasing
from hoglab.storage.job_leases import JobLeases

KEY = {"Authorization": "Bearer phx_" + "k" * 43}


class ApiClient:
    """Asks the application without a network."""

    def __init__(self, app: HoglabApp) -> None:
        self._transport = httpx.ASGITransport(app=app)

    def get(self, path: str, headers: dict[str, str] = KEY) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://hoglab.test") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def client(house: Any) -> Iterator[ApiClient]:
    """An API over some events of three users."""
    house.send(
        {
            "event": "$pageview",
            "distinct_id": "anon",
            "uuid": str(UUID(int=1)),
            "timestamp": "2026-11-21T10:00:00Z",
        },
        {
            "event": "$identify",
            "distinct_id": "ann",
            "uuid": str(UUID(int=2)),
            "timestamp": "2026-11-21T10:00:01Z",
            "properties": {"$anon_distinct_id": "anon", "$set": {"email": "Ann_1@example.com"}},
        },
        {
            "event": "buy",
            "distinct_id": "ann",
            "uuid": str(UUID(int=3)),
            "timestamp": "2026-11-21T10:00:01Z",
            "properties": {"price": 2.5, "$elements_chain": 'a:text="Buy"'},
        },
        {
            "event": "$groupidentify",
            "distinct_id": "bob",
            "uuid": str(UUID(int=4)),
            "timestamp": "2026-11-21T11:00:00.25Z",
            "properties": {
                "$group_type": "company",
                "$group_key": "acme",
                "$group_set": {"name": "Acme Inc"},
            },
        },
        {
            "event": "look",
            "distinct_id": "nobody",
            "uuid": str(UUID(int=5)),
            "timestamp": "2026-11-21T11:30:00Z",
            "properties": {"$process_person_profile": False},
        },
    )
    house.send({"event": "elsewhere", "distinct_id": "ann"}, project_id=2)
    house.run()
    erasing = PersonErasing(
        house.database,
        JobLeases(house.database),
        house.log,
        lambda: house.ingestion.position,
        ErasedFrom(
            RunErasing(house.queue),
            without_persons,
            ErasableStore(house.store, [house.store]),
            house.people.known,
            lambda: None,
        ),
        utc_now,
    )
    app = app_of(
        house.accounts,
        events_router(house.store, house.database),
        persons_router(house.database, erasing, person_test),
        groups_router(house.database),
    )
    yield ApiClient(app)
    app.close()


def names(client: ApiClient, query: str) -> list[str]:
    answer = client.get(f"/api/projects/1/events/{query}")
    assert answer.status_code == 200, answer.text
    return [each["event"] for each in answer.json()["results"]]


def filters(*leaves: dict[str, Any]) -> str:
    return "?properties=" + quote(json.dumps(leaves))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["look", "$groupidentify", "buy", "$identify", "$pageview"]),
        ("?event=buy", ["buy"]),
        ("?distinct_id=ann", ["buy", "$identify"]),
        ("?after=2026-11-21T10:00:01Z", ["look", "$groupidentify"]),
        ("?before=2026-11-21T10:00:01Z", ["$pageview"]),
        ("?after=2026-11-21T10:00:00Z&before=2026-11-21T11:00:00+00:00", ["buy", "$identify"]),
        ("?after=2026-11-22", []),
        ("?event=", ["look", "$groupidentify", "buy", "$identify", "$pageview"]),
        ("?event=' OR 1=1 --", []),
        (f"?person_id={derived_person_id(1, 'anon')}", ["buy", "$identify", "$pageview"]),
        (f"?person_id={derived_person_id(1, 'ann')}", []),  # no such person was ever made
        (f"?person_id={UUID(int=99)}", []),
        ("?person_id=", ["look", "$groupidentify", "buy", "$identify", "$pageview"]),
        (filters({"key": "price", "value": "2.5"}), ["buy"]),
        (filters({"key": "price", "value": 2, "operator": "gt"}) + "&event=buy", ["buy"]),
        (filters({"key": "price", "operator": "is_not_set"}) + "&distinct_id=ann", ["$identify"]),
        (
            filters({"key": "email", "value": "ann", "operator": "icontains", "type": "person"}),
            ["buy", "$identify"],
        ),
        (filters({"key": "price", "value": "' OR 1=1 --"}), []),
        ("?properties=[]", ["look", "$groupidentify", "buy", "$identify", "$pageview"]),
        ("?limit=2", ["look", "$groupidentify"]),
        ("?limit=2&offset=2", ["buy", "$identify"]),
        ("?limit=nonsense&offset=-1", ["look", "$groupidentify", "buy", "$identify", "$pageview"]),
    ],
)
def test_events_newest_first(client: ApiClient, query: str, expected: list[str]) -> None:
    assert names(client, query) == expected


def test_an_event_in_full(client: ApiClient) -> None:
    listed = client.get("/api/projects/@current/events?event=buy").json()
    person = derived_person_id(1, "anon")
    (event,) = listed["results"]
    assert (listed["next"], listed["previous"]) == (None, None)
    captured_at = event.pop("created_at")
    assert captured_at == "2026-11-21T12:00:00Z"
    assert event.pop("person") == {
        "id": str(person),
        "uuid": str(person),
        "name": "Ann_1@example.com",
        "distinct_ids": ["ann"],
        "properties": {"email": "Ann_1@example.com"},
        "is_identified": True,
        "created_at": "2026-11-21T10:00:00Z",
    }
    assert event == {
        "id": str(UUID(int=3)),
        "uuid": str(UUID(int=3)),
        "event": "buy",
        "distinct_id": "ann",
        "timestamp": "2026-11-21T10:00:01Z",
        "properties": {"price": 2.5, "$ip": "10.0.0.1"},
        "elements": [],
        "elements_chain": 'a:text="Buy"',
    }
    one = client.get(f"/api/projects/1/events/{UUID(int=3)}/").json()
    assert one["event"] == "buy"
    assert client.get("/api/projects/1/events?event=look").json()["results"][0]["person"] is None


def test_pages_of_events_are_linked(client: ApiClient) -> None:
    seen = []
    address = "/api/projects/1/events/?limit=2"
    while address:
        answer = client.get(address).json()
        seen += [each["event"] for each in answer["results"]]
        last, address = answer, answer["next"]
    assert seen == ["look", "$groupidentify", "buy", "$identify", "$pageview"]
    assert "limit=2" in last["previous"]


@pytest.mark.parametrize(
    "query",
    [
        "after=soon",
        "before=2026-13-01",
        "after=%00",
        "person_id=ann",
        "properties=nonsense",
        "properties=7",
        'properties=[{"key": "price", "operator": "near", "value": 1}]',
        'properties=[{"key": "id", "type": "cohort", "value": 1}]',
    ],
)
def test_filters_that_mean_nothing(client: ApiClient, query: str) -> None:
    answer = client.get(f"/api/projects/1/events/?{query}")
    assert (answer.status_code, answer.json()["attr"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"events/{UUID(int=99)}", 404),
        ("events/nonsense", 404),
        (f"persons/{UUID(int=99)}", 404),
        ("persons/nonsense", 404),
        ("groups", 400),
        ("groups?group_type_index=x", 400),
        ("groups?group_type_index=", 400),
    ],
)
def test_what_is_not_there(client: ApiClient, path: str, status: int) -> None:
    assert client.get(f"/api/projects/1/{path}").status_code == status


def test_a_store_that_cannot_be_read(client: ApiClient, house: Any) -> None:
    house.ingestion.stop(10)
    house.store.close()
    answer = client.get("/api/projects/1/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


# --- persons and groups


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [["bob"], ["ann", "anon"]]),
        ("?distinct_id=anon", [["ann", "anon"]]),
        ("?distinct_id=an", []),
        ("?email=ann_1@EXAMPLE.com", [["ann", "anon"]]),
        ("?email=example.com", []),
        ("?email=ann_1@example.com&distinct_id=bob", []),
        ("?search=NN", [["ann", "anon"]]),
        ("?search=ann_1@EXAMPLE", [["ann", "anon"]]),
        ("?search=ann%251", []),  # a percent sign is itself
        ("?search=bo", [["bob"]]),
        ("?search=example&distinct_id=bob", []),
        ("?limit=1", [["bob"]]),
        ("?limit=1&offset=1", [["ann", "anon"]]),
    ],
)
def test_persons(client: ApiClient, query: str, expected: list[list[str]]) -> None:
    answer = client.get(f"/api/projects/1/persons/{query}").json()
    assert [each["distinct_ids"] for each in answer["results"]] == expected
    if "limit" not in query:
        assert answer["count"] == len(expected)


def test_a_list_of_persons_says_when_it_leaves_ids_out(client: ApiClient, house: Any) -> None:
    database, uuid = house.database, str(derived_person_id(1, "anon"))
    with database.write() as tx:
        [row_id] = tx.connection.scalars(sa.select(person.c.id).where(person.c.uuid == uuid))
        further = [
            {"project_id": 1, "distinct_id": f"ann-{number:03}", "person_id": row_id} for number in range(98)
        ]
        tx.execute(sa.insert(person_distinct_id), further)
    path = "/api/projects/1/persons/"
    shown = client.get(f"{path}?distinct_id=ann").json()["results"][0]
    assert (len(shown["distinct_ids"]), "distinct_ids_truncated" in shown) == (100, False)
    with database.write() as tx:
        more = [{"project_id": 1, "distinct_id": f"zoe-{number}", "person_id": row_id} for number in range(5)]
        tx.execute(sa.insert(person_distinct_id), more)
    shown = client.get(f"{path}?distinct_id=ann").json()["results"][0]
    assert len(shown["distinct_ids"]) == 100
    assert (shown["distinct_ids_truncated"], shown["distinct_ids_count"]) == (True, 105)
    whole = client.get(f"{path}{uuid}/").json()
    assert (len(whole["distinct_ids"]), "distinct_ids_truncated" in whole) == (105, False)


def test_a_person_in_full(client: ApiClient) -> None:
    uuid = str(derived_person_id(1, "anon"))
    expected = {
        "id": uuid,
        "uuid": uuid,
        "type": "person",
        "name": "Ann_1@example.com",
        "distinct_ids": ["ann", "anon"],
        "properties": {"email": "Ann_1@example.com"},
        "is_identified": True,
        "created_at": "2026-11-21T10:00:00Z",
        "last_seen_at": "2026-11-21T10:00:00Z",
    }
    assert client.get(f"/api/projects/1/persons/{uuid}/").json() == expected
    assert client.get("/api/environments/1/persons?distinct_id=ann").json()["results"] == [expected]
    assert client.get(f"/api/projects/2/persons/{uuid}/").status_code == 404


def test_groups(client: ApiClient) -> None:
    found = client.get("/api/projects/1/groups/?group_type_index=0&search=inc").json()
    assert found["results"] == [
        {
            "group_type_index": 0,
            "group_key": "acme",
            "group_properties": {"name": "Acme Inc"},
            "created_at": "2026-11-21T11:00:00.250000Z",
        }
    ]
    assert client.get("/api/projects/1/groups/?group_type_index=0&search=zzz").json()["count"] == 0
    assert client.get("/api/projects/1/groups/?group_type_index=1").json()["results"] == []
    (kind,) = client.get("/api/projects/1/groups_types").json()
    assert (kind["group_type"], kind["group_type_index"]) == ("company", 0)


def test_keys_need_the_scope(client: ApiClient) -> None:
    assert client.get("/api/projects/1/events", headers={}).status_code == 401
