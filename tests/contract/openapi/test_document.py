"""The document is complete, its examples are true, its committed copy is fresh, and nothing in it breaks clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from tests.contract.openapi.breaking import breaking_changes
from tests.contract.openapi.conftest import COMMITTED, METHODS, RELEASED, SDK_TAGS, World
from tests.house.test_words import FRAGMENT

# What it is for needs a product that this server does not have, so it explains why not.
NEVER_SUCCEEDS = "/enable_backfills/"

Operation = tuple[str, str, dict[str, Any]]


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item and item[method]["tags"][0] not in SDK_TAGS:
                yield method, path, item[method]


def media(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every JSON body of the document, with the place where it stands."""
    for method, path, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {})
        answers = {
            status: answer.get("content", {})
            for status, answer in operation["responses"].items()
            if "$ref" not in answer
        }
        for place, content in {"body": body, **answers}.items():
            if "application/json" in content:
                yield f"{method} {path} {place}", content["application/json"]
    for name, answer in document["components"]["responses"].items():
        yield name, answer["content"]["application/json"]


def test_every_field_is_described(world: World) -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in world.document["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if not described.get("description")
    ]
    missing += [
        name for name, each in world.document["components"]["schemas"].items() if not each.get("description")
    ]
    assert missing == []


def test_descriptions_are_understood_alone(world: World) -> None:
    """Descriptions of fields, too, which are in the notes of the rooms: a reference shows each by itself."""
    assert [text for text in texts(world.document) if FRAGMENT.match(text)] == []


def texts(part: Any) -> Iterator[str]:
    """Summaries and descriptions of a part of the document, at any depth."""
    if isinstance(part, dict):
        yield from (text for name in ("summary", "description") if isinstance(text := part.get(name), str))
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from texts(inner)


def test_changes_have_no_defaults(world: World) -> None:
    """A client that knows a default sends it, and would change what its user left out."""
    changes = [operation for method, _, operation in operations(world.document) if method in ("patch", "put")]
    bodies = [each["requestBody"]["content"]["application/json"] for each in changes if "requestBody" in each]
    names = {body["schema"]["$ref"].rpartition("/")[2] for body in bodies if "$ref" in body["schema"]}
    assert "ExperimentPatch" in names
    schemas = [world.document["components"]["schemas"][name] for name in names]
    assert not any("default" in field for schema in schemas for field in schema["properties"].values())


def test_every_operation_and_parameter_is_described(world: World) -> None:
    missing = []
    for method, path, operation in operations(world.document):
        if not operation["summary"]:
            missing.append(f"{method} {path}")
        missing += [
            f"{method} {path}: {each['name']}"
            for each in operation["parameters"]
            if not (each.get("description") or each["schema"].get("description"))
        ]
    assert missing == []


def test_every_success_and_body_has_a_schema_and_an_example(world: World) -> None:
    bare = []
    for method, path, operation in operations(world.document):
        for status, answer in operation["responses"].items():
            if status in ("200", "201") and "content" not in answer and not path.endswith(NEVER_SUCCEEDS):
                bare.append(f"{method} {path} {status}")
    assert bare == []
    without = [place for place, each in media(world.document) if "example" not in each]
    assert without == []


def test_examples_follow_their_schemas(world: World) -> None:
    wrong = []
    for place, each in media(world.document):
        schema = {**each["schema"], "components": world.document["components"]}
        if not jsonschema_rs.is_valid(schema, each["example"]):
            wrong.append(f"{place}: {jsonschema_rs.validator_for(schema).evaluate(each['example']).errors()}")
    assert wrong == []


CREATED = ["experiments", "experiment_holdouts", "experiment_saved_metrics", "feature_flags", "hog_functions"]
CREATED += ["cohorts", "actions"]


@pytest.mark.parametrize("resource", CREATED)
def test_examples_of_new_objects_are_accepted(world: World, resource: str) -> None:
    create = world.document["paths"][f"/api/projects/{{project_id}}/{resource}/"]["post"]
    example = create["requestBody"]["content"]["application/json"]["example"]
    api = world.laboratory.api()
    api.ok("POST", f"/{resource}/", example, status=201)


def test_committed_copy_is_fresh(world: World) -> None:
    assert json.loads(COMMITTED.read_bytes()) == world.document, "run `make docs`"


def test_nothing_breaks_clients_of_the_last_release(world: World) -> None:
    assert breaking_changes(json.loads(RELEASED.read_bytes()), world.document) == []
