"""`GET persons/?properties=…`: the persons who pass filters, or a refusal; filters are never passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.contract.conftest import Api

from hoglab.people import reading

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"plan": "pro", "seats": 12, "email": "ann@example.com"},
    "bob": {"plan": "pro", "seats": 3},
    "cem": {"plan": "free", "seats": "7"},
    "dot": {},
}
PRO = {"key": "plan", "value": ["pro"], "operator": "exact", "type": "person"}


@pytest.fixture(scope="module")
def people(laboratory: Any) -> Api:
    api: Api = laboratory.api()
    api.capture(*(
        {"event": "$identify", "distinct_id": name, "properties": {"$set": properties}}
        for name, properties in PEOPLE.items()
    ))  # fmt: skip
    return api


def names(api: Api, filters: Any, **more: Any) -> list[str]:
    answer = api.ok("GET", "/persons/", params={"properties": json.dumps(filters), **more})
    if not more:
        assert answer["count"] == len(answer["results"])
    return sorted(person["distinct_ids"][0] for person in answer["results"])


PASSES: dict[str, tuple[Any, list[str]]] = {
    "a list": ([PRO], ["ann", "bob"]),
    "no type": ([{"key": "plan", "value": "free"}], ["cem"]),
    "several": ([PRO, {"key": "seats", "operator": "gt", "value": 5}], ["ann"]),
    "numbers as text": ([{"key": "seats", "operator": "gt", "value": "5"}], ["ann", "cem"]),
    "a group": ({"type": "OR", "values": [PRO, {"key": "plan", "value": "free"}]}, ["ann", "bob", "cem"]),
    "not set": ([{"key": "plan", "operator": "is_not_set", "value": "is_not_set"}], ["dot"]),
    "negation": ([PRO | {"negation": True}], ["cem", "dot"]),
    "pattern": ([{"key": "email", "operator": "regex", "value": "@example"}], ["ann"]),
    "creation": (
        [
            {
                "key": "created_at",
                "type": "person_metadata",
                "operator": "is_date_after",
                "value": "2020-01-01",
            }
        ],
        ["ann", "bob", "cem", "dot"],
    ),
    "nothing": ([], ["ann", "bob", "cem", "dot"]),
}


@pytest.mark.parametrize("name", PASSES)
def test_persons_who_pass(people: Api, name: str) -> None:
    filters, expected = PASSES[name]
    assert names(people, filters) == expected


def test_cohorts(people: Api) -> None:
    listed = people.ok(
        "POST", "/cohorts/",
        {"name": "Listed", "is_static": True, "_create_static_distinct_ids": ["ann", "dot"]}, status=201,
    )["id"]  # fmt: skip
    inside = {"key": "id", "type": "cohort", "value": listed}
    assert names(people, [inside]) == ["ann", "dot"]
    assert names(people, [inside | {"operator": "not_in"}, PRO]) == ["bob"]


def test_pages(people: Api) -> None:
    sent = {"properties": json.dumps([PRO]), "limit": 1}
    first = people.ok("GET", "/persons/", params=sent)
    second = people.ok("GET", "/persons/", params={**sent, "offset": 1})
    assert (first["count"], len(first["results"]), len(second["results"])) == (2, 1, 1)
    assert "properties=" in first["next"]
    assert second["next"] is None
    assert {page["results"][0]["distinct_ids"][0] for page in (first, second)} == {"ann", "bob"}


def test_with_other_filters_of_the_list(people: Api) -> None:
    assert names(people, [PRO], search="ann@") == ["ann"]
    assert names(people, [PRO], distinct_id="cem") == []


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("[", "JSON list"),
        ("7", "must be a list or an object"),
        ('"plan"', "must be a list or an object"),
        ("[7]", "properties[0]"),
        ('[{"key": "plan", "type": "event", "value": "pro"}]', "properties[0]: Filters of type event"),
        ('[{"key": "plan", "type": "hogql", "value": "pro"}]', "properties[0]: Filters of type hogql"),
        ('[{"key": "id", "type": "cohort", "value": 999}]', "Cohort 999 does not exist"),
        (
            '[{"type": "behavioral", "value": "performed_event", "key": "paid", "event_type": "events"}]',
            "filter by a cohort",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused(people: Api, sent: str, text: str) -> None:
    error = people.refused("GET", "/persons/", params={"properties": sent})
    assert text in error["detail"]
    assert error["attr"] == "properties"


def test_too_many_persons_are_refused(people: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TESTED", 4)
    assert names(people, [PRO]) == ["ann", "bob"]
    monkeypatch.setattr(reading, "MAX_TESTED", 3)
    error = people.refused("GET", "/persons/", params={"properties": json.dumps([PRO])})
    assert "make a cohort" in error["detail"]
    assert names(people, [PRO], search="ann@") == ["ann"]
