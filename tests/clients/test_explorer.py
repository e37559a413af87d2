"""The page on which people try requests, in a real browser."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import Project
from tests.clients.tab import Tab

pytestmark = pytest.mark.clients

PAGE = "/api/docs/try/"
READ_ANSWER = """
(operation) => {
  const answer = document.querySelector(`#operations-${operation} .live-responses-table tr.response`)
  const body = answer?.querySelector(".highlight-code code, .highlight-code pre")
  return body && {status: answer.querySelector(".response-col_status").innerText.trim(), body: body.innerText}
}
"""
UNFOLDED = "(selector) => Boolean(document.querySelector(selector))"


def wait(tab: Tab, code: str, argument: Any) -> Any:
    """As `Tab.wait`, which the policy of this page forbids: it would evaluate text in the page."""
    poll = "const look = () => { const found = (%s)(argument); found ? done(found) : requestAnimationFrame(look) }"
    return tab.run(f"(argument) => new Promise((done) => {{ {poll % code}; look() }})", argument)


def open_at(browser: NodeProcess, url: str, operation: str) -> Tab:
    """The page with one operation unfolded, as its link in the reference opens it."""
    tab = Tab(browser, f"{url}{PAGE}#/experiments/{operation}")
    wait(tab, UNFOLDED, f"#operations-experiments-{operation} .execute")
    return tab


def enter(tab: Tab, key: str) -> None:
    """Give the page a key, in the dialog for it."""
    tab.click(".btn.authorize")
    tab.fill("input#auth-bearer-value", key)
    tab.click(".auth-container:has(#auth-bearer-value) button.authorize")
    tab.click(".auth-container:has(h6) .btn-done")


def complaints(tab: Tab) -> list[str]:
    """What the browser complained of, but for what Swagger UI says of itself."""
    return [each for each in tab.errors() if not each.startswith("Deprecated:")]


def answer(tab: Tab, operation: str) -> dict[str, Any]:
    tab.click(f"#operations-experiments-{operation} .execute")
    found: dict[str, Any] = wait(tab, READ_ANSWER, f"experiments-{operation}")
    return found


def test_a_person_creates_and_lists_experiments(browser: NodeProcess, project: Project) -> None:
    server = project.server
    created = "experiments_create_experiment"
    tab = open_at(browser, server.url, created)
    enter(tab, server.api_key)
    made = answer(tab, created)
    assert made["status"].startswith("201"), made
    tab.click("#operations-experiments-experiments_list_experiments .opblock-summary-control")
    listed = answer(tab, "experiments_list_experiments")
    assert listed["status"].startswith("200"), listed
    (sent,) = tab.requests("/experiments/?")
    assert "/api/projects/%40current/experiments/" in sent["url"]
    assert sent["headers"]["authorization"] == f"Bearer {server.api_key}"
    assert complaints(tab) == []
    assert {each["url"].startswith((f"{server.url}/", "data:")) for each in tab.requests("")} == {True}


def test_without_a_key_the_error_is_shown(browser: NodeProcess, project: Project) -> None:
    tab = open_at(browser, project.server.url, "experiments_list_experiments")
    refused = answer(tab, "experiments_list_experiments")
    assert refused["status"].startswith("401")
    assert "Authentication credentials were not provided." in refused["body"]


def test_every_link_of_the_reference_leads_to_its_operation(browser: NodeProcess, project: Project) -> None:
    url = project.server.url
    reference = httpx.get(f"{url}/api/docs/").text
    for link in (
        "#/personal%20API%20keys/personal_API_keys_create_key",
        "#/experiments/experiments_launch",
        "#/flag%20evaluation/flags_evaluate",
    ):
        assert f"{PAGE}{link}'" in reference
        tab = Tab(browser, f"{url}{PAGE}{link}")
        wait(tab, UNFOLDED, ".opblock.is-open .execute")
        assert complaints(tab) == []
