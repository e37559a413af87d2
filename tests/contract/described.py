"""Holds answers against the OpenAPI document: status, content type and JSON schema of every documented operation."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
import jsonschema_rs

_METHODS = ("get", "post", "put", "patch", "delete")
_ALIAS, _PROJECTS = "/api/environments/", "/api/projects/"


@dataclass
class Described:
    """One document, with the validators of the answers that were seen so far."""

    document: dict[str, Any]
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often each answer was checked, by operation and status."""
    _validators: dict[str, Any] = field(default_factory=dict)

    def check(self, answer: httpx.Response) -> None:
        """Raises `AssertionError` when a documented operation answers otherwise than the document says."""
        method, path = answer.request.method.lower(), answer.request.url.path
        operation = self._operation(method, path)
        if operation is None:
            return
        name, responses = operation
        status = str(answer.status_code)
        where = f"{name}: {status}"
        described = responses.get(status, responses.get("default"))
        assert described is not None, f"{where} is not in the document: {answer.text[:500]}"
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        content = described.get("content", {})
        self.seen[where] += 1
        if not content:
            assert not answer.content, f"{where} has a body: {answer.text[:500]}"
            return
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        assert media_type in content, f"{where} is {media_type}, not {', '.join(content)}"
        if media_type == "application/json" and "schema" in content[media_type]:
            problem = self._problem(where, content[media_type]["schema"], answer.json())
            assert problem is None, f"{where} is off its schema: {problem}"

    def _operation(self, method: str, path: str) -> tuple[str, dict[str, Any]] | None:
        """Name and answers of the operation behind a request; None when the document has none."""
        if method not in _METHODS:
            return None
        path = path.rstrip("/")
        if path.startswith(_ALIAS):
            path = _PROJECTS + path.removeprefix(_ALIAS)
        for pattern, template in self._templates:
            if pattern.fullmatch(path):
                found = self.document["paths"][template].get(method)
                return None if found is None else (f"{method} {template}", found["responses"])
        return None

    @cached_property
    def _templates(self) -> list[tuple[re.Pattern[str], str]]:
        """Paths as patterns, those with fewer parameters first: they win over those that would match as well."""
        templates = sorted(self.document["paths"], key=lambda template: template.count("{"))
        return [(_pattern(template), template) for template in templates]

    def _problem(self, where: str, schema: dict[str, Any], value: Any) -> str | None:
        validator = self._validators.get(where)
        if validator is None:
            whole = {**schema, "components": self.document["components"]}
            validator = jsonschema_rs.validator_for(whole, validate_formats=True)
            self._validators[where] = validator
        for error in validator.iter_errors(value):
            place = "/".join(str(part) for part in error.instance_path)
            return f"{place}: {error.message}"
        return None


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[^}]+\}", template.rstrip("/"))
    return re.compile("[^/]+".join(re.escape(part) for part in parts))
