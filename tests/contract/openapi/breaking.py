"""Finds what in a new OpenAPI document breaks clients that were made for an old one.

For what clients send, the new document must accept all that the old one did; for what they read, the new one must
promise all that the old one did. References are followed; examples, descriptions and further statuses of errors
do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")
_FLOORS = ("minimum", "minLength", "minItems")
_CEILINGS = ("maximum", "maxLength", "maxItems")
_ANY = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

Document = dict[str, Any]
Schema = dict[str, Any]


def _bodies(body: dict[str, Any]) -> dict[str, Any]:
    """What a request may bring, by media type; forms are fields of the JSON object."""
    content: dict[str, Any] = body.get("content", {})
    return content | dict.fromkeys(body.get("x-also-accepted", ()), content.get("application/json"))


def breaking_changes(old: Document, new: Document) -> list[str]:
    """One line for each change that breaks a client."""
    return list(_Comparison(old, new).changes())


@dataclass
class _Comparison:
    old: Document
    new: Document

    def changes(self) -> Iterator[str]:
        for path, item in self.old["paths"].items():
            for method in _METHODS:
                if method not in item:
                    continue
                place = f"{method} {path}"
                now = self.new["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{place}: removed"
                    continue
                yield from self._parameters(place, item[method], now)
                yield from self._body(place, item[method], now)
                yield from self._answers(place, item[method], now)

    def _parameters(self, place: str, old: Any, new: Any) -> Iterator[str]:
        before = {(each["in"], each["name"]): each for each in old.get("parameters", ())}
        after = {(each["in"], each["name"]): each for each in new.get("parameters", ())}
        for key in before.keys() - after.keys():
            yield f"{place}: parameter {key[1]} removed"
        for key, each in after.items():
            known = before.get(key)
            if each.get("required") and not (known and known.get("required")):
                yield f"{place}: parameter {key[1]} newly required"
            if known:
                yield from self._accepts(f"{place} {key[1]}", known["schema"], each["schema"], set())

    def _body(self, place: str, old: Any, new: Any) -> Iterator[str]:
        before, after = (_bodies(each.get("requestBody", {})) for each in (old, new))
        for media_type, media in before.items():
            if media_type not in after:
                yield f"{place}: bodies of {media_type} no longer accepted"
            else:
                yield from self._accepts(f"{place} body", _schema(media), _schema(after[media_type]), set())

    def _answers(self, place: str, old: Any, new: Any) -> Iterator[str]:
        for status, answer in old["responses"].items():
            if not status.startswith("2"):
                continue
            now = new["responses"].get(status)
            if now is None:
                yield f"{place}: no longer answers {status}"
                continue
            for media_type, media in answer.get("content", {}).items():
                if media_type not in now.get("content", {}):
                    yield f"{place}: {status} is no longer {media_type}"
                    continue
                promised = _schema(now["content"][media_type])
                yield from self._promises(f"{place} {status}", _schema(media), promised, set())

    def _accepts(self, place: str, old: Schema, new: Schema, seen: set[tuple[str, str]]) -> Iterator[str]:
        """What was valid to send and no longer is."""
        before, after = _followed(self.old, old), _followed(self.new, new)
        if _again(old, new, seen):
            return
        if lost := _types(self.old, before) - _types(self.new, after):
            yield f"{place}: no longer accepts {', '.join(sorted(lost))}"
        yield from _narrowed(place, before, after)
        needed = set(after.get("required", ())) - set(before.get("required", ()))
        yield from (f"{place}.{name}: newly required" for name in sorted(needed))
        if lost := _choices(self.old, before) - _choices(self.new, after):
            if _choices(self.new, after):
                yield f"{place}: no longer accepts {', '.join(sorted(lost))}"
        elif not _choices(self.old, before) and _choices(self.new, after):
            yield f"{place}: accepts only some values now"
        for name, each in before.get("properties", {}).items():
            if name not in after.get("properties", {}):
                yield f"{place}.{name}: no longer accepted"
            else:
                yield from self._accepts(f"{place}.{name}", each, after["properties"][name], seen)
        if "items" in before and "items" in after:
            yield from self._accepts(f"{place}[]", before["items"], after["items"], seen)

    def _promises(self, place: str, old: Schema, new: Schema, seen: set[tuple[str, str]]) -> Iterator[str]:
        """What could be relied on when reading and no longer can."""
        before, after = _followed(self.old, old), _followed(self.new, new)
        if _again(old, new, seen):
            return
        if added := _types(self.new, after) - _types(self.old, before):
            yield f"{place}: may be {', '.join(sorted(added))} now"
        known, now = _choices(self.old, before), _choices(self.new, after)
        if known and (added := now - known or (set() if now else {"any value"})):
            yield f"{place}: may be {', '.join(sorted(added))} now"
        lost = set(before.get("required", ())) - set(after.get("required", ()))
        yield from (f"{place}.{name}: may be missing now" for name in sorted(lost))
        for name, each in before.get("properties", {}).items():
            if name not in after.get("properties", {}):
                yield f"{place}.{name}: removed"
            else:
                yield from self._promises(f"{place}.{name}", each, after["properties"][name], seen)
        if "items" in before and "items" in after:
            yield from self._promises(f"{place}[]", before["items"], after["items"], seen)


def _schema(media: Mapping[str, Any]) -> Schema:
    """What is said of a media type's contents; where nothing is, they may be anything."""
    schema: Schema = media.get("schema", {})
    return schema


def _followed(document: Document, schema: Schema) -> Schema:
    """A schema without the reference around it; of something or null the something."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            continue
        parts = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
        if len(parts) != 1:
            return schema
        nullable = len(parts) < len(schema["anyOf"])
        inner = _followed(document, parts[0])
        return {**inner, "type": sorted({*_types(document, inner), "null"})} if nullable else inner


def _types(document: Document, schema: Schema) -> frozenset[str]:
    if "$ref" in schema:
        return _types(document, _followed(document, schema))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return frozenset().union(*(_types(document, each) for each in schema[several]))
    kind = schema.get("type")
    if kind is None:
        return _ANY
    kinds = frozenset([kind] if isinstance(kind, str) else kind)
    return kinds | {"integer"} if "number" in kinds else kinds


def _choices(document: Document, schema: Schema) -> set[str]:
    """The only values that a schema has, as text; nothing where it is open."""
    if "const" in schema:
        return {repr(schema["const"])}
    return {repr(value) for value in schema.get("enum", ())}


def _narrowed(place: str, old: Schema, new: Schema) -> Iterator[str]:
    for name in _FLOORS:
        if name in new and new[name] > old.get(name, float("-inf")):
            yield f"{place}: {name} is {new[name]} now"
    for name in _CEILINGS:
        if name in new and new[name] < old.get(name, float("inf")):
            yield f"{place}: {name} is {new[name]} now"
    for name in ("pattern", "format"):
        if name in new and new[name] != old.get(name):
            yield f"{place}: {name} is {new[name]} now"


def _again(old: Schema, new: Schema, seen: set[tuple[str, str]]) -> bool:
    """Whether this pair of named schemas is being compared already."""
    if "$ref" not in old or "$ref" not in new:
        return False
    pair = (old["$ref"], new["$ref"])
    if pair in seen:
        return True
    seen.add(pair)
    return False
