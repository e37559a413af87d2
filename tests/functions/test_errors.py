"""The catalogue of refusals (spec: hog-functions-api 23) and the order in which they are reported."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions.configuration.code import MAX_CODE_BYTES

URL = {"key": "url", "type": "string", "required": True}

CATALOGUE: list[tuple[dict[str, Any], str | None, str, str]] = [
    ({"type": "x"}, "type", "invalid_choice", '"x" is not a valid choice.'),
    (
        {"type": "warehouse_source_webhook"},
        "type",
        "invalid_input",
        "Cannot create or modify warehouse source webhook functions via this API.",
    ),
    (
        {"type": "transformation_log"},
        "type",
        "invalid_input",
        "Log transformations are not enabled for this team.",
    ),
    ({"type": "site_app", "hog": "export function ("}, "hog", "invalid_input", "Error in TypeScript code"),
    ({"name": "x" * 401}, "name", "max_length", "Ensure this field has no more than 400 characters."),
    ({"description": None}, "description", "null", "This field may not be null."),
    ({"enabled": None}, "enabled", "null", "This field may not be null."),
    ({"enabled": "maybe"}, "enabled", "invalid_input", "Must be a valid boolean."),
    ({"hog": ""}, "hog", "blank", "This field may not be blank."),
    ({"hog": None}, "hog", "null", "This field may not be null."),
    ({"hog": "let x :="}, "hog", "invalid_input", "Hog code has errors."),
    ({"hog": "nothingLikeThis(1)"}, "hog", "invalid_input", "Hog code has errors."),
    (
        {"hog": "return event.properties.user-id"},
        "hog",
        "invalid_input",
        (
            "Hyphens are not supported in identifiers and are interpreted as subtraction. "
            "Use bracket notation: event.properties['user-id']"
        ),
    ),
    (
        {"hog": "-- " + "x" * MAX_CODE_BYTES},
        "hog",
        "invalid_input",
        (
            "HOG code exceeds maximum size of 100KB. Please simplify your code or contact support if you need "
            "this limit increased."
        ),
    ),
    ({"inputs_schema": None}, "inputs_schema", "null", "This field may not be null."),
    (
        {"inputs_schema": {}},
        "inputs_schema",
        "not_a_list",
        'Expected a list of items but got type "dict".',
    ),
    (
        {"inputs_schema": [{"key": "a", "type": "not-valid"}]},
        "inputs_schema__0__type",
        "invalid_choice",
        '"not-valid" is not a valid choice.',
    ),
    ({"inputs_schema": [{"type": "string"}]}, "inputs_schema__0__key", "required", "This field is required."),
    ({"inputs_schema": [{"key": "a"}]}, "inputs_schema__0__type", "required", "This field is required."),
    (
        {"inputs_schema": [{"key": " ", "type": "string"}]},
        "inputs_schema__0__key",
        "blank",
        "This field may not be blank.",
    ),
    (
        {"inputs_schema": [{"key": "a", "type": "string", "templating": "jinja"}]},
        "inputs_schema__0__templating",
        "invalid_choice",
        '"jinja" is not a valid choice.',
    ),
    ({"inputs_schema": [URL]}, "inputs__url", "invalid_input", "This field is required."),
    (
        {"inputs_schema": [URL], "inputs": {"url": {"value": 5}}},
        "inputs__url",
        "invalid_input",
        "Value must be a string.",
    ),
    (
        {"inputs_schema": [URL], "inputs": {"url": {"value": "a", "templating": "x"}}},
        "inputs__url__templating",
        "invalid_choice",
        '"x" is not a valid choice.',
    ),
    (
        {"inputs_schema": [URL], "inputs": []},
        "inputs",
        "not_a_dict",
        'Expected a dictionary of items but got type "list".',
    ),
    (
        {
            "inputs_schema": [{"key": "a", "type": "string"}, {"key": "b", "type": "string"}],
            "inputs": {"a": {"value": "{inputs.b}"}, "b": {"value": "{inputs['a']}"}},
        },
        "inputs",
        "invalid_input",
        "Circular dependency detected in input_deps.",
    ),
    (
        {"inputs_schema": [URL], "inputs": {"url": {"value": "{inputs.url}"}}},
        "inputs",
        "invalid_input",
        "Circular dependency detected in input_deps.",
    ),
    (
        {"filters": {"source": "x"}},
        "filters__source",
        "invalid_choice",
        '"x" is not a valid choice.',
    ),
    ({"filters": []}, "filters", "not_a_dict", 'Expected a dictionary of items but got type "list".'),
    ({"masking": {"hash": "a"}}, "masking__ttl", "required", "This field is required."),
    ({"masking": {"ttl": 60}}, "masking__hash", "required", "This field is required."),
    ({"masking": {"ttl": "a", "hash": "a"}}, "masking__ttl", "invalid_input", "A valid integer is required."),
    (
        {"masking": {"ttl": 86401, "hash": "a"}},
        "masking__ttl",
        "max_value",
        "Ensure this value is less than or equal to 86400.",
    ),
    ({"masking": {"ttl": 60, "hash": ""}}, "masking__hash", "blank", "This field may not be blank."),
    (
        {"type": "transformation", "mappings": [{"name": "a"}]},
        "mappings",
        "invalid_input",
        "Mappings are only allowed for destinations.",
    ),
    (
        {"mappings": [{"inputs_schema": [{**URL, "key": "k"}]}]},
        "mappings__0__inputs__k",
        "invalid_input",
        "This field is required.",
    ),
    (
        {"mappings": [{}, {"inputs_schema": [{"key": "k", "type": "x"}]}]},
        "mappings__1__inputs_schema__0__type",
        "invalid_choice",
        '"x" is not a valid choice.',
    ),
    ({"mappings": [{"inputs": {}}]}, "mappings__0__inputs", "invalid_input", "Missing inputs_schema."),
    ({"template_id": "x"}, "template_id", "invalid_input", "No template found for id 'x'"),
    (
        {"execution_order": 32768},
        "execution_order",
        "max_value",
        "Ensure this value is less than or equal to 32767.",
    ),
    (
        {"execution_order": -1},
        "execution_order",
        "min_value",
        "Ensure this value is greater than or equal to 0.",
    ),
]


@rule("F23.1", "F4.24")
@pytest.mark.parametrize(("body", "attr", "code", "detail"), CATALOGUE, ids=lambda part: str(part)[:40])
def test_the_catalogue(api: Api, body: dict[str, Any], attr: str | None, code: str, detail: str) -> None:
    error = api.refused(**body)
    assert error["type"] == "validation_error"
    assert (error["attr"], error["code"], error["detail"]) == (attr, code, detail)
    assert api.get("/hog_functions/").json()["count"] == 0


@rule("F4.2")
def test_code_is_required(api: Api) -> None:
    answer = api.post("/hog_functions/", {"name": "x"})
    assert answer.json() == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Required.",
        "attr": "hog",
    }


@rule("F9.2")
def test_a_mistake_in_code_has_its_place(api: Api) -> None:
    error = api.refused(hog="let a := 1\nreturn a +")
    assert error["extra"]["line"] == 2
    assert error["extra"]["column"] > 1
    assert error["extra"]["message"]
    unknown = api.refused(hog="let a := 1\nreturn nope(a)")
    assert unknown["extra"] == {"message": "Hog function `nope` is not implemented", "line": 2, "column": 8}


def test_a_type_never_changes(api: Api) -> None:
    made = api.create(type="destination")
    assert api.change(made, type="destination", name="x")["name"] == "x"
    error = api.change_refused(made, type="transformation")
    assert (error["attr"], error["code"]) == ("type", "invalid_input")
    assert error["detail"] == "Cannot modify the type of an existing function"


@rule("F2.5")
def test_a_null_type_is_a_destination(api: Api) -> None:
    made = api.create(type=None)
    assert made["type"] is None
    assert api.change(made, type=None, mappings=[])["mappings"] == []
    assert api.get("/hog_functions/?type=destination").json()["count"] == 1


ORDERED: list[tuple[str, Any, str]] = [
    ("type", "x", "type"),
    ("name", "x" * 401, "name"),
    ("description", None, "description"),
    ("enabled", None, "enabled"),
    ("deleted", None, "deleted"),
    ("hog", None, "hog"),
    ("inputs_schema", {}, "inputs_schema"),
    ("inputs", [], "inputs"),
    ("filters", [], "filters"),
    ("masking", {}, "masking__ttl"),
    ("mappings", {}, "mappings"),
    ("icon_url", [], "icon_url"),
    ("execution_order", -1, "execution_order"),
]


@rule("F23.2")
def test_the_first_error_in_order_is_reported(api: Api) -> None:
    """Field after field is put right, and each time the next one is named."""
    body: dict[str, Any] = {name: value for name, value, _ in reversed(ORDERED)}
    for name, _, attr in ORDERED:
        assert api.refused(**body)["attr"] == attr
        del body[name]
    api.create(**body)


@rule("F23.2")
def test_errors_inside_inputs_come_before_those_of_later_fields(api: Api) -> None:
    body = {"inputs_schema": [URL], "filters": [], "masking": {}, "hog": "let"}
    assert api.refused(**body)["attr"] == "inputs__url"
    assert api.refused(**body, template_id="x")["attr"] == "template_id"
    body["inputs"] = {"url": {"value": "a"}}
    assert api.refused(**body)["attr"] == "filters"
    del body["filters"]
    assert api.refused(**body)["attr"] == "masking__ttl"
    del body["masking"]
    assert api.refused(**body)["attr"] == "hog"


@rule("F1.6")
def test_malformed_bodies(api: Api) -> None:
    answer = api.request(
        "POST", "/hog_functions/", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert (answer.json()["type"], answer.json()["code"]) == ("invalid_request", "parse_error")
    assert answer.json()["detail"].startswith("JSON parse error - ")
    assert api.post("/hog_functions/", []).json()["detail"].startswith("Invalid data. Expected a dictionary")


def test_not_found(api: Api) -> None:
    gone = {"type": "invalid_request", "code": "not_found", "detail": "Not found.", "attr": None}
    for path in ("0199a3d4-1f2e-7000-9c55-7d3a51c0ffee", "not-a-uuid", "1"):
        for method in ("GET", "PATCH", "PUT"):
            answer = api.request(method, f"/hog_functions/{path}/", json={} if method != "GET" else None)
            assert (answer.status_code, answer.json()) == (404, gone)
    assert api.request("DELETE", "/hog_functions/not-a-uuid/").status_code == 405


@rule("F1.7")
def test_form_bodies(api: Api) -> None:
    form = {
        "name": " Form ",
        "hog": "return 1",
        "enabled": "false",
        "inputs_schema": '[{"key": "a", "type": "string"}]',
        "inputs": '{"a": {"value": "x"}}',
    }
    made = api.request("POST", "/hog_functions/", data=form).json()
    assert (made["name"], made["enabled"], made["inputs"]["a"]["value"]) == ("Form", False, "x")
    broken = api.request("POST", "/hog_functions/", data={**form, "inputs": "{"})
    assert broken.status_code == 400
