"""Filters and actions about the elements that were clicked: SQL on both engines against compiled Hog filters."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.test_emitters import END, START, exposure
from tests.filters.hog.events import filter_globals

from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import Question, Span
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.filters.hog import CompiledFilter, FilterContext, build_filter
from hoglab.statistics import StatisticsConfig

CHAINS = [
    "",
    'a.btn.primary:attr_id="buy"href="/pay"nth-child="1"nth-of-type="1"text="Buy";div.box:nth-child="2"text="Shop"',
    'span:text="Buy";a:href="/Pay?x=1"text="Buy now";div.box',
    'button.big:attr_id="later"text="Say \\"hi\\"";form:text="100"',
    'a:href=""text="";a:href="/pay"',
    'button:attr__href="/pay"nth-child="2"text="a\nb"',
    'label;input:attr_id="buy"',
    'svg.btn:text="ключ 🔑";a.x:href="/pay/ключ"',
]


def leaf(key: str, value: Any = None, operator: str = "exact", **more: Any) -> dict[str, Any]:
    return {"key": key, "type": "element", "operator": operator, "value": value, **more}


LEAVES = [
    *(
        leaf("tag_name", tag, operator)
        for tag in ("a", "label", ["svg", "form"])
        for operator in ("exact", "is_not")
    ),
    *(
        leaf("selector", selector, operator)
        for selector in ("a.btn", "#buy", "div.box a", "div > a", '[href="/pay"]', ["#later", "svg"], "*")
        for operator in ("exact", "is_not")
    ),
    leaf("href", "/pay"),
    leaf("href", "/pay", "is_not"),
    leaf("href", "/PAY", "icontains"),
    leaf("href", "pay", "not_icontains"),
    leaf("href", "^/[pP]ay", "regex"),
    leaf("href", "^/pay$", "not_regex"),
    leaf("href", operator="is_set"),
    leaf("href", operator="is_not_set"),
    leaf("href", ["/pay", "/Pay?x=1"]),
    leaf("href", "/pay", negation=True),
    leaf("text", "Buy"),
    leaf("text", "Buy", "is_not"),
    leaf("text", "buy", "icontains"),
    leaf("text", "buy", "not_icontains"),
    leaf("text", ["Shop", "100"]),
    leaf("text", ["Shop", "Buy"], "is_not"),
    leaf("text", "^B.y$", "regex"),
    leaf("text", "🔑", "icontains"),
    leaf("text", 'Say "hi"'),
    leaf("text", operator="is_set"),
    leaf("text", 50, "gt"),
    {"key": "$elements_chain", "type": "event", "operator": "icontains", "value": "BOX"},
]
NEVER = [leaf("href", operator="is_not_set"), leaf("text", 'Say "hi"')]
"""A chain without a link has an empty one; and a quotation mark ends a text."""
ALWAYS = [leaf("href", operator="is_set")]
STEPS: list[dict[str, Any]] = [
    {"tag_name": "a", "text": "Buy"},
    {"selector": "#buy"},
    {"selector": ".btn", "href": "/pay"},
    {"href": "PAY", "href_matching": "contains"},
    {"href": "^/pay", "href_matching": "regex"},
    {"text": "^[BS]", "text_matching": "regex"},
    {"text": "uY", "text_matching": "contains"},
    {"text": "u_", "text_matching": "contains"},
    {"href": "/p%", "href_matching": "contains"},
]
NO_STEPS = STEPS[-2:]
"""Wildcards stand for themselves, and no text or link has them."""


@pytest.fixture(scope="module")
def clicks(engine: Engine) -> Engine:
    """Ann clicked each chain once."""
    events = [exposure("ann"), exposure("bob", variant="test")]
    events += [
        Event("ann", START + timedelta(minutes=minute), "$autocapture", elements_chain=chain)
        for minute, chain in zip(count(), CHAINS, strict=False)
    ]
    engine.add(events, project_id=900)
    return engine


def counted(engine: Engine, source: dict[str, Any], steps: list[dict[str, Any]] | None = None) -> int:
    calculation = Calculation(
        START,
        "flag",
        ["control", "test"],
        StatisticsConfig(),
        exposure_criteria={"filterTestAccounts": False},
    )
    reader = MetricParser(lambda _identifier: steps)
    metric = {"metric_type": "mean", "source": source}
    question = Question(
        reader.exposures(900, calculation, metric), Span(START, END, END), reader.metric(metric)
    )
    return int(engine.computer.result(question).groups["control"].sum)


def matched(filters: dict[str, Any], context: FilterContext | None = None) -> int:
    """How many of the clicks a Hog filter matches."""
    compiled = CompiledFilter(build_filter(filters, context or FilterContext()))
    return sum(compiled.matches(filter_globals(event="$autocapture", chain=chain)) for chain in CHAINS)


@pytest.mark.parametrize(
    "condition", LEAVES, ids=lambda each: f"{each['key']} {each['operator']} {each['value']}"
)
def test_filters_of_elements_mean_what_they_mean_in_hog(clicks: Engine, condition: dict[str, Any]) -> None:
    source = {"kind": "EventsNode", "event": "$autocapture", "properties": [condition]}
    found = counted(clicks, source)
    assert found == matched({"properties": [condition]})
    assert (found == 0) is (condition in NEVER)
    assert (found == len(CHAINS)) is (condition in ALWAYS)


@pytest.mark.parametrize("step", STEPS, ids=lambda each: " ".join(each.values()))
def test_actions_mean_what_they_mean_in_hog(clicks: Engine, step: dict[str, Any]) -> None:
    steps = [{"event": "$autocapture", **step}]
    found = counted(clicks, {"kind": "ActionsNode", "id": 1}, steps)
    context = FilterContext(actions={1: steps})
    assert found == matched({"actions": [{"id": "1", "type": "actions"}]}, context)
    assert (found == 0) is (step in NO_STEPS)
    assert found < len(CHAINS)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (leaf("order", 1), "order: elements have no such property"),
        (leaf("tag_name", "a", "icontains"), "tag_name: the operator icontains is not supported for it"),
        (leaf("selector", "a:hover"), "selector: Invalid selector: a:hover"),
        (leaf("text", "a", "sounds_like"), "text: the operator sounds_like is not supported in metrics"),
        (leaf("href", "(", "regex"), r"href: '\(' is not a valid regular expression"),
    ],
)
def test_what_elements_cannot_be_asked_is_refused(
    clicks: Engine, condition: dict[str, Any], reason: str
) -> None:
    source = {"kind": "EventsNode", "event": "$autocapture", "properties": [condition]}
    with pytest.raises(DefinitionError, match=reason):
        counted(clicks, source)
