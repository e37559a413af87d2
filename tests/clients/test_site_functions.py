"""Site functions in a real browser, run by the unmodified posthog-js (spec: hog-runtime 7.3)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import Project
from tests.clients.site import Site
from tests.clients.tab import Tab
from tests.filters.hog.test_meaning import MISSING, TABLE, VALUES

from hoglab.functions.documents.template_pages import example
from hoglab.functions.templates import catalogue

pytestmark = pytest.mark.clients

APP = """
export function onLoad({ inputs, posthog }: { inputs: any; posthog: any }): void {
  const bar: HTMLElement = document.createElement('p')
  bar.id = 'bar'
  bar.textContent = inputs.text
  document.body.append(bar)
}
"""
DESTINATION = """
const seen: Array<any> = ((window as any).seen = [])
export async function onLoad({ inputs }: any) { seen.push('loaded') }
export function onEvent({ inputs }: any) { seen.push([inputs.base, inputs.name, inputs.price ?? null]) }
"""


TEMPLATES = {
    "template-notification-bar": "() => [...document.querySelectorAll('body > *')].some((one) => one.style.color)",
    "template-google-tag-manager": "() => window.dataLayer?.some((one) => one.event === 'bought')",
}
"""What each template of the catalogue does to a page on which ``bought`` is captured."""
PROBE = """
const seen: any = ((window as any).seen = {})
export function onEvent({ inputs, event }: any) { (seen[event.properties.row] ??= []).push(inputs.name) }
"""


@pytest.fixture
def tab(browser: NodeProcess, site: Site, project: Project) -> Tab:
    def function(**body: Any) -> None:
        project.post("/hog_functions/", {"enabled": True, **body})

    function(
        type="site_app",
        name="Bar",
        hog=APP,
        inputs_schema=[
            {"key": "text", "type": "string"},
            {"key": "key", "type": "string", "secret": True},
        ],
        inputs={"text": {"value": "</script>{1 + 1} days left"}, "key": {"value": "hidden-value"}},
    )
    function(
        type="site_destination",
        name="Pixel",
        hog=DESTINATION,
        inputs_schema=[{"key": "base", "type": "string"}],
        inputs={"base": {"value": "b"}},
        filters={"properties": [{"key": "skip", "type": "event", "operator": "is_not_set", "value": "x"}]},
        mappings=[
            {
                "name": "Bought",
                "inputs_schema": [{"key": "name", "type": "string"}, {"key": "price", "type": "string"}],
                "inputs": {
                    "name": {"value": "{upper(event.event)} by {person.properties.plan}"},
                    "price": {"value": "{event.properties.price}"},
                },
                "filters": {"events": [{"id": "bought", "type": "events"}]},
            },
            {"name": "Off", "disabled": True, "filters": {}},
        ],
    )
    function(
        type="site_destination",
        name="Without mappings",
        hog="export function onEvent() { (window as any).seen.push('never') }",
    )
    tab = Tab(browser, site.url)
    tab.start(project.token, project.server.url, opt_in_site_apps=True)
    return tab


def test_site_functions_run(tab: Tab, project: Project) -> None:
    tab.wait("() => document.getElementById('bar')?.textContent === '</script>2 days left'")
    tab.wait("() => window.seen?.[0] === 'loaded'")
    tab.run("() => posthog.setPersonProperties({plan: 'pro'})")
    tab.run("() => posthog.capture('bought', {price: 9.5})")
    tab.run("() => posthog.capture('bought', {price: 1, skip: true})")
    tab.run("() => posthog.capture('looked')")
    tab.wait("() => captured.some((event) => event.event === 'looked')")
    assert tab.run("() => seen") == ["loaded", ["b", "BOUGHT by pro", 9.5]]
    assert tab.errors() == []
    config = httpx.get(f"{project.server.url}/array/{project.token}/config.js").text
    assert "document.createElement" in config
    assert "hidden-value" not in config


@pytest.mark.parametrize("template_id", sorted(TEMPLATES))
def test_templates_run(browser: NodeProcess, site: Site, project: Project, template_id: str) -> None:
    project.post("/hog_functions/", example(catalogue()[template_id]))
    tab = Tab(browser, site.url)
    tab.start(project.token, project.server.url, opt_in_site_apps=True)
    tab.run("() => posthog.capture('bought', {price: 9.5})")
    tab.wait(TEMPLATES[template_id])
    assert tab.errors() == []


def test_every_template_for_pages_is_tried() -> None:
    pages = {one.id for one in catalogue().values() if one.code_language != "hog"}
    assert set(TEMPLATES) == pages


def test_filters_with_every_operator(browser: NodeProcess, site: Site, project: Project) -> None:
    """The table of meanings, in the browser: a mapping for each row, an event for each kind of value."""
    mappings = [
        {
            "name": str(row),
            "inputs_schema": [{"key": "name", "type": "string"}],
            "inputs": {"name": {"value": str(row)}},
            "filters": {"properties": [{"key": "p", "type": "event", "operator": operator, "value": value}]},
        }
        for row, (operator, value, _) in enumerate(TABLE)
    ]
    only = {"properties": [{"key": "row", "type": "event", "operator": "is_set"}]}
    body = {"type": "site_destination", "name": "Probe", "hog": PROBE, "enabled": True}
    project.post("/hog_functions/", {**body, "filters": only, "mappings": mappings})
    tab = Tab(browser, site.url)
    tab.start(project.token, project.server.url, opt_in_site_apps=True)
    for column, value in enumerate(VALUES):
        properties = {"row": str(column)} | ({} if value is MISSING else {"p": value})
        tab.run("(properties) => posthog.capture('probe', properties)", properties)
    last = len(VALUES) - 1
    tab.wait(f"() => window.seen && {last} in window.seen")
    seen = tab.run("() => seen")
    differences = {
        (*TABLE[row][:2], column)
        for row in range(len(TABLE))
        for column in range(len(VALUES))
        if (str(row) in seen.get(str(column), ())) is not (TABLE[row][2][column] == "T")
    }
    assert differences == set()
    assert tab.errors() == []
