"""What holds on every screen: accessibility in both themes and on narrow pages, keyboard, budgets."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urljoin

import pytest
from tests.clients.node_process import NodeProcess
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import Client, event
from tests.waiting import PATIENCE_S

SCREENS = {
    "experiments": ("/p/1/experiments", "Lopsided"),
    "results": ("/p/1/experiments/{checkout}?open={metric}", "What it counts"),
    "a critical finding": ("/p/1/experiments/{lopsided}", "Do not decide"),
    "new experiment": ("/p/1/experiments/new", "At the launch"),
    "form of a running experiment": ("/p/1/experiments/{checkout}/edit", "In short"),
    "set-up of an experiment": ("/p/1/experiments/{checkout}?tab=setup", "Who takes part"),
    "health": ("/p/1/experiments/{lopsided}?tab=health", "Checked"),
    "history": ("/p/1/experiments/{checkout}?tab=history", "start date"),
    "events": ("/p/1/events?columns=amount&distinct_id=shopper-1&where={where}", "events shown"),
    "event": ("/p/1/events/{event}", "Properties"),
    "live events": ("/p/1/events/live", "Waiting for events"),
    "set-up": ("/p/1/setup?sdk=python", "Send an event"),
    "system status": ("/status", "Refreshed every five seconds"),
    "person": ("/p/1/person/shopper-1", "Newest events"),
    "group": ("/p/1/groups/0/acme", "Properties"),
    "flags": ("/p/1/flags", "one-page-checkout"),
    "flag": ("/p/1/flags/{flag}", "Rules"),
    "form of a flag": ("/p/1/flags/{flag}?edit=yes", "Review and save"),
    "new flag": ("/p/1/flags/new", "Create flag"),
    "history of a flag": ("/p/1/flags/{flag}?tab=history", "created it"),
    "function": ("/p/1/functions/{function}", "Newest log lines"),
    "project": ("/p/1/settings/project", "Project token"),
    "keys": ("/p/1/settings/keys", "First key"),
    "nothing": ("/p/1/nothing", "There is no such page"),
}
LOOKS = {"light": (), "dark": ("color-contrast",), "narrow": (), "zoomed": ("target-size",)}
"""How each screen is looked at, and which rules of axe-core apply; none named: all. Only colours differ by theme."""
OBSERVE = """
() => new Promise((done) => {
  let sum = 0
  new PerformanceObserver((list) => list.getEntries().forEach((each) => (sum += each.hadRecentInput ? 0 : each.value)))
    .observe({ type: "layout-shift", buffered: true })
  setTimeout(() => done(sum), 100)
})
"""


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, Any]:
    """What the addresses of screens are filled with."""
    made = lab.client.call(
        "POST",
        "hog_functions/",
        {"type": "destination", "name": "Tell the shop", "hog": "print(event.event)", "inputs_schema": []},
    )
    group = {"$group_type": "company", "$group_key": "acme", "$group_set": {"plan": "pro"}}
    sent = {"event": "$groupidentify", "distinct_id": "ada", "properties": group}
    lab.client.send([sent])
    lab.client.settled("$groupidentify")
    found = lab.client.call("GET", "events/", limit=1, event="checkout completed")["results"][0]
    return {
        "checkout": lab.checkout["id"],
        "lopsided": lab.lopsided["id"],
        "metric": lab.checkout["metrics"][0]["uuid"],
        "flag": lab.checkout["feature_flag"]["id"],
        "event": found["uuid"],
        "function": made["id"],
        "where": quote('[{"key":"amount","operator":"is_not_set"}]'),
    }


@pytest.mark.parametrize("screen", SCREENS)
def test_13_9_1_axe_finds_nothing_light_dark_narrow_and_with_large_text(
    page: Page, names: dict[str, Any], screen: str
) -> None:
    path, text = SCREENS[screen]
    page.show(path.format(**names), text)
    if screen == "results":
        page.until("() => document.querySelectorAll('svg path.line').length === 2")
    found = {}
    for how, rules in LOOKS.items():
        page.look(how)
        found[how] = page.axe(*rules)
        assert not page.too_wide(), how
    assert found == {how: [] for how in LOOKS}


def test_13_9_1_axe_finds_nothing_in_dialogs(page: Page, names: dict[str, Any]) -> None:
    page.show(f"/p/1/experiments/{names['checkout']}", "Primary metrics")
    page.button("End …")
    page.see("people keep their variants")
    assert page.axe() == []
    page.press("Escape")
    page.palette()
    page.until("() => document.querySelector('[role=listbox]')")
    assert page.axe() == []
    page.show(f"/p/1/events/{names['event']}", "Properties")
    page.button("Create function …")
    page.see("The function is a webhook")
    assert page.axe() == []
    page.show("/p/1/settings/keys", "First key")
    page.button("Create key …")
    page.see("In all projects")
    for how, rules in LOOKS.items():
        page.look(how)
        assert page.axe(*rules) == []


def test_13_9_1_axe_finds_nothing_on_the_page_to_log_in(browser: NodeProcess, lab: Lab) -> None:
    page = Page(browser, lab.server.url, "/login#t=" + "x" * 43)
    page.see("This link was already used")
    for how, rules in LOOKS.items():
        page.look(how)
        assert page.axe(*rules) == []
        assert not page.too_wide()
    page.end()


def reached(page: Page, wanted: str, most: int = 60) -> list[str]:
    """What has the focus, one press of Tab after the other, until a text begins like this."""
    texts = []
    for _ in range(most):
        page.press("Tab")
        element = "document.activeElement"
        texts.append(
            page.run(f"() => ({element}.ariaLabel || {element}.innerText || {element}.value || '').trim()")
        )
        visible = page.run(
            f"() => {element}.matches(':focus-visible') && {element}.getBoundingClientRect().width > 0"
        )
        assert visible, texts
        if texts[-1].startswith(wanted):
            return texts
    raise AssertionError(f"{wanted} was not reached: {texts}")


def test_13_9_1_keyboard_walk_of_the_results(page: Page, lab: Lab) -> None:
    """From the top of the page: skip link, a metric opened, a dialog and back to where it was opened."""
    page.show(f"/p/1/experiments/{lab.checkout['id']}", "Primary metrics")
    page.press("Tab")
    assert page.run("() => document.activeElement.className") == "skip"
    page.press("Enter")
    assert page.run("() => document.activeElement.id") == "content"
    assert "End …" in reached(page, "▸ Checkout completed")
    page.press("Enter")
    page.see("Day by day")
    page.press("Enter", ".page-head .actions > button:has-text('End …')")
    page.see("people keep their variants")
    page.press("Escape")
    page.until("() => document.activeElement?.innerText === 'End …'")


def test_13_9_1_keyboard_walk_of_lists_events_and_settings(page: Page, lab: Lab) -> None:
    page.show("/p/1/experiments", "Lopsided")
    page.press("/")
    page.tell("type", text="lops")
    page.gone("One-page checkout")
    page.see("Lopsided")  # while rows are asked for there is no table
    reached(page, "People")
    page.press("Enter")
    page.see("People ↓")
    page.see("Lopsided")
    page.press("j")
    page.press("Enter")
    page.see("Do not decide")

    page.show("/p/1/events?event=checkout%20completed", "events shown")
    reached(page, "▸ checkout completed")
    page.press("Enter")
    page.see("amount")
    reached(page, "Create metric")
    page.press("Enter")
    page.see("What counts")
    page.press("Escape")
    page.until("() => document.activeElement?.innerText === 'Create metric …'")

    page.show("/p/1/settings/keys", "First key")
    reached(page, "Create key …")
    page.press("Enter")
    page.see("What it may do")
    page.until("() => document.querySelector('dialog').contains(document.activeElement)")
    page.press("Escape")
    page.until("() => document.activeElement?.innerText === 'Create key …'")


def test_13_9_1_keyboard_walk_from_the_login_to_a_first_event(browser: NodeProcess, lab: Lab) -> None:
    """No mouse from the login on: a snippet, live events with a pause, the status, a project and a key."""
    made = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "By keyboard"})
    client = Client(lab.server.url, lab.server.api_key, made["api_token"], made["id"])
    page = Page(browser, lab.server.url, f"/p/{made['id']}/setup?sdk=curl")
    page.see("Personal API key")
    reached(page, "")
    page.tell("type", text=lab.server.api_key)
    page.press("Enter")
    page.see("Waiting for your first event")
    reached(page, "Ruby")
    page.press("Enter")
    page.see("gem install posthog-ruby")
    reached(page, "Copy")
    client.send([event("by keyboard", "me", datetime.now(UTC))])
    page.see("by keyboard")

    page.press("g")
    page.press("l")
    page.see("Connected.")
    reached(page, "Pause")
    page.press("Enter")
    page.see("paused, 0 events meanwhile")
    page.press("g")
    page.press("s")
    page.see("Refreshed every five seconds")

    page.show("/p/1/settings/project", "Project token")
    reached(page, "Save")
    page.show("/p/1/settings/keys", "First key")
    reached(page, "Create key …")
    page.press("Enter")
    page.see("What it may do")
    page.tell("type", text="by keyboard")
    reached(page, "Run experiments")
    page.press("Enter")
    reached(page, "Create key")
    page.press("Enter")
    page.see("copy it now")
    reached(page, "Hide the key")
    page.press("Enter")
    page.gone("copy it now")
    assert page.complaints() == []
    page.end()
    client.close()


def test_13_9_3_requests_and_jumps_until_results_are_there(page: Page, lab: Lab) -> None:
    before = len(page.requests(""))
    page.show(f"/p/1/experiments/{lab.checkout['id']}", "Secondary metrics")
    asked = page.requests("")[before:]
    data = [each["url"] for each in asked if each["kind"] == "fetch"]
    assert len(data) <= 8, data
    assert len(asked) <= 20, [each["url"] for each in asked]
    assert page.run(OBSERVE) <= 0.02


def test_13_9_3_no_request_for_results_waits_for_another(page: Page, lab: Lab) -> None:
    """While who is logged in is not known yet, what the screen needs is there already."""
    path = f"/experiments/{lab.checkout['id']}/"
    page.tell("hold", part="/api/session/")
    page.go(f"{page.site}/ui/p/1/experiments/{lab.checkout['id']}")
    wanted = re.compile(rf"/assets/Results-|{path}$|{path}results/$")
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(asked := [each["url"] for each in page.requests("") if wanted.search(each["url"])]) < 3:
            assert time.monotonic() < deadline, asked
            time.sleep(0.05)
        assert "Primary metrics" not in page.text()
    finally:
        page.tell("release")
    page.see("Primary metrics")


def test_13_9_4_without_javascript_a_sentence_and_the_reference(browser: NodeProcess, lab: Lab) -> None:
    page = Page(browser, lab.server.url, "/p/1/experiments", profile={"javaScriptEnabled": False})
    content = page.tell("content")
    page.end()
    found = re.search(
        r'<noscript>This page needs JavaScript\..*?<a href="([^"]+)">its reference</a>', content
    )
    assert found is not None
    assert urljoin(f"{lab.server.url}/ui/", found.group(1)) == f"{lab.server.url}/api/docs/"
