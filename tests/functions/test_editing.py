"""What editors ask: findings with their places, and what may be written."""

from __future__ import annotations

from collections.abc import Callable
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


# Bodies with a name in each place that may read names.
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "hog": lambda name: {"hog": f"print({name})\nreturn event"},
    "inputs__i": lambda name: {
        "inputs_schema": [{"key": "i", "type": "json"}],
        "inputs": {"i": {"value": {"a": ["x", f"{{{name}}}"]}}},
    },
    "masking__hash": lambda name: {"masking": {"ttl": 60, "hash": f"{{{name}}}"}},
    "mappings__0__inputs__i": lambda name: {
        "mappings": [
            {
                "inputs_schema": [{"key": "i", "type": "string"}],
                "inputs": {"i": {"value": f"{{{name}}}"}},
            }
        ]
    },
}


@pytest.mark.parametrize(
    "fault", ["nope", "evnt.properties.a", "event.propertes.a", "project.nam", "persn.id"]
)
@pytest.mark.parametrize("place", PLACES)
def test_a_saved_name_that_does_not_exist_is_in_the_answer(api: Api, place: str, fault: str) -> None:
    for sent in ("created", "changed"):
        body = {"type": "destination", "name": "n", "hog": "print(event)", **PLACES[place](fault)}
        if sent == "created":
            saved = api.create(**body)
        else:
            saved = api.patch(
                f"/hog_functions/{api.create(type='destination', name='n', hog='print(1)')['id']}/", body
            ).json()
        assert [(entry["attr"], entry["code"], entry["severity"]) for entry in saved["diagnostics"]] == [
            (place, "unknown-name", "warning")
        ]
        assert saved["diagnostics"] == findings(api, body)
        assert "diagnostics" not in api.get(f"/hog_functions/{saved['id']}/").json()
        body |= PLACES[place]("event.properties.a")
        assert "diagnostics" not in api.patch(f"/hog_functions/{saved['id']}/", body).json()


def test_a_change_elsewhere_still_tells_of_the_function(api: Api) -> None:
    made = api.create(type="transformation", name="n", hog="if (event.event = 'a') { return event }")
    changed = api.patch(f"/hog_functions/{made['id']}/", {"name": "m"}).json()
    assert [entry["code"] for entry in changed["diagnostics"]] == ["missing-return"]
    assert changed["diagnostics"] == made["diagnostics"]


def test_secrets_are_not_quoted_in_the_answer(api: Api) -> None:
    schema = [{"key": "k", "type": "string", "secret": True}]
    made = api.create(
        type="destination",
        name="n",
        hog="print(1)",
        inputs_schema=schema,
        inputs={"k": {"value": "{hush.hush}"}},
    )
    assert "diagnostics" not in made


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (
            {"filters": {"source": "data-warehouse-table", "data_warehouse": [{"table_name": "t"}]}},
            "record.a",
        ),
        ({"x_delivery": {"batch": {"max_events": 5}}}, "length(events)"),
        ({"type": "source_webhook"}, "request.body"),
        ({}, "person.properties.a"),
        ({"type": "internal_destination"}, "groups.a"),
    ],
)
def test_names_of_one_way_to_run_are_known(api: Api, body: dict[str, Any], name: str) -> None:
    body = {"type": "destination", "name": "n", "hog": f"print({name})", **body}
    assert "diagnostics" not in api.create(**body)
    assert findings(api, body) == []
