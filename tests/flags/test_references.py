"""Flags that depend on cohorts and on other flags (spec: sdk-wire 3.9, 3.10)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hoglab.flags.matching.checks import dependency_matches
from hoglab.flags.matching.rules import order_stages
from hoglab.flags.matching.snapshot import FlagSelection, ProjectFlags
from hoglab.flags.matching.subject import StoredPerson
from hoglab.people.cohorts import CohortCalculator
from hoglab.storage.database import to_micros

PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}


def person(**properties) -> StoredPerson:
    return StoredPerson(11, properties, to_micros(datetime(2025, 5, 5, tzinfo=UTC)))


def reason(outcome) -> tuple:
    return outcome.value, outcome.reason.code, outcome.condition_index


# --- cohorts ------------------------------------------------------------------------------------


def in_cohort(cohort_id, operator="in", **more):
    return {
        "groups": [
            {
                "properties": [
                    {"key": "id", "type": "cohort", "value": cohort_id, "operator": operator, **more}
                ]
            }
        ]
    }


def test_static_cohorts(world):
    world.cohort(7, is_static=True)
    world.flag("in", in_cohort(7))
    world.flag("out", in_cohort(7, "not_in"))
    world.memory.persons["user-1"] = person()
    world.memory.members = {(7, 11)}
    assert [outcome.value for outcome in world.all("user-1").values()] == [True, False]
    assert [outcome.value for outcome in world.all("stranger").values()] == [False, True]


def test_dynamic_cohorts(world):
    world.cohort(
        7,
        {
            "type": "OR",
            "values": [
                {
                    "type": "AND",
                    "values": [
                        PRO,
                        {"key": "age", "type": "person", "value": 18, "operator": "lt", "negation": True},
                    ],
                },
                {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 8, "negation": False}]},
            ],
        },
    )
    world.cohort(
        8, {"type": "AND", "values": [{"key": "vip", "type": "person", "value": True, "operator": "exact"}]}
    )
    world.flag("f", in_cohort("7"))
    assert world.value("f", person_properties={"plan": "pro", "age": 40}) is True
    assert world.value("f", person_properties={"plan": "pro", "age": 4}) is False
    assert world.value("f", person_properties={"plan": "free", "vip": "true"}) is True
    assert world.value("f", person_properties={}) is False


def test_empty_cohort_tree_matches_everyone(world):
    world.cohort(7, {})
    world.flag("f", in_cohort(7))
    assert world.value("f") is True


PAID = {"key": "paid", "type": "behavioral", "value": "performed_event", "event_type": "events"}


def of(cohort_id, **more):
    return {"key": "id", "type": "cohort", "value": cohort_id, **more}


BEHAVIOURAL_TREES = {
    "alone": ({"type": "AND", "values": [PAID]}, False),
    "nested": ({"type": "OR", "values": [{"type": "AND", "values": [PRO, PAID]}]}, False),
    "or a property": ({"type": "OR", "values": [PRO, PAID]}, True),
    "not performed": ({"type": "AND", "values": [{**PAID, "negation": True}]}, True),
}
"""Definitions with rules about behaviour, and whether somebody who is not stored, with the plan pro, is a member."""


@pytest.mark.parametrize(("tree", "has_stranger"), BEHAVIOURAL_TREES.values(), ids=BEHAVIOURAL_TREES)
def test_cohorts_about_behaviour_are_answered_by_their_calculated_members(world, tree, has_stranger):
    world.cohort(7, tree, version=3)
    world.cohort(8, {"type": "AND", "values": [of(7, operator="in")]})
    world.cohort(9, {"type": "AND", "values": [PRO, of(7, operator="not_in")]})
    world.cohort(10, {"type": "AND", "values": [of(7, negation=True)]})
    for cohort_id in (7, 8, 9, 10):
        world.flag(f"in-{cohort_id}", in_cohort(cohort_id))
        world.flag(f"not-in-{cohort_id}", in_cohort(cohort_id, "not_in"))
        world.flag(f"negated-{cohort_id}", in_cohort(cohort_id, negation=True))
    world.memory.persons |= {"user-1": person(), "other": StoredPerson(12, {}, person().created_at_us)}
    world.memory.members = {(7, 11)}
    for distinct_id, is_member in (("user-1", True), ("other", False), ("stranger", has_stranger)):
        outcomes = world.all(distinct_id, person_properties={"plan": "pro"})
        assert not any(outcome.failed for outcome in outcomes.values())
        assert {key: outcome.value for key, outcome in outcomes.items()} == {
            f"{name}-{cohort_id}": (is_member if cohort_id in (7, 8) else not is_member) == (name == "in")
            for cohort_id in (7, 8, 9, 10)
            for name in ("in", "not-in", "negated")
        }


@pytest.mark.parametrize("tree", [tree for tree, _ in BEHAVIOURAL_TREES.values()], ids=BEHAVIOURAL_TREES)
def test_a_cohort_about_behaviour_that_was_never_calculated_has_no_answer(world, tree):
    world.cohort(7, tree)
    world.cohort(8, {"type": "AND", "values": [of(7, operator="not_in")]})
    world.memory.persons["user-1"] = person()
    for cohort_id in (7, 8):
        world.flag(f"in-{cohort_id}", in_cohort(cohort_id))
        world.flag(f"not-in-{cohort_id}", in_cohort(cohort_id, "not_in"))
        world.flag(f"negated-{cohort_id}", in_cohort(cohort_id, negation=True))
    for distinct_id in ("user-1", "stranger"):
        outcomes = world.all(distinct_id)
        assert {reason(outcome) for outcome in outcomes.values()} == {(False, "evaluation_error", None)}
        assert "not been calculated" in outcomes["in-7"].description


def test_a_flag_and_the_page_of_a_cohort_about_behaviour_agree(server):
    people = ("ann", "bob", "eve")
    for name in people:
        server.event("$identify", name, **{"$set": {"plan": "pro"}})
    with server.database.read() as connection:
        paid = connection.exec_driver_sql(
            "SELECT person.uuid FROM person JOIN person_distinct_id ON person_id = person.id "
            "WHERE distinct_id = 'ann'"
        ).scalar()

    def cohort(*rules):
        filters = {"properties": {"type": "AND", "values": list(rules)}}
        return server.cohorts.create(server.project, None, {"name": "Some", "filters": filters}).id

    payers = cohort(PAID)
    others = cohort(PRO, of(payers, operator="not_in"))
    server.create("paid", in_cohort(payers))
    server.create("has-not-paid", in_cohort(payers, "not_in"))
    server.create("other", in_cohort(others))
    before = server.flags("ann")
    assert before["errorsWhileComputingFlags"] is True
    assert not any(flag["enabled"] for flag in before["flags"].values())

    CohortCalculator(server.database, behaviour=lambda _project, _rule: [paid]).run()

    def page(cohort_id):
        answer = server.client.get(f"/api/projects/1/cohorts/{cohort_id}/persons/").json()
        return {name for each in answer["results"] for name in each["distinct_ids"]}

    def those_with(flag):
        return {name for name in people if server.flags(name)["flags"][flag]["enabled"]}

    assert those_with("paid") == page(payers) == {"ann"}
    assert those_with("other") == those_with("has-not-paid") == page(others) == {"bob", "eve"}
    assert server.flags("ann")["errorsWhileComputingFlags"] is False


def test_unknown_and_cyclic_cohorts_fail_the_flag_alone(world):
    world.cohort(1, {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 2}]})
    world.cohort(2, {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 1}]})
    world.cohort(3, {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 2}]})
    world.cohort(4, {"type": "XOR", "values": []})
    for number in (1, 3, 4, 99):
        world.flag(f"f{number}", in_cohort(number))
    world.flag("fine")
    outcomes = world.all()
    assert {key: outcome.failed for key, outcome in outcomes.items()} == {
        "f1": True, "f3": True, "f4": True, "f99": True, "fine": False,
    }  # fmt: skip
    assert outcomes["f99"].reason.code == "evaluation_error"
    assert "99" in outcomes["f99"].description


def test_chains_of_cohorts_do_not_blow_up(world):
    twice = lambda number: {"key": "id", "type": "cohort", "value": number}  # noqa: E731
    world.cohort(0, {"type": "AND", "values": [PRO]})
    for number in range(1, 18):
        world.cohort(number, {"type": "AND", "values": [twice(number - 1)]})
    for number in range(18, 200):
        world.cohort(number, {"type": "OR", "values": [twice(number - 1), twice(number - 1)]})
    world.flag("short", in_cohort(17))
    world.flag("long", in_cohort(199))
    outcomes = world.all(person_properties={"plan": "pro"})
    assert (outcomes["short"].value, outcomes["long"].failed) == (True, True)


# --- dependencies -------------------------------------------------------------------------------


def depends(on, value=True, operator="flag_evaluates_to"):
    return {
        "groups": [{"properties": [{"type": "flag", "key": str(on), "value": value, "operator": operator}]}]
    }


@pytest.mark.parametrize(
    ("actual", "expected", "matches"),
    [
        ("test", True, True),
        ("test", "test", True),
        ("test", "Test", False),
        ("test", False, False),
        (True, True, True),
        (False, False, True),
        (False, True, False),
        (True, "test", False),
    ],
)
def test_published_dependency_vectors(world, actual, expected, matches):
    assert dependency_matches(expected, actual) is matches
    world.flag("f", depends(2, expected))
    variants = {"variants": [{"key": "test", "rollout_percentage": 100}]}
    world.flag(
        "base", {"groups": [{}] if actual else [], "multivariate": variants if actual == "test" else None}
    )
    assert world.value("f") is matches


def test_chain_of_dependencies_in_any_stored_order(world):
    world.flag("third", depends(2))
    world.flag("second", depends(3))
    world.flag("first", {"groups": [{"properties": [PRO]}]})
    assert {k: o.value for k, o in world.all(person_properties={"plan": "pro"}).items()} == {
        "third": True,
        "second": True,
        "first": True,
    }
    assert not any(outcome.value for outcome in world.all().values())


def test_only_requested_flags_are_returned(world):
    world.flag("base", {"groups": [{"properties": [PRO]}]})
    world.flag("top", depends(1))
    outcomes = world.all(choice=FlagSelection(keys=frozenset({"top"})), person_properties={"plan": "pro"})
    assert {key: outcome.value for key, outcome in outcomes.items()} == {"top": True}


def test_inactive_dependency_is_off_and_not_returned(world):
    world.flag("base", active=False)
    world.flag("when-off", depends(1, False))
    world.flag("when-on", depends(1, True))
    outcomes = world.all()
    assert {key: outcome.value for key, outcome in outcomes.items()} == {"when-off": True, "when-on": False}


def test_missing_and_cyclic_dependencies(world):
    world.flag("missing", depends(99, False))
    world.flag("above-missing", depends(1, False))
    world.flag("self", depends(3, False))
    world.flag("a", depends(5, False))
    world.flag("b", depends(4, False))
    world.flag("above-cycle", depends(4, False))
    world.flag("fine", depends(8, False))
    world.flag("off", {"groups": []})
    outcomes = world.all()
    for key in ("missing", "above-missing", "self", "a", "b", "above-cycle"):
        assert reason(outcomes[key]) == (False, "missing_dependency", None), key
    assert outcomes["fine"].value is True


def test_malformed_dependency_does_not_match(world):
    world.flag("base")
    world.flag("wrong-operator", depends(1, True, operator="exact"))
    world.flag("no-value", depends(1, None))
    outcomes = world.all()
    assert (outcomes["wrong-operator"].value, outcomes["no-value"].value) == (False, False)


def test_failed_dependency_fails_what_depends_on_it(world):
    world.flag("base", in_cohort(99))
    world.flag("top", depends(1, False))
    outcomes = world.all()
    assert outcomes["base"].failed
    assert outcomes["top"].failed


def test_long_chains_need_no_stack():
    flags = {number: object() for number in range(5000)}
    needed = {number: frozenset({number + 1}) for number in range(4999)}
    order, unresolvable = order_stages(flags, needed)  # type: ignore[arg-type]
    assert order == list(reversed(range(5000)))
    assert not unresolvable


def test_unchanged_flags_are_taken_over(world):

    world.flag("same", {"groups": [{"properties": [PRO]}]})
    world.flag("changed")
    world.flag("dependent", depends(2))
    before = world.project()
    world.sources[1] = world.sources[1].__class__(2, "changed", {"groups": []}, True, 2)
    after = ProjectFlags(world.project().data, before)
    assert after.flags[1] is before.flags[1]
    assert after.flags[2] is not before.flags[2]
    assert after.flags[3] is before.flags[3]
    del world.sources[1]
    assert ProjectFlags(world.project().data, after).flags[3] is not after.flags[3]
    world.cohort(1, {})
    assert ProjectFlags(world.project().data, after).flags[1] is not after.flags[1]
