"""Requests of PostHog's own tools, as the sources of their clients build them."""

from __future__ import annotations

import pytest
from tests.contract.conftest import Api

PROVIDER = {"User-Agent": "posthog/terraform-provider; version: 1.0.9", "Content-Type": "application/json"}


class TestProvider:
    """The Terraform provider, `internal/httpclient` of posthog/terraform-provider-posthog."""

    def organization_id(self, api: Api, configured: str) -> str:
        """Resolve what the configuration says, as `ResolveOrganizationID` does."""
        if configured == "@current":
            found: str = api.ok("GET", "/api/organizations/@current/", headers=PROVIDER)["id"]
            return found
        organizations = api.ok("GET", "/api/organizations/", headers=PROVIDER)["results"]
        [identifier] = [each["id"] for each in organizations if each["slug"] == configured]
        return str(identifier)

    @pytest.mark.parametrize("configured", ["@current", "slug"])
    def test_life_of_a_project(self, api: Api, configured: str) -> None:
        if configured == "slug":
            configured = api.ok("GET", "/api/organizations/@current/")["slug"]
        base = f"/api/organizations/{self.organization_id(api, configured)}/projects/"
        sent = {"name": "tf-acc-test", "timezone": "Europe/London"}
        created = api.ok("POST", base, sent, status=201, headers=PROVIDER)
        path = f"{base}{created['id']}/"
        assert api.ok("GET", path, headers=PROVIDER) == created
        assert {name: created[name] for name in sent} == sent
        updated = api.ok("PATCH", path, {"name": "tf-acc-test-updated"}, headers=PROVIDER)
        assert (updated["name"], updated["timezone"]) == ("tf-acc-test-updated", "Europe/London")
        assert updated["api_token"] == created["api_token"]
        assert api.call("DELETE", path, headers=PROVIDER).status_code == 204
        assert api.call("GET", path, headers=PROVIDER).status_code == 404
        late = {"api_key": created["api_token"], "batch": [{"event": "late", "distinct_id": "ann"}]}
        assert api.call("POST", "/batch/", late).status_code == 401
        again = api.ok("POST", base, sent, status=201, headers=PROVIDER)
        assert again["id"] != created["id"]

    def test_project_settings(self, api: Api) -> None:
        path = f"/api/environments/{api.project_id}/"
        every = {
            "heatmaps_opt_in": True,
            "autocapture_exceptions_opt_in": True,
            "session_recording_opt_in": True,
            "surveys_opt_in": True,
            "autocapture_web_vitals_opt_in": False,
            "cookieless_server_hash_mode": 0,
        }
        domains = {
            "app_urls": ["https://app.example.com", "https://www.example.com"],
            "recording_domains": ["https://app.example.com"],
        }
        for sent in (every, domains):
            changed = api.ok("PATCH", path, sent, headers=PROVIDER)
            assert changed == api.ok("GET", path, headers=PROVIDER)
        assert {name: changed[name] for name in (*every, *domains)} == every | domains

    def test_members(self, api: Api) -> None:
        members = api.ok("GET", "/api/organizations/@current/members/", headers=PROVIDER)["results"]
        me = api.ok("GET", "/api/users/@me/")
        levels = {member["user"]["uuid"]: member["level"] for member in members}
        assert levels[me["uuid"]] == 15


class TestToolkit:
    """The agent toolkit and MCP server, `typescript/src/api/client.ts` of PostHog/mcp."""

    def test_start(self, api: Api) -> None:
        """The state that `StateManager` takes before it offers tools: lists, not null, are what it measures."""
        key = api.ok("GET", "/api/personal_api_keys/@current")
        assert (key["scopes"], key["scoped_teams"], key["scoped_organizations"]) == (["*"], [], [])
        limited = api.with_key(api.new_key("*", scoped_teams=[api.project_id]))
        assert limited.ok("GET", "/api/personal_api_keys/@current")["scoped_teams"] == [api.project_id]
        me = api.ok("GET", "/api/users/@me/")
        assert me["team"]["organization"] == me["organization"]["id"]
        assert me["organization"]["id"] in {each["id"] for each in me["organizations"]}
        project = api.ok("GET", f"/api/projects/{api.project_id}/")
        assert project["organization"] == me["organization"]["id"]
