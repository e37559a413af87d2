"""Groups that functions see: remembered for a moment, within bounds that nobody's properties exceed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from hoglab.delivery.runs import globals as event_globals
from hoglab.delivery.runs.globals import GROUP_CACHE_BYTES, GROUP_CACHE_S, GroupProperties
from hoglab.people.properties import MAX_PROPERTIES_BYTES
from hoglab.people.reading import PersonView


class Groups:
    """Groups with properties of a size, and how often they were asked for."""

    def __init__(self, size: int) -> None:
        self.asked: list[str] = []
        self._text = "x" * size

    def group_properties(self, project_id: int, index: int, key: str) -> dict[str, Any]:
        self.asked.append(key)
        return {"key": key, "text": self._text}

    def group_types(self, project_id: int) -> Mapping[str, int]:
        return {"company": 0}

    def person_for(self, project_id: int, distinct_id: str) -> PersonView | None:
        return None


def remembered(groups: GroupProperties) -> list[dict[str, Any]]:
    return [each.properties for each in groups._known.values()]


@pytest.mark.parametrize("size", [50_000, MAX_PROPERTIES_BYTES - 100])
def test_large_groups_are_remembered_within_so_many_bytes(size: int) -> None:
    """Ten thousand of the largest ones were all kept once."""
    people = Groups(size)
    groups = GroupProperties(people, clock=lambda: 0.0)
    for number in range(2 * GROUP_CACHE_BYTES // size):
        assert groups.get(1, 0, f"g{number}")["key"] == f"g{number}"
        assert groups.bytes <= GROUP_CACHE_BYTES
    kept = sum(len(orjson.dumps(each)) for each in remembered(groups))
    assert groups.bytes == kept
    assert kept > GROUP_CACHE_BYTES - 2 * size
    asked = len(people.asked)
    groups.get(1, 0, people.asked[-1])
    assert len(people.asked) == asked, "the newest ones are still known"


def test_small_groups_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_globals, "GROUP_CACHE_SIZE", 3)
    groups = GroupProperties(Groups(1), clock=lambda: 0.0)
    for number in range(10):
        groups.get(1, 0, f"g{number}")
    assert [each["key"] for each in remembered(groups)] == ["g7", "g8", "g9"]


def test_what_is_read_again_is_counted_once() -> None:
    now = 0.0
    people = Groups(100)
    groups = GroupProperties(people, clock=lambda: now)
    for _ in range(5):
        groups.get(1, 0, "g")
        once = groups.bytes
        now += GROUP_CACHE_S + 1
    assert people.asked == ["g"] * 5
    assert groups.bytes == once == sum(len(orjson.dumps(each)) for each in remembered(groups))
