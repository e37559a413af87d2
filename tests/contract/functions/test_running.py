"""States, test runs, broadcasts, metrics and scopes over the whole application (rules F12 to F21)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api, Laboratory
from tests.contract.functions.test_functions import PATH, UNKNOWN, at, make
from tests.contract.rules import rule

from hoglab.delivery.service import Delivery

EVENT = {"event": "$pageview", "distinct_id": "d1", "properties": {}}


class Deaf:
    """A runtime that cannot be asked."""

    def statuses(self, _function_ids: Any) -> Any:
        raise OSError("no answer")

    function_saved = statuses


class TestStates:
    @rule("F12.4")
    @pytest.mark.logs_exceptions
    def test_a_runtime_that_cannot_be_asked(
        self, api: Api, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = make(api, enabled=True)
        assert made["status"] == {"state": 1, "tokens": 10_000}
        (delivery,) = [one for one in laboratory.hoglab._background if isinstance(one, Delivery)]
        for name in ("statuses", "function_saved"):
            monkeypatch.setattr(type(delivery.states), name, getattr(Deaf, name))
        unknown = {"state": 0, "tokens": 0}
        assert api.ok("GET", at(made))["status"] == unknown
        assert [one["status"] for one in api.ok("GET", PATH)["results"]] == [unknown]
        assert api.ok("PATCH", at(made), {"name": "kept"})["status"] == unknown
        assert make(api, enabled=True)["status"] == unknown
        monkeypatch.undo()
        assert api.ok("GET", at(made))["name"] == "kept"


class TestTestRuns:
    @rule("F14.9")
    def test_strange_ids_count_as_new(self, api: Api) -> None:
        body = {
            "configuration": {"hog": "print(project.id, project.name, project.url, event.event)"},
            "globals": {"event": EVENT},
        }
        gone = make(api)
        api.ok("PATCH", at(gone), {"deleted": True})
        for where in ("new", UNKNOWN, "nonsense", gone["id"]):
            logs = api.ok("POST", f"{PATH}{where}/invocations/", body)["logs"]
            assert logs[0]["message"].startswith(f"{api.project_id}, Contract, http")
        given = {"event": EVENT, "project": {"name": "Mine"}}
        logs = api.ok("POST", f"{PATH}new/invocations/", {**body, "globals": given})["logs"]
        assert logs[0]["message"].startswith(f"{api.project_id}, Mine, http")

    @rule("F14.4", "F14.7")
    def test_each_mapping_says_why_it_did_not_run(self, api: Api) -> None:
        mappings = [
            {"name": event, "filters": {"events": [{"id": event, "type": "events"}]}}
            for event in ("bought", "$pageview", "sold")
        ]
        body = {"configuration": {"hog": "print('ran')", "mappings": mappings}, "globals": {"event": EVENT}}
        answer = api.ok("POST", f"{PATH}new/invocations/", body)
        assert answer["status"] == "success"
        messages = [line["message"] for line in answer["logs"]]
        assert messages.count("Mapping trigger not matching filters was ignored.") == 2
        assert messages.count("ran") == 1


class TestBroadcast:
    @rule("F15.3")
    @pytest.mark.parametrize("kind", ["transformation", "source_webhook", "site_app", "site_destination"])
    def test_types(self, api: Api, kind: str) -> None:
        code = "export function onLoad() {}" if kind.startswith("site_") else "return event"
        made = make(api, type=kind, hog=code, enabled=True)
        answer = api.call("POST", f"{at(made)}broadcast/", {})
        assert (answer.status_code, answer.json()) == (
            400,
            {"error": "Broadcast is not supported for this function type"},
        )


class TestMetrics:
    @rule("F17.4")
    def test_what_happens_to_events_is_counted(self, api: Api) -> None:
        only = {"events": [{"id": "bought", "type": "events"}]}
        made = {
            "succeeded": make(api, enabled=True, hog="print(1)", filters=only),
            "failed": make(api, enabled=True, hog="throw Error('no')", filters=only),
            "filtered": make(
                api, enabled=True, hog="print(1)", filters={"events": [{"id": "sold", "type": "events"}]}
            ),
            "inputs_failed": make(
                api,
                enabled=True,
                filters=only,
                inputs_schema=[{"key": "a", "type": "string"}],
                inputs={"a": {"value": "{jsonParse(event.properties.bad)}"}},
            ),
            "masked": make(api, enabled=True, filters=only, masking={"ttl": 60, "hash": "same"}),
        }
        bought = {"event": "bought", "distinct_id": "d", "properties": {"bad": "{"}}
        api.capture({**bought}, {**bought})
        wanted = {
            "succeeded": ({"triggered": 2, "succeeded": 2}, {"other": 2, "success": 2}),
            "failed": ({"triggered": 2, "failed": 2}, {"other": 2, "failure": 2}),
            "filtered": ({"filtered": 2}, {"other": 2}),
            "inputs_failed": ({"inputs_failed": 2}, {"failure": 2}),
            "masked": ({"triggered": 1, "masked": 1, "succeeded": 1}, {"other": 2, "success": 1}),
        }
        for name, (by_name, by_kind) in wanted.items():
            path = f"{at(made[name])}metrics/totals/"
            api.until(
                lambda path=path, by_name=by_name: (
                    api.ok("GET", f"{path}?breakdown_by=name")["totals"] == by_name
                )
            )
            assert api.ok("GET", path)["totals"] == by_kind, name


class TestScopes:
    OPERATIONS = (
        ("GET", "", "read"),
        ("POST", "", "write"),
        ("GET", "{id}/", "read"),
        ("PATCH", "{id}/", "write"),
        ("PUT", "{id}/", "write"),
        ("DELETE", "{id}/", "write"),
        ("GET", "{id}/logs/", "read"),
        ("GET", "{id}/metrics/", "read"),
        ("GET", "{id}/metrics/totals/", "read"),
        ("POST", "{id}/invocations/", "write"),
        ("POST", "{id}/broadcast/", "write"),
        ("PATCH", "rearrange/", "write"),
        ("GET", "icons/", "read"),
        ("GET", "icon/?id=slack.com", "read"),
        ("GET", "masked_secrets/", "read"),
        ("GET", "{id}/revisions/", "read"),
        ("POST", "{id}/revisions/1/restore/", "write"),
        ("POST", "{id}/publish/", "write"),
        ("POST", "{id}/discard_draft/", "write"),
        ("POST", "{id}/enable_backfills/", "write"),
    )

    @rule("F21.2")
    @pytest.mark.parametrize(("method", "tail", "scope"), OPERATIONS)
    def test_each_operation(self, api: Api, method: str, tail: str, scope: str) -> None:
        path = PATH + tail.format(id=make(api)["id"])
        body = None if method in ("GET", "DELETE") else {}
        for key, allowed in (
            (api.new_key("hog_function:read"), scope == "read"),
            (api.new_key("hog_function:write"), True),
            (api.new_key("*"), True),
            (api.new_key("experiment:write"), False),
        ):
            answer = api.with_key(key).call(method, path, body)
            assert (answer.status_code != 403 or "scope" not in answer.text) is allowed, answer.text
            if not allowed:
                detail = f"API key missing required scope 'hog_function:{scope}'"
                assert answer.json() == {
                    "type": "authentication_error",
                    "code": "permission_denied",
                    "detail": detail,
                    "attr": None,
                }
        assert api.with_key(None).call(method, path, body).status_code == 401

    @rule("X6.2")
    def test_samples(self, api: Api) -> None:
        scopes = {"hog_function:read", "query:read", "person:read", "group:read"}
        path, body = f"{PATH}new/sample_globals/", {"configuration": {"hog": "return 1"}}
        for missing in sorted(scopes):
            error = api.with_key(api.new_key(*scopes - {missing})).refused("POST", path, body, status=403)
            assert missing in error["detail"]
        assert api.with_key(api.new_key(*scopes)).ok("POST", path, body)["stored"] is False

    @rule("F21.2", "F11.5")
    def test_templates_and_reruns(self, api: Api) -> None:
        templates = "/hog_function_templates/"
        assert api.with_key(api.new_key("hog_function:read")).ok("GET", templates)
        assert api.with_key(api.new_key("experiment:read")).refused("GET", templates, status=403)
        path = f"{at(make(api, enabled=True))}rerun/"
        for missing in ("hog_function:write", "person:read", "group:read"):
            scopes = {"hog_function:write", "person:read", "group:read"} - {missing}
            error = api.with_key(api.new_key(*scopes)).refused("POST", path, {}, status=403)
            assert missing in error["detail"]
        whole = api.with_key(api.new_key("hog_function:write", "person:read", "group:read"))
        assert whole.ok("POST", path, {})["queued_count"] == 0
