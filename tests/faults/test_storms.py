"""Storms of merges, and texts that no engine takes, end in order (spec: sdk-wire 1.13)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.ingestion.conftest import House

IDS = 1_000


@pytest.fixture
def house(tmp_path: Path) -> Any:
    from hoglab.accounts.bootstrap import bootstrap
    from hoglab.accounts.service import AccountService
    from hoglab.storage.database import Database

    database = Database.open(tmp_path / "hoglab.db")
    bootstrap(database, AccountService(database), project_token="phc_storms_project")
    database.dispose()
    made = House(tmp_path)
    made.open()
    yield made
    made.close()


def identify(user: str, anonymous: str) -> dict[str, Any]:
    return {"event": "$identify", "distinct_id": user, "properties": {"$anon_distinct_id": anonymous}}


def alias(into: str, other: str) -> dict[str, Any]:
    return {"event": "$create_alias", "distinct_id": into, "properties": {"alias": other}}


def test_a_thousand_ids_become_one_person(house: Any) -> None:
    house.send(
        *({"event": "seen", "distinct_id": f"a-{n}", "properties": {"$set": {"n": n}}} for n in range(IDS))
    )
    house.run()
    assert len(set(house.rows("person_id"))) == IDS
    house.send(*(identify("user", f"a-{n}") for n in range(IDS)))
    house.run()
    person = house.people.person_for(1, "user")
    assert set(house.rows("person_id")) == {person.uuid}
    assert all(house.people.person_for(1, f"a-{n}").uuid == person.uuid for n in range(0, IDS, 37))
    assert house.quarantine.records() == []


def test_cycles_of_aliases_end(house: Any) -> None:
    names = [f"n-{n}" for n in range(30)]
    ring = list(zip(names, names[1:] + names[:1], strict=True))
    rng = random.Random(5)
    for _ in range(3):
        rng.shuffle(ring)
        house.send(*({"event": "seen", "distinct_id": name} for name in names))
        house.send(*(alias(one, other) for one, other in ring))
        house.send(
            *(
                {"event": "$merge_dangerously", "distinct_id": one, "properties": {"alias": other}}
                for one, other in ring
            )
        )
    house.run()
    persons = {house.people.person_for(1, name).uuid for name in names}
    assert len(persons) == 1
    assert set(house.rows("person_id")) == persons
    assert house.quarantine.records() == []


def test_text_that_is_no_text_is_mended_not_parked(house: Any) -> None:
    """Browsers cut strings inside an emoji: half a surrogate pair, which no engine can store."""
    house.send(
        {
            "event": "\ud83d cut",
            "distinct_id": "u\udc00",
            "properties": {"k\ud83d": "v\ud83d", "n": [10**400, 10**40]},
        },
        {"event": "$set", "distinct_id": "u\udc00", "properties": {"$set": {"name": "\ud83d"}}},
        {"event": "fine", "distinct_id": "v", "properties": {"text": "\ud83d\ude00"}},
    )
    house.run()
    assert house.quarantine.records() == []
    assert len(house.rows("event")) == 3
    assert house.rows("properties->>'text'", "event = 'fine'") == ["\U0001f600"]
