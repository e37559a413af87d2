"""The endpoints of accounts, keys and the activity log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.accounts.conftest import Clock

from hoglab.accounts import activity
from hoglab.accounts.service import SITE_SETTINGS, AccountService
from hoglab.http.identity import Level
from hoglab.storage.database import Database

Call = Callable[..., Any]
KEYS = "/api/personal_api_keys/"
PROJECT_KEYS = {
    "id",
    "uuid",
    "organization",
    "name",
    "api_token",
    "timezone",
    "test_account_filters",
    "person_display_name_properties",
    "anonymize_ips",
    "event_retention_days",
    *SITE_SETTINGS,
    "created_at",
    "updated_at",
    "user_access_level",
}


@pytest.fixture
def member(accounts: AccountService, owner: int) -> str:
    """The key of a plain member of the first organization."""
    user = accounts.create_user("member@example.com")
    accounts.join(accounts.projects()[0].organization_id, user.id, Level.MEMBER)
    return accounts.create_key(user.id, "theirs", ["*"]).value


class TestProjects:
    @pytest.mark.parametrize("path", ["/api/projects/1/", "/api/projects/@current", "/api/environments/1/"])
    def test_read(self, call: Call, first: Any, path: str) -> None:
        response = call("GET", path)
        body = response.json()
        assert response.status_code == 200
        assert set(body) == PROJECT_KEYS
        assert (body["id"], body["api_token"], body["timezone"]) == (1, first.project_token, "UTC")
        assert body["created_at"] == "2026-01-02T03:04:05Z"
        assert body["user_access_level"] == "manager"

    def test_list_shows_what_the_key_reaches(self, call: Call, accounts: AccountService, owner: int) -> None:
        organization = accounts.projects()[0].organization_id
        accounts.create_project(organization, "Second")
        accounts.create_project(accounts.create_organization("Others"), "Theirs")
        body = call("GET", "/api/projects/").json()
        assert (body["count"], [each["id"] for each in body["results"]]) == (2, [1, 2])
        page = call("GET", "/api/projects?limit=1&offset=1").json()
        assert [each["id"] for each in page["results"]] == [2]
        assert page["previous"] == "http://test/api/projects?limit=1"
        limited = accounts.create_key(owner, "l", ["*"], scoped_projects=[2]).value
        assert [each["id"] for each in call("GET", "/api/projects/", key=limited).json()["results"]] == [2]

    @pytest.mark.parametrize("organization", ["@current", "id"])
    def test_create(self, call: Call, accounts: AccountService, organization: str) -> None:
        if organization == "id":
            organization = accounts.projects()[0].organization_id
        response = call("POST", f"/api/organizations/{organization}/projects/", json={"name": " Shop "})
        body = response.json()
        assert response.status_code == 201
        assert set(body) == PROJECT_KEYS
        assert (body["id"], body["name"]) == (2, "Shop")
        assert body["api_token"].startswith("phc_")
        project = accounts.project_by_token(body["api_token"])
        assert project is not None
        assert project.id == 2
        assert call("GET", "/api/projects/2/").status_code == 200

    @pytest.mark.parametrize(
        ("body", "code", "attr"),
        [
            ({}, "required", "name"),
            ({"name": ""}, "blank", "name"),
            ({"name": "x" * 201}, "max_length", "name"),
            ({"name": "x", "timezone": "Mars/Olympus"}, "invalid_input", "timezone"),
        ],
    )
    def test_create_refusals(self, call: Call, body: Any, code: str, attr: str) -> None:
        response = call("POST", "/api/organizations/@current/projects/", json=body)
        assert response.status_code == 400
        assert (response.json()["code"], response.json()["attr"]) == (code, attr)

    def test_update(self, call: Call, accounts: AccountService, clock: Any) -> None:
        clock.advance(60)
        filters = [{"key": "email", "value": "@example.com", "operator": "not_icontains", "type": "person"}]
        changes = {
            "name": "Shop",
            "timezone": "Asia/Tokyo",
            "test_account_filters": filters,
            "anonymize_ips": "yes",
            "person_display_name_properties": ["name"],
            "api_token": "phc_ignored",
        }
        body = call("PATCH", "/api/projects/@current/", json=changes).json()
        assert {name: body[name] for name in list(changes)[:3]} == {
            "name": "Shop",
            "timezone": "Asia/Tokyo",
            "test_account_filters": filters,
        }
        assert body["anonymize_ips"] is True
        assert body["person_display_name_properties"] == ["name"]
        assert body["api_token"] != "phc_ignored"
        assert body["updated_at"] == "2026-01-02T03:05:05Z"
        project = accounts.project(1)
        assert project is not None
        assert project.anonymize_ips
        unchanged = call("PATCH", "/api/projects/1/", json={}).json()
        assert unchanged["name"] == "Shop"

    def test_update_refusals(self, call: Call) -> None:
        response = call("PATCH", "/api/projects/1/", json={"test_account_filters": ["x"]})
        assert response.json()["attr"] == "test_account_filters__0"
        assert call("PATCH", "/api/projects/1/", json={"timezone": "x"}).json()["attr"] == "timezone"
        assert call("PATCH", "/api/projects/1/", json={"name": None}).json()["code"] == "null"

    def test_members_may_not_change_or_create(self, call: Call, member: str) -> None:
        for method, path in (
            ("PATCH", "/api/projects/1/"),
            ("POST", "/api/organizations/@current/projects/"),
        ):
            response = call(method, path, key=member, json={"name": "x"})
            assert (response.status_code, response.json()["code"]) == (403, "permission_denied")
            assert response.json()["detail"] == "You do not have manager access to this resource."

    def test_limited_keys_may_not_create(self, call: Call, accounts: AccountService, owner: int) -> None:
        key = accounts.create_key(owner, "l", ["*"], scoped_projects=[1]).value
        path = "/api/organizations/@current/projects/"
        assert call("POST", path, key=key, json={"name": "x"}).status_code == 403

    def test_the_last_project_is_not_deleted(self, call: Call, accounts: AccountService) -> None:
        response = call("DELETE", "/api/projects/1/")
        assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
        others = accounts.create_organization("Others")
        accounts.create_project(others, "Theirs")
        assert call("DELETE", "/api/projects/1/").status_code == 400
        assert call("GET", "/api/projects/1/").status_code == 200

    def test_delete(self, call: Call, database: Database, accounts: AccountService) -> None:
        organization = accounts.projects()[0].organization_id
        project = accounts.create_project(organization, "Second")
        assert call("DELETE", "/api/projects/2/").status_code == 204
        for path in ("/api/projects/2/", f"/api/organizations/{organization}/projects/2/"):
            for method in ("GET", "PATCH", "DELETE"):
                assert call(method, path).status_code == 404
        assert [each["id"] for each in call("GET", "/api/projects/").json()["results"]] == [1]
        assert [each["id"] for each in call("GET", "/api/users/@me/").json()["organization"]["projects"]] == [
            1
        ]
        for service in (accounts, AccountService(database)):
            assert (service.project(2), service.project_by_token(project.api_token)) == (None, None)
        with pytest.raises(LookupError):
            accounts.update_project(2, {"name": "x"})
        assert accounts.create_project(organization, "Third").id == 3

    def test_members_may_not_delete(self, call: Call, accounts: AccountService, member: str) -> None:
        organization = accounts.projects()[0].organization_id
        accounts.create_project(organization, "Second")
        for path in ("/api/projects/2/", f"/api/organizations/{organization}/projects/2/"):
            assert call("DELETE", path, key=member).status_code == 403
        assert accounts.project(2) is not None

    def test_of_an_organization(self, call: Call, accounts: AccountService, owner: int) -> None:
        organization = accounts.projects()[0].organization_id
        others = accounts.create_organization("Others")
        accounts.create_project(organization, "Second")
        theirs = accounts.create_project(others, "Theirs")
        path = f"/api/organizations/{organization}/projects"
        assert call("GET", f"{path}/2/").json() == call("GET", "/api/projects/2/").json()
        assert call("GET", f"{path}/@current/").json()["id"] == 1
        assert call("PATCH", f"{path}/2/", json={"name": "Shop"}).json()["name"] == "Shop"
        assert call("GET", f"{path}/{theirs.id}/").status_code == 404
        assert call("GET", f"/api/organizations/{others}/projects/{theirs.id}/").status_code == 404
        limited = accounts.create_key(owner, "l", ["*"], scoped_projects=[1]).value
        assert call("GET", f"{path}/1/", key=limited).status_code == 200
        assert call("DELETE", f"{path}/2/", key=limited).status_code == 403

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("app_urls", ["https://b.example.com", "https://a.example.com"]),
            ("recording_domains", ["https://app.example.com"]),
            ("session_recording_opt_in", True),
            ("cookieless_server_hash_mode", 2),
            *((name, True) for name, default in SITE_SETTINGS.items() if default is None and "opt" in name),
        ],
    )
    def test_settings_of_other_products_are_kept(self, call: Call, name: str, value: Any) -> None:
        call("PATCH", "/api/environments/1/", json={"event_retention_days": 30})
        assert call("GET", "/api/environments/1/").json()[name] == SITE_SETTINGS[name]
        changed = call("PATCH", "/api/environments/1/", json={name: value}).json()
        assert "warnings" not in changed
        read = call("GET", "/api/environments/1/").json()
        assert read == changed
        assert (read[name], read["event_retention_days"]) == (value, 30)

    def test_unknown_settings_are_told(self, call: Call) -> None:
        changed = call("PATCH", "/api/projects/1/", json={"capture_dead_clicks": True}).json()
        assert [warning["attr"] for warning in changed["warnings"]] == ["capture_dead_clicks"]
        created = call("POST", KEYS, json={"label": "k", "scopes": ["*"], "colour": "red"}).json()
        assert [warning["attr"] for warning in created["warnings"]] == ["colour"]


class TestOrganizationsAndUsers:
    def test_members(self, call: Call, accounts: AccountService, member: str) -> None:
        organization = accounts.projects()[0].organization_id
        body = call("GET", f"/api/organizations/{organization}/members/").json()
        assert body["count"] == 2
        assert [each["level"] for each in body["results"]] == [15, 1]
        assert body["results"][1]["user"]["email"] == "member@example.com"
        assert len({each["id"] for each in body["results"]}) == 2
        assert body == call("GET", "/api/organizations/@current/members/", key=member).json()

    @pytest.mark.parametrize("name", ["roles", "invites"])
    def test_lists_that_are_empty_here(self, call: Call, accounts: AccountService, name: str) -> None:
        page = {"count": 0, "next": None, "previous": None, "results": []}
        assert call("GET", f"/api/organizations/@current/{name}/").json() == page
        others = accounts.create_organization("Others")
        assert call("GET", f"/api/organizations/{others}/{name}/").status_code == 404
        assert call("POST", f"/api/organizations/@current/{name}/", json={"name": "x"}).status_code == 405

    def test_organization(self, call: Call, accounts: AccountService) -> None:
        organization = accounts.projects()[0].organization_id
        body = call("GET", "/api/organizations/@current/").json()
        assert body == call("GET", f"/api/organizations/{organization}").json()
        assert set(body) == {"id", "name", "slug", "created_at", "membership_level", "projects"}
        assert body["slug"].endswith(f"-{organization[:8]}")
        assert (body["id"], body["membership_level"]) == (organization, 15)
        assert [project["id"] for project in body["projects"]] == [1]
        assert [project["timezone"] for project in body["projects"]] == ["UTC"]
        assert call("GET", "/api/organizations/").json()["results"] == [body]
        projects = call("GET", "/api/organizations/@current/projects/").json()
        assert projects["count"] == 1

    def test_organizations_of_others_are_not_there(self, call: Call, accounts: AccountService) -> None:
        other = accounts.create_organization("Others")
        for segment in (other, str(uuid4()), "abc"):
            for path in ("", "projects/"):
                response = call("GET", f"/api/organizations/{segment}/{path}")
                assert (response.status_code, response.json()["detail"]) == (404, "Organization not found.")

    def test_keys_limited_to_organizations(self, call: Call, accounts: AccountService, owner: int) -> None:
        first = accounts.projects()[0].organization_id
        second = accounts.create_organization("Second")
        accounts.join(second, owner)
        key = accounts.create_key(owner, "l", ["*"], scoped_organizations=[second]).value
        response = call("GET", f"/api/organizations/{first}/", key=key)
        text = f"API key does not have access to the requested organization: ID {first}."
        assert (response.status_code, response.json()["detail"]) == (403, text)
        assert call("GET", f"/api/organizations/{second}/", key=key).status_code == 200
        listed = call("GET", "/api/organizations/", key=key).json()["results"]
        assert [each["id"] for each in listed] == [second]
        assert call("GET", "/api/projects/", key=key).json()["results"] == []

    def test_me(self, call: Call, accounts: AccountService, owner: int) -> None:
        body = call("GET", "/api/users/@me/").json()
        assert body["id"] == owner
        assert body["email"] == "owner@localhost"
        assert body["team"]["id"] == 1
        assert body["organization"]["id"] == body["organizations"][0]["id"]
        assert body["hedgehog_config"] is None

    def test_me_without_anything(self, call: Call, accounts: AccountService, first: Any) -> None:
        user = accounts.create_user("new@example.com")
        key = accounts.create_key(user.id, "k", ["user:read"]).value
        body = call("GET", "/api/users/@me/", key=key).json()
        assert (body["team"], body["organization"], body["organizations"]) == (None, None, [])
        assert call("GET", "/api/organizations/@current/", key=key).status_code == 403
        wide = accounts.create_key(user.id, "k", ["*"]).value
        assert call("GET", "/api/organizations/@current/", key=wide).status_code == 404


class TestKeys:
    def test_life_of_a_key(self, call: Call, accounts: AccountService) -> None:
        made = call("POST", KEYS, json={"label": "ci", "scopes": ["experiment:read", "user:read"]})
        body = made.json()
        assert made.status_code == 201
        assert made.headers["Cache-Control"] == "no-store"
        assert body["value"].startswith("phx_")
        assert body["mask_value"] == f"phx_...{body['value'][-4:]}"
        assert body["scopes"] == ["experiment:read", "user:read"]
        assert (body["scoped_teams"], body["scoped_organizations"], body["expires_at"]) == (None, None, None)
        one = KEYS + body["id"]

        read = call("GET", one).json()
        assert read == {**body, "value": None}
        listed = call("GET", KEYS).json()
        assert [each["label"] for each in listed] == ["ci", "First key"]
        assert {each["value"] for each in listed} == {None}

        assert call("GET", "/api/users/@me/", key=body["value"]).status_code == 200
        rolled = call("POST", one + "/roll/").json()
        assert rolled["value"] not in (None, body["value"])
        assert call("GET", "/api/users/@me/", key=body["value"]).status_code == 401
        assert call("GET", "/api/users/@me/", key=rolled["value"]).status_code == 200

        changed = call("PATCH", one, json={"label": "ci 2", "scopes": ["experiment:read"]}).json()
        assert (changed["label"], changed["scopes"], changed["value"]) == ("ci 2", ["experiment:read"], None)
        assert call("GET", "/api/users/@me/", key=rolled["value"]).status_code == 403

        assert call("DELETE", one).status_code == 204
        assert call("DELETE", one).status_code == 404
        assert call("GET", "/api/users/@me/", key=rolled["value"]).status_code == 401

    def test_a_key_reads_what_it_may_itself(self, call: Call) -> None:
        """PostHog's agent toolkit offers the tools whose scopes it finds here, with any key."""
        for scopes, limits in ((["feature_flag:read"], {"scoped_teams": [1]}), (["*"], {})):
            created = call("POST", KEYS, json={"label": "tool", "scopes": scopes, **limits})
            current = call("GET", KEYS + "@current", key=created.json()["value"])
            assert current.status_code == 200, current.text
            assert current.json() == {
                **created.json(),
                "value": None,
                "scoped_teams": limits.get("scoped_teams", []),  # the toolkit takes lists alone
                "scoped_organizations": [],
                "last_used_at": current.json()["last_used_at"],
            }

    def test_limits(self, call: Call, accounts: AccountService, clock: Any) -> None:
        organization = accounts.projects()[0].organization_id
        expires_at = clock.now + timedelta(days=1)
        body = {
            "label": "limited",
            "scopes": ["project:read"],
            "scoped_teams": [1],
            "scoped_organizations": [organization],
            "expires_at": expires_at.isoformat(),
        }
        made = call("POST", KEYS, json=body).json()
        assert (made["scoped_teams"], made["scoped_organizations"]) == ([1], [organization])
        assert made["expires_at"] == "2026-01-03T03:04:05Z"
        assert call("GET", "/api/projects/1/", key=made["value"]).status_code == 200
        clock.advance(86_400)
        assert call("GET", "/api/projects/1/", key=made["value"]).status_code == 401
        opened = call("PATCH", KEYS + made["id"], json={"scoped_teams": None}).json()
        assert (opened["scoped_teams"], opened["scoped_organizations"]) == (None, [organization])

    @pytest.mark.parametrize(
        ("changes", "code", "attr"),
        [
            ({"label": None}, "null", "label"),
            ({"label": "x" * 41}, "max_length", "label"),
            ({"scopes": []}, "invalid_input", "scopes"),
            ({"scopes": ["nonsense"]}, "invalid_input", "scopes"),
            ({"scopes": "experiment:read"}, "not_a_list", "scopes"),
            ({"scopes": [5, None]}, "null", "scopes__1"),
            ({"scoped_teams": [99]}, "does_not_exist", "scoped_teams"),
            ({"scoped_teams": ["x"]}, "incorrect_type", "scoped_teams__0"),
            ({"scoped_organizations": [str(uuid4())]}, "does_not_exist", "scoped_organizations"),
            ({"expires_at": "2020-01-01"}, "invalid_input", "expires_at"),
        ],
    )
    def test_refusals(self, call: Call, changes: Any, code: str, attr: str) -> None:
        response = call("POST", KEYS, json={"label": "x", "scopes": ["project:read"], **changes})
        assert response.status_code == 400
        assert (response.json()["code"], response.json()["attr"]) == (code, attr)

    def test_a_key_hands_on_no_more_than_it_has(
        self, call: Call, accounts: AccountService, owner: int
    ) -> None:
        scopes = ["personal_api_key:write", "experiment:write"]
        key = accounts.create_key(owner, "narrow", scopes).value
        good = call("POST", KEYS, key=key, json={"label": "x", "scopes": ["experiment:read"]})
        assert good.status_code == 201
        for scope in ("*", "project:read"):
            response = call("POST", KEYS, key=key, json={"label": "x", "scopes": [scope]})
            assert (response.status_code, response.json()["code"]) == (403, "permission_denied")
        wider = KEYS + good.json()["id"]
        assert call("PATCH", wider, key=key, json={"scopes": ["*"]}).status_code == 403
        first_key = accounts.keys()[-1]["id"]
        assert call("POST", f"{KEYS}{first_key}/roll", key=key).status_code == 403
        assert call("PATCH", f"{KEYS}{first_key}", key=key, json={"label": "x"}).status_code == 403

    def test_a_key_hands_on_no_more_time_than_it_has(
        self, call: Call, accounts: AccountService, owner: int, clock: Clock
    ) -> None:
        soon, later = clock.now + timedelta(seconds=6), clock.now + timedelta(seconds=7)
        key = accounts.create_key(owner, "short", ["*"], expires_at=soon)
        eternal = accounts.create_key(owner, "eternal", ["experiment:read"]).id
        longer = accounts.create_key(owner, "longer", ["experiment:read"], expires_at=later).id
        shorter = accounts.create_key(owner, "shorter", ["experiment:read"], expires_at=soon).id
        wanted = {"label": "x", "scopes": ["experiment:read"]}
        for expires_at in (None, later.isoformat()):
            answer = call("POST", KEYS, key=key.value, json={**wanted, "expires_at": expires_at})
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
        made = call("POST", KEYS, key=key.value, json={**wanted, "expires_at": soon.isoformat()})
        assert made.status_code == 201
        for other, status in ((eternal, 403), (longer, 403), (shorter, 200)):
            assert call("PATCH", KEYS + other, key=key.value, json={"label": "y"}).status_code == status
            assert call("POST", f"{KEYS}{other}/roll", key=key.value).status_code == status
            deleted = call("DELETE", KEYS + other, key=key.value).status_code
            assert deleted == (204 if status == 200 else 403)

    @pytest.mark.parametrize(
        "held", [["personal_api_key:write"], ["personal_api_key:write", "experiment:read"]]
    )
    @pytest.mark.parametrize(
        "others", [["*"], ["experiment:write"], ["personal_api_key:write", "query:read"]]
    )
    def test_a_key_changes_no_stronger_one(
        self, call: Call, accounts: AccountService, owner: int, held: list[str], others: list[str]
    ) -> None:
        key = accounts.create_key(owner, "weak", held)
        stronger = accounts.create_key(owner, "strong", others)
        path = KEYS + stronger.id
        ways = [
            ("PATCH", path, {"label": "x"}),
            ("PATCH", path, {"scopes": held}),
            ("PATCH", path, {"scoped_teams": []}),
            ("POST", f"{path}/roll", None),
            ("DELETE", path, None),
        ]
        for method, where, body in ways:
            answer = call(method, where, key=key.value, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
        [kept] = accounts.personal_keys(owner, stronger.id)
        assert (kept["label"], kept["scopes"], kept["scoped_projects"]) == ("strong", others, None)
        assert accounts.authenticate(stronger.value) is not None
        assert call("PATCH", KEYS + key.id, key=key.value, json={"label": "mine"}).status_code == 200
        assert call("DELETE", KEYS + key.id, key=key.value).status_code == 204

    def test_limited_keys_do_not_touch_keys(self, call: Call, accounts: AccountService, owner: int) -> None:
        limited = accounts.create_key(owner, "l", ["*"], scoped_projects=[1]).value
        assert call("GET", KEYS, key=limited).status_code == 403
        assert call("POST", KEYS, key=limited, json={"label": "x", "scopes": ["*"]}).status_code == 403

    def test_keys_of_others_are_not_there(self, call: Call, accounts: AccountService, member: str) -> None:
        first_key = accounts.keys()[-1]["id"]
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/roll")):
            response = call(method, f"{KEYS}{first_key}{path}", key=member)
            assert (response.status_code, response.json()["code"]) == (404, "not_found")
        assert [each["label"] for each in call("GET", KEYS, key=member).json()] == ["theirs"]


class TestActivity:
    @pytest.fixture
    def entries(self, database: Database, owner: int) -> None:
        started_at = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(5):
            with database.write() as tx:
                change = activity.change("Experiment", "name", None if number == 0 else "a", "b")
                activity.record(
                    tx,
                    1,
                    owner if number else None,
                    "updated" if number else "created",
                    "Experiment" if number < 4 else "FeatureFlag",
                    12 if number < 3 else 13,
                    {"name": f"entry {number}", "changes": [change]},
                    now=started_at + timedelta(hours=number),
                )

    @staticmethod
    def names(response: Any) -> list[str]:
        return [entry["detail"]["name"] for entry in response.json()["results"]]

    @pytest.mark.usefixtures("entries")
    def test_form(self, call: Call) -> None:
        body = call("GET", "/api/projects/1/activity_log/?scope=Experiment&item_id=12&limit=1").json()
        assert body["count"] == 3
        assert body["next"] == (
            "http://test/api/projects/1/activity_log/?item_id=12&limit=1&offset=1&scope=Experiment"
        )
        [entry] = body["results"]
        assert list(entry) == [
            "id",
            "user",
            "activity",
            "scope",
            "item_id",
            "detail",
            "created_at",
            "is_system",
            "was_impersonated",
            "unread",
        ]
        assert entry["user"]["email"] == "owner@localhost"
        assert (entry["activity"], entry["scope"], entry["item_id"]) == ("updated", "Experiment", "12")
        assert entry["detail"] == {
            "id": None,
            "changes": [
                {"type": "Experiment", "action": "changed", "field": "name", "before": "a", "after": "b"}
            ],
            "merge": None,
            "trigger": None,
            "name": "entry 2",
            "short_id": None,
            "type": None,
        }
        assert entry["created_at"] == "2026-01-01T02:00:00Z"
        assert (entry["is_system"], entry["was_impersonated"], entry["unread"]) == (False, False, False)

    @pytest.mark.usefixtures("entries")
    @pytest.mark.parametrize(
        ("query", "numbers"),
        [
            ("", [4, 3, 2, 1, 0]),
            ("?scope=FeatureFlag", [4]),
            ("?scopes=FeatureFlag,Experiment", [4, 3, 2, 1, 0]),
            ("?item_id=13", [4, 3]),
            ("?scope=Experiment&item_id=13", [3]),
            ("?limit=2&offset=1", [3, 2]),
            ("?scope=Nothing", []),
            ("?user=00000000-0000-0000-0000-000000000000", []),
        ],
    )
    def test_filters(self, call: Call, query: str, numbers: list[int]) -> None:
        wanted = [f"entry {number}" for number in numbers]
        assert self.names(call("GET", "/api/projects/1/activity_log" + query)) == wanted

    @pytest.mark.usefixtures("entries")
    def test_by_user_and_by_the_server_itself(self, call: Call, accounts: AccountService, owner: int) -> None:
        uuid = accounts.users([owner])[owner].uuid
        mine = call("GET", f"/api/projects/1/activity_log/?user={uuid}")
        assert mine.json()["count"] == 4
        own = call("GET", "/api/projects/1/activity_log/?offset=4").json()["results"][0]
        assert (own["user"], own["is_system"]) == (None, True)

    @pytest.mark.usefixtures("entries")
    def test_projects_do_not_see_each_other(self, call: Call, accounts: AccountService) -> None:
        other = accounts.create_project(accounts.projects()[0].organization_id, "Second")
        assert call("GET", f"/api/projects/{other.id}/activity_log/").json()["count"] == 0

    def test_rolls_back_with_the_change(self, database: Database, call: Call, owner: int) -> None:
        def change() -> None:
            with database.write() as tx:
                activity.record(tx, 1, owner, "created", "Experiment", 1, {"name": "x"})
                raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            change()
        assert call("GET", "/api/projects/1/activity_log/").json()["count"] == 0

    def test_scope(self, call: Call, accounts: AccountService, owner: int) -> None:
        key = accounts.create_key(owner, "k", ["experiment:write"]).value
        response = call("GET", "/api/projects/1/activity_log/", key=key)
        assert response.json()["detail"] == "API key missing required scope 'activity_log:read'"


def test_reference_of_the_room(call: Call) -> None:
    document = call("GET", "/api/schema/").json()
    created = document["paths"]["/api/personal_api_keys/"]["post"]["responses"]["201"]
    assert created["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/KeyOut"}
    assert "value" in document["components"]["schemas"]["KeyOut"]["properties"]


class TestProjectSecretKeys:
    ROTATE = "/api/projects/1/rotate_secret_token/"

    def test_rotation_keeps_one_backup(self, call: Call, accounts: AccountService) -> None:
        first = call("PATCH", self.ROTATE).json()
        assert set(first) == PROJECT_KEYS | {"secret_api_token", "secret_api_token_backup"}
        assert first["secret_api_token"].startswith("phs_")
        assert first["secret_api_token_backup"] is None
        second = call("PATCH", self.ROTATE).json()
        assert second["secret_api_token_backup"] == f"phs_...{first['secret_api_token'][-4:]}"
        third = call("PATCH", self.ROTATE).json()
        assert accounts.authenticate(first["secret_api_token"]) is None
        for still_good in (second, third):
            principal = accounts.authenticate(still_good["secret_api_token"])
            assert principal is not None
            assert (principal.scopes, principal.scoped_projects) == ({"feature_flag:read"}, {1})
        assert call("PATCH", "/api/projects/1/delete_secret_token_backup/").status_code == 200
        assert accounts.authenticate(second["secret_api_token"]) is None
        assert accounts.authenticate(third["secret_api_token"]) is not None

    def test_only_admins_rotate(self, call: Call, member: str) -> None:
        assert call("PATCH", self.ROTATE, key=member).status_code == 403

    @pytest.mark.parametrize("way", ["rotate_secret_token", "delete_secret_token_backup"])
    def test_a_key_hands_on_no_more_than_it_has(
        self, call: Call, accounts: AccountService, owner: int, clock: Clock, way: str
    ) -> None:
        first = call("PATCH", self.ROTATE).json()["secret_api_token"]
        second = call("PATCH", self.ROTATE).json()["secret_api_token"]
        soon = clock.now + timedelta(hours=1)
        weak = [
            accounts.create_key(owner, "short", ["*"], expires_at=soon),
            accounts.create_key(owner, "narrow", ["project:write"]),
            accounts.create_key(owner, "both", ["project:write", "feature_flag:read"], expires_at=soon),
        ]
        for key in weak:
            answer = call("PATCH", f"/api/projects/1/{way}/", key=key.value)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
        for secret in (first, second):
            assert accounts.authenticate(secret) is not None
        enough = accounts.create_key(owner, "enough", ["project:write", "feature_flag:read"])
        assert call("PATCH", f"/api/projects/1/{way}/", key=enough.value).status_code == 200

    def test_a_secret_key_opens_nothing_but_flags(self, call: Call) -> None:
        key = call("PATCH", self.ROTATE).json()["secret_api_token"]
        assert call("GET", "/api/projects/1/", key=key).status_code == 403
        assert call("PATCH", self.ROTATE, key=key).status_code == 403
        assert call("GET", KEYS, key=key).status_code == 403

    def test_a_secret_key_is_no_personal_key(self, call: Call, accounts: AccountService) -> None:
        """As one it could be rolled into another kind, or be given more scopes."""
        before = call("GET", KEYS).json()
        secret = call("PATCH", self.ROTATE).json()["secret_api_token"]
        assert call("GET", KEYS).json() == before
        address = f"{KEYS}{accounts.secret_keys(1)[0]['id']}/"
        for method, path, body in (
            ("GET", address, None),
            ("PATCH", address, {"scopes": ["*"]}),
            ("POST", f"{address}roll/", {}),
            ("DELETE", address, None),
        ):
            assert call(method, path, json=body).status_code == 404
        assert accounts.authenticate(secret) is not None
