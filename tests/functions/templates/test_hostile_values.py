"""Hostile values of events and persons in every template: they change the value of their own field alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.delivery.conftest import House, prepared
from tests.functions.templates.cases import CASES, Case

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.trials.runs import TestRuns
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import compile_configuration

__all__ = ["prepared"]  # a fixture

HARMLESS = "xyz"
HOSTILE = (
    "#a", "?a=1", "&b=2", "/../c", "<https://evil.example|here>", "](https://evil.example)", "[a](https://evil.example)",
    "\\[a](https://evil.example)", "\\](https://evil.example)", "&lt;", "@everyone", "<!channel>", "<@U1>",
    "\r\nX-Evil: 1", '","evil":"1', "%0d%0a", "+=;", "{evil}", "\u2028", "'\\",
)  # fmt: skip
FREE_TEXT = frozenset(
    {"first_name", "last_name", "name", "company", "city", "title", "reason", "page", "$current_url"}
)
"""Properties in which any text may be; the others have a form of their own, and are left out when they lack it."""


def sending() -> list[Case]:
    """Return the cases of destinations that send requests and end well."""
    return [
        case
        for case in CASES
        if case.given.get("requests")
        and all(response["status"] < 300 for response in case.responses)
        and "error" not in case.given
        and case.template.type == "destination"
    ]


@pytest.fixture(scope="module")
def house(prepared: tuple[Path, FirstStart], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("hostile")
    house = House(Path(shutil.copytree(prepared[0], folder / "data")))
    house.open()
    yield house
    house.close()


def with_values(globals_: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the globals of a run with ``text`` behind every free text of the event and the person."""
    event, person = globals_["event"], globals_["person"]

    def extended(properties: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value + text if name in FREE_TEXT and isinstance(value, str) else value
            for name, value in {"first_name": "Ann", "last_name": "Lee", "name": "Ann", **properties}.items()
        }

    return {
        **globals_,
        "event": {
            **event,
            "event": event["event"] + text,
            "distinct_id": event["distinct_id"] + text,
            "properties": extended(event["properties"]),
        },
        "person": {**person, "name": person["name"] + text, "properties": extended(person["properties"])},
    }


def requests(house: House, case: Case, text: str) -> list[dict[str, Any]]:
    """Return the requests that a case sends with ``text`` in its values."""
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    globals_ = with_values(case.globals, text)
    runs = TestRuns(house.delivery)
    report = runs.run(house.project, function, globals_, run_id="r", mock=True, responses=case.responses)
    assert report.errors == []
    return report.requests


def skeleton(request: dict[str, Any]) -> Any:
    """Return what a value may not change: method, address without values, names of headers, fields and their kinds."""
    url = urlsplit(request["url"])
    return (
        request["method"],
        (
            url.scheme,
            url.netloc,
            url.path.count("/"),
            [name for name, _ in parse_qsl(url.query)],
            url.fragment,
        ),
        sorted(request["headers"]),
        shape(request["body"], str(request["headers"].get("Content-Type", ""))),
    )


def shape(body: Any, content_type: str = "") -> Any:
    if isinstance(body, dict):
        return {name: shape(value) for name, value in body.items()}
    if isinstance(body, list):
        return [shape(value) for value in body]
    if isinstance(body, str) and "form" in content_type:
        return [name for name, _ in parse_qsl(body, keep_blank_values=True, strict_parsing=True)]
    if isinstance(body, str) and "json" in content_type:
        return shape(json.loads(body))
    return type(body).__name__


MARKDOWN = re.compile(r"(?<!\\)(?:\\\\)*\]\(([^)]*)\)")
SHOWN = dict.fromkeys(("discord", "github", "linear", "microsoft-teams"), MARKDOWN) | {
    "slack": re.compile(r"<([^>]*)>|&(?!amp;|lt;|gt;)")
}
"""What becomes a link or a mention, by the templates whose services read markup in their texts."""


def links(body: Any, pattern: re.Pattern[str]) -> list[str]:
    """Return the targets of links and the mentions in the texts of a body; titles are shown as they are."""
    if isinstance(body, dict | list):
        values = [body[name] for name in body if name != "title"] if isinstance(body, dict) else body
        return [link for value in values for link in links(value, pattern)]
    return pattern.findall(body) if isinstance(body, str) else []


@pytest.mark.parametrize("case", sending(), ids=lambda case: case.id)
def test_a_hostile_value_changes_its_own_field_alone(case: Case, house: House) -> None:
    harmless = requests(house, case, HARMLESS)
    for text in HOSTILE:
        hostile = requests(house, case, text)
        assert [skeleton(request) for request in hostile] == [skeleton(request) for request in harmless], text


@pytest.mark.parametrize(
    "case", [case for case in sending() if case.template.folder in SHOWN], ids=lambda case: case.id
)
def test_the_defaults_make_no_links_and_mentions_of_values(case: Case, house: House) -> None:
    given = {**case.given, "inputs": {}}
    keys = {entry["key"] for entry in case.template.inputs_schema if entry.get("default") is None}
    given["inputs"] = {key: value for key, value in case.given.get("inputs", {}).items() if key in keys}
    plain = Case(case.template, given)
    pattern = SHOWN[case.template.folder]
    wanted = [links(request["body"], pattern) for request in requests(house, plain, HARMLESS)]
    for text in HOSTILE:
        assert [links(request["body"], pattern) for request in requests(house, plain, text)] == wanted, text
