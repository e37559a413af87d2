"""Hog functions over HTTP: one proof for each rule of the contract; depth is in ``tests/functions``."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api
from tests.contract.rules import rule

PATH = "/hog_functions/"
UNKNOWN = "0199a3d4-aaaa-7000-8000-000000000009"
FULL = {
    "id", "type", "name", "description", "created_at", "created_by", "updated_at", "enabled", "deleted", "hog",
    "bytecode", "transpiled", "inputs_schema", "inputs", "filters", "masking", "mappings", "icon_url", "template",
    "template_id", "status", "execution_order", "_create_in_folder",
}  # fmt: skip
LISTED = {
    "id", "type", "name", "description", "created_at", "created_by", "updated_at", "enabled", "hog", "filters",
    "icon_url", "template", "status", "execution_order",
}  # fmt: skip


def make(api: Api, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.ok("POST", PATH, {"name": "n", "hog": "return 1", **body}, status=201)
    return made


def no(api: Api, **body: Any) -> tuple[str, str | None]:
    """Why a function with this body is not made: the code and the field."""
    answer = api.call("POST", PATH, {"name": "n", "hog": "return 1", **body})
    assert answer.status_code == 400, answer.text
    return answer.json()["code"], answer.json()["attr"]


def at(function: dict[str, Any]) -> str:
    return f"{PATH}{function['id']}/"


class TestGeneral:
    @rule("F1.1")
    def test_prefixes(self, api: Api) -> None:
        made = make(api)
        for prefix in ("projects", "environments"):
            for slash in ("", "/"):
                path = f"/api/{prefix}/{api.project_id}/hog_functions/{made['id']}{slash}"
                assert api.ok("GET", path)["id"] == made["id"]
                assert api.ok("PATCH", path, {"description": "d"})["description"] == "d"

    @rule("F1.2", "F1.3")
    def test_texts_and_unknown_fields(self, api: Api) -> None:
        made = make(
            api,
            name="  a ",
            hog="\nreturn 1 \n",
            nonsense=1,
            inputs_schema=[{"key": "a", "type": "string", "odd": 1}],
            inputs={"a": {"value": " x ", "odd": 1}, "b": {"value": 1}},
            filters={"odd": 1},
            masking={"ttl": 60, "hash": "h", "odd": 1},
            mappings=[{"odd": 1}],
        )
        assert (made["name"], made["hog"], made["inputs"]["a"]["value"]) == ("a", "return 1", " x ")
        told = ["inputs_schema__0", "inputs__a", "filters", "masking", "mappings__0"]
        assert [each["attr"] for each in made.pop("warnings")] == [
            "inputs__b", *(f"{place}__odd" for place in told), "nonsense"
        ]  # fmt: skip
        assert "odd" not in str(made)

    @rule("F1.4")
    def test_strange_ids(self, api: Api) -> None:
        other = api.ok("POST", "/api/organizations/@current/projects/", {"name": "Other"}, status=201)
        function = make(api)
        for path in (f"{PATH}{UNKNOWN}/", f"{PATH}nonsense/"):
            assert api.refused("GET", path, status=404)["detail"] == "Not found."
        assert api.call("GET", f"/api/projects/{other['id']}{at(function)}").status_code == 404

    @rule("F1.5")
    def test_delete_and_put(self, api: Api) -> None:
        made = make(api)
        answer = api.call("DELETE", at(made))
        assert (answer.status_code, answer.content) == (405, b"")
        assert api.ok("PUT", at(made), {"description": "d"})["hog"] == "return 1"

    @rule("F1.6")
    def test_broken_json(self, api: Api) -> None:
        headers = {"Content-Type": "application/json"}
        assert api.refused("POST", PATH, content=b"{", headers=headers)["code"] == "parse_error"


class TestTypes:
    @rule("F2.1")
    def test_values(self, api: Api) -> None:
        assert make(api)["type"] == "destination"
        assert make(api, type=None)["type"] is None
        assert no(api, type="x") == ("invalid_choice", "type")

    @rule("F2.3")
    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("transformation_log", "Log transformations are not enabled for this team."),
            (
                "warehouse_source_webhook",
                "Cannot create or modify warehouse source webhook functions via this API.",
            ),
        ],
    )
    def test_types_that_nothing_here_would_run(self, api: Api, kind: str, words: str) -> None:
        error = api.refused("POST", PATH, {"type": kind, "hog": "return 1"})
        assert (error["code"], error["attr"], error["detail"]) == ("invalid_input", "type", words)
        assert api.ok("GET", f"/hog_function_templates/?type={kind}")["count"] == 0

    @rule("F2.2")
    def test_no_change(self, api: Api) -> None:
        made = make(api)
        assert api.refused("PATCH", at(made), {"type": "transformation"})["attr"] == "type"
        assert api.ok("PATCH", at(made), {"type": "destination"})

    @rule("F2.4")
    @pytest.mark.parametrize(
        "kind", ["destination", "site_app", "site_destination", "transformation", "source_webhook"]
    )
    def test_artefacts(self, api: Api, kind: str) -> None:
        site = kind.startswith("site_")
        made = make(api, type=kind, hog="export function onLoad() {}" if site else "return 1")
        assert ((made["transpiled"] is not None), (made["bytecode"] is not None)) == (site, not site)


class TestObject:
    @rule("F3.1", "F3.2")
    def test_forms(self, api: Api) -> None:
        made = make(api, name="needle")
        assert made.keys() >= FULL
        assert api.ok("GET", at(made)).keys() >= FULL
        assert api.ok("GET", f"{PATH}?full=true")["results"][0].keys() >= FULL
        assert api.ok("GET", PATH)["results"][0].keys() == LISTED
        assert api.ok("GET", f"{PATH}?search=needle")["results"][0].keys() == LISTED | {"search_match_type"}

    @rule("F3.3", "F10.1")
    def test_inputs(self, api: Api) -> None:
        schema = [{"key": key, "type": "string", "secret": key != "a"} for key in ("a", "b", "c")]
        made = make(api, inputs_schema=schema, inputs={"b": {"value": "s"}})
        assert made["inputs"] == {"a": None, "b": {"secret": True}}
        for inputs in ({}, {"b": {"secret": True}}):
            assert api.ok("PATCH", at(made), {"inputs": inputs})["inputs"]["b"] == {"secret": True}
        assert api.refused("PATCH", at(made), {"inputs": {"c": {"secret": True}}})["attr"] == "inputs__c"


class TestLife:
    @rule("F4.1", "F4.2")
    def test_making(self, api: Api) -> None:
        made = api.ok(
            "POST", PATH, {"template_id": "template-webhook", "inputs": {"url": {"value": "u"}}}, status=201
        )
        assert made["hog"] == made["template"]["code"].strip()
        assert api.refused("POST", PATH, {"template_id": "x"})["detail"] == "No template found for id 'x'"
        assert api.refused("POST", PATH, {"name": "n"})["detail"] == "Required."
        assert no(api, hog="") == ("blank", "hog")

    @rule("F4.3")
    def test_changing(self, api: Api) -> None:
        schema = [{"key": "a", "type": "string"}, {"key": "b", "type": "string"}]
        made = make(api, inputs_schema=schema, inputs={"a": {"value": "1"}, "b": {"value": "2"}})
        assert api.ok("PATCH", at(made), {"name": "m"})["inputs"] == made["inputs"]
        assert api.ok("PATCH", at(made), {"inputs": {"a": {"value": "3"}}})["inputs"]["b"] is None

    @rule("F4.4")
    def test_deleting(self, api: Api) -> None:
        made = make(api)
        api.ok("PATCH", at(made), {"deleted": True})
        assert api.call("GET", at(made)).status_code == 404
        assert api.call("PATCH", at(made), {"name": "x"}).status_code == 404
        assert api.ok("GET", PATH)["count"] == 0
        assert api.ok("PATCH", at(made), {"deleted": False})["deleted"] is False

    @rule("F4.5")
    def test_stale_changes(self, api: Api) -> None:
        made = make(api)
        body = {"name": "x", "base_updated_at": "2020-01-01T00:00:00Z"}
        assert api.refused("PATCH", at(made), body, status=409)["code"] == "stale_update"

    @rule("F4.6")
    def test_limits(self, api: Api) -> None:
        for _ in range(20):
            make(api, type="transformation", hog="return event", enabled=True)
        assert no(api, type="transformation", hog="return event", enabled=True) == ("invalid_input", "type")
        assert no(api, hog="--" + "x" * 102_400) == ("invalid_input", "hog")


class TestParts:
    @rule("F5.1", "F5.2", "F5.3")
    def test_inputs(self, api: Api) -> None:
        schema: list[dict[str, Any]] = [{"key": key, "type": "string"} for key in ("a", "b")]
        made = make(api, inputs_schema=schema, inputs={"a": {"value": "{inputs.b}"}, "b": {"value": "x"}})
        assert [made["inputs"][key]["order"] for key in ("a", "b")] == [1, 0]
        circle = {"a": {"value": "{inputs.b}"}, "b": {"value": "{inputs.a}"}}
        assert no(api, inputs_schema=schema, inputs=circle) == ("invalid_input", "inputs")
        required = {"key": "a", "type": "string", "required": True}
        assert no(api, inputs_schema=[required]) == ("invalid_input", "inputs__a")
        assert make(api, inputs_schema=[{**required, "default": "d"}])["inputs"]["a"]["value"] == "d"
        liquid = {"a": {"value": "{{ event.event }}", "templating": "liquid"}}
        assert make(api, inputs_schema=schema, inputs=liquid)["inputs"]["a"] == {**liquid["a"], "order": 0}
        boolean = [{"key": "a", "type": "boolean"}]
        assert no(api, inputs_schema=boolean, inputs=liquid) == ("invalid_input", "inputs__a")

    @rule("F6.1", "F6.2")
    def test_filters(self, api: Api) -> None:
        assert make(api)["filters"] == {"source": "events", "bytecode": ["_H", 1, 29]}
        static = api.ok("POST", "/cohorts/", {"name": "Some", "is_static": True}, status=201)["id"]
        filters = {"properties": [{"key": "id", "type": "cohort", "value": static}]}
        assert no(api, enabled=True, filters=filters) == ("invalid_input", "filters__non_field_errors")
        assert make(api, filters=filters)["filters"]["bytecode_error"]

    @rule("F7.1")
    def test_masking(self, api: Api) -> None:
        for ttl, code in ((59, "min_value"), (86_401, "max_value")):
            assert no(api, masking={"ttl": ttl, "hash": "h"}) == (code, "masking__ttl")
        assert no(api, masking={"hash": "h"}) == ("required", "masking__ttl")
        assert no(api, masking={"ttl": 60, "hash": "{"}) == ("invalid_input", "masking__hash")
        made = make(api, masking={"ttl": 60, "hash": "{person.id}"})
        assert api.ok("PATCH", at(made), {"masking": None})["masking"] is None

    @rule("F8.1")
    def test_mappings(self, api: Api) -> None:
        mapping = {
            "name": "m",
            "inputs_schema": [{"key": "a", "type": "string"}],
            "inputs": {"a": {"value": "{event.event}"}},
            "filters": {"events": [{"id": "x", "type": "events"}]},
        }
        made = make(api, mappings=[mapping])["mappings"][0]
        assert made["inputs"]["a"]["bytecode"] == ["_H", 1, 32, "event", 32, "event", 1, 2]
        assert made["filters"]["bytecode"][-1] == 11
        assert no(api, type="transformation", mappings=[mapping]) == ("invalid_input", "mappings")


class TestLists:
    @rule("F13.1", "F13.2")
    def test_choosing_and_paging(self, api: Api) -> None:
        first, second = make(api, enabled=True), make(api, type="source_webhook")
        for query, wanted in (
            ("type=source_webhook", [second]),
            ("enabled=true", [first]),
            (f"id={second['id']}", [second]),
            (f"created_by={first['created_by']['id']}&type=destination", [first]),
        ):
            assert [one["id"] for one in api.ok("GET", f"{PATH}?{query}")["results"]] == [
                one["id"] for one in wanted
            ]
        assert api.refused("GET", f"{PATH}?id=x")["attr"] == "id"
        assert api.refused("GET", f"{PATH}?created_by=999999")["attr"] == "created_by"
        page = api.ok("GET", f"{PATH}?limit=1&type=destination,source_webhook")
        assert page["count"] == 2
        assert "type=destination%2Csource_webhook" in page["next"]
        assert page["previous"] is None


class TestOperations:
    @rule("F14.1", "F14.2")
    def test_runs(self, api: Api) -> None:
        globals_ = {"event": {"event": "e", "distinct_id": "d", "properties": {}}}
        body = {"configuration": {"hog": "print('hi')"}, "globals": globals_}
        answer = api.ok("POST", f"{PATH}new/invocations/", body)
        assert (answer["result"], answer["status"], answer["errors"]) == (None, "success", [])
        assert answer["logs"][0]["message"] == "hi"
        assert api.ok("GET", PATH)["count"] == 0
        missing = api.call("POST", f"{PATH}new/invocations/", {**body, "globals": {}})
        assert (missing.status_code, missing.json()) == (
            400,
            {"status": "error", "errors": ["Missing event"]},
        )
        schema = [{"key": "u", "type": "string", "required": True}]
        wrong = {**body, "configuration": {"hog": "return 1", "inputs_schema": schema}}
        answer = api.call("POST", f"{PATH}new/invocations/", wrong).json()
        assert answer == {"configuration": {"inputs": {"u": ["This field is required."]}}}

    @rule("F15.1", "F16.1", "F17.1")
    def test_quiet_functions(self, api: Api) -> None:
        made = make(api)
        answer = api.call("POST", f"{at(made)}broadcast/")
        assert (answer.status_code, answer.json()["error"]) == (400, "Cannot broadcast: function is disabled")
        assert api.ok("GET", f"{at(made)}logs/")["results"] == []
        for query, attr in (("limit=0", "limit"), ("limit=501", "limit"), ("after=x", "after")):
            assert api.refused("GET", f"{at(made)}logs/?{query}")["attr"] == attr
        metrics = api.ok("GET", f"{at(made)}metrics/?after=-2d")
        assert (len(metrics["labels"]), metrics["series"]) == (3, [])
        assert api.ok("GET", f"{at(made)}metrics/totals/") == {"totals": {}}

    @rule("F18.1")
    def test_icons(self, api: Api) -> None:
        assert api.ok("GET", f"{PATH}icons/") == []
        assert api.refused("GET", f"{PATH}icon/")["detail"] == "id is required"
        assert api.refused("GET", f"{PATH}icon/?id=http://a.b", status=404)

    @rule("F19.1")
    def test_order(self, api: Api) -> None:
        made = [make(api, type="transformation", hog="return event") for _ in range(3)]
        orders = {made[1]["id"]: 1, made[0]["id"]: 2}
        moved = api.ok("PATCH", f"{PATH}rearrange/", {"orders": orders})
        assert [one["id"] for one in moved] == [made[1]["id"], made[0]["id"], made[2]["id"]]
        assert api.refused("PATCH", f"{PATH}rearrange/", {})["detail"] == "No orders provided"
        for strange in (UNKNOWN, make(api)["id"]):
            error = api.refused("PATCH", f"{PATH}rearrange/", {"orders": {strange: 1}})
            assert error["detail"] == f"HogFunction with id {strange} does not exist"

    @rule("F20.1")
    def test_versions(self, api: Api) -> None:
        made = make(api)
        api.ok("PATCH", at(made), {"hog": "return 2"})
        kept = api.ok("GET", f"{at(made)}revisions/")
        assert [one["version"] for one in kept["results"]] == [2, 1]
        assert api.ok("GET", f"{at(made)}revisions/1/diff/")["changes"][0]["field"] == "hog"
        assert api.ok("POST", f"{at(made)}revisions/1/rollback/", {})["hog"] == "return 1"

    @rule("F21.1")
    def test_scopes(self, api: Api) -> None:
        made = make(api)
        reader, writer = (api.with_key(api.new_key(f"hog_function:{what}")) for what in ("read", "write"))
        assert reader.ok("GET", at(made))
        assert writer.ok("GET", at(made))
        assert writer.ok("PATCH", at(made), {"name": "x"})
        error = reader.refused("PATCH", at(made), {"name": "y"}, status=403)
        assert error["detail"] == "API key missing required scope 'hog_function:write'"

    @rule("F22.1")
    def test_activity(self, api: Api) -> None:
        schema = [{"key": "t", "type": "string", "secret": True}]
        made = make(api, inputs_schema=schema, inputs={"t": {"value": "s1"}})
        api.ok("PATCH", at(made), {"enabled": True, "inputs": {"t": {"value": "s2"}}})
        entries = api.ok("GET", f"/activity_log/?scope=HogFunction&item_id={made['id']}")["results"]
        assert [one["activity"] for one in entries] == ["updated", "created"]
        changes = {one["field"]: (one["before"], one["after"]) for one in entries[0]["detail"]["changes"]}
        assert changes == {"enabled": (False, True), "encrypted_inputs": ("masked", "masked")}
