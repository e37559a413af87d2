"""Keys, scopes, limits and the order of the checks (spec: experiments-api 1.2, 1.3, 1.4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.accounts.service import AccountService
from hoglab.http.identity import Level, scope_satisfied
from hoglab.http.management.access import key_from_header

WIDGETS = "/api/projects/1/widgets/"


def refused(response: Any, status: int, code: str, detail: str) -> None:
    kind = {401: "authentication_error", 403: "authentication_error"}.get(status, "invalid_request")
    assert (response.status_code, response.json()) == (
        status,
        {"type": kind, "code": code, "detail": detail, "attr": None},
    )


def unauthenticated(response: Any) -> None:
    refused(response, 401, "not_authenticated", "Authentication credentials were not provided.")
    assert response.headers["WWW-Authenticate"] == "Bearer"


def bad_key(response: Any, place: str) -> None:
    refused(response, 401, "authentication_failed", f"Personal API key found in request {place} is invalid.")
    assert response.headers["WWW-Authenticate"] == "Bearer"


class TestPlaceOfTheKey:
    def test_token_of_a_project(self, client: Any) -> None:
        for headers in (
            {"Authorization": "Bearer phc_" + "a" * 40},
            {"Authorization": "Bearer phx_" + "a" * 40},
        ):
            response = client.with_key(None).get(WIDGETS, headers=headers)
            assert response.status_code == 401
            assert ("is a project token" in response.json()["detail"]) is ("phc_" in headers["Authorization"])
        assert (
            "hoglab keys create"
            in client.with_key(None).get(f"{WIDGETS}?personal_api_key=phc_1").json()["detail"]
        )

    def test_no_key(self, client: Any) -> None:
        unauthenticated(client.with_key(None).get(WIDGETS))

    def test_header(self, client: Any) -> None:
        assert client.get(WIDGETS).status_code == 200

    @pytest.mark.parametrize("form", ["Bearer   {}", "Bearer {}  ", "Bearer\t{}"])
    def test_several_blanks_may_follow_the_word(self, client: Any, form: str) -> None:
        header = {"Authorization": form.format(client.key)}
        assert client.with_key(None).get(WIDGETS, headers=header).status_code == 200

    @pytest.mark.parametrize("form", ["bearer {}", "BEARER {}", "Token {}", "{}", "Bearer", "Bearer "])
    def test_other_words_are_no_key(self, client: Any, form: str) -> None:
        header = {"Authorization": form.format(client.key)}
        unauthenticated(client.with_key(None).get(WIDGETS, headers=header))

    def test_json_body(self, client: Any) -> None:
        body = {"personal_api_key": client.key, "name": "x"}
        assert client.with_key(None).post(WIDGETS, json=body).status_code == 201

    def test_json_body_of_a_get(self, client: Any) -> None:
        response = client.with_key(None).request("GET", WIDGETS, json={"personal_api_key": client.key})
        assert response.status_code == 200

    def test_form_body(self, client: Any) -> None:
        body = {"personal_api_key": client.key, "name": "x"}
        assert client.with_key(None).post(WIDGETS, data=body).status_code == 201

    def test_multipart_body(self, client: Any) -> None:
        fields = {"personal_api_key": (None, client.key), "name": (None, "x")}
        assert client.with_key(None).post(WIDGETS, files=fields).status_code == 201

    def test_query(self, client: Any) -> None:
        nobody = client.with_key(None)
        assert nobody.get(WIDGETS, params={"personal_api_key": client.key}).status_code == 200

    def test_first_place_wins(self, client: Any) -> None:
        wrong = client.with_key("phx_wrong")
        bad_key(wrong.get(WIDGETS, params={"personal_api_key": client.key}), "Authorization header")
        bad_key(wrong.post(WIDGETS, json={"personal_api_key": client.key}), "Authorization header")
        nobody = client.with_key(None)
        both = nobody.post(
            WIDGETS, json={"personal_api_key": "phx_wrong"}, params={"personal_api_key": client.key}
        )
        bad_key(both, "body")

    def test_wrong_key_in_the_query(self, client: Any) -> None:
        bad_key(client.with_key(None).get(WIDGETS, params={"personal_api_key": "phx_wrong"}), "query string")

    @pytest.mark.parametrize("key", [7, None, ["phx_a"], {"a": 1}, "", "  "])
    def test_a_body_key_that_is_no_text_is_no_key(self, client: Any, key: Any) -> None:
        unauthenticated(client.with_key(None).post(WIDGETS, json={"personal_api_key": key}))

    def test_unreadable_body_without_a_key_is_unauthenticated_first(self, client: Any) -> None:
        json_type = {"Content-Type": "application/json"}
        unauthenticated(client.with_key(None).post(WIDGETS, content=b"{", headers=json_type))
        query = {"personal_api_key": client.key}
        known = client.with_key(None).post(WIDGETS, content=b"{", headers=json_type, params=query)
        assert (known.status_code, known.json()["code"]) == (400, "parse_error")

    @given(st.text(st.characters(codec="latin-1"), max_size=60))
    def test_any_header_gives_a_key_or_none(self, value: str) -> None:
        key = key_from_header(value)
        assert key is None or (value.startswith("Bearer") and key == key.strip() and key in value)


class TestWhichKeys:
    def test_unknown_key(self, client: Any) -> None:
        bad_key(client.with_key("phx_" + "a" * 43).get(WIDGETS), "Authorization header")

    def test_project_token(self, client: Any, first: Any) -> None:
        detail = client.with_key(first.project_token).get(WIDGETS).json()["detail"]
        assert detail.startswith(
            "Personal API key found in request Authorization header is invalid. It is a project token"
        )

    def test_revoked_key(self, client: Any, accounts: AccountService, new_key: Callable[..., str]) -> None:
        key = new_key()
        assert client.with_key(key).get(WIDGETS).status_code == 200
        accounts.revoke_key(accounts.keys()[0]["id"])
        bad_key(client.with_key(key).get(WIDGETS), "Authorization header")

    def test_expired_key(self, client: Any, accounts: AccountService, new_key: Callable[..., str]) -> None:
        key = new_key(expires_at=datetime.now(UTC) + timedelta(hours=1))
        assert client.with_key(key).get(WIDGETS).status_code == 200
        accounts.update_key(accounts.keys()[0]["id"], {"expires_at": datetime.now(UTC)})
        bad_key(client.with_key(key).get(WIDGETS), "Authorization header")

    def test_key_of_an_inactive_user(self, client: Any, accounts: AccountService) -> None:
        accounts.set_active(accounts.owner_id(), active=False)
        bad_key(client.get(WIDGETS), "Authorization header")
        accounts.set_active(accounts.owner_id(), active=True)
        assert client.get(WIDGETS).status_code == 200

    def test_key_with_odd_characters(self, client: Any) -> None:
        header = {"Authorization": b"Bearer phx_\xff\xfe"}
        bad_key(client.with_key(None).get(WIDGETS, headers=header), "Authorization header")
        nobody = client.with_key(None)
        bad_key(nobody.request("GET", WIDGETS + "?personal_api_key=%ff%00%ed%a0%80"), "query string")


class TestScopes:
    @pytest.mark.parametrize(
        ("wanted", "held", "satisfied"),
        [
            ("x:read", {"x:read"}, True),
            ("x:read", {"x:write"}, True),
            ("x:write", {"x:write"}, True),
            ("x:write", {"x:read"}, False),
            ("x:read", {"*"}, True),
            ("x:write", {"*"}, True),
            ("x:read", {"y:read", "y:write"}, False),
            ("x:read", set(), False),
        ],
    )
    def test_what_satisfies_what(self, wanted: str, held: set[str], satisfied: bool) -> None:
        assert scope_satisfied(wanted, frozenset(held)) is satisfied

    def test_missing_scope_is_named(self, client: Any, new_key: Callable[..., str]) -> None:
        key = client.with_key(new_key(["experiment:write"]))
        text = "API key missing required scope 'widget:{}'"
        refused(key.get(WIDGETS), 403, "permission_denied", text.format("read"))
        refused(key.post(WIDGETS, json={}), 403, "permission_denied", text.format("write"))
        refused(key.request("DELETE", WIDGETS + "1/"), 403, "permission_denied", text.format("write"))

    def test_write_implies_read(self, client: Any, new_key: Callable[..., str]) -> None:
        key = client.with_key(new_key(["widget:write"]))
        assert key.get(WIDGETS).status_code == 200
        reader = client.with_key(new_key(["widget:read"]))
        assert reader.get(WIDGETS).status_code == 200
        assert reader.post(WIDGETS, json={"name": "x"}).status_code == 403

    def test_several_are_checked_in_order(self, client: Any, new_key: Callable[..., str]) -> None:
        paint = WIDGETS + "1/paint/"
        text = "API key missing required scope '{}'"
        nothing = client.with_key(new_key(["experiment:read"]))
        refused(nothing.post(paint), 403, "permission_denied", text.format("widget:write"))
        half = client.with_key(new_key(["widget:write"]))
        refused(half.post(paint), 403, "permission_denied", text.format("paint:write"))
        assert client.with_key(new_key(["widget:write", "paint:write"])).post(paint).status_code == 200

    def test_either_of_two(self, client: Any, new_key: Callable[..., str]) -> None:
        colour = WIDGETS + "1/colour"
        assert client.with_key(new_key(["widget:read"])).get(colour).status_code == 200
        assert client.with_key(new_key(["colour:read"])).get(colour).status_code == 200
        refused(
            client.with_key(new_key(["paint:read"])).get(colour),
            403,
            "permission_denied",
            "API key missing required scope 'colour:read'",
        )

    def test_route_without_a_scope_takes_no_keys(self, client: Any) -> None:
        refused(
            client.get(WIDGETS + "1/session_only"),
            403,
            "permission_denied",
            "This action does not support personal API key access",
        )


class TestLimitsAndProjects:
    def test_key_limited_to_other_projects(self, client: Any, new_key: Callable[..., str]) -> None:
        key = client.with_key(new_key(scoped_projects=[1]))
        assert key.get(WIDGETS).status_code == 200
        text = "API key does not have access to the requested project: ID 7."
        refused(key.get("/api/projects/7/widgets/"), 403, "permission_denied", text)

    def test_key_limited_to_no_project(self, client: Any, new_key: Callable[..., str]) -> None:
        key = client.with_key(new_key(scoped_projects=[]))
        text = "API key does not have access to the requested project: ID 1."
        refused(key.get("/api/projects/@current/widgets/"), 403, "permission_denied", text)

    def test_key_limited_to_other_organizations(
        self, client: Any, accounts: AccountService, new_key: Callable[..., str]
    ) -> None:
        own = accounts.projects()[0].organization_id
        assert client.with_key(new_key(scoped_organizations=[own])).get(WIDGETS).status_code == 200
        key = client.with_key(new_key(scoped_organizations=[str(uuid4())]))
        text = f"API key does not have access to the requested organization: ID {own}."
        refused(key.get(WIDGETS), 403, "permission_denied", text)

    def test_project_of_others(self, client: Any, accounts: AccountService) -> None:
        other = accounts.create_project(accounts.create_organization("Others"), "Theirs")
        response = client.get(f"/api/projects/{other.id}/widgets/")
        refused(response, 403, "permission_denied", "You don't have access to the project.")

    def test_former_member(self, client: Any, accounts: AccountService) -> None:
        organization = accounts.create_organization("Others")
        other = accounts.create_project(organization, "Theirs")
        accounts.join(organization, accounts.owner_id())
        assert client.get(f"/api/projects/{other.id}/widgets/").status_code == 200
        assert accounts.leave(organization, accounts.owner_id())
        assert client.get(f"/api/projects/{other.id}/widgets/").status_code == 403

    @pytest.mark.parametrize(
        "segment",
        [
            "2",
            "0",
            "99999999999999999999999",
            "abc",
            "-1",
            "1.0",
            "@currently",
            "%20",
            "¹",
            "54cbfcb6-b5c7-4fc4-aef6-0bed4626ab22",
        ],
    )
    def test_missing_project(self, client: Any, segment: str) -> None:
        response = client.get(f"/api/projects/{segment}/widgets/")
        refused(response, 404, "not_found", "Project not found.")

    def test_current_project(self, client: Any, accounts: AccountService) -> None:
        response = client.get("/api/projects/@current/widgets/3/")
        assert (response.status_code, response.json()["project"]) == (200, 1)

    def test_no_current_project(self, client: Any, accounts: AccountService) -> None:
        user = accounts.create_user("a@example.com")
        key = accounts.create_key(user.id, "theirs", ["*"]).value
        response = client.with_key(key).get("/api/projects/@current/widgets/")
        refused(response, 404, "not_found", "Project not found.")

    def test_environments_is_an_alias(self, client: Any) -> None:
        for path in ("/api/environments/1/widgets", "/api/environments/@current/widgets/"):
            assert client.get(path).status_code == 200

    def test_limited_keys_stay_inside_projects(
        self, client: Any, accounts: AccountService, new_key: Callable[..., str]
    ) -> None:
        assert client.get("/api/things/").status_code == 200
        text = "API keys with scoped {}s are only supported on {}-based views."
        limited = client.with_key(new_key(scoped_projects=[1]))
        refused(limited.get("/api/things/"), 403, "permission_denied", text.format("project", "project"))
        assert limited.get("/api/things/open/").status_code == 200
        organization = accounts.projects()[0].organization_id
        limited = client.with_key(new_key(scoped_organizations=[organization]))
        refused(
            limited.get("/api/things/"), 403, "permission_denied", text.format("organization", "organization")
        )


class TestUserAccessLevel:
    def test_admins_and_creators_manage_others_edit(self, client: Any, accounts: AccountService) -> None:
        organization = accounts.projects()[0].organization_id
        levels = {}
        for level in Level:
            user = accounts.create_user(f"{level.name}@example.com")
            accounts.join(organization, user.id, level)
            key = client.with_key(accounts.create_key(user.id, "k", ["*"]).value)
            levels[level] = [key.get(f"{WIDGETS}{number}").json()["user_access_level"] for number in (1, 7)]
        assert levels == {
            Level.MEMBER: ["editor", "manager"],
            Level.ADMIN: ["manager", "manager"],
            Level.OWNER: ["manager", "manager"],
        }


class TestOrder:
    """Each check hides the ones after it."""

    def test_the_whole_chain(
        self, make_client: Any, accounts: AccountService, new_key: Callable[..., str]
    ) -> None:
        client = make_client()
        other = accounts.create_project(accounts.create_organization("Others"), "Theirs").id
        broken = {"content": b"{", "headers": {"Content-Type": "application/json"}}
        limited = client.with_key(new_key(["widget:read"], scoped_projects=[1]))
        reader = client.with_key(new_key(["widget:read"]))

        def answer(key: Any, method: str, path: str, **options: Any) -> tuple[int, str]:
            response = key.request(method, path, **options)
            return response.status_code, response.json()["code"]

        nobody = client.with_key(None)
        assert answer(nobody, "PATCH", "/api/nothing/x", **broken) == (404, "endpoint_not_found")
        assert answer(nobody, "PATCH", "/api/projects/9/widgets/", **broken) == (401, "not_authenticated")
        assert answer(limited, "POST", "/api/projects/9/widgets/", **broken) == (403, "permission_denied")
        # Limits come before the project itself, for a missing one must not be told from a forbidden one.
        assert answer(limited, "GET", "/api/projects/99/widgets/") == (403, "permission_denied")
        assert answer(reader, "GET", "/api/projects/99/widgets/x") == (404, "not_found")
        assert answer(reader, "PATCH", f"/api/projects/{other}/widgets/") == (403, "permission_denied")
        assert answer(reader, "PATCH", "/api/projects/1/widgets/", **broken) == (405, "method_not_allowed")
        assert answer(client, "PATCH", "/api/projects/1/widgets/nope/", **broken) == (400, "parse_error")
        assert answer(client, "PATCH", "/api/projects/1/widgets/nope/", json=[]) == (404, "not_found")
        assert answer(client, "PATCH", "/api/projects/1/widgets/99/", json=[]) == (404, "not_found")
        assert answer(client, "PATCH", "/api/projects/1/widgets/1/", json=[]) == (400, "invalid_input")
