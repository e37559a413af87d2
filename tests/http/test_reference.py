"""The OpenAPI document and the page made from it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest


@pytest.fixture
def document(client: Any) -> Any:
    response = client.with_key(None).get("/api/schema/")
    assert response.status_code == 200
    return response.json()


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*(references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references(item) for item in value))
    return set()


def test_every_operation_is_there(document: Any, client: Any) -> None:
    assert document["openapi"].startswith("3.1")
    wanted = {
        (f"{operation.path}/", operation.method.lower())
        for operation in client.app.management.table.operations()
        if not operation.is_alias
    }
    assert {(path, method) for path, item in document["paths"].items() for method in item} == wanted
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids)


def test_references_lead_somewhere(document: Any) -> None:
    found = references(document)
    assert found
    for reference in found:
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_an_operation_in_full(document: Any) -> None:
    create = document["paths"]["/api/projects/{project_id}/widgets/"]["post"]
    assert create["operationId"] == "widgets_create_widget"
    assert create["summary"] == "Create a widget."
    assert create["description"] == "Says what it understood."
    assert create["security"] == [
        {"PersonalApiKey": ["widget:write"]},
        {"PersonalApiKeyInQuery": ["widget:write"]},
    ]
    assert [parameter["name"] for parameter in create["parameters"]] == ["project_id", "Idempotency-Key"]
    body = {"$ref": "#/components/schemas/WidgetIn"}
    assert create["requestBody"]["content"]["application/json"]["schema"] == body
    answers = create["responses"]
    assert answers["201"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/WidgetOut"
    }
    assert set(answers) == {
        "201",
        *["400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "500", "503"],
    }
    error = {"$ref": "#/components/schemas/Error"}
    assert answers["400"] == {"$ref": "#/components/responses/BadRequest"}
    refused = document["components"]["responses"]["BadRequest"]["content"]["application/json"]
    assert refused["schema"] == error
    assert set(refused["example"]) == {"type", "code", "detail", "attr"}
    fields = document["components"]["schemas"]["WidgetIn"]
    assert fields["required"] == ["name"]
    assert fields["properties"]["name"]["maxLength"] == 20


def test_parameters(document: Any) -> None:
    read = document["paths"]["/api/projects/{project_id}/widgets/{widget_id}/"]["get"]
    kinds = {each["name"]: (each["in"], each["schema"]["type"]) for each in read["parameters"]}
    assert kinds == {
        "project_id": ("path", "string"),
        "widget_id": ("path", "integer"),
        "If-None-Match": ("header", "string"),
    }
    listing = document["paths"]["/api/projects/{project_id}/widgets/"]["get"]
    query = [each["name"] for each in listing["parameters"] if each["in"] == "query"]
    assert query == ["limit", "offset"]
    by_uuid = document["paths"]["/api/projects/{project_id}/widgets/by_uuid/{uuid}/"]["get"]
    assert by_uuid["parameters"][1]["schema"] == {"type": "string", "format": "uuid"}


def test_refused_delete_and_alternatives(document: Any) -> None:
    refused = document["paths"]["/api/projects/{project_id}/widgets/{widget_id}/"]["delete"]
    assert "content" not in refused["responses"]["405"]
    colour = document["paths"]["/api/projects/{project_id}/widgets/{widget_id}/colour/"]["get"]
    assert colour["security"][0] == {"PersonalApiKey": ["colour:read or widget:read"]}


def test_further_paths(make_client: Any) -> None:
    item = {"post": {"operationId": "batch", "tags": ["capture"], "summary": "Send", "responses": {}}}
    client = make_client(paths={"/batch/": item}).with_key(None)
    assert client.get("/api/schema").json()["paths"]["/batch/"] == item
    assert "/batch/" in client.get("/api/docs").text


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_needs_nothing_from_elsewhere(client: Any, document: Any) -> None:
    response = client.with_key(None).get("/api/docs/")
    assert response.headers["Content-Type"].startswith("text/html")
    assert "Create a widget." in response.text
    page = Page()
    page.feed(response.text)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "@import" not in response.text
    assert not re.search(r"url\(", response.text)
    local = [link for link in page.links if link.startswith("#")]
    assert {link.partition("#")[0] for link in page.links} == {"", "/api/schema/", "/api/docs/try/"}
    assert {link[1:] for link in local} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    for path in document["paths"]:
        assert path in page.text
