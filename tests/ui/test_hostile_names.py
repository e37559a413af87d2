"""Names that would run, turn text round, or take a screen, wherever somebody's name can be shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.ui import scenario
from tests.ui.conftest import HOSTILE, Lab
from tests.ui.page import Page
from tests.ui.scenario import Client, event

LONG = "W" * 10_000
NOTHING_OVERFLOWS = """
() => ![...document.querySelectorAll("td, th")]
  .filter((each) => getComputedStyle(each).position !== "absolute" && !each.closest(".scroll"))
  .filter((each) => each.getBoundingClientRect().width > 0)
  .some((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === "visible")
"""
LABELS = """
() => [...document.querySelectorAll("[aria-label], [title], svg title")]
  .map((each) => [each.getAttribute("aria-label"), each.getAttribute("title"), each.textContent]).flat().join(" ")
"""
"""What screen readers and tooltips say."""
SHARP = "onerror=document.title"
"""A part of the name that is seen whole where it is cut."""


@pytest.fixture(scope="module")
def hostile(lab: Lab) -> dict[str, Any]:
    """A person, a flag and events whose names would run, turn text round, or take a screen."""
    made = lab.client.call(
        "POST",
        "feature_flags/",
        {
            "key": "hostile-flag",
            "name": HOSTILE,
            "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]},
        },
    )
    body = {"type": "destination", "name": HOSTILE, "description": HOSTILE, "hog": f"print(1) // {HOSTILE}"}
    function = lab.client.call("POST", "hog_functions/", body | {"inputs_schema": []})
    group = {"$group_type": "company", "$group_key": HOSTILE, "$group_set": {HOSTILE: HOSTILE}}
    known = {"$set": {"name": HOSTILE, HOSTILE: HOSTILE}}
    lab.client.send(
        [
            {"event": "$groupidentify", "distinct_id": "hostile", "properties": group},
            event("$identify", "hostile person", datetime.now(UTC), known),
        ]
    )
    lab.client.settled("$groupidentify")
    lab.client.settled("$identify")
    found = lab.client.call("GET", "events/", limit=1, event=HOSTILE)["results"][0]
    return {"event": found, "flag": made["id"], "function": function["id"]}


def check(page: Page, address: str) -> None:
    """Nothing ran, nothing leads elsewhere, nothing is turned round, and the layout stands."""
    page.see(SHARP)
    assert page.run("() => document.images.length") == 0
    assert "hacked" not in page.run("() => document.title.slice(0, 6)")
    assert page.run("() => [...document.links].filter((link) => !/^https?:/.test(link.href)).length") == 0
    assert "\u202e" not in page.text()
    assert "\u202e" not in page.run(LABELS)
    for how in ("narrow", "light"):
        page.look(how)
        assert not page.too_wide(), (address, how)
        page.until(NOTHING_OVERFLOWS)


def test_13_7_2_hostile_names(page: Page, lab: Lab, hostile: dict[str, Any]) -> None:
    found = hostile["event"]
    uuid = lab.results(lab.hostile)["metrics"][0]["uuid"]
    path = f"/p/1/experiments/{lab.hostile['id']}"
    screens = {
        f"{path}?open={uuid}": "Day by day",
        f"{path}?tab=setup": "Who takes part",
        f"{path}?tab=history": "History",
        "/p/1/experiments": "One-page checkout",
        f"{path}/edit": "In short",
        f"/p/1/events?{urlencode({'event': HOSTILE, 'columns': f'link,long,{HOSTILE}'})}": "events shown",
        f"/p/1/events/{found['uuid']}": "Properties",
        f"/p/1/person/{quote(found['distinct_id'], safe='')}": "Newest events",
        "/p/1/person/hostile%20person": "Newest events",
        "/p/1/flags?search=hostile-flag": "hostile-flag",
        f"/p/1/flags/{hostile['flag']}": "Rules",
        f"/p/1/flags/{lab.hostile['feature_flag']['id']}": "Variants",
        f"/p/1/flags/{hostile['flag']}?edit=yes": "Review and save",
        f"/p/1/functions/{hostile['function']}": "Newest log lines",
        f"/p/1/groups/0/{quote(HOSTILE, safe='')}": "Properties",
    }
    for address, text in screens.items():
        page.show(address, text)
        check(page, address)
    # A dialog that proposes the name, and one that makes something of it.
    page.show(f"/p/1/events/{found['uuid']}", "Properties")
    page.button("Create metric …")
    page.see("What counts")
    assert page.run("() => document.images.length") == 0


def test_13_7_2_hostile_names_in_dialogs_readings_and_search(
    page: Page, lab: Lab, hostile: dict[str, Any]
) -> None:
    path = f"/p/1/experiments/{lab.hostile['id']}"
    page.show(path, "Primary metrics")
    page.button("End …")
    page.see("people keep their variants")
    check(page, "the dialog to end")
    page.press("Escape")
    page.click("summary:has-text('More')")
    page.button("Ship …")
    page.click("dialog input[type=radio] >> nth=1")
    page.see("of the experiment will see")
    check(page, "the dialog to ship")
    page.press("Escape")
    page.palette()
    page.tell("type", text="onerror")
    for kind in ("Experiment", "Function", "Person"):
        page.until(
            "(kind) => [...document.querySelectorAll('[role=option]')].some((each) => each.innerText.endsWith(kind))",
            kind,
        )
    check(page, "the palette")
    page.press("Escape")
    page.show("/p/1/settings/keys", "First key")
    page.button("Create key …")
    page.fill("dialog input", HOSTILE[:40])
    page.button("Create key")
    page.see("copy it now")
    page.button("Hide the key")
    page.click("role=button[name=/^Revoke <img/]")
    page.see("stops working at once")
    check(page, "the dialog to revoke")
    page.click('dialog >> role=button[name="Revoke"]')
    page.until("() => !document.querySelector('dialog')")


def test_13_7_2_a_course_names_its_variants_as_text(page: Page, lab: Lab) -> None:
    """The reading of a day, which needs two days that have an interval."""
    made = scenario.launch(
        lab.client,
        HOSTILE,
        "hostile-course",
        (("control", 50), (HOSTILE, 50)),
        metrics=[scenario.metric(HOSTILE, "funnel", series=[scenario.node("read a day")])],
    )
    sent = []
    for number in range(400):
        person, at = f"course-{number}", scenario.start().replace(minute=number // 10)
        sent.append(scenario.exposure(person, "hostile-course", HOSTILE if number % 2 else "control", at))
        if number % 5 in (0, 1):
            sent.append(event("read a day", person, at.replace(hour=13)))
    lab.client.send(sent)
    scenario.settle(lab.client, made, 400)
    uuid = lab.results(made)["metrics"][0]["uuid"]
    page.show(f"/p/1/experiments/{made['id']}?open={uuid}", "Day by day")
    page.until("() => document.querySelector('svg[tabindex]')")
    page.press("ArrowLeft", "svg[tabindex]")
    page.until("() => document.querySelector('.reading strong')")
    assert SHARP in page.run("() => document.querySelector('.reading').innerText")
    check(page, "a course")


def test_13_7_2_names_of_ten_thousand_characters(page: Page, lab: Lab) -> None:
    made = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "L" * 200})
    client = Client(lab.server.url, lab.server.api_key, made["api_token"], made["id"])
    base = f"/p/{made['id']}"
    page.show(f"{base}/events/live", "Connected.")
    properties = {LONG: LONG, "$set": {"name": LONG, LONG: LONG}}
    client.send([event(LONG, "L" * 200, datetime.now(UTC), properties)])
    page.see("W" * 80)
    client.settled(LONG)
    (found,) = client.call("GET", "events/", limit=1)["results"]
    screens = {
        f"{base}/events/live": "Live events",
        f"{base}/events?{urlencode({'columns': LONG[:500]})}": "1 event shown",
        f"{base}/events/{found['uuid']}": "Properties",
        f"{base}/person/{found['distinct_id']}": "Newest events",
        f"{base}/setup": "Send an event",
        f"{base}/settings/project": "Project token",
    }
    for address, text in screens.items():
        page.show(address, text)
        for how in ("narrow", "light"):
            page.look(how)
            assert not page.too_wide(), (address, how)
            page.until(NOTHING_OVERFLOWS)
        assert len(page.text()) < 12_000, address  # cut, until somebody wants all of it
    client.close()
