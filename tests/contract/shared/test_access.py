"""Who may do what (rules 1.2, 1.3, 1.4, 1.8, 1.10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, select
from tests.contract.conftest import OWNER_KEY, TOKEN, Api, Laboratory
from tests.contract.rules import rule

from hoglab.accounts.service import AccountService
from hoglab.storage.database import tables

FLAG = {"key": "k", "filters": {"groups": [{"properties": [], "rollout_percentage": 100}]}}


def stranger(api: Api, organization_id: str, level: int) -> str:
    """The key of a new user who is a member of one organization."""
    with api.database() as database, database.write() as tx:
        owner = dict(tx.execute(select(tables.user).limit(1)).mappings().one())
        number = (tx.connection.scalar(select(tables.user.c.id).order_by(tables.user.c.id.desc())) or 0) + 1
        owner.update(
            id=number, uuid=str(UUID(int=number)), email=f"{number}@example.com", distinct_id=f"d{number}"
        )
        tx.execute(insert(tables.user), owner)
        member = dict(tx.execute(select(tables.membership).limit(1)).mappings().one())
        tx.execute(
            insert(tables.membership),
            {**member, "user_id": number, "organization_id": organization_id, "level": level},
        )
    with api.database() as database:
        return AccountService(database).create_key(number, "stranger", ["*"]).value


class TestKeys:
    @rule("1.2.1")
    def test_places(self, api: Api) -> None:
        anonymous = api.with_key(None)
        assert anonymous.ok("GET", f"/experiments/?personal_api_key={OWNER_KEY}")
        body = {"name": "n", "feature_flag_key": "k", "personal_api_key": OWNER_KEY}
        assert anonymous.ok("POST", "/experiments/", body, status=201)
        bad_header = {"Authorization": "Bearer phx_wrong"}
        path = f"/experiments/?personal_api_key={OWNER_KEY}"
        assert (
            "Authorization header" in anonymous.refused("GET", path, headers=bad_header, status=401)["detail"]
        )
        wrong = {**body, "personal_api_key": "phx_wrong"}
        error = anonymous.refused("POST", path, wrong, status=401)
        assert error["detail"] == "Personal API key found in request body is invalid."
        error = anonymous.refused("GET", "/experiments/?personal_api_key=phx_wrong", status=401)
        assert error["detail"] == "Personal API key found in request query string is invalid."

    @rule("1.2.2")
    def test_the_word_bearer(self, api: Api) -> None:
        anonymous = api.with_key(None)
        assert anonymous.ok("GET", "/experiments/", headers={"Authorization": f"Bearer   {OWNER_KEY}"})
        error = anonymous.refused(
            "GET", "/experiments/", headers={"Authorization": f"bearer {OWNER_KEY}"}, status=401
        )
        assert error["code"] == "not_authenticated"

    @rule("1.2.3")
    def test_no_key(self, api: Api) -> None:
        answer = api.with_key(None).call("GET", "/experiments/")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json() == {
            "type": "authentication_error",
            "code": "not_authenticated",
            "detail": "Authentication credentials were not provided.",
            "attr": None,
        }

    @rule("1.2.4")
    def test_keys_that_are_not_valid(self, api: Api) -> None:
        revoked = api.new_key("*")
        listed = api.ok("GET", "/api/personal_api_keys/")
        api.call("DELETE", f"/api/personal_api_keys/{listed[0]['id']}/")
        expiry = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert api.with_key(api.new_key("*", expires_at=expiry)).ok("GET", "/experiments/")
        for key in ("phx_unknown", TOKEN, revoked):
            error = api.with_key(key).refused("GET", "/experiments/", status=401)
            assert error["code"] == "authentication_failed"
            text = "Personal API key found in request Authorization header is invalid."
            assert error["detail"].startswith(text)
            assert (error["detail"] == text) is (key != TOKEN)  # of a token it says what it is

    @rule("1.2.5", "1.3.1")
    def test_scopes(self, api: Api) -> None:
        reader, writer = (
            api.with_key(api.new_key("experiment:read")),
            api.with_key(api.new_key("experiment:write")),
        )
        assert reader.ok("GET", "/experiments/")
        assert writer.ok("GET", "/experiments/")
        error = reader.refused("POST", "/experiments/", {}, status=403)
        assert (error["code"], error["detail"]) == (
            "permission_denied",
            "API key missing required scope 'experiment:write'",
        )
        other = api.with_key(api.new_key("feature_flag:write"))
        error = other.refused("GET", "/experiments/", status=403)
        assert error["detail"] == "API key missing required scope 'experiment:read'"

    @rule("1.2.6")
    def test_limited_keys(self, api: Api, laboratory: Laboratory) -> None:
        elsewhere = laboratory.api()
        limited = api.with_key(api.new_key("*", scoped_teams=[elsewhere.project_id]))
        error = limited.refused("GET", "/experiments/", status=403)
        assert (
            error["detail"] == f"API key does not have access to the requested project: ID {api.project_id}."
        )
        assert elsewhere.with_key(limited.key).ok("GET", "/experiments/")

    @rule("1.2.7", "1.4.4", "1.10.1")
    def test_members_and_strangers(self, api: Api) -> None:
        organization = api.ok("GET", "/api/organizations/@current/")["id"]
        with api.database() as database, database.write() as tx:
            row = dict(tx.execute(select(tables.organization).limit(1)).mappings().one())
            tx.execute(insert(tables.organization), {**row, "id": f"other-{api.project_id}"})
        outsider = api.with_key(stranger(api, f"other-{api.project_id}", 15))
        error = outsider.refused("GET", "/experiments/", status=403)
        assert error["detail"] == "You don't have access to the project."
        made = api.experiment()
        member = api.with_key(stranger(api, organization, 1))
        assert made["user_access_level"] == "manager"
        assert member.ok("GET", f"/experiments/{made['id']}/")["user_access_level"] == "editor"
        assert member.experiment("own")["user_access_level"] == "manager"


class TestScopes:
    @rule("1.3.2")
    @pytest.mark.parametrize(
        ("path", "scope", "body"),
        [
            ("/experiments/", "experiment", {"name": "n", "feature_flag_key": "k"}),
            ("/feature_flags/", "feature_flag", FLAG),
            ("/cohorts/", "cohort", {"name": "c", "is_static": True}),
            ("/actions/", "action", {"name": "a"}),
            ("/hog_functions/", "hog_function", {"type": "destination", "name": "f", "hog": "print(1)"}),
        ],
    )
    def test_read_and_write(self, api: Api, path: str, scope: str, body: dict[str, Any]) -> None:
        reader = api.with_key(api.new_key(f"{scope}:read"))
        assert reader.ok("GET", path)
        error = reader.refused("POST", path, body, status=403)
        assert error["detail"] == f"API key missing required scope '{scope}:write'"
        assert api.with_key(api.new_key(f"{scope}:write")).ok("POST", path, body, status=201)

    @rule("1.3.2")
    def test_the_activity_log_has_a_scope(self, api: Api) -> None:
        assert api.with_key(api.new_key("activity_log:read")).ok("GET", "/activity_log/")
        api.with_key(api.new_key("experiment:write")).refused("GET", "/activity_log/", status=403)

    @rule("1.3.3")
    def test_several_scopes(self, api: Api) -> None:
        made = api.experiment(start_date="2026-01-01", end_date="2026-01-02")
        path = f"/experiments/{made['id']}/archive/"
        body = {"disable_feature_flag": True}
        flags_only = api.with_key(api.new_key("feature_flag:write"))
        assert "'experiment:write'" in flags_only.refused("POST", path, body, status=403)["detail"]
        experiments_only = api.with_key(api.new_key("experiment:write"))
        assert "'feature_flag:write'" in experiments_only.refused("POST", path, body, status=403)["detail"]

    @rule("1.3.4")
    @pytest.mark.parametrize("path", ["/experiment_saved_metrics/", "/experiment_holdouts/"])
    def test_either_scope(self, api: Api, path: str) -> None:
        own = path.strip("/").removesuffix("s")
        for scope in (f"{own}:read", "experiment:read"):
            assert api.with_key(api.new_key(scope)).ok("GET", path)
        api.with_key(api.new_key("feature_flag:read")).refused("GET", path, status=403)

    @rule("1.3.5")
    def test_an_experiment_writes_its_flag(self, api: Api) -> None:
        assert api.with_key(api.new_key("experiment:write")).experiment()["feature_flag"]["id"]


class TestOrderOfChecks:
    @rule("1.4.1")
    def test_unknown_paths(self, api: Api) -> None:
        error = api.with_key(None).refused("GET", "/nothing/", status=404)
        assert error["code"] == "endpoint_not_found"

    @rule("1.4.2")
    def test_key_scope_project_method(self, api: Api) -> None:
        nowhere = "/api/projects/999999/experiments/"
        assert api.with_key("phx_wrong").refused("PUT", nowhere, status=401)
        assert api.with_key(api.new_key("cohort:read")).refused("GET", nowhere, status=403)
        assert api.refused("PUT", nowhere, status=404)["detail"] == "Project not found."
        assert api.refused("PUT", "/experiments/", status=405)

    @rule("1.4.3")
    @pytest.mark.parametrize(
        ("path", "identifier"),
        [
            ("/experiments/", "999999"),
            ("/feature_flags/", "999999"),
            ("/experiment_holdouts/", "999999"),
            ("/experiment_saved_metrics/", "999999"),
            ("/cohorts/", "999999"),
            ("/actions/", "999999"),
            ("/hog_functions/", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
        ],
    )
    def test_method_body_object_values(self, api: Api, path: str, identifier: str) -> None:
        garbage = {"content": b"{", "headers": {"Content-Type": "application/json"}}
        assert api.refused("PUT", path, **garbage, status=405)
        assert api.refused("PATCH", f"{path}{identifier}/", **garbage)["code"] == "parse_error"
        assert api.refused("PATCH", f"{path}{identifier}/", {"name": []}, status=404)

    @rule("1.4.3")
    @pytest.mark.parametrize("action", ["end", "archive", "ship_variant", "duplicate", "copy_to_project"])
    def test_actions_look_for_the_experiment_first(self, api: Api, action: str) -> None:
        bad = {"conclusion": "x", "disable_feature_flag": "x", "name": [], "target_team_id": "x"}
        assert api.refused("POST", f"/experiments/999999/{action}/", bad, status=404)

    @rule("1.4.4")
    def test_objects_of_other_projects(self, api: Api, laboratory: Laboratory) -> None:
        made = laboratory.api().experiment()
        for path in (f"/experiments/{made['id']}/", f"/feature_flags/{made['feature_flag']['id']}/"):
            assert api.refused("GET", path, status=404)["detail"] == "Not found."


class TestThrottles:
    @rule("1.8.1", "1.8.2")
    def test_the_481st_request_of_a_minute(self, open_laboratory: Callable[..., Laboratory]) -> None:
        api = open_laboratory(rate_limit_enabled=True).api()
        other = api.with_key(api.new_key("*"))
        statuses = [api.call("GET", "/experiments/999/").status_code for _ in range(481)]
        assert set(statuses[:470]) == {404}
        refused = api.call("GET", "/experiments/999/")
        assert refused.status_code == 429
        assert refused.json()["code"] == "throttled"
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert other.ok("GET", "/experiments/")

    @rule("1.8.1")
    def test_off_by_default(self, api: Api) -> None:
        assert {api.call("GET", "/experiments/999/").status_code for _ in range(500)} == {404}
