"""What editors ask: findings with their places, and what may be written."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api


def findings(api: Api, body: dict[str, Any], function: str = "new") -> list[dict[str, Any]]:
    answer = api.post(f"/hog_functions/{function}/diagnostics/", body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["diagnostics"]
    return found


def test_nothing_to_say(api: Api) -> None:
    assert findings(api, {"hog": "fetch(inputs.url)"}) == []


@rule("X3.1")
def test_every_text_is_looked_at(api: Api) -> None:
    body = {
        "hog": "let a := 1\nreturn nothing(event)",
        "inputs_schema": [{"key": key, "type": "json"} for key in ("url", "body")],
        "inputs": {
            "url": {"value": {"a": ["x", "{event."]}},
            "body": {"value": "a\n{{ event.event", "templating": "liquid"},
        },
        "masking": {"ttl": 60, "hash": "{nope("},
        "mappings": [
            {"inputs_schema": [{"key": "m", "type": "string"}], "inputs": {"m": {"value": "{1 +}"}}}
        ],
    }
    found = findings(api, body)
    places = {(one["attr"], tuple(one["path"])) for one in found if one["severity"] == "error"}
    assert places == {
        ("hog", ()),
        ("inputs__url", ("a", 1)),
        ("inputs__body", ()),
        ("masking__hash", ()),
        ("mappings__0__inputs__m", ()),
    }
    program = next(one for one in found if one["attr"] == "hog" and one["severity"] == "error")
    assert (program["line"], program["column"], program["code"]) == (2, 8, "unknown-function")
    assert [one["attr"] for one in found if one["refused"]] == ["inputs__url"]


@rule("X3.1")
def test_what_is_no_text_is_reported_as_saving_reports_it(api: Api) -> None:
    found = findings(api, {"hog": "return 1", "masking": {"ttl": 1, "hash": "x"}})
    assert [(one["attr"], one["code"], one["refused"]) for one in found] == [
        ("masking__ttl", "min_value", True)
    ]


@rule("X3.1")
def test_a_stored_function_supplies_the_rest(api: Api) -> None:
    made = api.create(hog="print(evnt)", inputs_schema=[{"key": "a", "type": "string"}])
    assert [one["severity"] for one in findings(api, {}, made["id"])] == ["warning"]
    assert findings(api, {"hog": "print(event)"}, made["id"]) == []
    assert api.get(f"/hog_functions/{made['id']}/").json()["hog"] == "print(evnt)"


@rule("X3.1")
def test_browser_code(api: Api) -> None:
    (found,) = findings(api, {"type": "site_app", "hog": "let a = 1\nenum B { C }"})
    assert (found["attr"], found["line"], found["column"], found["refused"]) == ("hog", 2, 1, True)


@rule("X3.2")
@pytest.mark.parametrize(
    ("query", "globals_", "there", "not_there"),
    [
        ("", {"event", "person", "groups", "project", "source", "inputs"}, "fetch", "geoipLookup"),
        ("?type=transformation", {"event", "project", "inputs"}, "geoipLookup", None),
        ("?purpose=template", {"event", "person", "groups", "project", "source", "inputs"}, "upper", "fetch"),
        ("?type=source_webhook", {"event", "request", "project", "source", "inputs"}, "fetch", None),
    ],
)
def test_completions(api: Api, query: str, globals_: set[str], there: str, not_there: str | None) -> None:
    answer = api.get(f"/hog_functions/completions/{query}").json()
    assert {one["name"] for one in answer["globals"]} == globals_
    functions = {one["name"]: one for one in answer["functions"]}
    assert functions[there]["signature"].startswith(f"{there}(")
    assert all(one["description"] for one in functions.values())
    assert not_there not in functions


@rule("X3.2")
def test_completions_of_filters(api: Api) -> None:
    answer = api.get("/hog_functions/completions/?purpose=filter").json()
    assert {"properties", "person", "pdi", "elements_chain"} <= {one["name"] for one in answer["globals"]}
    assert api.get("/hog_functions/completions/?purpose=x").json()["code"] == "invalid_choice"
