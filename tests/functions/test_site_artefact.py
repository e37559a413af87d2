"""Site functions: the artefact does in node what a browser's SDK asks of it (spec: hog-language 11.5)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.functions.site.artefact import SiteMapping, compile_site_function
from hoglab.hog.backend_javascript.modules import exports_function

SOURCE = """
const seen = []; // export const no = 1
const text = `export const ${ `nested ${ {a: 1}.a }` } x`, pattern = /export ['"{]/;
export function onLoad({ inputs, posthog }) { console.log('load', JSON.stringify(inputs)); return posthog.ready }
export const onEvent = ({ inputs, posthog }) => { console.log('event', seen.push(1), JSON.stringify(inputs)) }
export { seen as history, text }
export default class {} // the end"""

GLOBALS = {
    "event": {"event": "bought", "distinct_id": "u1", "properties": {"price": 7, "items": ["a", "b"]}},
    "person": {"properties": {"email": "ada@example.com"}},
    "groups": {},
}
INPUTS = (
    hog.Input("site", "shop"),
    hog.Input("mail", "to {person.properties.email}"),
    hog.Input("all", {"twice": "{inputs.mail}", "list": ["{event.properties.price}", 1, "plain"]}),
    hog.Input("bad", "{upper(5)}"),
    hog.Input("liquid", "{{ x }}", "plain"),
)


ALWAYS = SiteMapping(None)


def run(code: str, script: str, *, posthog: str = "{ get_property: () => ({email: 'stored'}) }") -> list[str]:
    """What a page prints that gets the artefact: `init` is its only way in."""
    page = f"console.error = () => console.log('error')\nconst app = ({code})().init({{ posthog: {posthog}, "
    page += (
        f"callback: (ok) => console.log('callback', ok) }})\nconst globals = {json.dumps(GLOBALS)}\n{script}"
    )
    done = subprocess.run(["node", "-"], input=page, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def condition(source: str) -> hog.Program:
    return hog.compile_expression(source, FILTER)


def payload(line: str) -> Any:
    return json.loads(line[line.index("{") :])


def test_inputs_are_built_for_loading_and_for_events(node_modules: Path) -> None:
    code = compile_site_function(SOURCE, INPUTS, None, [ALWAYS])
    load, callback, error, event = run(code, "app.processEvent(globals)")
    assert callback == "callback true"
    assert payload(load)["mail"] == "to stored"
    assert error == "error"  # `bad`, which is silent while loading
    assert event.startswith("event 1 ")
    assert payload(event) == {
        "site": "shop",
        "liquid": "{{ x }}",
        "mail": "to ada@example.com",
        "all": {"twice": "to ada@example.com", "list": [7, 1, "plain"]},
        "bad": None,
    }


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("event = 'bought' and properties.price > 5", True),
        ("properties.price between 8 and 9", False),
        ("pdi.person.properties.email ilike '%EXAMPLE%'", True),
        ("arrayExists(x -> x = 'b', properties.items)", True),
    ],
)
def test_filters_decide(node_modules: Path, source: str, called: bool) -> None:
    code = compile_site_function(
        "export function onEvent() { console.log('hit') }", (), condition(source), [ALWAYS]
    )
    assert run(code, "app.processEvent(globals)") == ["callback true", *["hit"] * called]


def test_mappings_have_their_own_filters_and_inputs(node_modules: Path) -> None:
    mappings = [
        SiteMapping(condition("event = 'bought'"), (hog.Input("what", "{event.event} by {inputs.who}"),)),
        SiteMapping(condition("event = 'left'")),
        SiteMapping(None, (hog.Input("what", "{upper(7)}"),)),
    ]
    source = "export function onEvent({ inputs }) { console.log(JSON.stringify(inputs)) }"
    code = compile_site_function(source, (hog.Input("who", "Ada"), hog.Input("what", "-")), None, mappings)
    assert run(code, "app.processEvent(globals)") == [
        "callback true",
        '{"who":"Ada","what":"bought by Ada"}',
        "error",
        '{"who":"Ada","what":"-"}',
    ]


def test_without_mappings_no_event_is_of_interest(node_modules: Path) -> None:
    code = compile_site_function("export function onEvent() { console.log('hit') }")
    assert run(code, "app.processEvent(globals)") == ["callback true"]


@pytest.mark.parametrize(
    ("source", "success"),
    [
        ("export async function onLoad() {}", "true"),
        ("export async function onLoad() { throw 1 }", "false"),
        ("export const onLoad = () => { throw 1 }", "false"),
        ("let a = 1", "true"),
    ],
)
def test_the_callback_is_told_how_loading_went(node_modules: Path, source: str, success: str) -> None:
    printed = run(compile_site_function(source), "if (app.processEvent) console.log('no')")
    assert printed[-1] == f"callback {success}"
    assert "no" not in printed


def test_the_exports_of_a_module(node_modules: Path) -> None:
    page = f"const e = {exports_function(SOURCE)}()\nconsole.log(Object.keys(e).sort().join(), e.text)"
    done = subprocess.run(["node", "-"], input=page, capture_output=True, text=True, check=True)
    assert done.stdout == "default,history,onEvent,onLoad,text export const nested 1 x\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import x from 'y'", 1),
        ("let a\nexport * from 'b'", 2),
        ("\n\nexport { a } from 'b'", 3),
        ("export 1", 1),
    ],
)
def test_what_a_site_function_cannot_have_is_refused_with_its_place(source: str, line: int) -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        compile_site_function(source)
    assert (caught.value.code, caught.value.line) == ("module", line)


def test_a_faulty_template_is_named_by_its_place() -> None:
    with pytest.raises(hog.HogSourceError) as caught:
        compile_site_function("", (hog.Input("a", {"b": ["{fetch('x')}"]}),))
    assert caught.value.path == ("a", "b", 0)
