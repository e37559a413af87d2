"""What a person gets of a flag and why: equal to what SDKs get, saved or not, with the value that each filter saw."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.flags.conftest import Server
from tests.flags.generate import COHORTS, Draw

PATH = "/api/projects/1/feature_flags/explain/"
FLAGS, PEOPLE = 24, 14
"""Random flags, and people to whom each is explained."""
PRO = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}


def explain(server: Server, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = server.client.post(PATH, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def in_short(flag: dict[str, Any], payload: str | None) -> tuple[Any, ...]:
    """The value of a flag with its reason and payload, of either answer."""
    reason = flag["reason"]
    return flag["enabled"], flag["variant"], reason["code"], reason["condition_index"], payload


def first_match(explained: dict[str, Any]) -> int | None:
    """The condition that decides by what is said of each."""
    matching = [condition["index"] for condition in explained["conditions"] if condition["matches"]]
    return matching[0] if matching else None


@pytest.mark.parametrize("seed", [1, 2])
def test_equals_the_answer_of_flags_for_random_flags_and_people(server: Server, seed: int) -> None:
    """Each flag is explained before it is saved, and the answer that SDKs get after that is the same."""
    draw = Draw(seed, savable=True)
    now = datetime.now(UTC)
    server.event("$groupidentify", "somebody", **{"$group_type": "company", "$group_key": "acme-1"})
    for tree in COHORTS.values():
        server.cohort(tree)
    people = [asdict(draw.person(seed, number, now)) for number in range(PEOPLE)]
    for person in people[: PEOPLE // 2]:  # what is stored of them counts, and is not sent
        server.event("$identify", person["distinct_id"], **{"$set": person["person_properties"]})
        person["person_properties"] = {}
    earlier: list[dict[str, Any]] = []
    before: dict[tuple[str, str], Any] = {}
    for number in range(1, FLAGS + 1):
        drawn = draw.flag(number, earlier)
        body = {
            "key": drawn["key"],
            "filters": {**drawn["filters"], "payloads": {}},
            "bucketing_identifier": drawn["bucketing_identifier"],
        }
        for person in people:
            found = explain(server, flag=body, **person)
            before[drawn["key"], person["distinct_id"]] = found
        earlier.append(drawn)
        assert server.create(**body)["id"] == number  # dependencies name ids
    reasons = set()
    for person in people:
        answer = server.flags(**person)["flags"]
        for key, flag in answer.items():
            found = before[key, person["distinct_id"]]
            expected = in_short(flag, flag["metadata"]["payload"])
            assert in_short(found, found["payload"]) == expected, (key, person, found)
            reasons.add(found["reason"]["code"])
            if found["reason"]["code"] == "condition_match":
                assert first_match(found) == found["reason"]["condition_index"]
            elif found["reason"]["code"] in ("no_condition_match", "out_of_rollout_bound", "no_group_type"):
                early = next(drawn for drawn in earlier if drawn["key"] == key)["filters"]["early_exit"]
                assert early or first_match(found) is None
        assert len(answer) == FLAGS
    assert {"condition_match", "no_condition_match", "out_of_rollout_bound"} <= reasons


def test_each_filter_has_the_value_that_it_saw(server: Server) -> None:
    server.event("$identify", "ada", **{"$set": {"plan": "free", "age": 7}})
    older = {"key": "age", "type": "person", "operator": "gt", "value": "18"}
    server.create(
        "checkout",
        {"groups": [{"properties": [PRO, older], "rollout_percentage": 20}, {"rollout_percentage": 0}]},
    )
    found = explain(server, key="checkout", distinct_id="ada")
    first, second = found["conditions"]
    seen = [(each["key"], each["actual"], each["matches"]) for each in first["properties"]]
    assert seen == [("plan", "free", False), ("age", 7, False)]
    assert 0 <= first["rollout"]["bucket"] <= 100
    assert first["rollout"]["matches"] == (first["rollout"]["bucket"] <= 20)
    assert (second["properties"], second["rollout"]["matches"]) == ([], False)
    assert found["person"] == {"known": True}
    sent = explain(server, key="checkout", distinct_id="ada", person_properties={"plan": "pro"})
    assert sent["conditions"][0]["properties"][0] == {
        **PRO,
        "negation": False,
        "actual": "pro",
        "matches": True,
        "problem": None,
    }
    stranger = explain(server, key="checkout", distinct_id="nobody")
    assert (stranger["person"], stranger["conditions"][0]["properties"][0]["actual"]) == (
        {"known": False},
        None,
    )


def test_a_change_is_explained_and_not_saved(server: Server) -> None:
    """Variants, an override, what the flag depends on, and the flag's own key stay those of the stored flag."""
    base = server.create("base", {"groups": [{"rollout_percentage": 100}]})
    halves = [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]
    made = server.create("split", {"groups": [{}], "multivariate": {"variants": halves}})
    depends = {"key": str(base["id"]), "type": "flag", "operator": "flag_evaluates_to", "value": True}
    change = {"id": made["id"], "filters": {"groups": [{"properties": [depends], "variant": "b"}]}}
    found = explain(server, flag=change, distinct_id="ada")
    assert (found["key"], found["variant"], found["depends_on"]) == (
        "split",
        "b",
        [{"key": "base", "value": True}],
    )
    assert found["conditions"][0]["properties"][0]["actual"] is True
    assert 0 <= found["variant_bucket"] < 100
    assert server.client.get(f"/api/projects/1/feature_flags/{made['id']}/").json() == made
    off = explain(server, flag={"id": made["id"], "active": False}, distinct_id="ada")
    assert (off["enabled"], off["reason"]["code"], off["conditions"][0]["matches"]) == (
        False,
        "flag_disabled",
        True,
    )


def test_the_holdout_and_a_missing_group_are_said(server: Server) -> None:
    held = {"groups": [{}], "holdout": {"id": 3, "exclusion_percentage": 100}}
    server.create("held", held)
    found = explain(server, key="held", distinct_id="ada")
    assert (found["variant"], found["holdout"]["variant"], found["holdout"]["matches"]) == (
        "holdout-3",
        "holdout-3",
        True,
    )
    server.create("company", {"groups": [{}], "aggregation_group_type_index": 0})
    (condition,) = explain(server, key="company", distinct_id="ada")["conditions"]
    assert (condition["matches"], condition["skipped"], condition["rollout"]["bucket"]) == (
        False,
        "no_group_type",
        None,
    )


@pytest.mark.parametrize(
    ("body", "status", "attr"),
    [
        ({"distinct_id": "ada"}, 400, "key"),
        ({"key": "nothing", "distinct_id": "ada"}, 404, None),
        ({"key": "one"}, 400, "distinct_id"),
        ({"flag": {"id": 99}, "distinct_id": "ada"}, 404, None),
        ({"flag": {"key": "new"}, "distinct_id": "ada"}, 400, "filters"),
        ({"flag": {"filters": {"groups": [{}]}}, "distinct_id": "ada"}, 400, "key"),
        ({"flag": {"key": "n", "filters": {"groups": [{"variant": 1}]}}, "distinct_id": "a"}, 400, "filters"),
        ({"key": "one", "distinct_id": "ada", "groups": []}, 400, "groups"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(
    server: Server, body: dict[str, Any], status: int, attr: str | None
) -> None:
    server.create("one")
    assert explain(server, status, **body)["attr"] == attr


def test_a_state_that_is_no_more_is_not_overwritten(server: Server) -> None:
    """`If-Match` protects a change, and the same flag without it keeps the last write."""
    made = server.create("one")
    path = f"/api/projects/1/feature_flags/{made['id']}/"
    tag = server.client.get(path).headers["etag"]
    assert server.client.patch(path, json={"name": "first"}, headers={"If-Match": tag}).status_code == 200
    late = server.client.patch(path, json={"name": "second"}, headers={"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "precondition_failed")
    assert server.client.get(path).json()["name"] == "first"
    now = server.client.get(path).headers["etag"]
    assert server.client.patch(path, json={"name": "third"}, headers={"If-Match": now}).status_code == 200
    assert server.patch(made["id"], name="fourth").status_code == 200
