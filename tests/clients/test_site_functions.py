"""Site functions in a real browser, run by the unmodified posthog-js (spec: hog-runtime 7.3)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import Project
from tests.clients.site import Site
from tests.clients.tab import Tab

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
