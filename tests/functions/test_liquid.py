"""Liquid templates: the same texts as LiquidJS, which renders them for PostHog, and bounded (spec: hog-runtime 3)."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functions.conftest import Api
from tests.generated import examples
from tests.waiting import PATIENCE_S

from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import CompiledFunction, compile_configuration
from hoglab.functions.service import FunctionService
from hoglab.functions.templating.liquid import (
    ENVIRONMENT,
    MAX_TEMPLATE_CHARS,
    LiquidTemplate,
    LiquidTemplateError,
)
from hoglab.functions.templating.liquid_filters import FILTERS
from hoglab.hog.errors import HogRuntimeError
from hoglab.http.identity import Project

pytestmark = pytest.mark.usefixtures("no_collector")

VARIABLES: dict[str, Any] = {
    "event": {
        "event": "order <paid>",
        "timestamp": "2026-01-05T09:07:03.045Z",
        "properties": {
            "$lib": "web",
            "total": 12.5,
            "whole": 3.0,
            "big": 1234567,
            "items": [
                {"sku": "b-2", "price": 3, "on": True},
                {"sku": "a-1", "price": 9.5, "on": False},
                {"sku": "c-3", "price": 3, "on": True},
            ],
            "tags": ["x", "y", "x", None],
            "html": "<b class=\"a\">Tom & 'Jerry'</b><!-- no --><script>x()</script>",
            "nested": {"a": {"b": [1, 2]}},
            "yes": True,
            "none": None,
            "hollow": "",
        },
    },
    "person": {"properties": {"email": "ada@example.com", "name": "Ada Lovelace"}},
}
TEMPLATES = (
    "plain",
    "{{ event.event }}",
    "{{ event.event | raw }}",
    "{{ event.event | upcase }}/{{ event.event | escape | raw }}",
    "{{ event.properties['$lib'] }} {{ event.properties.total }} {{ event.properties.whole }}",
    "{{ nothing.at.all }}|{{ event.properties.none }}|{{ event.properties.yes }}|{{ event.properties.hollow }}",
    "{{ event.properties.nested.a.b }} {{ event.properties.nested.a.b.size }} {{ event.properties.nested }}",
    "{{ event.properties.tags | join: ', ' }} {{ event.properties.tags | uniq | join: '-' }}",
    "{{ event.properties.tags.first }}{{ event.properties.tags | compact | last }}",
    "{{ event.properties.items | map: 'sku' | sort | join: ',' }}",
    "{{ event.properties.items | where: 'on', true | map: 'sku' | join: ',' }}",
    "{{ event.properties.items | sum: 'price' }}",
    "{{ event.properties.items | json | raw }}",
    "{{ event.properties.nested | json }}",
    "{% for i in event.properties.items %}{{ forloop.index }}{% unless forloop.last %},{% endunless %}{% endfor %}",
    "{% for i in (1..3) reversed %}{{ i }}{% else %}none{% endfor %}{% for i in nothing %}x{% else %}none{% endfor %}",
    "{% for i in (1..9) limit: 3 offset: 2 %}{% if i == 4 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% if event.properties.total > 10 and event.properties.yes %}big{% elsif true %}small{% endif %}",
    "{% if event.event contains 'paid' %}y{% endif %}{% if event.properties.hollow == blank %}b{% endif %}",
    "{% case event.properties.big %}{% when 1, 1234567 %}hit{% else %}miss{% endcase %}",
    "{% assign who = person.properties.name | split: ' ' %}{{ who[0] }} {{ who.last }} {{ who | size }}",
    "{% capture x %}[{{ event.properties.big }}]{% endcapture %}{{ x }}{{ x | size }}",
    "a {%- if true -%} b {%- endif -%} c",
    "{% comment %}no{% endcomment %}{% raw %}{{ kept }}{% endraw %}{# #}",
    "{% increment n %}{% increment n %}{% cycle 'a', 'b' %}{% cycle 'a', 'b' %}",
    "{{ 7 | divided_by: 2 }} {{ 7 | modulo: 3 }} {{ 1.5 | times: 2 }} {{ 2 | plus: 0.5 }} {{ '4' | minus: 1 }}",
    "{{ -1.6 | round }} {{ 1.239 | round: 2 }} {{ 1.2 | ceil }} {{ 1.8 | floor }} {{ -3 | abs }} {{ 5 | at_most: 3 }}",
    "{{ event.timestamp | date: '%Y-%m-%d %H:%M:%S.%L %j %y %b %a %-d %e %I %p %P %s %%' }}",
    "{{ event.timestamp | date: '%d/%m/%Y', 'Asia/Tokyo' }} {{ event.timestamp | date: '%Y-%m-%dT%H:%M', 300 }}",
    "{{ 'no date' | date: '%Y' }} {{ 0 | date: '%Y' }} {{ '1700000000' | date: '%X|%x|%c' }}",
    "{{ event.properties.html | strip_html }} {{ event.properties.html | escape_once }}",
    "{{ person.properties.email | split: '@' | first | capitalize | append: '!' | prepend: '>' }}",
    "{{ 'a b&c/ä?' | url_encode }} {{ 'a+b%20c' | url_decode }}",
    "{{ '  x  ' | strip }}|{{ '  x  ' | lstrip }}|{{ '  x  ' | rstrip }}|{{ 'a\nb' | newline_to_br | raw }}",
    "{{ 'hello world foo' | truncate: 8 }} {{ 'hello world foo' | truncatewords: 2 }} {{ 'hello' | slice: 1, 3 }}",
    "{{ 'a-b-a' | replace: 'a', 'x' }} {{ 'a-b-a' | replace_first: 'a', 'x' }} {{ 'a-b-a' | remove: 'a' }}",
    "{{ no | default: 1 }} {{ event.properties.hollow | default: 2 }} {{ false | default: 'f' }} {{ 0 | default: 1 }}",
    "{{ event.event | no_such_filter: 1, 2 }}",
    "{{ 'b64' | base64_encode }} {{ 'YjY0' | base64_decode }}",
    "{{ event.properties.yes | append: event.properties.whole }}",
    "{% if person.properties.email == &quot;ada@example.com&quot; and 1 &lt; 2 %}{{ &#x27;q&#x27; }} &amp;{% endif %}",
    "{{ event.properties.items | reverse | map: 'price' | json }} {{ 'a,b' | split: ',' | concat: who | join: '.' }}",
    "{% liquid assign a = 1\n echo a %}{% echo event.event %}",
    "{{ 6 | divided_by: 2 }} {{ 1 | divided_by: 0 }} {{ 7 | divided_by: 2, true }}",
)  # fmt: skip

ORACLE = """
const { Liquid } = await import(process.argv[1]);
const { templates, variables } = JSON.parse(await new Response(process.stdin).text());
const engine = new Liquid({ outputEscape: 'escape' });
const decode = (text) => text.replace(/\\{\\{[\\s\\S]*?\\}\\}|\\{%[\\s\\S]*?%\\}/g, (part) => part
  .replaceAll('&lt;', '<').replaceAll('&gt;', '>')
  .replaceAll('&quot;', '"').replaceAll('&#x27;', "'").replaceAll('&amp;', '&'));
const out = templates.map((text) => {
  try { return engine.parseAndRenderSync(decode(text), variables); } catch (error) { return { error: String(error) }; }
});
process.stdout.write(JSON.stringify(out));
"""


def test_the_same_texts_as_liquidjs(node_modules: Path) -> None:
    package = node_modules / "liquidjs" / "dist" / "liquid.node.mjs"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", ORACLE, str(package)],
        input=json.dumps({"templates": TEMPLATES, "variables": VARIABLES}),
        env={"TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    expected = dict(zip(TEMPLATES, json.loads(done.stdout), strict=True))
    assert {text: LiquidTemplate.parse(text).render(VARIABLES) for text in TEMPLATES} == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ event.event",
        "{% if %}",
        "{% for x in %}{% endfor %}",
        "{% include 'a' %}",
        "{% render 'a' %}",
        "{% no_such_tag %}",
        "{% if true %}" * 40 + "{% endif %}" * 40,
        "x" * (MAX_TEMPLATE_CHARS + 1) + "{{ a }}",
    ],
)
def test_what_is_not_liquid(text: str) -> None:
    with pytest.raises(LiquidTemplateError):
        LiquidTemplate.parse(text)


DOUBLING = "{% assign a = 'xxxxxxxxxx' %}" + "{% assign a = a | append: a %}" * 40 + "{{ a }}"
ATTACKS = {
    "many iterations": "{% for i in (1..100000000) %}x{% endfor %}",
    "nested iterations": "{% for i in (1..5000) %}{% for j in (1..5000) %}x{% endfor %}{% endfor %}",
    "doubled text": DOUBLING,
    "replaced text": "{{ 'aaaaaaaaaa'" + " | replace: 'a', 'aaaaaaaaaa'" * 12 + " }}",
    "replaced nothing": "{{ '" + "a" * 20_000 + "' | replace: '', '" + "b" * 20_000 + "' }}",
    "long range": "{{ (1..1000000000) | join: ',' }}",
    "huge number": "{% assign a = 9999999999 %}" + "{% assign a = a | times: a %}" * 60 + "{{ a | json }}",
    "wide date": "{{ 'now' | date: '" + "%999999999d" * 30 + "' }}",
    "much output": "{% for i in (1..9999) %}" + "x" * 2_000 + "{% endfor %}",
    "deep json": '{{ \'\\\\"\\\\"\\\\"\'' + " | json" * 40 + " }}",
    "open tags": "{{ html | strip_html }}",
    "unclosed scripts": "{{ scripts | strip_html }}",
    "unclosed styles": "{{ styles | strip_html }}",
    "unclosed comments": "{{ comments | strip_html }}",
    "unclosed outputs": "{{" * 49_000,
    "unclosed tags": "{%" * 49_000 + "}}",
    "unclosed raw": "{%raw%}" * 14_000,
    "unclosed doc": "{% doc %}" * 11_000,
    "unclosed quotes": "{{ " + "'\"" * 49_000 + " }}",
    "long work": "{% for i in (1..9999) %}{% assign b = text | split: '' | sort | uniq %}{% endfor %}",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_no_template_takes_more_than_its_share(attack: str) -> None:
    variables = {
        "html": "<script" * 100_000,
        "scripts": "<script>" * 100_000,
        "styles": "<style>" * 100_000,
        "comments": "<!-- >" * 100_000,
        "text": "ab" * 10_000,
    }
    started = time.thread_time()
    with contextlib.suppress(LiquidTemplateError):
        assert len(LiquidTemplate.parse(attack).render(variables)) <= 1_000_000
    assert time.thread_time() - started < 3


MARKUP = re.compile(r"(?isa)<script.*?</script>|<style.*?</style>|<!--.*?-->|<.*?>")
PIECES = [
    "<",
    ">",
    "<script",
    "</script>",
    "<STYLE>",
    "</style",
    "<!--",
    "--",
    "->",
    "a",
    "İ",
    "ſ",
    "\n",
    "/",
]


@settings(max_examples=examples(500), deadline=None)
@given(html=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_markup_is_what_the_pattern_says(html: str) -> None:
    assert FILTERS["strip_html"](html) == MARKUP.sub("", html)


LONG_RANGE = "(1..1000000000)"
FOR_EACH = "{% for i in (1..9000) %}{% if "
RANGES = {
    "contains a text": "{% if R contains 'x' %}y{% endif %}",
    "contains a fraction": "{% if R contains 1.5 %}y{% endif %}",
    "turned around": "{% for i in R reversed %}y{% endfor %}",
    "skipped": "{% for i in R limit: 1 offset: 999999990 %}y{% endfor %}",
    "skipped in a table": "{% tablerow i in R limit: 1 offset: 999999990 %}y{% endtablerow %}",
    "assigned": "{% assign r = R %}{% if r contains 'x' %}y{% endif %}",
    "case": "{% case R %}{% when 'x' %}y{% endcase %}",
    "printed": "{{ R }}",
    "many": FOR_EACH + " or ".join(["(1..49000) contains 'y'"] * 90) + " %}{% endif %}{% endfor %}",
    "searched texts": FOR_EACH + " or ".join(["long contains 'y'"] * 90) + " %}{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("attack", RANGES.values(), ids=list(RANGES))
def test_ranges_and_searches_take_no_more_than_their_share(attack: str) -> None:
    template = LiquidTemplate.parse(attack.replace("R", LONG_RANGE))
    started = time.thread_time()
    with pytest.raises(LiquidTemplateError, match=r"a range has more than 50000 items|ran longer than"):
        template.render({"long": "ab" * 500_000})
    assert time.thread_time() - started < 2


LARGE_VALUES = {
    "letters": "ab" * 400_000,
    "marks": "<&" * 400_000,
    "texts": ["x" * 15] * 45_000,
    "objects": [{"k": number} for number in range(12_000)],
    "lists": [[1]] * 20_000,
}


@pytest.mark.parametrize("name", sorted(ENVIRONMENT.filters))
def test_no_filter_takes_long_for_one_value(name: str) -> None:
    """Between two filters the time is looked at: what one takes is what a render may take too long."""
    for value, argument in product(LARGE_VALUES, ("", ": letters", ": texts")):
        template = LiquidTemplate.parse(f"{{{{ {value} | {name}{argument} | size }}}}")
        started = time.thread_time()
        with contextlib.suppress(LiquidTemplateError):
            template.render(LARGE_VALUES)
        assert time.thread_time() - started < 1.5, (value, argument)


def test_values_reach_nothing_but_data() -> None:
    template = LiquidTemplate.parse("{{ a.__class__ }}{{ a.mro }}{{ a.items }}{{ today }}{{ template }}")
    assert template.render({"a": {}}) == ""


def function_with(service: FunctionService, project: Project, **body: Any) -> CompiledFunction:
    sent = FunctionPatch({"name": "n", "hog": "return inputs", **body})
    configuration = Builder(sent, None, FilterContext()).build()
    return compile_configuration(configuration, FilterContext(), function_id="f", project_id=project.id)


def test_inputs_of_a_run(service: FunctionService, project: Project) -> None:
    function = function_with(
        service,
        project,
        inputs_schema=[
            {"key": "base", "type": "string"},
            {"key": "body", "type": "json"},
            {"key": "token", "type": "string", "secret": True},
        ],
        inputs={
            "base": {"value": "https://x.io/{event.event}"},
            "body": {
                "value": {
                    "{{ key }}": ["{{ inputs.base | raw }}", 5, None],
                    "t": "{{ now | date: '%Y' | size }}",
                },
                "templating": "liquid",
            },
            "token": {"value": "{{ event.event }}", "templating": "liquid"},
        },
    )
    assert not function.has_fixed_inputs
    assert function.build_inputs({"event": {"event": "a&b"}}) == {
        "base": "https://x.io/a&b",
        "body": {"{{ key }}": ["https://x.io/a&b", 5, None], "t": "4"},
        "token": "a&amp;b",
    }


def test_what_is_not_liquid_is_an_error_of_the_input(service: FunctionService, project: Project) -> None:
    function = function_with(
        service,
        project,
        inputs_schema=[{"key": "a", "type": "string"}],
        inputs={"a": {"value": "{{ event", "templating": "liquid"}},
    )
    with pytest.raises(HogRuntimeError, match="Liquid template of input 'a'"):
        function.build_inputs({"event": {}})


def test_a_schema_may_ask_for_liquid(api: Api) -> None:
    made = api.create(
        inputs_schema=[{"key": "a", "type": "string", "templating": "liquid"}],
        inputs={"a": {"value": "{{ event.event }}"}},
    )
    assert made["inputs"]["a"] == {"value": "{{ event.event }}", "templating": "liquid", "order": 0}
