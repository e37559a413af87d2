"""Explanations of filters: the verdict of the filter that runs, and every term with its value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.filters.hog.events import DEAR_OR_RETURNED, filter_globals

from hoglab.filters.hog import CompiledFilter, FilterContext, FilterFailure, build_filter
from hoglab.filters.hog.explain import Term, explain_expression, explain_filter
from hoglab.filters.model import FilterError

CONTEXT = FilterContext(
    test_account_filters=[
        {"key": "email", "type": "person", "operator": "not_icontains", "value": "@acme.com"}
    ],
    actions={
        7: [{"event": "pay", "url": "/buy", "properties": [{"key": "n", "type": "event", "value": 1}]}],
        8: [],
    },
)


def leaves(term: Term) -> list[Term]:
    return [term] if term.kind == "term" else [leaf for one in term.terms for leaf in leaves(one)]


EVENTS = [
    filter_globals(event=event, properties=properties, person=person)
    for event in ("purchase", "refund", "pageview", "pay")
    for properties in (
        {},
        {"amount": 150, "n": 1, "$current_url": "https://x/buy"},
        {"amount": "99", "p": "x"},
    )
    for person in (None, {"plan": "pro"}, {"plan": "free", "email": "Bob@ACME.com"})
]
CASES: list[dict[str, Any]] = [
    DEAR_OR_RETURNED,
    {},
    {"events": [{"id": None, "type": "events"}]},
    {"actions": [{"id": 7, "type": "actions"}, {"id": 8}, {"type": "actions"}]},
    {"properties": {"type": "OR", "values": [{"key": "amount", "value": [150, "99"]}, {"type": "AND", "values": []}]}},
    {"properties": [{"type": "hogql", "key": "properties.p"}]},
    {"properties": [{"type": "hogql", "key": "properties.p in 5"}, {"key": "amount", "operator": "is_set"}]},
    {"events": [{"id": "refund", "type": "events", "properties": [{"type": "hogql", "key": "1 in uuid > 1"}]}]},
]  # fmt: skip


@pytest.mark.parametrize("filters", CASES, ids=range(len(CASES)))
def test_the_verdict_is_that_of_the_filter(filters: dict[str, Any]) -> None:
    compiled = CompiledFilter(build_filter(filters, CONTEXT))
    for event in EVENTS:
        found = explain_filter(filters, CONTEXT, event)
        try:
            expected, error = compiled.matches(event), None
        except FilterFailure as failure:
            expected, error = False, str(failure)
        assert found.matches is expected
        if found.note is None:
            assert found.error == error
            assert found.term.holds is (None if error else expected)
        json.dumps(found.to_json())


def test_every_term_says_what_it_saw() -> None:
    event = filter_globals(event="purchase", properties={"amount": 100}, person={"plan": "pro"})
    found = explain_filter(DEAR_OR_RETURNED, CONTEXT, event)
    assert not found.matches
    assert [(one.text, one.holds) for one in leaves(found.term)] == [
        ('test_account_filters[0]: person email not_icontains "@acme.com"', True),
        ('properties[0]: person plan is_not "free"', True),
        ('event is "purchase"', True),
        ('events[0].properties[0]: event amount gt "100"', False),
        ('event is "refund"', False),
    ]
    assert leaves(found.term)[3].sees == (("properties.amount", 100),)


def test_the_steps_of_an_action_say_where_each_condition_stands() -> None:
    event = filter_globals(event="pay", properties={"n": 1, "$current_url": "https://x/sell"})
    found = explain_filter({"actions": [{"id": 7, "type": "actions", "name": "Pays"}]}, CONTEXT, event)
    assert [(one.text, one.holds) for one in leaves(found.term)] == [
        ('event is "pay"', True),
        ("properties.$current_url like '%/buy%'", False),
        ("action 7: steps[0].properties[0]: event n exact 1", True),
    ]


def test_events_turned_away_by_their_name() -> None:
    found = explain_filter(DEAR_OR_RETURNED, CONTEXT, filter_globals(event="pageview"))
    assert not found.matches
    assert found.note is not None
    assert "name" in found.note


def test_expressions() -> None:
    event = filter_globals(event="e", properties={"n": 5, "t": "x"})
    found = explain_expression("event = 'e' and (properties.n > 9 or not properties.t = 'y')", event)
    assert found.matches
    assert [(one.text, one.holds) for one in leaves(found.term)] == [
        ("event = 'e'", True),
        ("properties.n > 9", False),
        ("properties.t = 'y'", False),
    ]
    assert [one.kind for one in found.term.terms] == ["term", "any"]
    found = explain_expression("properties.t", event)
    assert (found.matches, found.value) == (False, "x")
    assert found.note == 'The filter gives "x"; only the boolean true matches.'


def test_a_term_that_fails_does_not_hide_the_others() -> None:
    found = explain_expression(
        "event = 'e' and jsonParse(properties.t) = 1", filter_globals(properties={"t": "{"})
    )
    assert not found.matches
    assert found.error
    assert [one.holds for one in found.term.terms] == [True, None]
    assert found.term.terms[1].error == found.error


@pytest.mark.parametrize("text", ["", "a =", "inputs.x = 1", "fetch('x')"])
def test_refuses_what_is_no_filter(text: str) -> None:
    with pytest.raises(FilterError):
        explain_expression(text, filter_globals())
