"""Events as they come and as they are stored, settings, and the state of the server."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from typing import Any

from tests.clients.node_process import NodeProcess
from tests.ui.conftest import HOSTILE, ROOM_BYTES, Lab
from tests.ui.page import Page
from tests.ui.scenario import Client, event
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

ROWS = "() => [...document.querySelectorAll('tbody tr')].map((row) => row.innerText)"


def test_13_7_1_events_show_themselves(page: Page, lab: Lab) -> None:
    page.show("/p/1/events/live", "Waiting for events")
    page.see("Connected.")
    page.see("received per second")
    now = datetime.now(UTC)
    for name in ("looked around", HOSTILE, "signed up"):
        lab.client.send([event(name, "live-1", now, {"plan": "pro"})])
        page.see("onerror=document.title" if name == HOSTILE else name)
    page.see("onerror=document.title")
    assert page.run("() => document.images.length") == 0
    page.click("button[data-row]:has-text('signed up')")
    page.see("plan")

    page.button("Pause")
    lab.client.send([event("while paused", "live-3", now)])
    page.see("paused, 1 event meanwhile")
    assert "while paused" not in page.text()
    page.button("Resume")
    page.see("while paused")
    lab.client.send([event("after the pause", "live-4", now)])
    page.see("after the pause")


def test_13_7_1_filters_hold_for_live_events(page: Page, lab: Lab) -> None:
    page.show("/p/1/events/live?event=wanted", "Connected.")
    now = datetime.now(UTC)
    lab.client.send([event("other", "live-5", now), event("wanted", "live-6", now)])
    page.until(
        "() => [...document.querySelectorAll('tbody tr')].some((row) => row.innerText.includes('live-6'))"
    )
    assert page.run("() => document.querySelectorAll('tbody tr').length") == 1


def test_13_7_1_a_flood_does_not_freeze_the_page(page: Page, lab: Lab) -> None:
    page.show("/p/1/events/live", "Connected.")
    now = datetime.now(UTC)
    for burst in range(4):
        lab.client.send([event("flood", f"flood-{burst}-{number}", now) for number in range(1000)])
    page.see("skipped, to keep this page usable")
    page.fill("input[type=search] >> nth=1", "x")
    assert page.run("() => document.querySelectorAll('tbody tr').length") <= 100


def test_13_7_1_live_events_go_on_after_a_proxy_failed(browser: NodeProcess, lab: Lab, profile: Page) -> None:
    """A browser gives a stream up that is answered by a failure; the page asks again."""
    page = Page(browser, lab.server.url, "/p/1/nothing", like=profile)
    page.tell("refuse", part="/events/live/", status=502)
    page.show("/p/1/events/live", "Connecting …")
    page.until(
        "() => performance.getEntriesByType('resource').some((each) => each.name.endsWith('/events/live/'))"
    )
    page.tell("release")
    page.see("Connected.")
    lab.client.send([event("after the failure", "live-7", datetime.now(UTC))])
    page.see("after the failure")
    page.end()


def test_13_7_1_live_events_say_that_the_session_has_ended(browser: NodeProcess, spare: ChildServer) -> None:
    page = Page(browser, spare.url, "/login")
    page.log_in(spare.api_key)
    page.show("/p/1/events/live", "Connected.")
    client = Client(spare.url, spare.api_key, "")
    (current, *_) = client.call("GET", "/api/sessions/")
    spare.stop()
    page.see("Connecting …")
    spare.start()
    client.call("DELETE", f"/api/sessions/{current['id']}/")
    page.see("Your session has ended.")
    page.end()
    client.close()


def property_filter(
    page: Page, number: int, key: str, operator: str, value: str, of: str = "event's"
) -> None:
    """Add a property filter, as people do."""
    page.button("Add a property filter")
    group = f'role=group[name="Property filter {number}"]'
    page.tell("choose", selector=f"{group} >> select >> nth=0", text=of)
    page.fill(f"{group} >> input >> nth=0", key)
    page.tell("choose", selector=f"{group} >> select >> nth=1", text=operator)
    page.fill(f"{group} >> input >> nth=1", value)


def test_13_7_1_stored_events_by_several_filters_columns_and_pages(page: Page, lab: Lab) -> None:
    now = datetime.now(UTC)
    for plan, seats, name in (("pro", 3, "Ada"), ("pro", 30, "Ada"), ("free", 40, "Bob"), ("pro", 50, "Bob")):
        properties: dict[str, Any] = {
            "plan": plan,
            "seats": seats,
            "$session_id": f"s-{name}",
            "$set": {"name": name},
        }
        lab.client.send([event("team grew", f"team-{name}", now, properties)])
    lab.client.settled("team grew", 4)
    page.show("/p/1/events?event=team%20grew&columns=seats", "4 events shown")
    property_filter(page, 1, "plan", "is", "pro")
    page.see("3 events shown")
    property_filter(page, 2, "seats", "is greater than", "10")
    page.see("2 events shown")
    property_filter(page, 3, "name", "is", "Bob", "person's")
    page.see("1 event shown")
    page.tell("reload")  # all of them are in the address
    page.see("1 event shown")
    assert "50" in page.run(ROWS)[0]
    page.button("Remove property filter 3")
    page.see("2 events shown")
    page.see("2 events in the last 90 days, by day")
    page.tell("choose", selector='label:has-text("Time") select', text="Last hour")
    page.see("2 events in the last hour, by minute")
    bars = page.run(
        "() => [...document.querySelectorAll('.histogram rect')].filter((each) => each.height.baseVal.value > 0).length"
    )
    assert 1 <= bars <= 2
    page.see("2 events shown")
    page.click("summary:has-text('Columns')")
    page.click('label:has-text("plan") input')
    page.until("() => [...document.querySelectorAll('thead th')].some((each) => each.innerText === 'plan')")

    page.click("button[data-row] >> nth=0")
    page.see("Open event")
    page.see("$session_id")
    page.click('role=link[name="Show session"]')
    page.until("() => document.querySelectorAll('tbody tr').length === 2")
    page.click("tbody td a >> nth=0")
    page.see("Newest events")

    page.show("/p/1/events?event=saw%20basket", "100 events shown")
    page.button("Load older")
    page.see("200 events shown")
    seen = page.run("() => [...document.querySelectorAll('tbody td a')].map((each) => each.href)")
    assert len(set(seen)) == 200


def test_13_7_1_pages_lose_no_event_of_one_moment(page: Page, lab: Lab) -> None:
    """Imports often have whole days at one timestamp, so that a page may end amid of one."""
    at = datetime.now(UTC).replace(microsecond=123_456)
    lab.client.send([event("imported", f"import-{number}", at) for number in range(250)])
    lab.client.settled("imported", 250)
    page.show("/p/1/events?event=imported", "100 events shown")
    page.button("Load older")
    page.see("200 events shown")
    page.button("Load older")
    page.see("250 events shown")
    seen = page.run("() => [...document.querySelectorAll('tbody td a')].map((each) => each.innerText)")
    assert len(set(seen)) == 250


def test_13_7_1_times_are_those_of_the_project(page: Page, lab: Lab) -> None:
    """Of the one that is looked at, which need not be the first; and after its zone was changed."""
    made = lab.client.call(
        "POST", "/api/organizations/@current/projects/", {"name": "Far away", "timezone": "Asia/Tokyo"}
    )
    client = Client(lab.server.url, lab.server.api_key, made["api_token"], made["id"])
    client.send([event("late", "somebody", datetime(2026, 3, 1, 20, 30, tzinfo=UTC))])
    client.settled("late")
    page.show(f"/p/{made['id']}/events", "Time (Asia/Tokyo)")
    page.see("Mar 2, 2026, 05:30:00.000")
    page.show(f"/p/{made['id']}/settings/project", "Project token")
    page.fill("form input >> nth=1", "Europe/Paris")
    page.button("Save")
    page.see("Saved.")
    page.click('nav >> role=link[name="Events"]')
    page.see("Time (Europe/Paris)")
    page.see("Mar 1, 2026, 21:30:00.000")
    client.close()


def test_13_7_1_a_metric_and_a_function_from_an_event(page: Page, lab: Lab) -> None:
    lab.client.send([event("paid", "payer", datetime.now(UTC), {"amount": 12.5, "plan": "pro"})])
    lab.client.settled("paid")
    (found,) = lab.client.call("GET", "events/", event="paid")["results"]
    page.show(f"/p/1/events/{found['uuid']}", "Properties")
    page.button("Create metric …")
    page.see("What counts")
    page.fill("dialog input >> nth=0", "Paid in all")
    page.tell("choose", selector="dialog select >> nth=0", text="the sum of “amount” of each person")
    page.button("Create metric")
    page.see("Every experiment can use it.")
    metrics = lab.client.call("GET", "experiment_saved_metrics/")["results"]
    (made,) = [each for each in metrics if each["name"] == "Paid in all"]
    assert made["query"]["metric_type"] == "mean"
    source = made["query"]["source"]
    assert (source["event"], source["math"], source["math_property"]) == ("paid", "sum", "amount")

    page.button("Create function …")
    page.see("The function is a webhook")
    page.fill("dialog input[type=url]", "https://shop.example/hook")
    page.button("Create function")
    page.see("Newest log lines")
    page.see("Events “paid”")
    page.tell("choose", selector='label:has-text("Level") select', text="Errors")
    page.see("No log lines have this level.")
    assert page.address().endswith("?level=ERROR")
    page.tell("choose", selector='label:has-text("Level") select', text="All")
    page.see("There are no log lines.")
    function = lab.client.call("GET", f"hog_functions/{page.address().rsplit('/', 1)[1]}/")
    assert function["filters"]["events"][0]["id"] == "paid"
    assert function["inputs"]["url"]["value"] == "https://shop.example/hook"
    assert function["enabled"] is False


def test_13_8_1_project_settings_and_keys(page: Page, lab: Lab) -> None:
    page.show("/p/1/settings/project", "Public: SDKs in browsers and apps carry it.")
    assert lab.server.project_token in page.text()
    page.see("No filters are set: everybody counts.")
    page.click("summary:has-text('Edit the filters as JSON')")
    account = {"key": "email", "type": "person", "operator": "not_icontains", "value": "@shop.example"}
    page.fill("textarea", json.dumps([account]))
    page.see("the person's email does not contain @shop.example")
    page.fill("textarea", "[not json")
    page.button("Save")
    page.see("This is not valid JSON.")
    page.fill("textarea", "[]")
    page.fill("form input >> nth=0", "Shop")
    page.button("Save")
    page.see("Saved.")
    assert lab.client.call("GET", "/api/projects/1/")["name"] == "Shop"
    page.button("Create key …")
    page.see("Servers can use the current key until you remove it")
    page.button("Create key")
    page.see("Shown only now.")
    shown = page.run("() => document.querySelector('[role=status].secret code').innerText")
    assert shown.startswith("phs_")
    page.button("Remove the previous key …")
    page.see("get no flags any more")
    page.click('dialog >> role=button[name="Remove"]')
    page.see("The previous key no longer works.")
    assert shown in page.text()

    page.show("/p/1/settings/keys", "First key")
    page.button("Create key …")
    page.fill("dialog input", "from the page")
    page.button("Run experiments")
    page.button("Create key")
    page.see("copy it now, it cannot be shown again")
    value = page.run("() => document.querySelector('.secret code').innerText")
    kept = next(
        each for each in lab.client.call("GET", "/api/personal_api_keys/") if each["label"] == "from the page"
    )
    assert "experiment:write" in kept["scopes"]
    assert "person:read" not in kept["scopes"]
    page.see(
        "Read and change experiments, holdouts, shared metrics and feature flags. Read events and results,"
    )
    page.click("tr:has-text('from the page') summary")
    page.see("experiment:write experiment_holdout:write")
    page.button("Hide the key")
    page.gone(value)
    page.button("Revoke from the page")
    page.see("stops working at once")
    page.click('dialog >> role=button[name="Revoke"]')
    page.until("() => !document.querySelector('dialog')")
    page.gone("from the page")
    assert value not in page.run("() => document.documentElement.outerHTML")


def test_13_8_1_keys_of_some_projects_roll_and_expire(page: Page, lab: Lab) -> None:
    other = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "Backyard"})
    page.show("/p/1/settings/keys", "First key")
    page.button("Create key …")
    page.fill("dialog input", "limited")
    page.button("Read everything")
    page.tell("choose", selector='.scopes label:has-text("cohort") select', text="read and change")
    page.tell("choose", selector='.scopes label:has-text("person") select >> nth=0', text="no access")
    page.tell("choose", selector="dialog select >> nth=0", text="In 30 days")
    page.click('label:has-text("In all projects") input')
    assert page.run(
        "() => document.querySelector('dialog .primary').disabled"
    )  # of no project at all: for nothing
    page.click('label:has-text("Backyard") input')
    page.button("Create key")
    page.see("copy it now")
    page.see("only in Backyard")
    kept = next(
        each for each in lab.client.call("GET", "/api/personal_api_keys/") if each["label"] == "limited"
    )
    assert kept["scoped_teams"] == [other["id"]]
    assert {"cohort:write", "experiment:read"} <= set(kept["scopes"])
    assert not {"person:read", "person:write"} & set(kept["scopes"])
    assert 29 <= (datetime.fromisoformat(kept["expires_at"]) - datetime.now(UTC)).days <= 30
    value = page.run("() => document.querySelector('.secret code').innerText")
    page.button("Roll limited")
    page.see("stops working at once")
    page.button("Create new value")
    page.until("(old) => document.querySelector('.secret code')?.innerText !== old", value)
    assert page.run("() => document.querySelector('.secret code').innerText").startswith("phx_")


def test_13_8_2_the_state_of_the_server(page: Page, lab: Lab) -> None:
    page.show("/status", "Everything works")
    status = lab.client.call("GET", "/api/system_status/")
    text = page.text()
    assert f"hoglab {status['version']}" in text
    for file in status["storage"]:
        assert file["name"] in text
    for name in ("Disk free", "Dead letters", "Events waiting in the log", "Runs of functions waiting"):
        assert name in text
    before = len(page.requests("system_status"))
    deadline = time.monotonic() + PATIENCE_S
    while len(page.requests("system_status")) == before:  # refreshed by itself
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_13_8_2_a_full_disk_is_shown_and_that_it_is_over(
    browser: NodeProcess, spare: ChildServer, least_free: int
) -> None:
    page = Page(browser, spare.url, "/login")
    page.log_in(spare.api_key)
    page.show("/status", "Everything works")
    ballast = spare.data.parent / "ballast"
    too_much = shutil.disk_usage(ballast.parent).free - least_free + ROOM_BYTES // 4
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, too_much)
    try:
        page.see("The server is not ready")
        page.see("disk")
        assert page.run("() => document.querySelector('.card.bad') !== null")
        assert page.axe("color-contrast") == []
        seen = len(page.requests("/_liveness"))
        deadline = time.monotonic() + PATIENCE_S
        while len(page.requests("/_liveness")) == seen:  # the page looks for its server meanwhile, too
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        ballast.unlink()
    page.see("Everything works")
    assert page.errors() == []
    page.end()
