"""Person properties: order of operations, mirroring, sizes (spec: sdk-wire 1.9, 1.12)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.people.properties import (
    TRIMMED_PROPERTIES_BYTES,
    mirror_initial_properties,
    trim,
    update,
)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({}, {"$set": {"a": 1}}, {"a": 1}),
        ({"a": 1}, {"$set": {"a": 2}}, {"a": 2}),
        ({"a": 1}, {"$set_once": {"a": 2, "b": 3}}, {"a": 1, "b": 3}),
        ({"a": None}, {"$set_once": {"a": 2}}, None),  # null is a value
        ({}, {"$set_once": {"a": 1}, "$set": {"a": 2}}, {"a": 2}),
        ({"a": 1, "b": 2}, {"$set": {"a": 5}, "$unset": ["a", "zzz"]}, {"b": 2}),
        ({"a": 1, "b": 2}, {"$unset": {"a": "", "c": ""}}, {"b": 2}),
        ({"a": 1}, {"$set": {"a": 1}}, None),
        ({"a": 1}, {"$set": {"a": True}}, {"a": True}),  # equal in Python, not in JSON
        ({"a": [1]}, {"$set": {"a": [True]}}, {"a": [True]}),
        ({"a": {"x": 1, "y": 2}}, {"$set": {"a": {"y": 2, "x": 1}}}, None),
        ({"a": 1}, {"$set": [1], "$set_once": "x", "$unset": "a"}, None),
        ({"a": 1}, {}, None),
    ],
)
def test_update(before: dict[str, Any], changes: dict[str, Any], after: dict[str, Any] | None) -> None:
    outcome = update(before, "e", changes)
    assert (outcome[0] if outcome else None) == after


@pytest.mark.parametrize("event", ["$exception", "$$heatmap"])
def test_events_that_never_update(event: str) -> None:
    assert update({}, event, {"$set": {"a": 1}}) is None


@pytest.mark.parametrize(
    ("event", "before", "changes", "written"),
    [
        ("$pageview", {"$current_url": "/a"}, {"$set": {"$current_url": "/b"}}, False),
        ("$pageview", {}, {"$set": {"$current_url": "/b"}}, True),  # the first one
        ("$pageview", {"$current_url": "/a"}, {"$set": {"$current_url": "/b", "plan": "x"}}, True),
        ("$set", {"$current_url": "/a"}, {"$set": {"$current_url": "/b"}}, True),
        ("$identify", {"$browser": "a"}, {"$set": {"$browser": "b"}}, True),
    ],
)
def test_volatile_changes_need_no_write(
    event: str, before: dict[str, Any], changes: dict[str, Any], written: bool
) -> None:
    outcome = update(before, event, changes)
    assert outcome is not None
    assert outcome[1] is written


def test_mirrored_properties() -> None:
    properties: dict[str, Any] = {
        "$browser": "Chrome",
        "utm_source": "news",
        "$os": "Linux",
        "other": 1,
        "$referrer": None,
        "$set": {"$browser": "mine"},
    }
    mirror_initial_properties("$pageview", properties)
    assert properties["$set"] == {
        "$browser": "mine",
        "utm_source": "news",
        "$os": "Linux",
        "$referrer": None,
    }
    assert properties["$set_once"] == {
        "$initial_browser": "Chrome",
        "$initial_utm_source": "news",
        "$initial_os": "Linux",
    }


@pytest.mark.parametrize("name", ["gclid", "utm_source", "fbclid", "$referrer", "$browser"])
def test_null_clears_the_latest_value_and_keeps_the_first(name: str) -> None:
    first = f"$initial_{name.removeprefix('$')}"
    person: dict[str, Any] = {}
    for value in (None, "a", "b", None):
        properties: dict[str, Any] = {name: value}
        mirror_initial_properties("$pageview", properties)
        outcome = update(person, "$pageview", properties)
        person = outcome[0] if outcome else person
        assert person[name] == value
        assert person.get(first) == (None if value is None and first not in person else "a")


@pytest.mark.parametrize("marks", [{"$lib": "posthog-python"}, {"$is_server": True}])
def test_the_systems_of_servers_are_not_mirrored(marks: dict[str, Any]) -> None:
    properties = {"$os": "Linux", "$os_version": "12", **marks}
    mirror_initial_properties("e", properties)
    assert "$set" not in properties
    assert "$set_once" not in properties


@pytest.mark.parametrize("library", [["posthog-python"], {}, 7, None])
def test_a_library_that_is_no_name_is_no_server(library: object) -> None:
    properties: dict[str, Any] = {"$os": "Linux", "$lib": library}
    mirror_initial_properties("e", properties)
    assert properties["$set"] == {"$os": "Linux"}


@pytest.mark.parametrize("event", ["$snapshot", "$performance_event"])
def test_events_that_are_not_mirrored(event: str) -> None:
    properties: dict[str, Any] = {"$browser": "Chrome"}
    mirror_initial_properties(event, properties)
    assert properties == {"$browser": "Chrome"}


def test_trimming_keeps_what_is_protected() -> None:
    large = {f"k{number}": "x" * 1000 for number in range(700)}
    kept = trim({**large, "email": "a@b.c", "$initial_browser": "Chrome", "$browser": "Chrome"})
    assert 500_000 < len(orjson.dumps(kept)) <= TRIMMED_PROPERTIES_BYTES
    assert {"email", "$initial_browser", "$browser"} <= kept.keys()


operations = st.fixed_dictionaries(
    {},
    optional={
        "$set": st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)),
        "$set_once": st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)),
        "$unset": st.lists(st.sampled_from("abc"), max_size=2),
    },
)


def run(state: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    for step in steps:
        outcome = update(state, "e", step)
        state = outcome[0] if outcome else state
    return state


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), st.lists(operations, max_size=6))
def test_a_batch_applied_twice_gives_the_same(start: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    once = run(start, steps)
    assert run(once, steps) == once
