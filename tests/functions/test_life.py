"""Create, change, delete, restore, order, list (spec: hog-functions-api 3, 4, 13, 19, 21, 22)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.accounts.activity import entries
from hoglab.accounts.service import AccountService
from hoglab.functions import templates
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.functions.status import Status
from hoglab.storage.database import Database

LIST_FIELDS = [
    "id",
    "type",
    "name",
    "description",
    "created_at",
    "created_by",
    "updated_at",
    "enabled",
    "hog",
    "filters",
    "icon_url",
    "template",
    "status",
    "execution_order",
]


class Clock:
    """Advances by a second with every look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 5, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


class States:
    """A runtime that remembers what it was told."""

    def __init__(self) -> None:
        self.known: dict[str, Status] = {}
        self.saved: list[str] = []

    def statuses(self, function_ids: Collection[str]) -> Mapping[str, Status]:
        return {one: self.known[one] for one in function_ids if one in self.known}

    def function_saved(self, function_id: str) -> None:
        self.saved.append(function_id)


@pytest.fixture
def states() -> States:
    return States()


@pytest.fixture
def clocked(
    make_api: Callable[[FunctionService], Api], database: Database, box: SecretBox, states: States
) -> Api:
    """The API with a clock of its own, and a runtime."""
    return make_api(FunctionService(database, box, states, now=Clock()))


@rule("F1.1")
def test_aliases_and_slashes(api: Api) -> None:
    made = api.create(name="x")
    for prefix in ("/api/projects/1", "/api/projects/@current", "/api/environments/1"):
        for slash in ("", "/"):
            answer = api.get(f"{prefix}/hog_functions/{made['id']}{slash}")
            assert answer.json() == made
            changed = api.patch(f"{prefix}/hog_functions/{made['id']}{slash}", {})
            assert changed.status_code == 200
            made = changed.json()
            assert (
                api.request("PUT", f"{prefix}/hog_functions/{made['id']}{slash}", json={}).status_code == 200
            )
            made = api.get(f"{prefix}/hog_functions/{made['id']}{slash}").json()
            assert api.get(f"{prefix}/hog_functions{slash}").json()["count"] == 1


@rule("F1.2", "F24.5")
def test_strings_are_trimmed_but_not_inside_values(api: Api) -> None:
    made = api.create(
        name=" n ",
        description="  ",
        hog="\n  return 1  \n",
        icon_url=" u ",
        inputs_schema=[{"key": " a ", "type": "string", "label": " l "}],
        inputs={"a": {"value": "  v  "}},
        filters={"events": [{"id": " e ", "name": " n "}]},
    )
    assert (made["name"], made["description"], made["hog"], made["icon_url"]) == ("n", "", "return 1", "u")
    assert made["inputs_schema"][0]["label"] == "l"
    assert made["inputs"]["a"]["value"] == "  v  "
    assert made["filters"]["events"] == [{"id": " e ", "name": " n "}]


@rule("F4.12", "F3.9", "F3.7")
def test_only_what_is_sent_changes(clocked: Api) -> None:
    made = clocked.create(
        name="n",
        description="d",
        filters={"properties": [{"key": "a", "value": "b"}]},
        masking={"ttl": 60, "hash": "x"},
        mappings=[{"name": "m"}],
        _create_in_folder="Destinations/Mine",
    )
    changed = clocked.change(made, name="N")
    assert changed.pop("updated_at") > made.pop("updated_at")
    assert changed == {**made, "name": "N"}
    assert changed["_create_in_folder"] == "Destinations/Mine"
    assert clocked.change(made, masking=None)["masking"] is None
    assert clocked.change(made, mappings=None)["mappings"] is None
    assert clocked.change(made, description="")["description"] == ""


@rule("F3.9")
def test_versions_count_changes_of_behaviour_only(api: Api) -> None:
    made = api.create(name="n", inputs_schema=[{"key": "t", "type": "string", "secret": True}])
    assert made["version"] == 1
    assert api.change(made, name="N", enabled=True)["version"] == 1
    assert api.change(made, hog="return 2")["version"] == 2
    assert api.change(made, hog="return 2")["version"] == 2
    assert api.change(made, filters={"events": [{"id": "a"}]})["version"] == 3
    assert api.change(made, inputs={"t": {"value": "secret"}})["version"] == 4
    assert api.change(made, inputs={"t": {"secret": True}})["version"] == 4


@rule("F9.6", "F9.1")
def test_code_is_compiled_again_when_it_is_sent(api: Api) -> None:
    made = api.create(hog="return 1")
    assert made["bytecode"] == ["_H", 1, 33, 1, 38]
    assert api.change(made, name="x")["bytecode"] == made["bytecode"]
    assert api.change(made, hog="return 2")["bytecode"] == ["_H", 1, 33, 2, 38]


@rule("F4.5", "F4.22")
def test_stale_changes_are_refused(clocked: Api) -> None:
    made = clocked.create(name="n")
    path = f"/hog_functions/{made['id']}/"
    assert clocked.patch(path, {"name": "a", "base_updated_at": made["updated_at"]}).status_code == 200
    answer = clocked.patch(path, {"name": "b", "base_updated_at": made["updated_at"]})
    assert answer.status_code == 409
    assert answer.json() == {
        "type": "server_error",
        "code": "stale_update",
        "detail": "This function changed since you previewed the publish, either the draft or the live config. "
        "Preview again to see where things stand now.",
        "attr": None,
    }
    assert clocked.get(path).json()["name"] == "a"
    clocked.create(name="c", base_updated_at="2020-01-01")


@rule("F4.18")
def test_deleting_keeps_enabled_and_restoring_may_bring_other_changes(api: Api) -> None:
    made = api.create(enabled=True)
    assert api.change(made, deleted=True)["enabled"] is True
    assert api.get("/hog_functions/").json()["count"] == 0
    path = f"/hog_functions/{made['id']}/"
    assert api.patch(path, {"deleted": "false"}).status_code == 404
    assert api.patch(path, {"deleted": True}).status_code == 404
    restored = api.change(made, deleted=False, name="back")
    assert (restored["name"], restored["deleted"]) == ("back", False)


@rule("F4.8", "F4.9", "F13.3")
def test_transformations_are_ordered(api: Api) -> None:
    def make(**body: Any) -> dict[str, Any]:
        return api.create(type="transformation", hog="return event", **body)

    a, b = make(enabled=True), make(enabled=True)
    c = make(execution_order=7)
    assert [one["execution_order"] for one in (a, b, c)] == [1, 2, 7]
    assert api.create(type="destination")["execution_order"] is None
    api.change(a, enabled=False)
    assert api.change(a, enabled=True)["execution_order"] == 8
    api.change(b, enabled=False)
    assert api.change(b, enabled=True, execution_order=3)["execution_order"] == 3
    api.change(c, deleted=True)
    assert api.change(c, deleted=False)["execution_order"] == 9
    assert api.change(c, name="x")["execution_order"] == 9
    listed = api.get("/hog_functions/").json()["results"]
    assert [one["execution_order"] for one in listed] == [3, 8, 9, None]


@rule("F4.19")
def test_only_so_many_transformations_may_be_enabled(
    make_api: Callable[[FunctionService], Api], database: Database, box: SecretBox
) -> None:
    api = make_api(FunctionService(database, box, caps={"transformation": 2}))

    def make(**body: Any) -> dict[str, Any]:
        return api.create(type="transformation", hog="return event", **body)

    make(enabled=True)
    second = make(enabled=True)
    third = make(enabled=False)
    full = {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Maximum of 2 enabled transformation functions allowed per team. Please contact support if "
        "you need this limit increased, or disable some existing ones.",
        "attr": "type",
    }
    assert api.refused(type="transformation", hog="return event", enabled=True) == full
    assert api.change_refused(third, enabled=True) == full
    assert api.change(second, name="still enabled")["enabled"] is True
    api.change(second, deleted=True)
    assert api.change(third, enabled=True)["enabled"] is True
    assert api.change_refused(second, deleted=False) == full
    for _ in range(3):
        api.create(enabled=True)


@rule("F19.2")
def test_rearranging_refuses_what_it_cannot_do(api: Api) -> None:
    first, second = (api.create(type="transformation", hog="return event") for _ in range(2))
    other = api.create()
    for orders, detail, attr in (
        ({other["id"]: 1}, f"HogFunction with id {other['id']} does not exist", None),
        ({"nonsense": 1}, "HogFunction with id nonsense does not exist", None),
        ({first["id"]: "x"}, "A valid integer is required.", f"orders__{first['id']}"),
        ({first["id"]: -1}, "Ensure this value is greater than or equal to 0.", f"orders__{first['id']}"),
        ({first["id"]: 40000}, "Ensure this value is less than or equal to 32767.", f"orders__{first['id']}"),
        ([], "No orders provided", None),
        (None, "No orders provided", None),
    ):
        answer = api.patch(
            "/hog_functions/rearrange/", {"orders": {second["id"]: 5, **orders} if orders else orders}
        )
        assert answer.status_code == 400
        assert (answer.json()["detail"], answer.json()["attr"]) == (detail, attr)
    assert api.get(f"/hog_functions/{second['id']}/").json()["execution_order"] == 2


@rule("F19.3")
def test_rearranging_touches_only_what_moves(clocked: Api, database: Database) -> None:
    first, second = (
        clocked.create(type="transformation", name=name, hog="return event") for name in ("a", "b")
    )
    answer = clocked.patch("/hog_functions/rearrange/", {"orders": {first["id"]: 1, second["id"]: 9}})
    kept, moved = answer.json()
    assert kept["updated_at"] == first["updated_at"]
    assert moved["updated_at"] > second["updated_at"]
    assert moved["version"] == 1
    with database.read() as connection:
        log, _ = entries(connection, 1, limit=10, offset=0, scopes=["HogFunction"])
    assert log[0]["item_id"] == second["id"]
    assert log[0]["detail"]["changes"] == [
        {"type": "HogFunction", "action": "changed", "field": "priority", "before": "2", "after": "9"}
    ]
    assert sum(entry["activity"] == "updated" for entry in log) == 1


@rule("F12.1")
def test_status(clocked: Api, states: States) -> None:
    made = clocked.create(enabled=True)
    assert made["status"] == {"state": 1, "tokens": 10000}
    assert states.saved == [made["id"]]
    states.known[made["id"]] = {"state": 3, "tokens": -1}
    assert clocked.get(f"/hog_functions/{made['id']}/").json()["status"] == {"state": 3, "tokens": -1}
    clocked.change(made, name="x")
    assert states.saved == [made["id"]] * 2
    assert clocked.change(made, enabled=False)["status"] == {"state": 0, "tokens": 0}
    assert states.saved == [made["id"]] * 2


@rule("F4.10")
def test_functions_of_hidden_templates_can_only_be_disabled(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = templates.catalogue()
    visible = known["template-webhook"]
    made = api.create(template_id="template-webhook", enabled=True, inputs={"url": {"value": "https://x.io"}})
    hidden = replace(visible, id="template-internal", status="hidden")
    monkeypatch.setattr(templates, "catalogue", lambda: {**known, hidden.id: hidden})
    assert api.refused(template_id="template-internal") == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "Template 'template-internal' is internal and cannot be used to create a function.",
        "attr": "template_id",
    }
    assert api.change(made, template_id="template-internal")["template_id"] == "template-webhook"


@rule("F4.7", "F4.16")
def test_templates_fill_in_what_is_missing(api: Api) -> None:
    made = api.create(
        template_id="template-webhook",
        name="",
        description="mine",
        hog="print('mine')",
        inputs_schema=[{"key": "only", "type": "string"}],
    )
    template = templates.catalogue()["template-webhook"]
    assert (made["name"], made["description"]) == (template.name, "mine")
    assert made["hog"] == "print('mine')"
    assert list(made["inputs"]) == ["only"]
    assert made["filters"] == {"source": "events", "bytecode": ["_H", 1, 29]}
    assert api.change(made, description="")["description"] == ""


@rule("F2.6")
def test_a_transformation_may_come_from_a_destination_template(api: Api) -> None:
    made = api.create(
        type="internal_destination",
        template_id="template-webhook",
        inputs={"url": {"value": "https://x.io"}},
    )
    assert made["type"] == "internal_destination"


# --- lists ---


def test_list_items_have_the_promised_fields(api: Api) -> None:
    api.create(name="x")
    (item,) = api.get("/hog_functions/").json()["results"]
    assert list(item) == LIST_FIELDS
    (whole,) = api.get("/hog_functions/?full=true").json()["results"]
    assert whole == api.get(f"/hog_functions/{item['id']}/").json()
    assert {**item} == {name: whole[name] for name in LIST_FIELDS}


@rule("F13.4", "F13.3")
def test_list_filters(clocked: Api, accounts: AccountService) -> None:
    a = clocked.create(name="a", enabled=True)
    b = clocked.create(name="b", type="transformation", hog="return event")
    c = clocked.create(name="c", type="internal_destination")

    def names(query: str) -> list[str]:
        answer = clocked.get(f"/hog_functions/?{query}")
        assert answer.status_code == 200, answer.text
        return [one["name"] for one in answer.json()["results"]]

    assert names("") == ["b", "c", "a"]
    assert names("type=transformation") == ["b"]
    assert names("type=destination,internal_destination") == ["c", "a"]
    assert names("type=nonsense") == []
    assert names("enabled=TRUE") == ["a"]
    assert names("enabled=false") == ["b", "c"]
    assert names("enabled=true,false") == ["b", "c", "a"]
    assert names(f"id={a['id']}") == ["a"]
    assert names(f"created_at={b['created_at']}") == ["b"]
    assert names(f"updated_at={c['updated_at']}") == ["c"]
    assert names("created_at=2020-01-01") == []
    assert names(f"created_by={a['created_by']['id']}") == ["b", "c", "a"]
    stranger = accounts.create_user("other@example.com").id
    assert names(f"created_by={stranger}") == []
    clocked.change(a, deleted=True)
    assert names("") == ["b", "c"]


@rule("F13.6", "F13.5")
@pytest.mark.parametrize(
    ("query", "attr", "code"),
    [
        ("id=nonsense", "id", "invalid_input"),
        ("created_by=999", "created_by", "invalid_choice"),
        ("created_by=x", "created_by", "invalid_choice"),
        ("created_at=yesterday", "created_at", "invalid_input"),
        ("filters=%7B", "filters", "invalid_input"),
        ("filter_groups=%7B%7D", "filter_groups", "invalid_input"),
        ("search=" + "x" * 201, "search", "invalid_input"),
    ],
)
def test_list_parameters_that_are_refused(api: Api, query: str, attr: str, code: str) -> None:
    answer = api.get(f"/hog_functions/?{query}")
    assert answer.status_code == 400
    assert (answer.json()["attr"], answer.json()["code"]) == (attr, code)


@rule("F13.2")
def test_pages(api: Api) -> None:
    made = [api.create(name=f"n{number}")["name"] for number in range(5)]
    seen = []
    url: str | None = "/api/projects/1/hog_functions/?limit=2"
    while url is not None:
        page = api.get(url.removeprefix("http://localhost:8000")).json()
        assert page["count"] == 5
        seen += [one["name"] for one in page["results"]]
        url = page["next"]
    assert sorted(seen) == made
    assert api.get("/hog_functions/?limit=100000&offset=4").json()["next"] is None
    assert len(api.get("/hog_functions/?limit=0").json()["results"]) == 5


@rule("F13.5")
def test_search(api: Api) -> None:
    for name, description in (
        ("Slack", ""),
        ("Post to Slack", ""),
        ("Alerts", "goes to slack"),
        ("Slak", ""),
        ("Webhook", "any %_' \" text"),
    ):
        api.create(name=name, description=description)

    def found(query: str) -> list[tuple[str, str]]:
        answer = api.get("/hog_functions/", params={"search": query})
        assert answer.status_code == 200
        return [(one["name"], one["search_match_type"]) for one in answer.json()["results"]]

    assert found("slack") == [("Slack", "exact"), ("Post to Slack", "exact"), ("Alerts", "exact")]
    assert found(" SLACK\0") == found("slack")
    assert ("Webhook", "similar") in found("webhok")
    assert found("%_' \"") == [("Webhook", "exact")]
    assert found("zzz") == []
    assert found("((") == []
    plain = api.get("/hog_functions/?search=%20").json()
    assert plain["count"] == 5
    assert "search_match_type" not in plain["results"][0]


@rule("F13.6")
def test_lists_by_what_filters_hold(api: Api) -> None:
    api.create(
        name="a", filters={"events": [{"id": "$pageview", "properties": [{"key": "k", "value": [1, 2]}]}]}
    )
    api.create(name="b", filters={"events": [{"id": "x"}, {"id": "y", "order": 1}]})
    api.create(name="c", filters={"filter_test_accounts": True})

    def names(**query: str) -> list[str]:
        return sorted(one["name"] for one in api.get("/hog_functions/", params=query).json()["results"])

    assert names(filters='{"events": [{"id": "$pageview"}]}') == ["a"]
    assert names(filters='{"events": [{"properties": [{"value": [2]}]}]}') == ["a"]
    assert names(filters='{"events": [{"order": true}]}') == []
    assert names(filters='{"source": "events"}') == ["a", "b", "c"]
    assert names(filters='{"filter_test_accounts": true}') == ["c"]
    assert names(filter_groups='[{"events": [{"id": "y"}]}, {"filter_test_accounts": true}]') == ["b", "c"]
    assert names(filter_groups="[{}]", filters="{}") == ["a", "b", "c"]
    assert names(filters='{"events": [{"id": "x"}]}', search="b") == ["b"]


# --- access, history, others ---


def test_scopes(api: Api, accounts: AccountService) -> None:
    made = api.create(name="x")
    key = accounts.create_key(accounts.owner_id(), "reader", ["hog_function:read"]).value
    reader = Api(api.app, key, api.runner)
    path = f"/hog_functions/{made['id']}/"
    for allowed in ("/hog_functions/", path, "/hog_functions/icons/", "/hog_function_templates/"):
        assert reader.get(allowed).status_code == 200
    for method, refused in (
        ("POST", "/hog_functions/"),
        ("PATCH", path),
        ("PUT", path),
        ("DELETE", path),
        ("PATCH", "/hog_functions/rearrange/"),
    ):
        answer = reader.request(method, refused, json={} if method != "DELETE" else None)
        assert answer.status_code == 403
        assert answer.json()["detail"] == "API key missing required scope 'hog_function:write'"


def test_another_project_sees_nothing(api: Api, accounts: AccountService) -> None:
    made = api.create(name="x")
    other = accounts.create_project(_organization(accounts), "Other")
    elsewhere = f"/api/projects/{other.id}/hog_functions/"
    assert api.get(elsewhere).json()["count"] == 0
    assert api.get(f"{elsewhere}{made['id']}/").status_code == 404
    assert api.patch(f"{elsewhere}{made['id']}/", {"name": "y"}).status_code == 404


def _organization(accounts: AccountService) -> str:
    project = accounts.project(1)
    assert project is not None
    return project.organization_id


@rule("F22.2")
def test_history(api: Api, database: Database) -> None:
    schema = [{"key": "t", "type": "string", "secret": True}, {"key": "u", "type": "string"}]
    made = api.create(type="internal_destination", name="n", inputs_schema=schema)
    api.change(made, enabled=True)
    api.change(made, inputs={"t": {"value": "hidden"}, "u": {"value": "{event.event}"}})
    api.change(made, deleted=True)
    api.change(made, deleted=False)
    api.change(made, deleted=False)
    with database.read() as connection:
        log, count = entries(connection, 1, limit=50, offset=0, scopes=["HogFunction"], item_id=made["id"])
    assert count == 5
    assert [entry["activity"] for entry in log] == ["updated"] * 4 + ["created"]
    detail = log[-1]["detail"]
    assert (detail["name"], detail["type"], detail["changes"]) == ("n", "internal destination", None)
    assert log[-2]["detail"]["changes"] == [
        {"type": "HogFunction", "action": "changed", "field": "enabled", "before": False, "after": True}
    ]
    assert log[-3]["detail"]["changes"] == [
        {
            "type": "HogFunction",
            "action": "changed",
            "field": "inputs",
            "before": {},
            "after": {"u": {"value": "{event.event}"}},
        },
        {
            "type": "HogFunction",
            "action": "changed",
            "field": "encrypted_inputs",
            "before": "masked",
            "after": "masked",
        },
    ]
    assert [change["field"] for change in log[0]["detail"]["changes"]] == ["deleted"]
    assert "hidden" not in str(log)
    assert "_H" not in str(log)


@rule("F18.2")
def test_icons(api: Api) -> None:
    assert api.get("/hog_functions/icons/").json() == []
    assert api.get("/hog_functions/icons/?query=slack").json() == [
        {"id": "slack.com", "name": "Slack", "url": "/api/projects/@current/hog_functions/icon/?id=slack.com"}
    ]
    assert api.get("/hog_functions/icons/?query=nothing").json() == []
    picture = api.get("/hog_functions/icon/?id=slack.com")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.headers["cache-control"] == "public, max-age=86400"
    assert picture.content.startswith(b"<svg")
    missing = api.get("/hog_functions/icon/")
    assert (missing.status_code, missing.json()["detail"], missing.json()["attr"]) == (
        400,
        "id is required",
        None,
    )
    for unknown in ("example.com", "../../etc/passwd", "http://x.io"):
        assert api.get("/hog_functions/icon/", params={"id": unknown}).status_code == 404
    for template in templates.catalogue().values():
        if template.icon_url is not None:
            assert api.get(template.icon_url).status_code == 200


@rule("F20.3")
def test_other_operations(api: Api) -> None:
    assert api.get("/hog_functions/masked_secrets/").json() == []
    for body, status, error in (
        (
            {"type": "transformation", "hog": "return event"},
            400,
            {"error": "Backfills are only supported for destination functions."},
        ),
        (
            {"filters": {"source": "person-updates"}},
            400,
            {"error": "Backfills are only supported for event-sourced destinations."},
        ),
    ):
        made = api.create(**body)
        answer = api.post(f"/hog_functions/{made['id']}/enable_backfills/")
        assert (answer.status_code, answer.json()) == (status, error)
    answer = api.post(f"/hog_functions/{api.create()['id']}/enable_backfills/")
    assert answer.status_code == 403
    assert answer.json()["detail"] == "Backfilling Workflows is not enabled for this team."


def test_numbers_of_any_size_can_be_saved(api: Api) -> None:
    made = api.create(hog="return [100000000000000000000000, -9223372036854775808, 9223372036854775807]")
    assert made["bytecode"][2:4] == [34, 1e23]
    assert 2**63 - 1 in made["bytecode"]
    assert api.get(f"/hog_functions/{made['id']}/").json()["bytecode"] == made["bytecode"]
    assert api.create(hog=f"return {'9' * 400}")["bytecode"]
    templated = api.create(
        inputs_schema=[{"key": "a", "type": "string"}], inputs={"a": {"value": "{100000000000000000000000}"}}
    )
    assert templated["inputs"]["a"]["bytecode"] == ["_H", 1, 34, 1e23]
