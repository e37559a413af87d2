"""Every template of the catalogue is whole, well written, and usable as it stands."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest
from tests.functions.conftest import Api
from tests.functions.templates.cases import CASES, PROGRAMS, WEBHOOK_CASES, cases_of
from typer.testing import CliRunner

from hoglab import hog
from hoglab.cli import app as cli
from hoglab.functions import templates
from hoglab.functions.editing import known_globals
from hoglab.functions.environments import body_environment
from hoglab.functions.icons import ICONS, icon_url
from hoglab.functions.templates import Template, catalogue
from hoglab.hog.formatter import format_program

TEMPLATES = [pytest.param(template, id=template.folder) for template in catalogue().values()]
IN_HOG = [pytest.param(template, id=template.folder) for template in PROGRAMS]
STATUSES = {"stable", "beta", "alpha", "deprecated", "coming_soon", "hidden"}
CREDENTIAL = re.compile(r"token$|secret|password|api_?key$|access_key|private_?key", re.IGNORECASE)
NO_CREDENTIAL = {("template-posthog-replicator", "token")}
"""Inputs that sound like credentials and are none: the token of a project is in every web page."""


def schemas(template: Template) -> list[list[dict[str, Any]]]:
    return [template.inputs_schema, *(one["inputs_schema"] for one in template.mapping_templates or ())]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_whole(template: Template) -> None:
    assert template.id == f"template-{template.folder}"
    assert template.status in STATUSES
    assert template.description
    assert template.description.endswith(".")
    assert template.category
    assert template.readme.startswith(f"# {template.name}\n\n")
    assert len(template.readme) > 120, "a page that tells what it does, and what it needs"
    assert template.icon_url in {icon_url(icon) for icon in ICONS}
    assert len(template.version) == 16
    for schema in schemas(template):
        assert len({entry["key"] for entry in schema}) == len(schema)
        for entry in schema:
            assert entry["label"]
            assert {"required", "secret"} <= set(entry), entry["key"]
            assert entry.get("description", "x.")[-1] in ".:?…", f"{entry['key']}: descriptions are sentences"
            assert not (entry["secret"] and "default" in entry)
            if entry["type"] == "choice" and "default" in entry:
                assert entry["default"] in [choice["value"] for choice in entry["choices"]]
            if CREDENTIAL.search(entry["key"]) and (template.id, entry["key"]) not in NO_CREDENTIAL:
                assert entry["secret"], f"{entry['key']} is a credential"


@pytest.mark.parametrize("template", IN_HOG)
def test_a_program_is_without_findings(template: Template) -> None:
    env = body_environment(template.type)
    found = hog.check(template.code, env, kind="program", known=dict.fromkeys(known_globals(template.type)))
    assert [(one.position, one.message) for one in found] == []


@pytest.mark.parametrize("kind", ["destination", "transformation"])
def test_the_command_line_finds_nothing_either(kind: str) -> None:
    """The programs of webhooks are checked as those of destinations."""
    folders = [one.folder for one in PROGRAMS if (one.type == "transformation") is (kind == "transformation")]
    paths = [str(files(templates) / folder / "code.hog") for folder in folders]
    done = CliRunner().invoke(cli, ["hog", "check", "--strict", "--kind", kind, *paths])
    assert done.exit_code == 0, done.output
    assert done.output.count(": no findings") == len(paths)


@pytest.mark.parametrize("template", IN_HOG)
def test_a_program_is_in_the_style(template: Template) -> None:
    source = (files(templates) / template.folder / "code.hog").read_text("utf-8")
    assert format_program(source) == source


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_program_reads_the_inputs_that_it_declares(template: Template) -> None:
    declared = {entry["key"] for schema in schemas(template) for entry in schema}
    read = set(re.findall(r"\binputs\.(\w+)", template.code))
    assert read <= declared
    for schema in schemas(template):
        for entry in schema:
            assert re.search(rf"\b{entry['key']}\b", template.code), f"{entry['key']} is not used"


@pytest.mark.parametrize("template", IN_HOG)
def test_a_template_is_shown_in_action(template: Template) -> None:
    cases = cases_of(template)
    assert len({case.given["name"] for case in cases}) == len(cases)
    if template.type == "destination":
        shown = [case for case in cases if "error" not in case.given]
        assert any(case.requests or case.given.get("emails") for case in shown)
        refusals = [case for case in cases if any(one["status"] >= 400 for one in case.responses)]
        unsent = [case for case in cases if {"error", "emails"} <= set(case.given)]
        assert refusals or unsent or template.id == "template-slack", "what happens when the service refuses"
        for case in refusals:
            status = str(case.responses[-1]["status"])
            assert status in case.given["error"], "an error tells the status"
    if template.type == "source_webhook":
        assert any("captured" in case.given for case in cases)
        assert any(case.given["answer"]["status"] >= 400 for case in cases), "whom it refuses"


@pytest.mark.parametrize("template", IN_HOG)
def test_a_function_can_be_made_of_it(template: Template, api: Api) -> None:
    """Over the API, with what its first case fills in."""
    made = api.create(**cases_of(template)[0].function())
    assert made["template"]["id"] == template.id
    assert made["bytecode"]
    for entry in template.inputs_schema:
        if entry["secret"] and entry["key"] in cases_of(template)[0].given.get("inputs", {}):
            assert made["inputs"][entry["key"]] == {"secret": True}


def test_cases_have_names_of_their_own() -> None:
    assert max(Counter(case.id for case in CASES + WEBHOOK_CASES).values()) == 1
