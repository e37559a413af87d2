"""The list of flags: search, filters, the switch with its undo, and how it stands ten thousand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ui import scenario
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.waiting import PATIENCE_S

ROW = """
(key) => [...document.querySelectorAll("tbody tr")]
  .find((row) => row.querySelector("[data-row]").innerText === key)?.innerText
"""
KEYS = "() => [...document.querySelectorAll('tbody [data-row]')].map((each) => each.innerText)"
MANY = 10_000
COPY = """
INSERT INTO feature_flag ({columns})
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
SELECT {values} FROM feature_flag, numbers WHERE feature_flag.id = ?
"""


def flag(lab: Lab, key: str, **more: Any) -> dict[str, Any]:
    """A new flag for a quarter of everyone, unless said otherwise."""
    filters = {"groups": [{"properties": [], "rollout_percentage": 25}]}
    made: dict[str, Any] = lab.client.call("POST", "feature_flags/", {"key": key, "filters": filters, **more})
    return made


def stored(lab: Lab, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.client.call("GET", f"feature_flags/{made['id']}/")
    return found


@pytest.fixture(scope="module")
def made(lab: Lab) -> dict[str, dict[str, Any]]:
    """Flags of some kinds, beside those of the experiments."""
    plan = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
    split = {"variants": [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]}
    groups = [{"properties": [plan], "rollout_percentage": 100}]
    return {
        "quarter": flag(lab, "list-quarter", name="A new basket", tags=["shop", "list"]),
        "plan": flag(lab, "list-plan", filters={"groups": groups, "multivariate": split}, tags=["list"]),
        "both": flag(lab, "list-both", filters={"groups": groups * 2}, tags=["list"], active=False),
    }


def test_13_5_1_a_person_finds_the_flags_and_reads_who_gets_them(
    page: Page, lab: Lab, made: dict[str, dict[str, Any]]
) -> None:
    page.show("/p/1/experiments", "Lopsided")
    page.click("nav >> text=Flags")
    page.see("list-quarter")
    assert page.address() == "/ui/p/1/flags"
    expected = {
        "list-quarter": ["A new basket", "shop", "On", "25% of everyone", "My user"],
        "list-plan": ["On", "everyone where plan is pro, 2 variants"],
        "list-both": ["Off", "2 conditions"],
        "lopsided": ["On", "everyone, 2 variants", "Lopsided"],
    }
    owner = lab.client.call("GET", "/api/users/@me/")
    expected["list-quarter"][-1] = owner["first_name"] or owner["email"]
    for key, texts in expected.items():
        row = page.run(ROW, key)
        assert [text for text in texts if text not in row] == [], row
    page.click('tbody td >> text="Lopsided"')
    page.see("Do not decide")


def test_13_5_1_the_server_searches_and_filters_are_in_the_address(
    page: Page, lab: Lab, made: dict[str, dict[str, Any]]
) -> None:
    page.show("/p/1/flags", "list-quarter")
    page.fill("input[type=search]", "NEW BASKET")  # a part of the name
    page.gone("list-plan")
    page.see("list-quarter")
    assert "search=NEW+BASKET" in page.address()
    assert page.requests("/feature_flags/?limit=50&offset=0&order=-created_at&search=NEW+BASKET")
    page.tell("reload")
    page.see("list-quarter")
    page.gone("list-plan")
    page.fill("input[type=search]", "list-")
    page.see("3 flags")
    for label, choice, keys, part in (
        ("State", "Off", ["list-both"], "active=false"),
        ("State", "Any", ["list-both", "list-plan", "list-quarter"], ""),
        ("Kind", "Variants", ["list-plan"], "type=multivariant"),
        ("Kind", "Any", ["list-both", "list-plan", "list-quarter"], ""),
        ("Tag", "shop", ["list-quarter"], "tag=shop"),
        ("Tag", "Any", ["list-both", "list-plan", "list-quarter"], ""),
        ("Created by", "Me", ["list-both", "list-plan", "list-quarter"], "by=me"),
    ):
        page.tell("choose", selector=f'label:has-text("{label}") select', text=choice)
        page.until(f"(keys) => JSON.stringify(({KEYS})()) === JSON.stringify(keys)", keys)
        assert part in page.address()
    page.click('thead button:has-text("Flag")')
    page.see("Flag ↑")
    page.until(f"() => ({KEYS})()[0] === 'list-both'")
    page.click('thead button:has-text("Flag")')
    page.until(f"() => ({KEYS})()[0] === 'list-quarter'")
    page.fill("input[type=search]", "list-nothing-has-this-name")
    page.see("No flag matches")
    page.button("Show all")
    page.see("one-page-checkout")


def test_13_5_1_a_switch_says_what_changes_and_can_be_undone(page: Page, lab: Lab) -> None:
    made = flag(lab, "to-switch")
    page.show("/p/1/flags?search=to-switch", "to-switch")
    switch = 'role=switch[name="to-switch is on"]'
    page.click(switch)
    page.see("Nobody gets the flag any more. Now it is on for 25% of everyone.")
    page.press("Escape")
    page.gone("Nobody gets the flag any more.")
    assert stored(lab, made)["active"]
    page.click(switch)
    page.button("Switch off")
    page.see("to-switch is off.")
    page.until("() => document.querySelector('[role=switch]').getAttribute('aria-checked') === 'false'")
    assert not stored(lab, made)["active"]
    page.button("Undo")
    page.see("to-switch is on again.")
    page.until("() => document.querySelector('[role=switch]').getAttribute('aria-checked') === 'true'")
    assert stored(lab, made)["active"]


def test_13_5_1_a_switch_names_the_running_experiment_and_a_refusal_is_shown(page: Page, lab: Lab) -> None:
    page.show("/p/1/flags?search=lopsided", "lopsided")
    page.click('role=switch[name="lopsided is on"]')
    page.see("The experiment “Lopsided” is running.")
    page.press("Escape")
    base = flag(lab, "switch-base")
    needs = {"key": str(base["id"]), "type": "flag", "operator": "flag_evaluates_to", "value": True}
    flag(lab, "switch-needs", filters={"groups": [{"properties": [needs]}]})
    page.show("/p/1/flags?search=switch-base", "switch-base")
    page.click('role=switch[name="switch-base is on"]')
    page.button("Switch off")
    page.see("active feature flag(s) depend on it")
    assert stored(lab, base)["active"]
    page.begin()  # the refusal was asked for


def test_13_5_1_nothing_yet_says_what_a_flag_is_for(page: Page, lab: Lab) -> None:
    project = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "No flags"})
    page.show(f"/p/{project['id']}/flags", "No flags yet")
    page.see("switches a part of your product on or off")
    page.see("curl")


def test_13_5_1_the_palette_and_a_shortcut_lead_to_flags(
    page: Page, lab: Lab, made: dict[str, dict[str, Any]]
) -> None:
    page.show("/p/1/experiments", "Lopsided")
    page.palette()
    page.tell("type", text="list-qua")
    page.until("() => document.querySelector('[role=option]')?.innerText.includes('list-quarter')")
    page.press("Enter")
    page.see("A new basket")
    assert page.address() == f"/ui/p/1/flags/{made['quarter']['id']}"
    page.palette()
    page.tell("type", text="go to flags")
    page.press("Enter")
    page.see("25% of everyone")
    assert page.address() == "/ui/p/1/flags"
    page.press("g")
    page.press("e")
    page.see("One-page checkout")
    page.press("g")
    page.press("f")
    page.see("25% of everyone")


@pytest.fixture
def many(lab: Lab) -> dict[str, Any]:
    """A project with ten thousand flags, every hundredth made long ago for everyone."""
    project: dict[str, Any] = lab.client.call(
        "POST", "/api/organizations/@current/projects/", {"name": "Many flags"}
    )
    client = scenario.Client(lab.server.url, lab.server.api_key, project["api_token"], project["id"])
    filters = {"groups": [{"properties": [], "rollout_percentage": 100}]}
    first = client.call("POST", "feature_flags/", {"key": "flag-0", "filters": filters})
    client.close()
    with closing(sqlite3.connect(lab.server.data / "hoglab.db", timeout=PATIENCE_S)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(feature_flag)") if row[1] != "id"]
        (new,) = database.execute(
            "SELECT created_at FROM feature_flag WHERE id = ?", (first["id"],)
        ).fetchone()
        age = timedelta(days=60)
        old = (
            f"{new} - {int(age.total_seconds() * 1_000_000)}"
            if isinstance(new, int)
            else repr((datetime.now(UTC) - age).strftime("%Y-%m-%d %H:%M:%S.%f"))
        )
        own = {
            "key": "'flag-' || n",
            "name": "'Number ' || n",
            "created_at": f"CASE WHEN n % 100 = 0 THEN {old} ELSE created_at END",
        }
        values = ", ".join(own.get(each, each) for each in columns)
        database.execute(COPY.format(columns=", ".join(columns), values=values), (MANY - 1, first["id"]))
    return project


def test_13_5_1_ten_thousand_flags(page: Page, lab: Lab, many: dict[str, Any]) -> None:
    own = f"/api/projects/{many['id']}/feature_flags/"
    page.show(f"/p/{many['id']}/flags", "10,000 flags")
    assert len(page.requests(own)) == 1
    assert page.run("() => document.querySelectorAll('tbody tr').length") == 50
    page.button("Next")
    page.until("() => location.search.includes('offset=50')")
    page.see("10,000 flags")
    page.fill("input[type=search]", "number 9999")
    page.see("1 flag")
    page.until(f"() => JSON.stringify(({KEYS})()) === '[\"flag-9999\"]'")
    assert "offset" not in page.address()
    page.fill("input[type=search]", "")
    page.see("10,000 flags")
    page.tell("choose", selector='label:has-text("State") select', text="Stale")
    page.see("99 flags")
    rows = page.run("() => [...document.querySelectorAll('tbody tr')].map((each) => each.innerText)")
    assert all("stale" in row for row in rows)
    assert len(page.requests(own)) <= 6
