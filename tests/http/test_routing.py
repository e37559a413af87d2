"""Paths, methods and slashes (spec: experiments-api 1.1, 1.4, 1.5)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from hoglab.http.management.call import Call
from hoglab.http.management.routing import IntId, ResourceRouter
from hoglab.http.management.table import RoutingTable

WIDGETS = "/api/projects/1/widgets"
NOT_FOUND = {"type": "invalid_request", "code": "not_found", "detail": "Not found.", "attr": None}


@pytest.mark.parametrize("path", ["/3", "/3/", "/special", "/special/", "", "/"])
def test_slash_at_the_end_is_optional(client: Any, path: str) -> None:
    assert client.get(WIDGETS + path).status_code == 200


def test_writes_are_not_redirected_either(client: Any) -> None:
    for path in ("", "/"):
        assert client.post(WIDGETS + path, json={"name": "x"}).status_code == 201


@pytest.mark.parametrize("path", ["//", "/3//", "//3", "/3/nothing", "s"])
def test_other_slashes_lead_nowhere(client: Any, path: str) -> None:
    response = client.get(WIDGETS + path)
    assert (response.status_code, response.json()["code"]) == (404, "endpoint_not_found")


def test_unknown_endpoint(client: Any) -> None:
    for key in (client, client.with_key(None)):
        response = key.get("/api/nothing/")
        assert response.status_code == 404
        assert response.json() == {
            "type": "invalid_request",
            "code": "endpoint_not_found",
            "detail": "Endpoint /api/nothing/ not found.",
            "attr": None,
        }


def test_fixed_segments_win_over_parameters(client: Any) -> None:
    assert client.get(WIDGETS + "/special/").json() == {"special": True}


@pytest.mark.parametrize(
    "widget_id", ["abc", "-1", "1.0", "1e3", "99999999999999999999", "٣", "%00", "25", str(2**63), "0x1"]
)
def test_ids_that_are_none_are_not_found(client: Any, widget_id: str) -> None:
    response = client.get(f"{WIDGETS}/{widget_id}/")
    assert (response.status_code, response.json()) == (404, NOT_FOUND)


def test_uuid_parameters(client: Any) -> None:
    wanted = str(uuid4())
    for text in (wanted, wanted.upper(), wanted.replace("-", "")):
        assert client.get(f"{WIDGETS}/by_uuid/{text}/").json() == {"uuid": wanted}
    for text in ("1", wanted[:-1], wanted + "0", wanted.replace("-", "_"), "{" + wanted[1:-1] + "}"):
        response = client.get(f"{WIDGETS}/by_uuid/{text}/")
        assert (response.status_code, response.json()) == (404, NOT_FOUND)


def test_text_parameters_are_decoded(client: Any) -> None:
    assert client.get(WIDGETS + "/by_name/a%20b%C3%A9.x/").json()["name"] == "a bé.x"
    assert client.get(WIDGETS + "/by_name/a%00b/").status_code == 404


def test_plain_handlers_run_in_threads_of_their_own(client: Any) -> None:
    assert client.get(WIDGETS + "/by_name/x").json()["thread"].startswith("hoglab-http")


class TestMethods:
    def test_missing_method(self, client: Any) -> None:
        response = client.request("PATCH", WIDGETS)
        assert response.status_code == 405
        assert response.json() == {
            "type": "invalid_request",
            "code": "method_not_allowed",
            "detail": 'Method "PATCH" not allowed.',
            "attr": None,
        }
        assert response.headers["Allow"] == "GET, POST, HEAD, OPTIONS"

    @pytest.mark.parametrize("method", ["TRACE", "CONNECT", "BREW", "get"])
    def test_odd_methods(self, client: Any, method: str) -> None:
        assert client.request(method, WIDGETS).status_code == (405 if method != "get" else 200)

    def test_head(self, client: Any) -> None:
        get, head = client.get(WIDGETS), client.request("HEAD", WIDGETS)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["Content-Length"] == str(len(get.content))
        assert client.with_key(None).request("HEAD", WIDGETS).status_code == 401
        assert client.request("HEAD", WIDGETS + "/99/").status_code == 404

    def test_options(self, client: Any) -> None:
        response = client.request("OPTIONS", WIDGETS + "/1/")
        assert response.status_code == 200
        assert response.headers["Allow"] == "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"
        assert "application/json" in response.json()["renders"]
        assert client.with_key(None).request("OPTIONS", WIDGETS).status_code == 401

    def test_head_and_options_only_beside_get(self, client: Any) -> None:
        for method in ("HEAD", "OPTIONS"):
            assert client.request(method, WIDGETS + "/echo").status_code == 405

    @pytest.mark.parametrize("widget_id", ["1", "99", "abc", "54cbfcb6-b5c7-4fc4-aef6-0bed4626ab22"])
    def test_forbidden_delete(self, client: Any, widget_id: str) -> None:
        response = client.request("DELETE", f"{WIDGETS}/{widget_id}/")
        assert (response.status_code, response.content) == (405, b"")
        assert response.headers["Content-Length"] == "0"
        assert response.headers["Allow"] == "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"
        assert "Content-Type" not in response.headers

    def test_forbidden_delete_needs_a_key_and_its_scope(self, client: Any, new_key: Any) -> None:
        assert client.with_key(None).request("DELETE", WIDGETS + "/1").status_code == 401
        reader = client.with_key(new_key(["widget:read"]))
        assert reader.request("DELETE", WIDGETS + "/1").status_code == 403

    def test_answer_without_a_body(self, client: Any) -> None:
        response = client.request("DELETE", WIDGETS + "/1/paint/")
        assert (response.status_code, response.content) == (204, b"")


class TestDeclaring:
    def test_handler_must_take_the_parameters_of_its_path(self) -> None:
        router = ResourceRouter("/x", tag="x", scopes=("x:read", "x:write"))

        def handler(call: Call, other_id: IntId) -> None: ...

        with pytest.raises(ValueError, match="must take the call, then x_id"):
            router.add("GET", "/{x_id}", handler)

    def test_parameters_need_a_known_kind(self) -> None:
        router = ResourceRouter("/x", tag="x", scopes=("x:read", "x:write"))

        def handler(call: Call, x_id: float) -> None: ...

        with pytest.raises(ValueError, match="IntId, UuidId or TextId"):
            router.add("GET", "/{x_id}", handler)

    def test_operations_need_a_scope(self) -> None:
        with pytest.raises(ValueError, match="no scopes"):
            ResourceRouter("/x", tag="x").add("GET", "/", lambda _: None)

    def test_a_path_has_one_operation_for_each_method(self) -> None:
        router = ResourceRouter("/x", tag="x", scopes=("x:read", "x:write"))
        router.add("GET", "/", lambda _: None)
        router.add("GET", "", lambda _: None)
        with pytest.raises(ValueError, match="declared twice"):
            RoutingTable(router.operations)

    def test_same_path_with_other_parameter_names(self) -> None:
        router = ResourceRouter("/x", tag="x", scopes=("x:read", "x:write"))

        def one(call: Call, a: IntId) -> None: ...
        def two(call: Call, b: IntId) -> None: ...

        router.add("GET", "/{a}/one", one)
        router.add("GET", "/{b}/two", two)
        table = RoutingTable(router.operations)
        found = table.find("/api/projects/1/x/5/two/")
        assert found is not None
        assert found[1] == {"project_id": "1", "b": "5"}

    def test_one_path_has_one_spelling(self) -> None:
        router = ResourceRouter("/x", tag="x", scopes=("x:read", "x:write"))

        def one(call: Call, a: IntId) -> None: ...
        def two(call: Call, b: IntId) -> None: ...

        router.add("GET", "/{a}", one)
        router.add("PATCH", "/{b}", two)
        with pytest.raises(ValueError, match="other names of parameters"):
            RoutingTable(router.operations)
