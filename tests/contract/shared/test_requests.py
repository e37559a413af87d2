"""Paths, bodies and answers (rules 1.1, 1.5, 1.6, 1.7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import OWNER_KEY, Api
from tests.contract.rules import rule

PATHS = [
    "/experiments/",
    "/experiment_holdouts/",
    "/experiment_saved_metrics/",
    "/feature_flags/",
    "/cohorts/",
]
DATETIME = (
    "Datetime has wrong format. Use one of these formats instead: "
    "YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z]."
)
MINIMAL = {"name": "Button", "feature_flag_key": "button"}


class TestPaths:
    @rule("1.1.1")
    @pytest.mark.parametrize("path", [*PATHS, "/actions/", "/hog_functions/", "/activity_log/"])
    def test_the_slash_is_optional(self, api: Api, path: str) -> None:
        with_slash, without = api.call("GET", path), api.call("GET", path.rstrip("/"))
        assert (with_slash.status_code, without.status_code) == (200, 200)
        assert with_slash.json()["results"] == without.json()["results"]

    @rule("1.1.2")
    def test_environments_are_projects(self, api: Api) -> None:
        made = api.experiment()
        alias = f"/api/environments/{api.project_id}/experiments/{made['id']}/"
        assert api.ok("GET", alias) == api.ok("GET", f"/experiments/{made['id']}/")
        assert api.ok("PATCH", alias, {"name": "Other"})["name"] == "Other"

    @rule("1.1.3")
    def test_names_of_projects(self, api: Api) -> None:
        assert api.ok("GET", "/api/projects/@current/experiments/")["count"] >= 0
        for segment in ("abc", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22", "-1", "9" * 30, "1.0", "999999"):
            error = api.refused("GET", f"/api/projects/{segment}/experiments/", status=404)
            assert (error["code"], error["detail"]) == ("not_found", "Project not found.")

    @rule("1.1.4")
    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("identifier", ["abc", "-1", "1.5", "9" * 40, "0x1", "%00"])
    def test_ids_that_are_none(self, api: Api, path: str, identifier: str) -> None:
        error = api.refused("GET", f"{path}{identifier}/", status=404)
        assert (error["type"], error["detail"]) == ("invalid_request", "Not found.")

    @rule("1.1.9")
    def test_head_and_options(self, api: Api) -> None:
        head, get = api.call("HEAD", "/experiments/"), api.call("GET", "/experiments/")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
        options = api.call("OPTIONS", "/experiments/")
        assert (options.status_code, options.headers["allow"]) == (200, "GET, POST, HEAD, OPTIONS")


class TestBodies:
    @rule("1.1.5")
    def test_forms(self, api: Api) -> None:
        urlencoded = api.call("POST", "/experiments/", data={**MINIMAL, "archived": "yes"})
        assert (urlencoded.status_code, urlencoded.json()["archived"]) == (201, True)
        files = {"name": (None, "Form"), "feature_flag_key": (None, "multipart"), "metrics": (None, "[]")}
        multipart = api.call("POST", "/experiments/", files=files)
        assert multipart.status_code == 201, multipart.text
        assert multipart.json()["metrics"] == []

    @rule("1.1.5", "1.5.3")
    def test_other_content_types(self, api: Api) -> None:
        answer = api.refused(
            "POST", "/experiments/", content="{}", headers={"Content-Type": "text/plain"}, status=415
        )
        assert answer["code"] == "unsupported_media_type"
        assert answer["detail"] == 'Unsupported media type "text/plain" in request.'

    @rule("1.1.6")
    def test_json_is_compact_and_not_escaped(self, api: Api) -> None:
        api.experiment(name="Größe 😀")
        content = api.call("GET", "/experiments/").content
        assert "Größe 😀".encode() in content
        assert b'"count":1,"next":null' in content

    @rule("1.1.6")
    def test_numbers_beyond_json_are_refused_on_the_way_in(self, api: Api) -> None:
        for number in ("NaN", "Infinity", "1e999"):
            body = f'{{"name": "n", "feature_flag_key": "k", "parameters": {{"x": {number}}}}}'
            headers = {"Content-Type": "application/json"}
            assert (
                api.refused("POST", "/experiments/", content=body, headers=headers)["code"] == "parse_error"
            )

    @rule("1.1.7")
    def test_unknown_and_read_only_keys(self, api: Api) -> None:
        made = api.experiment(id=77, unknown=1, created_at="1999-01-01", status="stopped", is_legacy=True)
        assert (made["status"], made["is_legacy"], "unknown" in made) == ("draft", False, False)
        assert [(each["code"], each["attr"]) for each in made.pop("warnings")] == [
            ("unknown_field", "unknown")
        ]
        assert not made["created_at"].startswith("1999")
        assert api.ok("PATCH", f"/experiments/{made['id']}/", made) | {"updated_at": 0} == made | {
            "updated_at": 0
        }

    @rule("1.1.8")
    @pytest.mark.parametrize(
        ("body", "name"),
        [
            ("[1]", "list"),
            ('"a"', "str"),
            ("1", "int"),
            ("true", "bool"),
            ("null", "NoneType"),
            ("1.5", "float"),
        ],
    )
    def test_bodies_that_are_no_objects(self, api: Api, body: str, name: str) -> None:
        error = api.refused(
            "POST", "/experiments/", content=body, headers={"Content-Type": "application/json"}
        )
        assert error["detail"] == f"Invalid data. Expected a dictionary, but got {name}."
        assert (error["type"], error["attr"]) == ("validation_error", None)

    @rule("1.1.8", "1.5.3")
    def test_an_empty_body_is_an_empty_object(self, api: Api) -> None:
        error = api.refused("POST", "/experiments/", content=b"")
        assert (error["attr"], error["code"]) == ("name", "required")


class TestErrors:
    @rule("1.5.1")
    @pytest.mark.parametrize(
        ("method", "path", "body", "status", "kind"),
        [
            ("POST", "/experiments/", {}, 400, "validation_error"),
            ("GET", "/experiments/999999/", None, 404, "invalid_request"),
            ("PUT", "/experiments/", {}, 405, "invalid_request"),
        ],
    )
    def test_the_four_keys(self, api: Api, method: str, path: str, body: Any, status: int, kind: str) -> None:
        assert api.refused(method, path, body, status=status)["type"] == kind

    @rule("1.5.2")
    def test_only_the_first_error(self, api: Api) -> None:
        error = api.refused("POST", "/experiments/", {"description": 1, "name": "", "archived": "perhaps"})
        assert error["attr"] == "name"
        dates = {"start_date": "2026-02-01", "end_date": "2026-01-01"}
        assert api.refused("POST", "/experiments/", {**MINIMAL, **dates, "type": "x"})["attr"] == "type"
        assert api.refused("POST", "/experiments/", {**MINIMAL, **dates})["attr"] is None

    @rule("1.5.3")
    @pytest.mark.parametrize(
        ("fields", "attr", "code", "detail"),
        [
            ({"name": None}, "name", "null", "This field may not be null."),
            ({"name": " "}, "name", "blank", "This field may not be blank."),
            ({"name": []}, "name", "invalid_input", "Not a valid string."),
            ({"name": True}, "name", "invalid_input", "Not a valid string."),
            (
                {"name": "x" * 401},
                "name",
                "max_length",
                "Ensure this field has no more than 400 characters.",
            ),
            ({"name": "a\0b"}, "name", "null_characters_not_allowed", "Null characters are not allowed."),
            ({"archived": "x"}, "archived", "invalid_input", "Must be a valid boolean."),
            ({"type": "x"}, "type", "invalid_choice", '"x" is not a valid choice.'),
            (
                {"saved_metrics_ids": {}},
                "saved_metrics_ids",
                "not_a_list",
                'Expected a list of items but got type "dict".',
            ),
            (
                {"holdout_id": 5_000_000},
                "holdout_id",
                "does_not_exist",
                'Invalid pk "5000000" - object does not exist.',
            ),
            (
                {"start_date": "soon"},
                "start_date",
                "invalid_input",
                DATETIME,
            ),
        ],
    )
    def test_standard_texts(
        self, api: Api, fields: dict[str, Any], attr: str, code: str, detail: str
    ) -> None:
        error = api.refused("POST", "/experiments/", {**MINIMAL, **fields})
        assert (error["attr"], error["code"], error["detail"]) == (attr, code, detail)

    @rule("1.5.3")
    def test_standard_texts_of_requests(self, api: Api) -> None:
        headers = {"Content-Type": "application/json"}
        malformed = api.refused("POST", "/experiments/", content=b'{"a":', headers=headers)
        assert (malformed["type"], malformed["code"]) == ("invalid_request", "parse_error")
        assert malformed["detail"].startswith("JSON parse error - ")
        method = api.refused("PATCH", "/experiments/", {}, status=405)
        assert (method["code"], method["detail"]) == ("method_not_allowed", 'Method "PATCH" not allowed.')

    @rule("1.5.4")
    def test_attr(self, api: Api) -> None:
        variants = [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 40}]
        body = {**MINIMAL, "parameters": {"feature_flag_variants": variants}}
        assert api.refused("POST", "/experiments/", body)["attr"] == "filters"
        nested = {"label": "x", "scopes": ["*"], "scoped_teams": [1, "two"]}
        assert api.refused("POST", "/api/personal_api_keys/", nested)["attr"] == "scoped_teams__1"

    @rule("1.5.5")
    @pytest.mark.parametrize("value", [True, "true", "True", "T", "y", "YES", "on", 1, "1", " yes "])
    def test_ways_to_say_yes(self, api: Api, value: Any) -> None:
        assert api.experiment(archived=value)["archived"] is True

    @rule("1.5.5")
    def test_texts_are_trimmed(self, api: Api) -> None:
        made = api.experiment(name="  Button  ", description=12)
        assert (made["name"], made["description"]) == ("Button", "12")

    @rule("1.5.6")
    @pytest.mark.parametrize("path", ["/experiments/", "/feature_flags/", "/cohorts/", "/actions/"])
    def test_delete_is_refused_without_a_body(self, api: Api, path: str) -> None:
        for identifier in ("1", "999999", "abc"):
            answer = api.call("DELETE", f"{path}{identifier}/")
            assert (answer.status_code, answer.content) == (405, b"")
            assert answer.headers["allow"] == "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"
        assert api.with_key(None).refused("DELETE", f"{path}1/", status=401)
        reader = api.with_key(api.new_key("experiment:read"))
        assert reader.refused("DELETE", f"{path}1/", status=403)


class TestMoments:
    @rule("1.6.1")
    @pytest.mark.parametrize(
        ("sent", "shown"),
        [
            ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901Z"),
            ("2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.500000Z"),
            ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
        ],
    )
    def test_what_is_shown(self, api: Api, sent: str, shown: str) -> None:
        assert api.experiment(start_date=sent)["start_date"] == shown

    @rule("1.6.2")
    @pytest.mark.parametrize(
        "sent", ["2026-01-02", "2026-01-02T00:00", "2026-01-02T00:00:00", "2026-01-02 00:00"]
    )
    def test_what_is_taken(self, api: Api, sent: str) -> None:
        made = api.experiment(start_date=sent)
        assert made["start_date"] == "2026-01-02T00:00:00Z"
        assert api.ok("PATCH", f"/experiments/{made['id']}/", {"start_date": None})["start_date"] is None
        assert api.refused("PATCH", f"/experiments/{made['id']}/", {"start_date": ""})["attr"] == "start_date"


class TestPages:
    @rule("1.7.1")
    @pytest.mark.parametrize("limit", ["", "0", "-5", "x", "1.5"])
    def test_limits_that_make_no_sense(self, api: Api, limit: str) -> None:
        for number in range(3):
            api.experiment(f"flag-{number}")
        page = api.ok("GET", "/experiments/", params={"limit": limit, "offset": limit})
        assert (page["count"], page["previous"]) == (3, None)
        assert len(page["results"]) == 3

    @rule("1.7.1")
    def test_a_hundred_a_page(self, api: Api) -> None:
        for number in range(101):
            api.ok(
                "POST",
                "/experiment_holdouts/",
                {"name": f"H{number}", "filters": [{"properties": [], "rollout_percentage": 10}]},
                status=201,
            )
        page = api.ok("GET", "/experiment_holdouts/")
        assert (page["count"], len(page["results"])) == (101, 100)
        assert page["next"].endswith("/experiment_holdouts/?limit=100&offset=100")

    @rule("1.7.2", "1.7.4")
    def test_beyond_the_end(self, api: Api) -> None:
        api.experiment()
        page = api.ok("GET", "/experiments/?limit=10&offset=50")
        assert (page["results"], page["next"]) == ([], None)
        assert page["previous"].endswith("?limit=10&offset=40")
        near = api.ok("GET", "/experiments/?limit=10&offset=5")
        assert near["previous"].endswith("?limit=10")

    @rule("1.7.3")
    @pytest.mark.parametrize("slash", ["", "/"])
    def test_links(self, api: Api, slash: str) -> None:
        for number in range(3):
            api.experiment(f"flag-{number}", name="A b")
        page = api.ok("GET", f"/experiments{slash}?search=A%20b&limit=1&created_by_id=1")
        where = f"http://hoglab.test/api/projects/{api.project_id}/experiments{slash}"
        assert page["next"] == f"{where}?created_by_id=1&limit=1&offset=1&search=A+b"


@rule("1.9.1")
def test_created_by(api: Api) -> None:
    user = api.experiment()["created_by"]
    assert list(user) == [
        "id", "uuid", "distinct_id", "first_name", "last_name", "email", "is_email_verified", "hedgehog_config",
        "role_at_organization",
    ]  # fmt: skip
    assert user["hedgehog_config"] is None
    assert OWNER_KEY not in str(user)
