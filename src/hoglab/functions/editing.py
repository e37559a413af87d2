"""Diagnostics and completions for editors of functions: problems with their places, and possible names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from hoglab import hog
from hoglab.filters.hog import FILTER, FILTER_ROOTS
from hoglab.functions.configuration import TABLE_SOURCES, Builder, FunctionPatch
from hoglab.functions.environments import MASKING_HASHES, body_environment, template_environment
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.site import SITE_TYPES, SiteSourceError, javascript_of
from hoglab.functions.templating import LiquidTemplate, LiquidTemplateError, has_markup
from hoglab.hog import HogCompileError, map_texts

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration
    from hoglab.hog import Diagnostic, Environment

Purpose = Literal["body", "template", "filter"]

GLOBALS: Mapping[str, tuple[str, str]] = {
    "event": ("object", "The event: uuid, event, distinct_id, properties, timestamp, elements_chain, url."),
    "person": ("object", "Who did it: id, name, url, properties."),
    "groups": ("object", "The groups of the event by type: id, type, index, url, properties."),
    "project": ("object", "The project: id, name, url."),
    "source": ("object", "The function: name, url."),
    "inputs": ("object", "The inputs of the function by key."),
    "request": ("object", "The request: method, headers, query, body, stringBody, ip."),
}
"""The globals of programs and templates (spec: hog-runtime 1.1): their types and descriptions."""

_EVERYWHERE = ("event", "project", "source", "inputs")
_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "transformation": ("event", "project", "inputs"),
    "source_webhook": (*_EVERYWHERE, "request"),
}


def known_globals(function_type: str | None) -> tuple[str, ...]:
    """Return the names that programs and templates of a type may read."""
    return _OF_TYPES.get(function_type or "destination", (*_EVERYWHERE, "person", "groups"))


def _readable(body: Mapping[str, Any], current: Configuration | None) -> tuple[str, ...]:
    """Return the names that texts of one configuration may read: those of its type, and of its way to run."""
    kind, filters, delivery = (
        body[name] if name in body else getattr(current, name, None)
        for name in ("type", "filters", "x_delivery")
    )
    names = known_globals(kind if isinstance(kind, str) else None)
    if isinstance(filters, Mapping) and filters.get("source") in TABLE_SOURCES:
        names += ("record",)
    if isinstance(delivery, Mapping) and delivery.get("batch") is not None:
        names += ("events",)
    return names


# --- diagnostics


def diagnose(
    sent: FunctionPatch, current: Configuration | None, context: FilterContext
) -> list[dict[str, Any]]:
    """Return every finding about a configuration that is not saved yet.

    Each finding has ``attr``, which names the field as errors of the API do, and the findings of `hog.check` about
    a text. ``refused`` is true for the finding with which saving the configuration would be answered.
    """
    refusal = _refusal(sent, current, context)
    findings = [] if refusal is None else [refusal]
    for diagnostic in _texts(sent.body, current):
        same = (
            refusal is not None
            and refusal["attr"] == diagnostic["attr"]
            and diagnostic["severity"] == "error"
        )
        if same:  # the text itself says more than the refusal
            diagnostic["refused"] = True
            findings = [finding for finding in findings if finding is not refusal]
        findings.append(diagnostic)
    return findings


def doubts(saved: Configuration) -> list[dict[str, Any]]:
    """Return the findings about a configuration that was saved: names that do not exist, and other doubtful places."""
    return list(_texts({}, saved))


def _refusal(
    sent: FunctionPatch, current: Configuration | None, context: FilterContext
) -> dict[str, Any] | None:
    try:
        Builder(sent, current, context).build()
    except InvalidFunctionError as error:
        place: Mapping[str, Any] = (error.body or {}).get("extra") or {}
        diagnostic = _placed(error.code, place.get("message") or error.detail, error.path)
        return {**diagnostic, "line": place.get("line"), "column": place.get("column"), "refused": True}
    return None


def _texts(body: Mapping[str, Any], current: Configuration | None) -> Iterator[dict[str, Any]]:
    """Yield diagnostics of the compiler for each text of a configuration, in the order of the fields."""
    kind = body.get("type") if current is None else current.type
    if not isinstance(kind, str):
        kind = None
    known = _readable(body, current)
    source = body.get("hog") if "hog" in body else None if current is None else current.hog
    if isinstance(source, str) and source.strip():
        yield from _program(source.strip(), kind, known)
    inputs = body.get("inputs") if "inputs" in body else None if current is None else current.inputs.plain
    schema = (
        body.get("inputs_schema") if "inputs_schema" in body or current is None else current.inputs_schema
    )
    yield from _inputs(_quotable(inputs, schema), kind, known, ("inputs",))
    masking = body.get("masking") if "masking" in body else None if current is None else current.masking
    if isinstance(masking, Mapping) and isinstance(masking.get("hash"), str):
        text = masking["hash"].strip()
        for finding in hog.check(text, MASKING_HASHES, kind="template", known=known):
            yield _shown(finding, ("masking", "hash"))
    for index, mapping in enumerate(_mappings(body, current)):
        if isinstance(mapping, Mapping):
            quotable = _quotable(mapping.get("inputs"), mapping.get("inputs_schema"))
            yield from _inputs(quotable, kind, known, ("mappings", index, "inputs"))


def _mappings(body: Mapping[str, Any], current: Configuration | None) -> list[Any]:
    """Return the mappings of a configuration as a body has them, without secret inputs of stored ones."""
    if "mappings" in body or current is None:
        sent = body.get("mappings")
        return sent if isinstance(sent, list) else []
    return [
        {"inputs": mapping.inputs.plain, "inputs_schema": mapping.inputs_schema}
        for mapping in current.mappings or ()
    ]


def _quotable(inputs: Any, schema: Any) -> Any:
    """Return the inputs whose texts may be quoted in findings: secrets are left out."""
    if not isinstance(inputs, Mapping):
        return inputs
    entries = (
        [entry for entry in schema if isinstance(entry, Mapping)] if isinstance(schema, (list, tuple)) else []
    )
    secret = {entry.get("key") for entry in entries if entry.get("secret")}
    return {key: item for key, item in inputs.items() if key not in secret}


def _program(source: str, kind: str | None, known: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if kind in SITE_TYPES:
        try:
            javascript_of(source)
        except SiteSourceError as error:
            yield _placed("syntax", error.message, ("hog",), error.line, error.column + 1)
        return
    for finding in hog.check(source, body_environment(kind), known=known):
        yield _shown(finding, ("hog",))


def _inputs(
    inputs: Any, kind: str | None, known: tuple[str, ...], path: tuple[str | int, ...]
) -> Iterator[dict[str, Any]]:
    for key, item in inputs.items() if isinstance(inputs, Mapping) else ():
        if not isinstance(item, Mapping) or item.get("value") is None:
            continue
        check = (
            _liquid if item.get("templating") == "liquid" else _template(template_environment(kind), known)
        )
        findings: list[dict[str, Any]] = []

        def look(
            text: str,
            place: tuple[str | int, ...],
            check: Callable[..., Iterator[dict[str, Any]]] = check,
            at: tuple[str | int, ...] = (*path, key),
            findings: list[dict[str, Any]] = findings,
        ) -> None:
            findings.extend({**finding, "path": list(place)} for finding in check(text, at))

        try:
            map_texts(item["value"], look)
        except HogCompileError as error:
            findings.append(_placed(error.code, error.message, (*path, key)))
        yield from findings


def _template(environment: Environment, known: tuple[str, ...]) -> Callable[..., Iterator[dict[str, Any]]]:
    def check(text: str, path: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
        for finding in hog.check(text, environment, kind="template", known=known):
            yield _shown(finding, path)

    return check


def _liquid(text: str, path: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
    if has_markup(text):
        try:
            LiquidTemplate.parse(text)
        except LiquidTemplateError as error:
            yield _placed("liquid", str(error), path, error.line, 1)


def _shown(diagnostic: Diagnostic, path: tuple[str | int, ...]) -> dict[str, Any]:
    return {
        **_placed(diagnostic.code, diagnostic.message, path, diagnostic.line, diagnostic.column),
        "severity": diagnostic.severity,
        "start": diagnostic.start,
        "end": diagnostic.end,
        "hint": diagnostic.hint,
    }


def _placed(
    code: str,
    message: str,
    path: tuple[str | int, ...],
    line: int | None = None,
    column: int | None = None,
) -> dict[str, Any]:
    """Return a finding. ``path``, on the wire, leads to a text inside the value of an input."""
    return {
        "attr": "__".join(map(str, path)) or None,
        "severity": "error",
        "code": code,
        "message": message,
        "line": line,
        "column": column,
        "start": None,
        "end": None,
        "hint": None,
        "refused": False,
        "path": [],
    }


# --- completion


def completions(function_type: str | None, purpose: Purpose) -> dict[str, Any]:
    """Return the globals and functions that a text of a function may name."""
    if purpose == "filter":
        environment = FILTER
        names = {name: GLOBALS.get(name, ("any", ""))[1] for name in sorted(FILTER_ROOTS)}
        names["event"] = "The name of the event."
        kinds = dict.fromkeys(names, "any") | {"event": "string", "properties": "object", "person": "object"}
    else:
        environment = (
            body_environment(function_type) if purpose == "body" else template_environment(function_type)
        )
        names = {name: GLOBALS[name][1] for name in known_globals(function_type)}
        kinds = {name: GLOBALS[name][0] for name in names}
    return {
        "globals": [{"name": name, "type": kinds[name], "description": text} for name, text in names.items()],
        "functions": [
            {
                "name": name,
                "signature": f"{name}({', '.join(map(str, function.params))})",
                "returns": "|".join(function.returns),
                "description": function.doc,
                "category": function.category,
                "is_async": function.is_async,
                "examples": [f"{expression} = {value}" for expression, value in function.examples],
            }
            for name, function in sorted(environment.functions.items())
            if not name.startswith("__")
        ],
    }
