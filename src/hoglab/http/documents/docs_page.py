"""The reference as one HTML page that needs nothing from elsewhere: no script, no font, no network.

It links each operation to the page where it can be tried, which is one of `explorer`.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from hoglab.http import content_policy
from hoglab.http.documents import explorer
from hoglab.http.documents.openapi import page
from hoglab.http.management.routing import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from hoglab.http.documents.openapi import Document

_STYLE = """
:root { color-scheme: light dark; --edge: #8884; --soft: #8881; --link: light-dark(#0057b8, #7db4ff) }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem 1.5rem 4rem }
a { color: var(--link) } code, pre { font: 13px/1.45 ui-monospace, monospace }
nav ul { columns: 3 14rem; list-style: none; padding: 0 }
h2 { border-bottom: 1px solid var(--edge); margin-top: 3rem; padding-bottom: .3rem }
details { border: 1px solid var(--edge); border-radius: 6px; margin: .5rem 0 }
summary { cursor: pointer; padding: .5rem .8rem } details > div { padding: 0 .8rem .6rem }
summary b { display: inline-block; min-width: 4.2rem } summary code { overflow-wrap: anywhere }
summary span { opacity: .75 } table { border-collapse: collapse; width: 100% }
th, td { border-top: 1px solid var(--edge); padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top }
pre { background: var(--soft); border-radius: 6px; overflow: auto; padding: .7rem }
"""


def docs_app(document: Document) -> ASGIApp:
    """Serve the reference."""

    @lru_cache(maxsize=1)
    def content() -> bytes:
        return "".join(render(document.value)).encode()

    headers = {content_policy.HEADER: content_policy.page_policy(_STYLE), "Referrer-Policy": "no-referrer"}
    return page(content, "text/html", headers)


def render(document: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the page for an OpenAPI document."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}: API reference"
    yield "<!doctype html><html lang=en><meta charset=utf-8>"
    yield '<meta name=viewport content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
    yield f"<p>{_prose(info['description'])}</p>"
    yield '<p><a href="/api/schema/">The same as an OpenAPI document</a></p>'
    yield f'<p><a href="{explorer.PATH}/">Try requests in the browser</a></p>'
    operations: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        for method in METHODS:
            operation = item.get(method.lower())
            if operation is not None:
                whole = {**operation, "parameters": [*shared, *operation.get("parameters", ())]}
                operations.setdefault(operation["tags"][0], []).append((method, path, whole))
    links = (f"<li><a href='#{_anchor(tag)}'>{escape(tag)}</a>" for tag in operations)
    yield f"<nav><ul>{''.join(links)}</ul></nav>"
    for tag, entries in operations.items():
        yield f"<h2 id='{_anchor(tag)}'>{escape(tag)}</h2>"
        for method, path, operation in entries:
            yield from _operation(method, path, operation, document["components"]["responses"])
    yield "<h2 id=schemas>Schemas</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield f"<details id='schema-{escape(name)}'><summary>{escape(name)}</summary>"
        yield f"<div>{_properties(schema)}</div></details>"
    yield "</html>"


def _operation(method: str, path: str, operation: dict[str, Any], responses: dict[str, Any]) -> Iterator[str]:
    yield f"<details id='{escape(operation['operationId'])}'><summary><b>{method}</b> "
    yield f"<code>{escape(path)}</code> <span>{escape(operation['summary'])}</span></summary><div>"
    if "description" in operation:
        yield f"<p>{_prose(operation['description'])}</p>"
    place = explorer.link(operation["tags"][0], operation["operationId"])
    yield f"<p><a href='{escape(place)}'>Try it</a></p>"
    scopes = [scope for way in operation.get("security", ())[:1] for held in way.values() for scope in held]
    if scopes:
        yield f"<p>Scope: {', '.join(f'<code>{escape(scope)}</code>' for scope in scopes)}</p>"
    if operation["parameters"]:
        rows = (
            f"<tr><td><code>{escape(parameter['name'])}</code><td>{parameter['in']}<td>{_type(parameter['schema'])}"
            for parameter in operation["parameters"]
        )
        yield f"<table><tr><th>Parameter<th>In<th>Type{''.join(rows)}</table>"
    for schema in _content(operation.get("requestBody")):
        yield f"<p>Body: {_type(schema)}</p>"
    yield "<table><tr><th>Status<th>Meaning<th>Body"
    for status, named in operation["responses"].items():
        answer = responses[named["$ref"].rpartition("/")[2]] if "$ref" in named else named
        types = ", ".join(_type(schema) for schema in _content(answer))
        yield f"<tr><td>{status}<td>{escape(answer['description'])}<td>{types}"
    yield "</table></div></details>"


def _content(holder: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    for media in list((holder or {}).get("content", {}).values())[:1]:
        yield media["schema"]


def _properties(schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = []
    for name, field in schema.get("properties", {}).items():
        mark = " (required)" if name in needed else ""
        rows.append(
            f"<tr><td><code>{escape(name)}</code>{mark}<td>{_type(field)}<td>{_prose(field.get('description', ''))}"
        )
    about = f"<p>{_prose(schema['description'])}</p>" if "description" in schema else ""
    return f"{about}<table>{''.join(rows)}</table>" if rows else f"{about}<p>{_type(schema)}</p>"


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words, with links to named ones."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(repr(value))}</code>" for value in schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " | ".join(_type(alternative) for alternative in schema[several])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " | ".join(escape(name) for name in kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    form = f" ({escape(schema['format'])})" if "format" in schema else ""
    return f"{escape(kind)}{form}"


def _prose(text: str) -> str:
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))


def _anchor(tag: str) -> str:
    return "tag-" + escape(tag.replace(" ", "-"))
