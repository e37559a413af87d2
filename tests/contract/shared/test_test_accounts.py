"""Filters of a project's test accounts: what results and functions look at by default is checked when it is saved."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api

from hoglab.filters.model import MAX_FILTERS

FILTER = {"key": "email", "type": "person", "operator": "not_icontains", "value": "@example.com"}
SITE = {"key": "$host", "type": "event", "operator": "is_not", "value": ["localhost"]}


def save(api: Api, *filters: Any) -> Any:
    return api.call("PATCH", "", {"test_account_filters": list(filters)})


REFUSED = {
    "a misspelt key": (
        {"key": "email", "type": "person", "valeu": "x"},
        "unknown_field",
        "did you mean value?",
    ),
    "a misspelt key in a group": (
        {"type": "AND", "values": [{**FILTER, "oprator": "exact"}]},
        "unknown_field",
        "did you mean operator?",
    ),
    "an operator": ({**FILTER, "operator": "nonsense"}, "invalid_input", "nonsense"),
    "a pattern": ({**FILTER, "operator": "regex", "value": "("}, "invalid_input", "regular expression"),
    "an expression": ({"type": "hogql", "key": "properties.a ="}, "invalid_input", "test_account_filters[1]"),
    "a shape": ({**FILTER, "operator": 7}, "invalid_input", "operator"),
    "a cohort": ({"key": "id", "type": "cohort", "value": 99_999}, "cohort_does_not_exist", "99999"),
    "a cohort in a group": (
        {"type": "OR", "values": [{"key": "id", "type": "cohort", "value": "x"}]},
        "cohort_does_not_exist",
        "Cohort with id x",
    ),
}


@pytest.mark.parametrize(("wrong", "code", "text"), REFUSED.values(), ids=list(REFUSED))
def test_what_nothing_can_use_is_refused(api: Api, wrong: Any, code: str, text: str) -> None:
    before = api.call("GET", "").json()["test_account_filters"]
    answer = save(api, FILTER, wrong)
    error = answer.json()
    assert (answer.status_code, error["code"]) == (400, code)
    assert error["attr"].startswith("test_account_filters")
    assert text in error["detail"]
    assert api.call("GET", "").json()["test_account_filters"] == before


def test_what_can_be_used_is_kept(api: Api) -> None:
    rules = {"properties": {"type": "AND", "values": [{**FILTER, "operator": "icontains"}]}}
    cohort = api.ok("POST", "/cohorts/", {"name": "Staff", "filters": rules}, status=201)["id"]
    filters = [
        FILTER,
        SITE,
        {"type": "hogql", "key": "properties.plan != 'internal'"},
        {"key": "id", "type": "cohort", "operator": "not_in", "value": cohort, "cohort_name": "Staff"},
        {"type": "OR", "values": [FILTER, SITE]},
    ]
    answer = save(api, *filters)
    assert (answer.status_code, answer.json()["test_account_filters"]) == (200, filters)
    assert api.call("PATCH", f"/cohorts/{cohort}/", {"deleted": True}).status_code == 400
    api.lose_cohort(cohort)
    assert save(api, *filters).status_code == 200, "what it has already may be sent back"
    assert save(api).json()["test_account_filters"] == []


def test_there_are_only_so_many(api: Api) -> None:
    answer = save(api, *[SITE] * (MAX_FILTERS + 1))
    assert answer.status_code == 400
    assert f"more than {MAX_FILTERS} filters" in answer.json()["detail"]
