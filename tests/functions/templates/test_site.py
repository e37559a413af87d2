"""The templates that run in browsers, on as much of a page as they touch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.functions.conftest import Api
from tests.waiting import PATIENCE_S

from hoglab.functions.documents.template_pages import example
from hoglab.functions.templates import catalogue

PAGE = """
const stored = {}
const localStorage = {getItem: (key) => stored[key] ?? null, setItem: (key, value) => { stored[key] = value }}
class Element {
  constructor(tag) { Object.assign(this, {tag, style: {}, attributes: {}, children: [], listeners: {}, gone: false}) }
  setAttribute(name, value) { this.attributes[name] = value }
  addEventListener(name, listener) { this.listeners[name] = listener }
  append(...more) { this.children.push(...more) }
  appendChild(one) { this.children.push(one) }
  remove() { this.gone = true }
}
const document = {createElement: (tag) => new Element(tag), head: new Element('head'), body: new Element('body')}
const window = globalThis
const captured = []
const posthog = {get_property: () => ({}), capture: (...event) => captured.push(event)}
"""
EVENT = {
    "event": {"event": "signup", "distinct_id": "u1", "properties": {"plan": "pro"}},
    "person": {},
    "groups": {},
}


@pytest.fixture
def in_a_page(api: Api, node_modules: Path) -> Any:
    """Runs a template with some inputs, then JavaScript that gives what the test wants to see."""

    def run(template_id: str, inputs: dict[str, Any], wanted: str) -> Any:
        body = example(catalogue()[template_id])
        body["inputs"] |= {key: {"value": value} for key, value in inputs.items()}
        code = api.create(**body)["transpiled"]
        program = (
            f"{PAGE}\nconst started = ({code})().init({{posthog, callback: () => {{}}}})\n"
            f"const event = {json.dumps(EVENT)}\nconsole.log(JSON.stringify({wanted}))"
        )
        done = subprocess.run(
            ["node", "-e", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_bar_shows_its_message_until_it_is_closed(in_a_page: Any) -> None:
    inputs = {"message": "<b>We moved</b>", "url": "https://example.com/"}
    shown = "const [bar] = document.body.children; const [link, close] = bar.children;"
    assert in_a_page(
        "template-notification-bar",
        inputs,
        f"(() => {{ {shown} link.listeners.click(); close.listeners.click();"
        " return [link.tag, link.textContent, link.attributes.href, bar.style.color, captured, bar.gone,"
        " Object.values(stored)] })()",
    ) == [
        "a",
        "<b>We moved</b>",
        "https://example.com/",
        "#ffffff",
        [["notification bar clicked", {"message": "<b>We moved</b>"}]],
        True,
        ["<b>We moved</b>"],
    ]


def test_events_reach_the_data_layer(in_a_page: Any) -> None:
    wanted = "(started.processEvent(event), [window.dataLayer, document.head.children.length])"
    pushed = {"event": "signup", "distinct_id": "u1", "properties": {"plan": "pro"}}
    assert in_a_page("template-google-tag-manager", {}, wanted) == [[pushed], 0]


def test_the_container_is_loaded_when_it_is_named(in_a_page: Any) -> None:
    wanted = "[document.head.children[0].src, window.dataLayer[0].event]"
    assert in_a_page("template-google-tag-manager", {"containerId": "GTM-1"}, wanted) == [
        "https://www.googletagmanager.com/gtm.js?id=GTM-1",
        "gtm.js",
    ]
