"""Logging in, set-up, addresses, keyboard, and what the page says when the server is away."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.clients.node_process import NodeProcess
from tests.clients.site import served
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import Client, event
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

LINK = re.compile(r"(http://\S+)/ui/login#t=([A-Za-z0-9_-]{43})")
SDKS = {
    "curl": "curl ",
    "Python": "from posthog import",
    "JavaScript (browser)": "posthog-js",
    "JavaScript (node)": "posthog-node",
    "Go": "posthog-go",
    "Ruby": "posthog-ruby",
    "PHP": "posthog-php",
    "React Native": "posthog-react-native",
    "iOS": "PostHogConfig",
    "Android": "PostHogAndroidConfig",
}
"""What set-up has snippets for, and a word of each."""
ATTACK = """
async (server) => {
  const tries = [
    ["PATCH", "/api/projects/1/", {name: "stolen"}],
    ["POST", "/api/personal_api_keys/", {label: "stolen", scopes: ["*"]}],
    ["DELETE", "/api/session/", undefined],
  ]
  const refused = []
  for (const [method, path, body] of tries)
    for (const type of ["application/json", "text/plain", "application/x-www-form-urlencoded"])
      for (const mode of ["cors", "no-cors"]) {
        const sent = {headers: {"Content-Type": type}, body: body && JSON.stringify(body)}
        await fetch(server + path, {method, mode, credentials: "include", ...sent})
          .then((answer) => answer.type !== "opaque" && answer.ok, () => refused.push(method))
      }
  const form = document.createElement("form")
  Object.assign(form, {method: "post", action: server + "/api/personal_api_keys/", target: "frame"})
  const frame = Object.assign(document.createElement("iframe"), {name: "frame"})
  form.append(Object.assign(document.createElement("input"), {name: "label", value: "stolen"}))
  form.append(Object.assign(document.createElement("input"), {name: "scopes", value: "*"}))
  document.body.append(frame, form)
  const loaded = new Promise((done) => frame.addEventListener("load", done))
  form.submit()
  await loaded
  return refused.length
}
"""


def changed(server: ChildServer, statement: str, *values: Any) -> int:
    """Change the rows of the server's own database; how many there were."""
    with closing(sqlite3.connect(server.data / "hoglab.db", timeout=PATIENCE_S)) as database, database:
        return database.execute(statement, values).rowcount


def micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def link_of(text: str) -> tuple[str, str]:
    found = LINK.search(text)
    assert found is not None, text
    return found.group(1), found.group(2)


def test_13_1_1_the_printed_link_opens_the_set_up_once(browser: NodeProcess, spare: ChildServer) -> None:
    printed = spare.output()
    site, token = link_of(printed)
    page = Page(browser, site, f"/login#t={token}")
    page.see("Waiting for your first event")
    assert page.address().startswith("/ui/p/1/setup")

    # 13.1.2: no token is left anywhere, and no script can read the cookie.
    assert page.run("() => document.cookie") == ""
    (cookie,) = page.tell("cookies")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert token not in spare.output()[printed.index(token) + len(token) :]
    assert [each for each in page.requests("") if token in each["url"]] == []
    stored = page.run("() => JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert token not in stored
    page.tell("back")
    assert token not in page.address()
    assert page.complaints() == []
    page.end()

    other = Page(browser, site, f"/login#t={token}")
    other.see("This link was already used, or is older than 15 minutes.")
    other.see("hoglab login")
    assert token not in other.address()
    other.end()


def test_13_1_1_a_link_opens_nothing_after_fifteen_minutes(browser: NodeProcess, spare: ChildServer) -> None:
    site, token = link_of(spare.login_line())
    late = micros(datetime.now(UTC) - timedelta(seconds=1))
    assert changed(spare, "UPDATE login_link SET expires_at = ? WHERE used_at IS NULL", late) >= 1
    page = Page(browser, site, f"/login#t={token}")
    page.see("This link was already used, or is older than 15 minutes.")
    page.see("hoglab login")
    assert page.tell("cookies") == []
    page.end()
    # What the page says helps; and the link of the demo leads to a screen.
    (link,) = re.findall(r"http://\S+", spare.login_line("/p/1/settings/keys"))
    page = Page(browser, site, link.removeprefix(f"{site}/ui"))
    page.see("First key")
    assert page.address() == "/ui/p/1/settings/keys"
    page.end()


def test_13_1_2_pages_of_other_origins_change_nothing(
    browser: NodeProcess, lab: Lab, profile: Page, node_modules: Path
) -> None:
    """Of another site, and of another port of the same host, which gets the cookie along."""
    before = (
        lab.client.call("GET", "/api/personal_api_keys/"),
        lab.client.call("GET", "/api/projects/1/")["name"],
    )
    with served(node_modules) as site:
        site.pages["/"] = "<!doctype html><title>Elsewhere</title>"
        for url in (site.url, site.url.replace(site.url.split("/")[2].split(":")[0], "127.0.0.1")):
            page = Page(browser, lab.server.url, "/p/1/nothing", like=profile)
            page.go(f"{url}/")
            # Of nine tries each that want to read the answer, none is let; the others are not told.
            assert page.run(ATTACK, lab.server.url) >= 9
            page.end()
    after = (
        lab.client.call("GET", "/api/personal_api_keys/"),
        lab.client.call("GET", "/api/projects/1/")["name"],
    )
    assert [each["label"] for each in after[0]] == [each["label"] for each in before[0]]
    assert after[1] == before[1]
    page = Page(browser, lab.server.url, "/p/1/experiments", like=profile)
    page.see("One-page checkout")  # the session is still there
    page.end()


def test_13_1_2_two_servers_on_two_ports_do_not_log_each_other_out(
    browser: NodeProcess, lab: Lab, spare: ChildServer
) -> None:
    """One browser profile has both cookies on one host; each server takes its own, and logging out ends one."""
    first = Page(browser, lab.server.url, "/p/1/experiments")
    first.fill("input[type=password]", lab.server.api_key)
    first.button("Log in")
    first.see("One-page checkout")
    second = Page(browser, spare.url, "/p/1/experiments", like=first)
    second.see("Personal API key")  # the other's cookie counts for nothing here
    second.fill("input[type=password]", spare.api_key)
    second.button("Log in")
    second.see("No experiments yet")
    assert len({each["name"] for each in first.tell("cookies")}) == 2
    first.tell("reload")
    first.see("One-page checkout")
    second.button("Log out")
    second.see("Personal API key")
    first.tell("reload")
    first.see("One-page checkout")
    assert first.complaints() == second.complaints() == []
    first.end()
    second.end()


def test_13_1_3_what_a_key_may_not_see_is_not_asked_for(browser: NodeProcess, lab: Lab) -> None:
    """With the scope `experiment:read` alone: experiments are there, everything else says which scope it lacks."""
    made = lab.client.call(
        "POST", "/api/personal_api_keys/", {"label": "experiments", "scopes": ["experiment:read"]}
    )
    page = Page(browser, lab.server.url, "")
    page.fill("input[type=password]", made["value"])
    page.button("Log in")
    page.see("One-page checkout")
    experiment = f"/p/1/experiments/{lab.checkout['id']}"
    page.show(f"{experiment}?open={lab.checkout['metrics'][0]['uuid']}", "Day by day")
    page.until("() => document.querySelectorAll('svg path.line').length === 2")
    page.show(f"{experiment}?tab=health", "Checked")
    lacking = {
        f"{experiment}?tab=history": "activity_log:read",
        "/p/1/setup": "project:read",
        "/p/1/events": "query:read",
        "/p/1/events/live": "query:read",
        f"/p/1/events/{lab.checkout['metrics'][0]['uuid']}": "query:read",
        "/p/1/person/shopper-1": "person:read",
        "/p/1/groups/0/acme": "group:read",
        f"/p/1/flags/{lab.checkout['feature_flag']['id']}": "feature_flag:read",
        "/p/1/functions/018f6c1e-7b0a-7000-8000-3f0c9a5b1d22": "hog_function:read",
        "/p/1/settings/project": "project:read",
        "/p/1/settings/keys": "personal_api_key:read",
        "/status": "organization:read",
    }
    for path, scope in lacking.items():
        page.show(path, f"it lacks the scope {scope}.")
    page.palette()
    page.tell("type", text="one-page")
    page.until(
        "() => [...document.querySelectorAll('[role=option]')].some((each) => each.innerText.includes('Experiment'))"
    )
    assert page.axe() == []
    assert page.complaints() == []
    page.end()


def test_13_1_3_a_key_that_may_only_read(browser: NodeProcess, lab: Lab) -> None:
    scopes = ["experiment:read", "feature_flag:read", "project:read", "query:read", "user:read"]
    made = lab.client.call("POST", "/api/personal_api_keys/", {"label": "reader", "scopes": scopes})
    page = Page(browser, lab.server.url, f"/p/1/experiments/{lab.checkout['id']}")
    page.see("Personal API key")
    page.fill("input[type=password]", "phx_wrong")
    page.button("Log in")
    page.see("This key cannot open a session")
    page.fill("input[type=password]", made["value"])
    page.button("Log in")
    page.see("Primary metrics")  # where it was wanted to go

    def refusals(buttons: str) -> set[str]:
        lacking = f"{buttons} button[aria-disabled]"
        why = page.run(f"() => [...document.querySelectorAll('{lacking}')].map((each) => each.title)")
        assert why
        page.run(f"() => document.querySelectorAll('{lacking}').forEach((each) => each.click())")
        assert page.run("() => document.querySelectorAll('dialog').length") == 0
        return set(why)

    def lacks(scope: str) -> set[str]:
        return {f"Your session may not do this: it lacks the scope {scope}."}

    assert refusals(".actions") == lacks("experiment:write")
    page.show("/p/1/settings/project", "Project token")
    assert refusals("main") == lacks("project:write")
    page.show("/p/1/events?event=checkout%20completed", "events shown")
    page.click("button[data-row] >> nth=0")
    page.see("Create metric")
    assert refusals("main") == lacks("experiment_saved_metric:write") | lacks("hog_function:write")
    page.end()


def test_13_1_4_snippets_for_every_sdk_are_copied_by_one_click(page: Page, lab: Lab) -> None:
    page.show("/p/1/setup", "Send an event")
    names = page.until("() => [...document.querySelectorAll('nav.tabs a')].map((each) => each.innerText)")
    assert names == list(SDKS)
    page.run("() => { navigator.clipboard.writeText = async (text) => { window.copied = text } }")
    for name, word in SDKS.items():
        page.click(f'nav.tabs >> role=link[name="{name}"]')
        page.until("(name) => document.querySelector('nav.tabs a[aria-current]').innerText === name", name)
        code = page.run("() => document.querySelector('.code pre').innerText")
        assert word in code
        assert lab.server.url in code
        assert lab.server.project_token in code
        page.click(".code button")
        page.until("(code) => window.copied === code", code)


def test_13_1_4_the_first_event_shows_itself_within_two_seconds(
    page: Page, lab: Lab, node_modules: Path
) -> None:
    """Each snippet that can run here, in a project without events; then one whose event is dropped."""
    made = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "First steps"})
    client = Client(lab.server.url, lab.server.api_key, made["api_token"], made["id"])
    page.show(f"/p/{made['id']}/setup", "Waiting for your first event")
    page.see("It appears here within two seconds.")
    module = ["node", "--input-type=module", "-e"]
    for sdk, command in {"curl": ["sh", "-c"], "python": [sys.executable, "-c"], "node": module}.items():
        page.click(f"nav.tabs a[href$='sdk={sdk}']")
        word = SDKS[{"curl": "curl", "python": "Python", "node": "JavaScript (node)"}[sdk]]
        code = page.until(
            "(word) => [document.querySelector('.code pre').innerText].find((text) => text.includes(word))",
            word,
        )
        subprocess.run(
            [*command, code],
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
            cwd=node_modules.parent,
            env={**os.environ, "NO_PROXY": "*"},
        )
        page.see("first event from me")
        page.until(
            "(sdk) => document.querySelector('[aria-label=\"First event\"] dl')?.innerText.includes(sdk)", sdk
        )
    # A name that many clients send by mistake, and that nobody may be merged with.
    client.send([event("$create_alias", "me", datetime.now(UTC), {"alias": "null"})])
    page.see("Ingestion dropped or changed an event: cannot merge with illegal distinct id")
    client.close()


def test_13_1_4_the_snippet_for_browsers_runs_in_one(
    page: Page, browser: NodeProcess, lab: Lab, node_modules: Path
) -> None:
    made = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "In a browser"})
    page.show(f"/p/{made['id']}/setup?sdk=browser", "Waiting for your first event")
    page.see("It appears here within two seconds.")
    code = page.run("() => document.querySelector('.code pre').innerText")
    with served(node_modules) as site:
        site.pages["/"] += f'<script type="module">{code}</script>'
        shop = Page(browser, lab.server.url, "/nothing", profile={"locale": "en-GB"})
        shop.go(f"{site.url}/")
        page.until(
            "(site) => document.querySelector('[aria-label=\"First event\"] dl')?.innerText.includes(site)",
            site.url,
        )
        shop.end()
    client = Client(lab.server.url, lab.server.api_key, made["api_token"], made["id"])
    client.settled("first event")
    (found,) = client.call("GET", "events/", event="first event")["results"]
    assert found["properties"]["from"] == "browser"
    client.close()


def test_13_1_5_every_address_is_one(page: Page, browser: NodeProcess, lab: Lab) -> None:
    experiment = f"/p/1/experiments/{lab.checkout['id']}"
    for path, text in {
        f"{experiment}?tab=health": "Checked",
        "/p/1/experiments?status=draft&order=name&search=nowhere": "No experiment matches",
        "/experiments": "One-page checkout",
        "/nowhere/at/all": "There is no such page",
    }.items():
        page.show(path, text)
        page.tell("reload")
        page.see(text)
    page.show(experiment, "Primary metrics")
    page.click("nav.tabs >> text=Set-up")
    page.see("Who takes part")
    page.tell("back")
    page.see("Primary metrics")
    stranger = Page(browser, lab.server.url, f"{experiment}?tab=setup")
    stranger.see("Personal API key")
    stranger.fill("input[type=password]", lab.server.api_key)
    stranger.button("Log in")
    stranger.see("Who takes part")
    assert stranger.address().endswith("?tab=setup")
    stranger.end()


def test_13_9_2_the_page_to_log_in_complains_of_nothing(browser: NodeProcess, lab: Lab) -> None:
    """Nobody is logged in: at first, and again after logging out."""
    page = Page(browser, lab.server.url, f"/p/1/experiments/{lab.checkout['id']}")
    page.see("Personal API key")
    page.fill("input[type=password]", lab.server.api_key)
    page.button("Log in")
    page.see("Primary metrics")
    page.button("Log out")
    page.see("Personal API key")
    page.tell("reload")
    page.see("Personal API key")
    assert page.complaints() == []
    page.end()


def test_13_1_5_what_is_not_there_says_so(browser: NodeProcess, lab: Lab, profile: Page) -> None:
    page = Page(browser, lab.server.url, "/p/1/experiments/999999", like=profile)
    page.see("Nothing is at this address")
    page.show("/p/1/person/nobody-at-all", "There is no such person")
    page.end()


def test_13_1_5_addresses_in_messages_show_what_they_name(page: Page, lab: Lab) -> None:
    """What functions put into messages: also of a person whose id holds whatever an id may hold."""
    odd = "line\nbreak/100 % <b>?#ü"
    lab.client.send([event("odd", odd, datetime.now(UTC), {"$set": {"name": "Odd one"}})])
    lab.client.settled("odd")
    found = lab.client.call("GET", "events/", limit=1, event="checkout completed")["results"][0]
    flag = lab.checkout["feature_flag"]["id"]
    for path, text in {
        f"/project/1/events/{found['uuid']}/{quote(found['timestamp'], safe='')}": "amount",
        f"/project/1/person/{quote(found['distinct_id'], safe='')}": "Newest events",
        f"/project/1/person/{quote(odd, safe='')}": "Newest events",
        f"/ui/p/1/person/{quote(odd, safe='')}": "Newest events",
        f"/project/1/feature_flags/{flag}": "Rules",
        f"/project/1/experiments/{lab.checkout['id']}": "Primary metrics",
        "/project/1": "One-page checkout",
    }.items():
        page.go(f"{lab.server.url}{path}")
        page.see(text)


def test_13_1_6_the_palette_by_keyboard_alone(page: Page, lab: Lab) -> None:
    page.show("/p/1/experiments", "One-page checkout")
    page.palette()
    page.tell("type", text="one-page-ch")
    page.until(
        "() => [...document.querySelectorAll('[role=option]')].some((each) => each.innerText.includes('Flag'))"
    )
    page.press("Enter")
    page.see("last asked for")
    page.press("g")
    page.press("e")
    page.see("Created by")
    page.see("One-page checkout")
    page.press("j")
    page.press("Enter")
    page.until("() => /experiments\\/\\d+/.test(location.pathname)")
    # All shortcuts of single keys can be switched off, and stay off (WCAG 2.1.4).
    page.press("?")
    page.see("Next row")
    page.click("dialog input[type=checkbox]")
    page.press("Escape")
    page.gone("Next row")
    page.tell("reload")
    page.see("Primary metrics")
    page.press("?")
    assert page.run("() => document.querySelector('dialog')") is None
    page.run("() => localStorage.removeItem('hoglab.shortcuts')")
    page.press("?")
    page.see("Next row")


def test_13_1_7_the_server_goes_away_and_comes_back(browser: NodeProcess, spare: ChildServer) -> None:
    """And a session that nobody used for two weeks is over then, which leads to the page to log in and back."""
    page = Page(browser, spare.url, "/login")
    page.log_in(spare.api_key)
    page.show("/p/1/experiments", "No experiments yet")
    spare.stop()
    page.see("The server does not answer.")
    assert "No experiments yet" in page.text()
    long_ago = micros(datetime.now(UTC) - timedelta(days=14, seconds=1))
    assert changed(spare, "UPDATE user_session SET last_seen_at = ?", long_ago) >= 1
    spare.start()
    page.gone("The server does not answer.")
    assert "No experiments yet" in page.text()
    page.press("g")
    page.press("s")
    page.see("Your session has ended.")
    page.button("Log in again")
    page.fill("input[type=password]", spare.api_key)
    page.button("Log in")
    page.see("Refreshed every five seconds")
    assert page.address() == "/ui/status"
    page.end()
