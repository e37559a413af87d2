"""A request that compares too much fails its flags, and no request of others waits for it."""

from __future__ import annotations

import random

import pytest
from tests.attacks import processor_time
from tests.flags.conftest import Server

from hoglab.filters import allowance
from hoglab.filters.allowance import MAX_COMPARED

FLAGS = 60
LENGTH = 1_000_000


@pytest.fixture(autouse=True)
def buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test accounts of its own: what one owes is nothing to the next."""
    monkeypatch.setattr(allowance, "_buckets", {})


def condition(key: str, operator: str, value: object) -> dict[str, object]:
    properties = [{"key": key, "type": "person", "operator": operator, "value": value}]
    return {"groups": [{"properties": properties, "rollout_percentage": 100}]}


def test_a_huge_property_fails_flags_and_others_are_answered(server: Server) -> None:
    for number in range(FLAGS):
        server.create(f"long-{number:02}", condition("long", "icontains", f"x{number}"))
    server.create("short", condition("plan", "exact", "pro"))
    answer = server.flags("ada", person_properties={"long": "a" * LENGTH, "plan": "pro"})
    failed = [key for key, flag in answer["flags"].items() if flag.get("failed")]
    assert answer["errorsWhileComputingFlags"] is True
    assert len(failed) == FLAGS - MAX_COMPARED // LENGTH
    assert {answer["flags"][key]["reason"]["code"] for key in failed} == {"timeout"}
    assert answer["flags"]["short"]["enabled"] is True
    again = server.flags("ada", person_properties={"long": "ax7", "plan": "pro"})
    assert again["errorsWhileComputingFlags"] is False
    assert again["flags"]["long-07"]["enabled"] is True


def test_awkward_patterns_of_a_project_take_a_little_time(server: Server) -> None:
    for number in range(5):
        pattern = rf"(?:\w{{0,900}}a){{1}}[ab]{{{900 - number}}}!"
        server.create(f"awkward-{number}", condition("long", "regex", pattern))
    text = "".join(random.Random(1).choices("ab", k=60_000))
    assert processor_time(lambda: server.flags("ada", person_properties={"long": text})) < 1
