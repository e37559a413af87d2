"""One flag: its rules in words, the form to change it with what differs, a person to try, and its history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import event
from tests.ui.test_flags import flag, stored

FIELD = "() => document.querySelector('fieldset.condition .fault')?.innerText"
CONDITIONS = "() => document.querySelectorAll('fieldset.condition').length"
BAR = """
() => {
  const bar = document.querySelector(".save-bar")
  const {top, bottom} = bar.getBoundingClientRect()
  const at = document.activeElement
  const inBar = bar.contains(at)
  const hides = !inBar && at.closest(".flag-main") !== null && at.getBoundingClientRect().bottom > top
  return {inView: Math.round(bottom) <= innerHeight, inBar, hides: hides ? at.outerHTML : null}
}
"""
"""Whether the bar to save is in view, has the focus, or hides what has the focus."""
MOST_STOPS = 200
"""Presses of Tab within which the keyboard must come to the bar."""
PRO = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}


def edit(page: Page, made: dict[str, Any]) -> None:
    """Open the form of a flag."""
    page.show(f"/p/1/flags/{made['id']}", "Try a person")
    page.button("Edit")
    page.see("Review and save")


def field(page: Page, name: str, text: str) -> None:
    """Fill a field by its name."""
    page.fill(f'role=textbox[name="{name}"]', text)


def test_13_5_2_a_flag_is_made_with_filters_variants_and_payloads(page: Page, lab: Lab) -> None:
    lab.client.send([event("$identify", "pia", datetime.now(UTC), {"$set": {"favourite_colour": "green"}})])
    lab.client.settled("$identify")
    page.show("/p/1/flags", "one-page-checkout")
    page.button("New flag")
    page.see("Create flag")
    page.button("Create flag")
    page.see("This cannot be saved yet. A key has letters, digits, hyphens and underscores.")
    field(page, "Key", "made-here")
    field(page, "Name", "Made in the browser")
    field(page, "Tags", "ui, browser")
    field(page, "Rollout of condition 1 in percent", "40")
    page.button("Add a filter")
    page.until("() => document.querySelector('datalist option[value=favourite_colour]')")
    page.fill('[aria-label="Property"]', "plan")
    field(page, "Value", "pro, team")
    page.see("40% of people where plan is pro, team")
    page.button("Add variants")
    field(page, "Share of variant 1 in percent", "70")
    page.see("The shares sum to 120%.")
    page.button("Create flag")
    page.see("The shares sum to 120. They must sum to 100.")
    page.button("Equalise")
    page.see("The shares sum to 100%.")
    field(page, "Payload of test", '{"colour": ')
    page.button("Create flag")
    page.see("This is not valid JSON")
    field(page, "Payload of test", '{"colour": "green"}')
    page.button("Create flag")
    page.see("Created made-here.")
    page.see("40% of people where plan is pro, team")
    (found,) = lab.client.call("GET", "feature_flags/", search="made-here")["results"]
    assert (found["name"], found["tags"]) == ("Made in the browser", ["ui", "browser"])
    (group,) = found["filters"]["groups"]
    assert (group["rollout_percentage"], group["properties"]) == (40, [PRO | {"value": ["pro", "team"]}])
    shares = [
        (each["key"], each["rollout_percentage"]) for each in found["filters"]["multivariate"]["variants"]
    ]
    assert shares == [("control", 50), ("test", 50)]
    assert found["filters"]["payloads"] == {"test": '{"colour": "green"}'}


def test_13_5_2_conditions_are_copied_moved_and_removed(page: Page, lab: Lab) -> None:
    base = flag(lab, "conditions-base")
    made = flag(lab, "conditions", filters={"groups": [{"properties": [PRO]}, {"rollout_percentage": 5}]})
    edit(page, made)
    page.button("Move condition 2 up")
    page.button("Copy condition 1")
    page.until(f"() => ({CONDITIONS})() === 3")
    page.button("Remove condition 2")
    page.until(f"() => ({CONDITIONS})() === 2")
    page.click('fieldset:has-text("Condition 1") >> text="Add a filter"')
    page.tell("choose", selector='[role=group][aria-label="Filter 1"] label select >> nth=0', text="flag")
    page.fill('fieldset:has-text("Condition 1") >> role=combobox[name="Flag"]', "conditions-base")
    page.see("5% of people where flag conditions-base is true")
    page.button("Review and save …")
    page.see("100% of people where plan is pro")
    page.button("Save")
    page.see("Saved conditions.")
    page.see("5% of people where flag conditions-base is true")
    groups = stored(lab, made)["filters"]["groups"]
    assert [group["rollout_percentage"] for group in groups] == [5, 100]
    assert groups[0]["properties"][0]["key"] == str(base["id"])


def test_13_5_2_a_refusal_of_the_api_stands_at_its_field(page: Page, lab: Lab) -> None:
    made = flag(lab, "refused", filters={"groups": [{"rollout_percentage": 1}]})
    flag(lab, "taken")
    edit(page, made)
    page.button("Add a filter")
    page.fill('[aria-label="Property"]', "age")
    page.tell("choose", selector='role=combobox[name="Operator"]', text="is greater than")
    field(page, "Value", "many")
    page.button("Review and save …")
    page.button("Save")
    page.until(f"() => ({FIELD})()?.length > 5")
    field(page, "Value", "18")
    page.until(f"() => !({FIELD})()")
    field(page, "Key", "taken")
    page.button("Review and save …")
    page.see("no longer finds the flag")
    page.button("Save")
    page.see("There is already a feature flag with this key.")
    page.until("() => document.querySelector('input[aria-invalid]')?.value === 'taken'")
    assert stored(lab, made)["version"] == made["version"]
    page.begin()  # the refusals were asked for


def test_13_5_2_a_change_of_somebody_else_is_not_overwritten(page: Page, lab: Lab) -> None:
    made = flag(lab, "shared-flag")
    edit(page, made)
    field(page, "Name", "Mine")
    lab.client.call("PATCH", f"feature_flags/{made['id']}/", {"tags": ["theirs"]})
    page.button("Review and save …")
    page.button("Save")
    page.see("Somebody else changed this flag meanwhile")
    page.see("theirs")
    found = stored(lab, made)
    assert (found["name"], found["tags"]) == ("", ["theirs"])
    page.button("Keep my edits and compare again")
    page.button("Review and save …")
    page.see("theirs")  # the difference to what is stored now names it
    page.button("Save")
    page.see("Saved shared-flag.")
    assert stored(lab, made)["name"] == "Mine"
    page.begin()  # the refusal was asked for


def test_13_5_2_the_bar_to_save_is_in_view_and_hides_nothing_that_has_the_focus(page: Page, lab: Lab) -> None:
    edit(page, flag(lab, "long-form", filters={"groups": [{"properties": [PRO]}, {}, {}, {}]}))
    page.run("() => document.querySelector('.flag-main input').focus()")
    for _ in range(MOST_STOPS):
        bar = page.run(BAR)
        assert bar["inView"]
        assert bar["hides"] is None
        if bar["inBar"]:
            return
        page.press("Tab")
    pytest.fail("the keyboard does not come to the bar")


def test_13_5_2_a_flag_is_deleted_unless_others_depend_on_it_and_brought_back(page: Page, lab: Lab) -> None:
    made = flag(lab, "to-delete")
    needs = {"key": str(made["id"]), "type": "flag", "operator": "flag_evaluates_to", "value": True}
    other = flag(lab, "needs-it", filters={"groups": [{"properties": [needs]}]})
    page.show(f"/p/1/flags/{made['id']}", "Try a person")
    page.click("summary:has-text('More')")
    page.button("Delete …")
    page.button("Delete")
    page.see('depend on it: "needs-it"')
    page.press("Escape")
    lab.client.call("PATCH", f"feature_flags/{other['id']}/", {"active": False})
    page.click("summary:has-text('More')")
    page.button("Delete …")
    page.button("Delete")
    page.see("Deleted to-delete.")
    page.button("Undo")
    page.see("to-delete is back.")
    assert stored(lab, made)["key"] == "to-delete"
    page.begin()  # the refusal was asked for


def test_13_5_3_a_person_is_tried_with_saved_and_unsaved_rules(page: Page, lab: Lab) -> None:
    """The form asks the evaluator of SDKs: before saving it says what `/flags` answers after it."""
    made = flag(lab, "tried", filters={"groups": [{"properties": [PRO], "rollout_percentage": 100}]})
    lab.client.send([event("$identify", "tia", datetime.now(UTC), {"$set": {"plan": "free"}})])
    lab.client.settled("$identify", 2)
    page.show(f"/p/1/flags/{made['id']}", "Try a person")
    field(page, "Distinct id", "tia")
    page.see("Gets false")
    page.see('✗ plan is pro · is "free"')
    page.see("✓ rollout 100%")
    page.see("The person is known.")
    field(page, "Distinct id", "nobody-at-all")
    page.see("Nobody with this id is known")
    page.see("is not there")
    page.button("Edit")
    page.see("Review and save")
    field(page, "Distinct id", "tia")
    page.see("Gets false")
    field(page, "Value", "free")
    page.see("Gets true")
    page.see("with your changes")
    assert stored(lab, made)["version"] == made["version"]
    page.button("Add variants")
    field(page, "Share of variant 1 in percent", "0")
    field(page, "Share of variant 2 in percent", "100")
    page.see("Gets test")
    page.button("Review and save …")
    page.button("Save")
    page.see("Saved tried.")
    body = {"token": lab.client.token, "distinct_id": "tia"}
    answer = lab.client.call("POST", "/flags/?v=2", body)["flags"]["tried"]
    assert (answer["enabled"], answer["variant"]) == (True, "test")


def test_13_5_4_saving_shows_what_differs_and_warns_of_a_running_experiment(page: Page, lab: Lab) -> None:
    page.show(f"/p/1/flags/{lab.lopsided['feature_flag']['id']}", "Try a person")
    page.button("Edit")
    field(page, "Rollout of condition 1 in percent", "50")
    page.button("Review and save …")
    page.see("50% of everyone")
    page.see("The experiment “Lopsided” is running")
    assert page.axe() == []
    page.press("Escape")


def test_13_5_4_encrypted_payloads_are_never_shown(page: Page, lab: Lab) -> None:
    filters = {"groups": [{}], "payloads": {"true": '"the secret"'}}
    made = flag(lab, "sealed", filters=filters, is_remote_configuration=True, has_encrypted_payloads=True)
    edit(page, made)
    page.see("set, and secret")
    field(page, "Name", "Still secret")
    page.button("Review and save …")
    page.button("Save")
    page.see("Saved sealed.")
    assert "the secret" not in page.tell("content")
    assert lab.client.call("GET", "feature_flags/sealed/remote_config/") == '"the secret"'


def test_13_5_5_history_says_who_changed_what_and_leads_back(page: Page, lab: Lab) -> None:
    made = flag(lab, "with-history", name="First")
    path = f"feature_flags/{made['id']}/"
    lab.client.call("PATCH", path, {"name": "Second", "filters": {"groups": [{"rollout_percentage": 80}]}})
    lab.client.call("PATCH", path, {"filters": {"early_exit": True}, "active": False})
    page.show(f"/p/1/flags/{made['id']}?tab=history", "created it")
    page.see("80% of everyone")
    page.see("Switched off.")
    page.click('text="Go back to this state …" >> nth=1')
    page.see("The flag becomes as it was")
    assert page.axe() == []
    page.button("Go back")
    page.see("The flag is as it was.")
    found = stored(lab, made)
    assert (found["name"], found["active"]) == ("First", True)
    assert found["filters"]["groups"][0]["rollout_percentage"] == 25
    assert not found["filters"].get("early_exit")
