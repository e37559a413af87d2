"""Functions that run in browsers: their compiled code and the answer to posthog-js (spec: hog-runtime 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog import FILTER, build_filter
from hoglab.filters.model import FilterError
from hoglab.functions import store
from hoglab.functions.environments import TEMPLATES
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.site.artefact import SiteMapping, compile_site_function, transpile_value
from hoglab.functions.site.source import SiteSourceError, javascript_of
from hoglab.hog import HogCompileError, HogSourceError, Input, compile_expression
from hoglab.storage.versioned_cache import VersionedCache

if TYPE_CHECKING:
    from hoglab.filters.hog import FilterContext
    from hoglab.hog import JavaScript, Program
    from hoglab.storage.database import Database

SITE_TYPES = frozenset({"site_destination", "site_app"})
"""The types whose code runs in browsers."""


def transpiled(javascript: JavaScript) -> dict[str, Any]:
    """Return generated code as the API shows it beside its source."""
    return {"lang": "ts", "code": javascript.code, "stl": list(javascript.stl)}


def transpile_input(value: Any) -> dict[str, Any]:
    """Return the expression for the value of an input. Raises `HogSourceError`."""
    return transpiled(transpile_value(value, TEMPLATES))


def filter_program(filters: Mapping[str, Any] | None, context: FilterContext) -> Program:
    """Return filters as an expression that browsers evaluate. Raises `FilterError` for those that they cannot."""
    program = compile_expression(build_filter(filters, context).node, FILTER)
    try:
        program.javascript  # noqa: B018 - finds functions that no browser has
    except HogCompileError as error:
        raise FilterError(error.message, "") from None
    return program


@dataclass(frozen=True, slots=True)
class SiteMappingParts:
    """One mapping: its schema, its plain inputs and its filters."""

    inputs_schema: Sequence[Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, Any]]
    filters: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SiteParts:
    """Parts of a site function. No secrets are among them: everybody can read what browsers receive."""

    hog: str
    inputs_schema: Sequence[Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, Any]]
    filters: Mapping[str, Any]
    mappings: Sequence[SiteMappingParts] = ()

    def transpile(self, context: FilterContext) -> str | None:
        """Return JavaScript for browsers; None when the filters cannot be compiled.

        Raises `InvalidFunctionError` for a source that is no module.
        """
        try:
            mappings = [
                SiteMapping(
                    filter_program(mapping.filters, context),
                    _inputs(mapping.inputs_schema, mapping.inputs, default=True),
                )
                for mapping in self.mappings
            ]
            filters = filter_program(self.filters, context)
        except FilterError:
            return None
        inputs = _inputs(self.inputs_schema, self.inputs)
        try:
            return compile_site_function(site_module(self.hog), inputs, filters, mappings, TEMPLATES)
        except HogSourceError as error:
            raise _refused(error.message, error.line, error.column) from None


def site_module(source: str) -> str:
    """Return the JavaScript of a source. Raises `InvalidFunctionError`."""
    try:
        return javascript_of(source)
    except SiteSourceError as error:
        raise _refused(error.message, error.line, error.column) from None


def _refused(message: str, line: int, column: int) -> InvalidFunctionError:
    place = {"message": message, "line": line, "column": column}
    return InvalidFunctionError("Error in TypeScript code", "hog", extra={"extra": place})


def _inputs(
    schema: Sequence[Mapping[str, Any]], items: Mapping[str, Mapping[str, Any]], *, default: bool = False
) -> tuple[Input, ...]:
    """Return the inputs in the order of their computation; those without a value are null, or their default."""
    public = [entry for entry in schema if not entry.get("secret")]
    missing = [
        Input(entry["key"], entry.get("default") if default else None, "plain")
        for entry in public
        if entry["key"] not in items
    ]
    shown = {entry["key"] for entry in public}
    ordered = sorted(items.items(), key=lambda pair: pair[1].get("order", -1))
    computed = [
        Input(key, item.get("value"), "hog" if "transpiled" in item else "plain")
        for key, item in ordered
        if key in shown
    ]
    return (*missing, *computed)


@dataclass(frozen=True, slots=True)
class SiteFunction:
    """One function as posthog-js gets it."""

    id: str
    code: str
    """A function expression; what it returns has ``init({posthog, callback})``."""


class SiteFunctions:
    """The enabled site functions of projects, read from the database only after a change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: VersionedCache[tuple[SiteFunction, ...]] = VersionedCache(database, ["functions"])

    def __call__(self, project_id: int) -> tuple[SiteFunction, ...]:
        """Return the functions of a project, oldest first."""

        def load(*_: object) -> tuple[SiteFunction, ...]:
            with self._database.read() as connection:
                rows = store.site_functions(connection, project_id, sorted(SITE_TYPES))
                return tuple(SiteFunction(row["id"], row["transpiled"]) for row in rows)

        return self._known.get(project_id, load)
