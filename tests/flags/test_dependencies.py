"""Which dependencies between flags are accepted on saving (spec: sdk-wire 3.10)."""

from __future__ import annotations

import pytest
from tests.flags.requests import URL


def on(key, value=True, **more):
    """Filters of a flag that depends on another."""
    leaf = {"type": "flag", "key": str(key), "value": value, "operator": "flag_evaluates_to", **more}
    return {"groups": [{"properties": [leaf]}]}


def variants(*keys):
    """Filters of a flag that shows everybody the first of these variants; of a flag without any when there are none."""
    shares = [{"key": key, "rollout_percentage": 0 if place else 100} for place, key in enumerate(keys)]
    return {"groups": [{}], "multivariate": {"variants": shares} if keys else None}


def refused(answer, detail, code="invalid_input"):
    body = answer.json()
    assert (answer.status_code, body["attr"], body["code"]) == (400, "filters", code), body
    assert detail in body["detail"]


def test_dependencies_are_kept_by_id(server):
    base = server.create("base", variants("test"))
    by_id = server.create("by-id", on(base["id"]))
    by_key = server.create("by-key", on("base", value="test"))
    for made in (by_id, by_key):
        assert made["filters"]["groups"][0]["properties"][0]["key"] == str(base["id"])
    assert server.flags()["flags"]["by-id"]["enabled"] is True


def test_circles_are_refused(server):
    first = server.create("first")
    second = server.create("second", on(first["id"]))
    third = server.create("third", on(second["id"]))
    refused(server.patch(first["id"], filters=on(first["id"])), "cannot depend on itself")
    refused(server.patch(first["id"], filters=on("first")), "cannot depend on itself")
    refused(server.patch(first["id"], filters=on(second["id"])), "circle: first -> second -> first")
    refused(server.patch(first["id"], filters=on(third["id"])), "circle: first -> third -> second -> first")
    assert server.flags()["flags"]["third"]["enabled"] is True


def test_a_diamond_is_no_circle(server):
    base = server.create("base")
    left, right = server.create("left", on(base["id"])), server.create("right", on(base["id"]))
    top = on(left["id"])
    top["groups"][0]["properties"] += on(right["id"])["groups"][0]["properties"]
    assert server.create("top", top)["active"] is True
    assert server.flags()["flags"]["top"]["enabled"] is True


@pytest.mark.parametrize("key", ["99", "nobody", ""])
def test_unknown_flags_are_refused(server, key):
    refused(server.client.post(URL, json={"key": "new", "filters": on(key)}), "does not exist")


def test_a_flag_that_depends_on_its_own_new_key(server):
    refused(server.client.post(URL, json={"key": "new", "filters": on("new")}), "cannot depend on itself")


def test_other_operators_and_values_are_refused(server):
    base = server.create("base")
    for operator in ("exact", "in"):
        answer = server.client.post(URL, json={"key": "new", "filters": on(base["id"], operator=operator)})
        refused(answer, f"Operator {operator} does not compare", "cross_field.operator_never_matches")
    for value in (1, None, ["test"]):
        answer = server.client.post(URL, json={"key": "new", "filters": on(base["id"], value=value)})
        refused(answer, "A flag evaluates to", "cross_field.operand_never_matches")


def test_a_dependency_on_a_flag_that_is_gone_may_stay(server):
    base = server.create("base")
    above = server.create("above", on(base["id"]), active=False)
    assert server.patch(base["id"], deleted=True).status_code == 200
    answer = server.patch(above["id"], name="Above", filters=above["filters"])
    assert answer.status_code == 200, answer.text
    assert server.patch(base["id"], deleted=False).status_code == 200
    assert server.patch(above["id"], active=True).status_code == 200
    assert server.flags()["flags"]["above"]["enabled"] is True


TAKING_AWAY = {
    "delete": ({"deleted": True}, None, "delete this feature flag"),
    "disable": ({"active": False}, None, "disable this feature flag"),
    "archive": ({"active": False, "archived": True}, None, "disable this feature flag"),
    "remove the variant": ({"filters": variants("a")}, "filters", "remove variant(s) 'b'"),
    "rename the variant": ({"filters": variants("a", "c")}, "filters", "remove variant(s) 'b'"),
    "remove all variants": ({"filters": variants()}, "filters", "remove variant(s) 'b'"),
}
"""Changes that take away what a flag depends on that needs the variant b; the field and the words of the refusal."""


@pytest.mark.parametrize("place", ["groups", "super_groups"])
@pytest.mark.parametrize(("changes", "attr", "detail"), TAKING_AWAY.values(), ids=TAKING_AWAY)
def test_nothing_takes_away_what_an_active_flag_depends_on(server, changes, attr, detail, place):
    base = server.create("base", variants("a", "b"))
    leaves = on("base", "b")["groups"]
    above = server.create("above", {"groups": [{}], place: leaves})
    answer = server.patch(base["id"], **changes)
    body = answer.json()
    assert (answer.status_code, body["code"], body["attr"]) == (400, "invalid_input", attr)
    assert f"Cannot {detail} because active feature flag(s) depend on " in body["detail"]
    assert f'"above" (ID: {above["id"]})' in body["detail"]
    assert server.client.get(f"{URL}{base['id']}/").json()["version"] == 1
    # A disabled or deleted flag needs nothing, but cannot be enabled then, unless it only lacks an enabled flag.
    assert server.patch(above["id"], active=False).status_code == 200
    assert server.patch(base["id"], **changes).status_code == 200
    answer = server.patch(above["id"], active=True)
    if "active" in changes:
        assert answer.status_code == 200
    else:
        refused(answer, "does not exist" if "deleted" in changes else "has no variant 'b'")
        assert (
            server.patch(above["id"], active=True, filters={place: [{}], "groups": [{}]}).status_code == 200
        )


def test_other_changes_of_a_flag_that_is_needed_pass(server):
    base = server.create("base", variants("a", "b", "c"))
    server.create("above", on("base", "b"))
    for changes in (
        {"filters": variants("b", "a")},
        {"key": "renamed", "name": "Base"},
        {"active": True},
        {"filters": {"groups": [{"rollout_percentage": 0}]}},
    ):
        assert server.patch(base["id"], **changes).status_code == 200, changes


def test_restoring_an_active_flag_enables_it(server):
    base = server.create("base")
    above = server.create("above", on("base"))
    assert server.patch(above["id"], deleted=True).status_code == 200
    assert server.patch(base["id"], deleted=True).status_code == 200
    refused(server.patch(above["id"], deleted=False), "does not exist")
    assert server.patch(above["id"], deleted=False, active=False).status_code == 200
    refused(server.patch(above["id"], active=True), "does not exist")


def test_variants_that_a_flag_lacks_are_refused(server):
    server.create("base", variants("a"))
    refused(server.client.post(URL, json={"key": "new", "filters": on("base", "b")}), "has no variant 'b'")
    assert server.client.post(URL, json={"key": "new", "filters": on("base", "a")}).status_code == 201


def test_a_circle_that_came_about_elsewhere_does_no_harm(server):
    """Rows written by another version, or by hand: flags in a circle are off, all others are answered."""
    first = server.create("first")
    server.create("second", on(first["id"]))
    with server.database.write() as tx:
        tx.connection.exec_driver_sql(
            "UPDATE feature_flag SET filters = (SELECT filters FROM feature_flag WHERE key = 'second') "
            "WHERE key = 'first'"
        )
        tx.changed("flags", 1)
    server.create("alone")
    flags = server.flags()["flags"]
    assert flags["first"]["reason"]["code"] == flags["second"]["reason"]["code"] == "missing_dependency"
    assert flags["alone"]["enabled"] is True
    refused(server.client.post(URL, json={"key": "new", "filters": on("missing")}), "does not exist")
    assert server.client.post(URL, json={"key": "new", "filters": on("first")}).status_code == 201
