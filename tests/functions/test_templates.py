"""The catalogue: every template runs its own test cases; the endpoints that show it (spec: hog-functions-api 11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.functions.conftest import Api

from hoglab.filters.hog import FilterContext
from hoglab.functions import templates
from hoglab.functions.compile import compile_configuration
from hoglab.functions.configuration import Builder, Sent
from hoglab.functions.templates import Template, catalogue
from hoglab.hog.rt.values import to_json
from hoglab.hog.run import Execution, Suspended

IDS = [
    "template-blank-transformation",
    "template-discord",
    "template-drop-events",
    "template-filter-properties",
    "template-ip-anonymization",
    "template-make",
    "template-microsoft-teams",
    "template-pii-hashing",
    "template-posthog-replicator",
    "template-remove-null-properties",
    "template-slack",
    "template-url-masking",
    "template-webhook",
    "template-zapier",
]
CASES = [
    pytest.param(template, case, id=f"{template.id}-{case['name']}")
    for template in catalogue().values()
    for case in template.tests()
]


def test_the_catalogue_is_whole() -> None:
    assert sorted(catalogue()) == IDS
    for template in catalogue().values():
        assert template.tests()
        assert template.readme.startswith("# ")
        assert len(template.version) == 16


@pytest.mark.parametrize(("template", "case"), CASES)
def test_templates_do_what_their_cases_say(template: Template, case: dict[str, Any]) -> None:
    """A function is made as people make it: unset inputs get the template's defaults."""
    given = {
        entry["key"]: {"value": entry["default"]} for entry in template.inputs_schema if "default" in entry
    }
    given |= {key: {"value": value} for key, value in case["inputs"].items()}
    body = {"template_id": template.id, "type": template.type, "inputs": given}
    configuration = Builder(Sent(body), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    event = case["globals"]["event"]
    variables = {"project": {"id": 1, "name": "p", "url": "http://x"}, "groups": {}, **case["globals"]}
    if template.type == "destination":
        variables.setdefault("person", {"id": "", "name": "", "url": "", "properties": {}})
    variables["event"] = event
    execution = Execution(function.program, {**variables, "inputs": function.build_inputs(variables)})
    answers = iter(case.get("responses", []))
    requests = []
    outcome = execution.start()
    while isinstance(outcome, Suspended):
        assert outcome.name == "fetch"
        url, options = outcome.args
        requests.append({"url": url, **options})
        outcome = execution.resume(next(answers))
    result = outcome.result
    assert (None if result.error is None else result.error.message) == case.get("error")
    if "requests" in case:
        assert requests == case["requests"]
    assert len(result.printed) == case.get("printed_lines", 0)
    assert not list(answers), "a response was not asked for"
    if template.type == "transformation":
        assert to_json(result.value) == case["result"]


def test_listing(api: Api) -> None:
    listed = api.get("/hog_function_templates/").json()
    names = [one["name"] for one in listed["results"]]
    assert listed["count"] == len(names) == 7
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
        ("type=transformation", 7),
        ("types=destination,transformation", 14),
        ("type=transformation&types=destination", 7),
        ("template_id=template-slack", 1),
        ("template_id=template-drop-events", 0),
        ("type=nonsense", 0),
    ):
        assert api.get(f"/hog_function_templates/?{query}").json()["count"] == count
    page = api.get("/hog_function_templates/?limit=2&offset=2").json()
    assert [one["name"] for one in page["results"]] == names[2:4]
    assert page["next"].endswith("?limit=2&offset=4")
    assert page["previous"].endswith("?limit=2")


def test_much_used_templates_come_first(api: Api) -> None:
    url = {"url": {"value": "https://x.io"}}
    api.create(template_id="template-webhook", enabled=True, inputs=url)
    api.create(template_id="template-zapier", inputs={"hook": {"value": "h"}})
    assert api.get("/hog_function_templates/").json()["results"][0]["id"] == "template-webhook"


def test_reading_one(api: Api) -> None:
    found = api.get("/hog_function_templates/template-webhook/")
    assert found.json() == catalogue()["template-webhook"].wire()
    assert api.get("/hog_function_templates/nothing/").status_code == 404


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
    monkeypatch.setattr("hoglab.functions.template_routes.catalogue", show)
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
