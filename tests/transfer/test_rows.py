"""What becomes of one row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from hoglab.transfer.rows import RowError, event_of, row_uuid

SPARE = UUID("00000000-0000-0000-0000-00000000000a")
GIVEN = "0190a3b2-7c1d-7e45-9f3a-5b6c7d8e9f00"


def row(**columns: Any) -> dict[str, Any]:
    return {"event": "e", "distinct_id": "d", "timestamp": "2025-01-02T03:04:05Z", **columns}


def test_a_row_of_a_batch_export() -> None:
    event = event_of(
        row(
            uuid=GIVEN.upper(),
            properties='{"a": 1, "$set": {"plan": "pro"}}',
            set='{"plan": "ignored"}',
            set_once='{"first": 1}',
            ip="1.2.3.4",
            elements_chain="button",
            team_id=7,
            person_id=GIVEN,
            person_properties='{"x": 1}',
            timestamp="2025-01-02 03:04:05.678+02:00",
        ),
        SPARE,
    )
    assert event == {
        "uuid": GIVEN,
        "event": "e",
        "distinct_id": "d",
        "timestamp": "2025-01-02T01:04:05.678000+00:00",
        "properties": {
            "a": 1,
            "$set": {"plan": "pro"},
            "$set_once": {"first": 1},
            "$ip": "1.2.3.4",
            "$elements_chain": "button",
        },
    }


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, str(SPARE)),
        ({"uuid": ""}, str(SPARE)),
        ({"id": GIVEN}, GIVEN),
        ({"id": 17}, str(SPARE)),
        ({"uuid": GIVEN, "id": 17}, GIVEN),
    ],
)
def test_uuids(columns: dict[str, Any], expected: str) -> None:
    assert event_of(row(**columns), SPARE)["uuid"] == expected


def test_uuids_of_rows_without_one_depend_on_the_file_and_the_position() -> None:
    made = [row_uuid(file, position) for file in ("a", "b") for position in (1, 2)]
    assert len(set(made)) == 4
    assert made[0] == row_uuid("a", 1)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"event": ""}, "no event name"),
        ({"event": 5}, "no event name"),
        ({"distinct_id": None}, "no distinct_id"),
        ({"timestamp": None}, "no timestamp"),
        ({"timestamp": "yesterday"}, "no date and time"),
        ({"timestamp": "12345-01-01"}, "years 1 to 9999"),
        ({"uuid": "12"}, "not a UUID"),
        ({"properties": "{"}, "properties is not valid JSON"),
        ({"properties": "[1]"}, "properties is not an object"),
        ({"set": "5"}, "set is not an object"),
    ],
)
def test_rows_that_are_no_events(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        event_of(row(**columns), SPARE)


def test_posthog_js_leaves_the_distinct_id_in_the_properties() -> None:
    assert event_of(row(distinct_id="", properties={"distinct_id": "js"}), SPARE)["distinct_id"] == "js"
