"""The check for breaking changes finds each kind of them, and nothing where there is none."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.openapi.breaking import breaking_changes
from tests.contract.openapi.conftest import COMMITTED

DOCUMENT = json.loads(COMMITTED.read_bytes())
EXPERIMENTS = "/api/projects/{project_id}/experiments/"


def create(document: Any) -> Any:
    return document["components"]["schemas"]["ExperimentCreate"]


def shown(document: Any) -> Any:
    return document["components"]["schemas"]["ExperimentOut"]


def remove_path(document: Any) -> None:
    del document["paths"][EXPERIMENTS]


def remove_method(document: Any) -> None:
    del document["paths"][EXPERIMENTS]["post"]


def remove_parameter(document: Any) -> None:
    listing = document["paths"][EXPERIMENTS]["get"]
    listing["parameters"] = [each for each in listing["parameters"] if each["name"] != "search"]


def require_parameter(document: Any) -> None:
    for each in document["paths"][EXPERIMENTS]["get"]["parameters"]:
        each["required"] = True


def other_status(document: Any) -> None:
    answers = document["paths"][EXPERIMENTS]["post"]["responses"]
    answers["202"] = answers.pop("201")


def refuse_forms(document: Any) -> None:
    document["paths"][EXPERIMENTS]["post"]["requestBody"]["x-also-accepted"].remove("multipart/form-data")


def require_field(document: Any) -> None:
    create(document)["required"].append("description")


def refuse_field(document: Any) -> None:
    del create(document)["properties"]["description"]


def refuse_null(document: Any) -> None:
    create(document)["properties"]["description"] = {"type": "string"}


def shorten(document: Any) -> None:
    create(document)["properties"]["name"]["maxLength"] = 10


def refuse_choice(document: Any) -> None:
    create(document)["properties"]["type"]["anyOf"][0]["enum"].remove("web")


def remove_field(document: Any) -> None:
    del shown(document)["properties"]["status"]


def allow_null(document: Any) -> None:
    shown(document)["properties"]["name"] = {"anyOf": [{"type": "string"}, {"type": "null"}]}


def other_type(document: Any) -> None:
    shown(document)["properties"]["id"]["type"] = "string"


def maybe_missing(document: Any) -> None:
    shown(document)["required"].remove("name")


def further_value(document: Any) -> None:
    shown(document)["properties"]["status"]["enum"].append("resting")


def inside_a_list(document: Any) -> None:
    del document["components"]["schemas"]["SavedMetricLinkOut"]["properties"]["query"]


CHANGES = [
    (remove_path, "removed"),
    (remove_method, "post /api/projects/{project_id}/experiments/: removed"),
    (remove_parameter, "parameter search removed"),
    (require_parameter, "parameter search newly required"),
    (other_status, "no longer answers 201"),
    (refuse_forms, "bodies of multipart/form-data no longer accepted"),
    (require_field, "body.description: newly required"),
    (refuse_field, "body.description: no longer accepted"),
    (refuse_null, "body.description: no longer accepts null"),
    (shorten, "body.name: maxLength is 10 now"),
    (refuse_choice, "body.type: no longer accepts 'web'"),
    (remove_field, "201.status: removed"),
    (allow_null, "201.name: may be null now"),
    (other_type, "201.id: may be string now"),
    (maybe_missing, "201.name: may be missing now"),
    (further_value, "201.status: may be 'resting' now"),
    (inside_a_list, "201.saved_metrics[].query: removed"),
]


@pytest.mark.parametrize(("change", "line"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_breaking(change: Callable[[Any], None], line: str) -> None:
    changed = copy.deepcopy(DOCUMENT)
    change(changed)
    found = breaking_changes(DOCUMENT, changed)
    assert any(each.endswith(line) for each in found), found


def test_additions_do_not_break() -> None:
    changed = copy.deepcopy(DOCUMENT)
    create(changed)["properties"]["motto"] = {"type": "string"}
    create(changed)["properties"]["name"]["maxLength"] = 10_000
    shown(changed)["properties"]["motto"] = {"type": "string"}
    shown(changed)["required"].append("motto")
    changed["paths"]["/api/further/"] = changed["paths"][EXPERIMENTS]
    changed["paths"][EXPERIMENTS]["post"]["responses"]["418"] = {"description": "A teapot."}
    assert breaking_changes(DOCUMENT, changed) == []
