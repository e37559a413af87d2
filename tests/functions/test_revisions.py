"""Versions of a function, what lies between them, and the way back (spec: hog-functions-api 20.2)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions import revisions, store
from hoglab.functions.secrets.box import SecretBox
from hoglab.storage.database import Database

SCHEMA = [
    {"key": "url", "type": "string"},
    {"key": "token", "type": "string", "secret": True},
]


@pytest.fixture
def made(api: Api) -> dict[str, Any]:
    function = api.create(
        name="n",
        hog="let a := 1\nreturn a",
        inputs_schema=SCHEMA,
        inputs={"url": {"value": "one"}, "token": {"value": "s3cr3t"}},
        enabled=True,
    )
    api.change(function, hog="let a := 2\nreturn a")
    api.change(function, name="renamed")
    return api.change(
        function,
        inputs={"url": {"value": "two"}, "token": {"value": "n3w"}},
        masking={"ttl": 60, "hash": "x"},
    )


def versions(api: Api, function: dict[str, Any]) -> list[int]:
    answer = api.get(f"/hog_functions/{function['id']}/revisions/").json()
    assert answer["count"] == len(answer["results"])
    return [one["version"] for one in answer["results"]]


def test_only_what_changes_behaviour_makes_a_version(api: Api, made: dict[str, Any]) -> None:
    assert made["version"] == 3
    assert versions(api, made) == [3, 2, 1]
    assert versions(api, api.create()) == []
    newest = api.get(f"/hog_functions/{made['id']}/revisions/?limit=1").json()["results"][0]
    assert newest.keys() == {"version", "created_at", "created_by"}
    assert newest["created_by"]["id"] == 1


def test_a_version_holds_no_secret(api: Api, made: dict[str, Any]) -> None:
    answer = api.get(f"/hog_functions/{made['id']}/revisions/1/")
    assert answer.json()["content"] == {
        "hog": "let a := 1\nreturn a",
        "inputs_schema": made["inputs_schema"],
        "inputs": {"url": {"value": "one"}},
        "filters": {"source": "events"},
        "masking": None,
        "mappings": None,
    }
    assert "s3cr3t" not in answer.text


@rule("X4.1")
def test_differences(api: Api, made: dict[str, Any]) -> None:
    path = f"/hog_functions/{made['id']}/revisions/1/diff/"
    answer = api.get(path).json()
    assert (answer["from_version"], answer["to_version"]) == (1, 3)
    assert [one["field"] for one in answer["changes"]] == ["hog", "inputs", "masking"]
    assert answer["changes"][0]["diff"].splitlines()[-3:] == ["-let a := 1", "+let a := 2", " return a"]
    between = api.get(f"{path}?to=2").json()
    assert [one["field"] for one in between["changes"]] == ["hog"]
    assert api.get(f"{path}?to=9").status_code == 404
    assert api.get(f"{path}?to=x").status_code == 400


@rule("X4.1")
def test_the_way_back(api: Api, made: dict[str, Any], database: Database, box: SecretBox) -> None:
    answer = api.post(f"/hog_functions/{made['id']}/revisions/1/rollback/")
    assert answer.status_code == 200, answer.text
    back = answer.json()
    assert (back["hog"], back["inputs"]["url"]["value"]) == ("let a := 1\nreturn a", "one")
    assert (back["masking"], back["version"], back["name"]) == (None, 4, "renamed")
    assert back["bytecode"] != made["bytecode"]
    assert versions(api, made) == [4, 3, 2, 1]
    with database.read() as connection:
        row = store.get(connection, 1, made["id"])
    assert row is not None
    assert box.unseal(row["encrypted_inputs"]).inputs["token"]["value"] == "n3w"


@rule("F20.4")
@pytest.mark.parametrize("version", ["9", "0", "x", "99999999999999999999"])
def test_versions_that_are_not_there(api: Api, made: dict[str, Any], version: str) -> None:
    base = f"/hog_functions/{made['id']}/revisions/{version}/"
    assert api.get(base).status_code == 404
    assert api.post(f"{base}rollback/").status_code == 404
    assert api.get("/hog_functions/0199a3d4-aaaa-7000-8000-000000000009/revisions/").status_code == 404


@rule("X4.2")
def test_only_the_newest_are_kept(
    api: Api, made: dict[str, Any], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "MAX_REVISIONS", 2)
    api.change(made, hog="return 4")
    assert versions(api, made) == [4, 3]
