"""Former versions as drafts, and publishing them (spec: hog-functions-api 20.2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import Database

SCHEMA = [{"key": "a", "type": "string"}, {"key": "key", "type": "string", "secret": True}]


class Clock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(make_api: Callable[[FunctionService], Api], database: Database, box: SecretBox, clock: Clock) -> Api:
    return make_api(FunctionService(database, box, now=clock))


@pytest.fixture
def function(api: Api) -> dict[str, Any]:
    """A disabled function in its second version."""
    inputs = {"a": {"value": "one"}, "key": {"value": "s3cr3t"}}
    made = api.create(hog="return 1", inputs_schema=SCHEMA, inputs=inputs)
    return api.change(made, hog="return 2", inputs={"a": {"value": "two"}})


def at(function: dict[str, Any], tail: str = "") -> str:
    return f"/hog_functions/{function['id']}/{tail}"


def ok(api: Api, function: dict[str, Any], tail: str, body: Any = None) -> Any:
    answer = api.post(at(function, tail), {} if body is None else body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(
    api: Api, function: dict[str, Any], tail: str, body: Any = None
) -> tuple[int, str, str | None, str]:
    answer = api.post(at(function, tail), {} if body is None else body)
    found = answer.json()
    return answer.status_code, found["code"], found["attr"], found["detail"]


def activities(database: Database) -> list[str]:
    with database.read() as connection:
        return [row[0] for row in connection.exec_driver_sql("SELECT activity FROM activity_log ORDER BY id")]


@rule("F20.5", "F20.6")
def test_a_version_is_staged_looked_at_and_published(
    api: Api, function: dict[str, Any], database: Database
) -> None:
    staged = ok(api, function, "revisions/1/restore/")
    assert (staged["hog"], staged["version"], staged["updated_at"]) == ("return 2", 2, function["updated_at"])
    assert staged["draft"]["hog"] == "return 1"
    assert staged["draft"]["inputs"] == {"a": {"value": "one"}}
    assert staged["draft_updated_at"] is not None
    assert api.get(at(function)).json() == staged
    assert "draft" not in api.get("/hog_functions/").json()["results"][0]

    preview = ok(api, function, "publish/")
    assert (preview["published"], preview["function"]) == (False, None)
    assert preview["draft_updated_at"] == staged["draft_updated_at"]
    assert sorted(preview["changed_fields"]) == ["hog", "inputs"]

    done = ok(api, function, "publish/", {"confirm": True, "confirm_token": preview["confirm_token"]})
    assert {name: done[name] for name in done if name != "function"} == {
        "published": True,
        "draft_updated_at": None,
        "confirm_token": None,
        "changed_fields": None,
    }
    live = done["function"]
    assert (live["hog"], live["version"], live["draft"], live["draft_updated_at"]) == (
        "return 1",
        3,
        None,
        None,
    )
    assert live["inputs"]["a"]["value"] == "one"
    assert live["inputs"]["key"] == {"secret": True}, "secrets stay what they are"
    assert api.get(at(function)).json() == live
    assert activities(database) == ["created", "updated", "revision_restored", "published"]


@rule("F20.5")
def test_a_draft_is_overwritten_only_on_request(api: Api, function: dict[str, Any]) -> None:
    ok(api, function, "revisions/1/restore/")
    assert error(api, function, "revisions/2/restore/")[:2] == (409, "draft_exists")
    staged = ok(api, function, "revisions/2/restore/", {"overwrite": True})
    assert staged["draft"]["hog"] == "return 2"
    assert error(api, function, "revisions/9/restore/") == (
        404,
        "not_found",
        None,
        "No such revision for this function.",
    )
    assert error(api, function, "revisions/0/restore/")[0] == 404, "the draft is no version"


@rule("F20.5")
def test_a_draft_is_no_version(api: Api, function: dict[str, Any]) -> None:
    ok(api, function, "revisions/1/restore/")
    listed = api.get(at(function, "revisions/")).json()
    assert (listed["count"], [one["version"] for one in listed["results"]]) == (2, [2, 1])
    assert api.get(at(function, "revisions/0/")).status_code == 404


@rule("F20.8")
def test_discarding(api: Api, function: dict[str, Any], database: Database) -> None:
    assert ok(api, function, "discard_draft/")["draft"] is None
    ok(api, function, "revisions/1/restore/")
    assert ok(api, function, "discard_draft/")["draft"] is None
    assert activities(database)[2:] == ["revision_restored", "draft_discarded"]
    assert error(api, function, "publish/") == (
        400,
        "invalid_input",
        None,
        "This function has no staged draft to publish.",
    )


@rule("F20.7")
def test_an_enabled_function_needs_the_token(api: Api, function: dict[str, Any], clock: Clock) -> None:
    api.change(function, enabled=True)
    ok(api, function, "revisions/1/restore/")
    assert error(api, function, "publish/", {"confirm": True})[:3] == (400, "required", "confirm_token")
    wrong = error(api, function, "publish/", {"confirm": True, "confirm_token": "guessed"})
    assert wrong[:3] == (400, "invalid_input", "confirm_token")
    token = ok(api, function, "publish/")["confirm_token"]
    clock.ahead = timedelta(minutes=15, seconds=1)
    assert error(api, function, "publish/", {"confirm": True, "confirm_token": token})[:2] == (
        409,
        "stale_update",
    )
    clock.ahead = timedelta(minutes=14)
    published = ok(api, function, "publish/", {"confirm": True, "confirm_token": token})
    assert published["function"]["hog"] == "return 1"


@rule("F20.7")
@pytest.mark.parametrize("change", ["live", "draft"])
def test_a_token_is_for_what_was_shown(api: Api, function: dict[str, Any], change: str) -> None:
    ok(api, function, "revisions/1/restore/")
    token = ok(api, function, "publish/")["confirm_token"]
    if change == "live":
        api.change(function, name="changed meanwhile")
    else:
        ok(api, function, "revisions/1/restore/", {"overwrite": True})
    status, code, _, _ = error(api, function, "publish/", {"confirm": True, "confirm_token": token})
    assert (status, code) == (409, "stale_update")
    assert ok(api, function, "publish/", {"confirm": True})["published"], "a disabled function needs none"


@rule("F20.7")
def test_a_token_of_another_function_is_refused(api: Api, function: dict[str, Any]) -> None:
    other = api.change(api.create(hog="return 3"), hog="return 4")
    for one in (function, other):
        ok(api, one, "revisions/1/restore/")
    token = ok(api, other, "publish/")["confirm_token"]
    assert error(api, function, "publish/", {"confirm": True, "confirm_token": token})[0] == 409


@rule("F20.8")
def test_nobody_enables_a_function_without_a_look_at_its_draft(api: Api, function: dict[str, Any]) -> None:
    ok(api, function, "revisions/1/restore/")
    assert api.change_refused(function, enabled=True)["attr"] == "enabled"
    api.change(function, name="still allowed")
    ok(api, function, "discard_draft/")
    assert api.change(function, enabled=True)["enabled"]


def test_functions_that_are_gone_have_no_drafts(api: Api, function: dict[str, Any]) -> None:
    api.change(function, deleted=True)
    for tail in ("publish/", "discard_draft/", "revisions/1/restore/"):
        assert error(api, function, tail)[0] == 404
