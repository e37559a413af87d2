"""The endpoints that show the catalogue of templates (spec: hog-functions-api 11.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions import templates
from hoglab.functions.templates import Template, catalogue

DESTINATIONS = [one for one in catalogue().values() if one.type == "destination"]
TRANSFORMATIONS = [one for one in catalogue().values() if one.type == "transformation"]


@rule("F11.1", "F11.2", "F11.4")
def test_listing(api: Api) -> None:
    listed = api.get("/hog_function_templates/").json()
    names = [one["name"] for one in listed["results"]]
    assert listed["count"] == len(names) == len(DESTINATIONS)
    assert names == sorted(names, key=str.lower)
    assert list(listed["results"][0]) == [
        "id",
        "name",
        "description",
        "code",
        "code_language",
        "inputs_schema",
        "type",
        "status",
        "category",
        "free",
        "icon_url",
        "filters",
        "masking",
        "mapping_templates",
    ]
    for query, count in (
        ("type=transformation", len(TRANSFORMATIONS)),
        ("types=destination,transformation", len(DESTINATIONS) + len(TRANSFORMATIONS)),
        ("type=transformation&types=destination", len(TRANSFORMATIONS)),
        ("template_id=template-slack", 1),
        ("template_id=template-drop-events", 0),
        ("type=nonsense", 0),
    ):
        assert api.get(f"/hog_function_templates/?{query}").json()["count"] == count
    page = api.get("/hog_function_templates/?limit=2&offset=2").json()
    assert [one["name"] for one in page["results"]] == names[2:4]
    assert page["next"].endswith("?limit=2&offset=4")
    assert page["previous"].endswith("?limit=2")


@rule("F11.4")
def test_much_used_templates_come_first(api: Api) -> None:
    url = {"url": {"value": "https://x.io"}}
    api.create(template_id="template-webhook", enabled=True, inputs=url)
    api.create(template_id="template-zapier", inputs={"hook": {"value": "h"}})
    assert api.get("/hog_function_templates/").json()["results"][0]["id"] == "template-webhook"


@rule("F11.3")
def test_reading_one(api: Api) -> None:
    found = api.get("/hog_function_templates/template-webhook/")
    assert found.json() == catalogue()["template-webhook"].wire()
    assert api.get("/hog_function_templates/nothing/").status_code == 404


@rule("F11.3", "F11.5")
def test_the_public_view(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    known = catalogue()
    webhook = known["template-webhook"]
    more = {
        **known,
        "h": replace(webhook, id="h", status="hidden"),
        "d": replace(webhook, id="d", status="deprecated"),
        "s": replace(webhook, id="s", status="coming_soon"),
    }
    show: Callable[[], dict[str, Template]] = lambda: more  # noqa: E731
    monkeypatch.setattr(templates, "catalogue", show)
    monkeypatch.setattr("hoglab.functions.api.template_routes.catalogue", show)
    anybody = Api(api.app, None, api.runner)
    path = "/api/public_hog_function_templates"
    shown = anybody.get(f"{path}/").json()
    assert {one["id"] for one in shown["results"]} == {
        one.id for one in known.values() if one.type == "destination"
    } | {"s"}
    assert anybody.get(f"{path}?limit=3").json()["next"].endswith("?limit=3&offset=3")
    assert anybody.get(f"{path}/template-slack").json() == known["template-slack"].wire()
    assert anybody.get(f"{path}/d/").status_code == 200
    assert anybody.get(f"{path}/h/").status_code == 404
    own = {one["id"] for one in api.get("/hog_function_templates/").json()["results"]}
    assert own == {one["id"] for one in shown["results"]} | {"h"}
    assert api.get("/hog_function_templates/h/").status_code == 200
    assert anybody.get("/hog_function_templates/").status_code == 401
