"""What ingestion adds beside events: calls of flags, warnings over the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from tests.apps import app_of
from tests.ingestion.test_reading import ApiClient

from hoglab.flags.validation import MAX_KEY_LENGTH
from hoglab.ingestion.flag_calls import FlagCalls
from hoglab.ingestion.warnings import warnings_router
from hoglab.storage.database.tables import feature_flag

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


# --- calls of flags


def called_at(house: Any, key: str) -> datetime | None:
    with house.database.read() as connection:
        found: datetime | None = connection.execute(
            sa.select(feature_flag.c.last_called_at).where(feature_flag.c.key == key)
        ).scalar_one()
    return found


def call(key: Any, at: datetime) -> dict[str, Any]:
    return {
        "event": "$feature_flag_called",
        "distinct_id": "u",
        "timestamp": at.isoformat(),
        "properties": {"$feature_flag": key},
    }


def test_flags_know_when_they_were_called(house: Any) -> None:
    with house.database.write() as tx:
        for key in ("one", "two"):
            tx.execute(
                sa.insert(feature_flag),
                {
                    "project_id": 1,
                    "key": key,
                    "filters": {},
                    "tags": [],
                    "evaluation_contexts": [],
                    "created_at": NOW,
                    "updated_at": NOW,
                },
            )
    house.parts["flag_calls"] = FlagCalls(house.database)
    house.restart()
    first = NOW - timedelta(hours=1)
    house.send(call("one", first), call("one", first - timedelta(days=1)), call("gone", NOW), call(7, NOW))
    house.run()
    assert (called_at(house, "one"), called_at(house, "two")) == (first, None)
    house.send(call("one", first + timedelta(seconds=59)))  # within the minute: not written
    house.run()
    assert called_at(house, "one") == first
    house.send(call("one", first + timedelta(seconds=61)), call("two", NOW + timedelta(hours=2)))
    house.run()
    assert called_at(house, "one") == first + timedelta(seconds=61)
    assert called_at(house, "two") == NOW  # no call lies in the future


def test_only_keys_that_a_flag_may_have_are_remembered(house: Any) -> None:
    """Whoever has a project's token chooses them: a megabyte each would be ten gigabytes."""
    calls = house.parts["flag_calls"] = FlagCalls(house.database)
    house.restart()
    lengths = (1, MAX_KEY_LENGTH, MAX_KEY_LENGTH + 1, 500_000)
    house.send(*(call("x" * length, NOW) for length in lengths))
    house.run()
    assert {len(key) for _project, key in calls._written} == {1, MAX_KEY_LENGTH}


# --- warnings


def test_warnings_can_be_read(house: Any) -> None:
    house.send(
        {
            "event": "$identify",
            "distinct_id": "guest",
            "uuid": str(UUID(int=1)),
            "properties": {"$anon_distinct_id": "a"},
        },
        {
            "event": "$identify",
            "distinct_id": "u",
            "uuid": str(UUID(int=2)),
            "properties": {"$process_person_profile": False},
        },
        {"event": "big", "distinct_id": "u", "uuid": str(UUID(int=3)), "properties": {"a": "x" * 1_000_001}},
    )
    house.run()
    app = app_of(house.accounts, warnings_router(house.database))
    client = ApiClient(app)
    path = "/api/projects/1/ingestion_warnings/"
    page = client.get(path).json()
    assert page["count"] == 3
    assert {each["type"]: each["event_uuid"] for each in page["results"]} == {
        "cannot_merge_with_illegal_distinct_id": str(UUID(int=1)),
        "invalid_event_when_process_person_profile_is_false": str(UUID(int=2)),
        "message_size_too_large": str(UUID(int=3)),
    }
    assert all(each["details"] and each["timestamp"] for each in page["results"])
    [one] = client.get(f"{path}?type=message_size_too_large").json()["results"]
    assert one["details"]["bytes"] > 1_000_000
    assert client.get(f"{path}?event_uuid={UUID(int=2)}").json()["count"] == 1
    assert client.get(f"{path}?limit=1").json()["next"].endswith("limit=1&offset=1")
    assert client.get(path, headers={}).status_code == 401
    app.close()
