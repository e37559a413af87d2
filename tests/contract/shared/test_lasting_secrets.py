"""Secrets in answers: a key that expires gets none that outlives it, wherever the API gives one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract.conftest import DOCUMENT, Api

EXPIRY = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
LABELLED = {"label": "made", "scopes": ["feature_flag:read"]}
GIVING = {
    ("patch", "/api/projects/{project_id}/rotate_secret_token/"): {},
    ("post", "/api/personal_api_keys/"): LABELLED,
    ("patch", "/api/personal_api_keys/{key_id}/"): {"label": "other"},
    ("post", "/api/personal_api_keys/{key_id}/roll/"): {},
}
"""Operations with a secret in their answer, and a body for each."""


def schemas(node: Any, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of an answer, those behind references too, without what they nest."""
    if "$ref" in node:
        yield from schemas(document["components"]["schemas"][node["$ref"].rpartition("/")[2]], document)
    for name in ("anyOf", "oneOf", "allOf"):
        for part in node.get(name, ()):
            yield from schemas(part, document)
    yield node


def names_a_secret(name: str, schema: dict[str, Any]) -> bool:
    return "secret" in name or (name == "value" and "mask_value" in schema.get("properties", {}))


def test_no_operation_with_a_secret_is_missing() -> None:
    document = json.loads(DOCUMENT.read_bytes())
    giving = {
        (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in ("post", "put", "patch")
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for content in answer.get("content", {}).values()
        for schema in schemas(content.get("schema", {}), document)
        if any(names_a_secret(name, schema) for name in schema.get("properties", ()))
    }
    assert giving == GIVING.keys()


@pytest.mark.parametrize(("method", "path"), GIVING)
def test_a_key_that_expires_gets_no_lasting_secret(api: Api, method: str, path: str) -> None:
    short = api.with_key(api.new_key("*", expires_at=EXPIRY.isoformat()))
    eternal = api.ok("POST", "/api/personal_api_keys/", LABELLED, status=201)
    where = path.format(project_id=api.project_id, key_id=eternal["id"])
    error = short.refused(method.upper(), where, GIVING[method, path], status=403)
    assert error["code"] == "permission_denied"
    assert api.ok("GET", f"/api/personal_api_keys/{eternal['id']}/") == {**eternal, "value": None}
