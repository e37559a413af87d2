"""Examples in the OpenAPI document, composed from the descriptions of the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_FORMAT = {
    "date-time": "2026-01-02T03:04:05.678901Z",
    "uuid": "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22",
}
_OF_TYPE: dict[str, Any] = {
    "array": [],
    "boolean": False,
    "integer": 1,
    "null": None,
    "number": 1.0,
    "object": {},
    "string": "text",
}
_COMPOSED = ("anyOf", "oneOf", "allOf")
_TELLING = frozenset({"$ref", "examples", "properties"})


class Examples:
    """Examples of schemas, with ``$ref`` followed into shared definitions."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._open: list[str] = []
        """Named schemas that are being exemplified, so that a recursive one ends."""

    def of(self, schema: Mapping[str, Any], *, required_only: bool = False) -> Any:
        """Return a value of the schema: its own example, its constant or default, or one made of its parts.

        ``required_only`` leaves out the properties of an object that need not be sent and have no example.
        """
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("example", "const"):
            if key in schema:
                return schema[key]
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2], required_only)
        for several in _COMPOSED:
            if several in schema:
                return self._alternative(schema[several], required_only)
        if "properties" in schema:
            return self._object(schema, required_only)
        if schema.get("type") == "array":
            return self._array(schema.get("items", {}), required_only)
        if schema.get("default") is not None:
            return schema["default"]
        return _plain(schema)

    def _named(self, name: str, required_only: bool) -> Any:
        if name in self._open:
            return None
        self._open.append(name)
        try:
            return self.of(self._definitions[name], required_only=required_only)
        finally:
            self._open.pop()

    def _alternative(self, schemas: list[Mapping[str, Any]], required_only: bool) -> Any:
        """Return the first of several schemas; but null, where it is allowed, rather than an empty value."""
        nullable = any(schema.get("type") == "null" for schema in schemas)
        if nullable and not _TELLING & schemas[0].keys():
            return None
        return self.of(schemas[0], required_only=required_only)

    def _object(self, schema: Mapping[str, Any], required_only: bool) -> dict[str, Any]:
        needed = set(schema.get("required", ()))
        return {
            name: self.of(property_schema, required_only=required_only)
            for name, property_schema in schema["properties"].items()
            if not required_only or name in needed or _has_example(property_schema)
        }

    def _array(self, items: Mapping[str, Any], required_only: bool) -> list[Any]:
        return (
            [self.of(items, required_only=required_only)] if "$ref" in items or "properties" in items else []
        )


def _has_example(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("examples"))


def _plain(schema: Mapping[str, Any]) -> Any:
    if schema.get("format") in _OF_FORMAT:
        return _OF_FORMAT[schema["format"]]
    kind = schema.get("type", "null")
    known = _OF_TYPE[kind[0] if isinstance(kind, list) else kind]
    if kind in ("integer", "number") and known < schema.get("minimum", known):
        return schema["minimum"]
    return known
