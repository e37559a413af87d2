"""Static cohorts made with criteria: the persons who match at creation become members, and stay."""

from __future__ import annotations

import pytest
from tests.people.cohorts.test_calculation import ALL, EVEN, PERSONS, fill, rows
from tests.people.cohorts.test_cohorts import (
    GERMAN,
    PRO,
    URL,
    create,
    inside,
    names,
    people,
    read,
    refuse,
    tree,
)

from hoglab.people.cohorts import store
from hoglab.people.cohorts.matching import CohortError

__all__ = ["people"]  # a fixture


def snapshot(server, *rules, name="Snapshot", **more):
    return create(server, name, is_static=True, filters=tree(*rules), **more)


def test_the_persons_who_match_become_members(people):
    made = snapshot(people, PRO)
    assert (made["is_static"], made["is_calculating"], made["count"], made["version"]) == (
        True,
        True,
        0,
        None,
    )
    assert made["filters"] == tree(PRO)
    people.calculator.run()
    made = read(people, made["id"])
    assert (made["is_calculating"], made["count"], made["version"]) == (False, 2, 1)
    assert made["last_calculation"] is not None
    assert made["filters"] == tree(PRO)
    assert names(people, made["id"]) == {"ann", "bob"}
    progress = people.client.get(f"{URL}{made['id']}/calculation/").json()
    assert (progress["is_calculating"], progress["count"]) == (False, 2)


def test_it_is_taken_once(people):
    made = snapshot(people, PRO)
    people.calculator.run()
    people.event("$set", "cem", **{"$set": {"plan": "pro"}})
    people.event("$set", "ann", **{"$set": {"plan": "free"}})
    people.calculator._refresh()
    assert people.calculator.run() == 0
    assert names(people, made["id"]) == {"ann", "bob"}


def test_of_other_cohorts(people):
    pro = create(people, filters=tree(PRO))
    listed = create(people, "Listed", is_static=True, _create_static_distinct_ids=["ann", "dot"])
    first = snapshot(people, inside(listed["id"], operator="not_in"), inside(pro["id"]))
    people.calculator.run()
    assert names(people, first["id"]) == {"bob"}
    second = snapshot(people, inside(first["id"]), name="Of the snapshot")
    people.calculator.run()
    assert names(people, second["id"]) == {"bob"}


def test_with_a_list_of_persons_it_has_both(people):
    made = snapshot(people, PRO, _create_static_distinct_ids=["dot", "ann"])
    assert names(people, made["id"]) == {"ann", "dot"}
    people.calculator.run()
    assert names(people, made["id"]) == {"ann", "bob", "dot"}
    assert read(people, made["id"])["count"] == 3


def test_lists_can_be_changed_meanwhile_and_later(people):
    made = snapshot(people, PRO)
    path = f"{URL}{made['id']}"
    people.client.patch(f"{path}/add_persons_to_static_cohort/", json={"distinct_ids": ["dot"]})
    people.calculator.run()
    assert names(people, made["id"]) == {"ann", "bob", "dot"}
    people.client.patch(f"{path}/remove_persons_from_static_cohort/", json={"distinct_ids": ["ann"]})
    people.calculator.run()
    assert names(people, made["id"]) == {"bob", "dot"}


@pytest.mark.parametrize("operator", ["in", "not_in"])
def test_flags_fail_until_it_is_taken(people, operator):
    made = snapshot(people, PRO)
    people.create("club", {"groups": [{"properties": [inside(made["id"], operator=operator)]}]})
    answer = people.flags("ann")
    assert answer["errorsWhileComputingFlags"] is True
    assert answer["flags"]["club"]["enabled"] is False
    people.calculator.run()
    answer = people.flags("ann")
    assert answer["errorsWhileComputingFlags"] is False
    assert answer["flags"]["club"]["enabled"] is (operator == "in")
    assert people.flags("dot")["flags"]["club"]["enabled"] is (operator == "not_in")


def test_a_cohort_of_one_that_is_not_taken_waits(people, monkeypatch):
    made = snapshot(people, PRO)
    outer = create(people, "Outer", filters=tree(inside(made["id"], operator="not_in")))
    people.calculator.calculate(1, outer["id"])
    assert "not known yet" in read(people, outer["id"])["last_error_message"]
    people.calculator.run()
    people.calculator._jobs.take_over()
    people.calculator.run()
    assert names(people, outer["id"]) == {"cem", "dot"}


def test_a_failure_is_told_and_tried_again(people, monkeypatch):
    made = snapshot(people, PRO)

    def broken(*_: object) -> object:
        raise CohortError("The disk is on holiday.")

    with monkeypatch.context() as patched:
        patched.setattr(store, "candidates", broken)
        people.calculator.run()
    failed = read(people, made["id"])
    assert (failed["is_calculating"], failed["errors_calculating"]) == (False, 1)
    assert failed["last_error_message"] == "The disk is on holiday."
    with people.database.read() as connection:
        assert store.outdated_cohorts(connection, people.calculator._now()) == [made["id"]]
        assert not store.definitions(connection, 1)[made["id"]].is_known
    with people.database.write() as tx:
        store.request_calculation(tx.connection, [made["id"]])
    people.calculator.calculate(1, made["id"])
    done = read(people, made["id"])
    assert (done["count"], done["errors_calculating"], done["last_error_message"]) == (2, 0, None)


def test_ten_thousand_persons(server):
    fill(server.database, PERSONS)
    some = snapshot(server, EVEN["properties"]["values"][0])
    everybody = snapshot(server, {**PRO, "key": "even", "operator": "is_set"}, name="All")
    server.calculator.run()
    assert rows(server.database, some["id"]) == list(range(2, PERSONS + 1, 2))
    assert read(server, some["id"])["count"] == PERSONS // 2
    assert read(server, everybody["id"])["count"] == PERSONS


@pytest.mark.parametrize("none", [None, {}, {"properties": {}}, {"properties": []}, ALL])
def test_no_criteria_are_no_snapshot(people, none):
    made = create(people, is_static=True, filters=none)
    assert (made["filters"], made["is_calculating"], made["count"], made["version"]) == (None, False, 0, 1)


def test_criteria_are_checked(people):
    wrong = {**PRO, "operator": "gt", "value": "abc"}
    refuse(people, {"name": "S", "is_static": True, "filters": tree(wrong)}, detail="requires a number")
    refuse(people, {"name": "S", "is_static": True, "filters": {"properties": 5}}, detail="must be a list")
    refuse(
        people,
        {"name": "S", "is_static": True, "filters": tree(inside(999))},
        detail="Cohort with id 999",
        code="cohort_does_not_exist",
    )


def test_criteria_stay_as_they_were(people):
    made = snapshot(people, PRO)
    people.calculator.run()
    path = f"{URL}{made['id']}/"
    same = people.client.patch(path, json={"name": "Renamed", "filters": made["filters"]})
    assert (same.status_code, same.json()["name"]) == (200, "Renamed")
    assert people.client.patch(path, json={"filters": tree()}).json()["filters"] == tree(PRO)
    changed = people.client.patch(path, json={"filters": tree(GERMAN)})
    assert (changed.status_code, changed.json()["attr"]) == (400, "filters")
    assert names(people, made["id"]) == {"ann", "bob"}
