"""The ``filters`` of a function, arranged and compiled (spec: hog-functions-api 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog import FilterContext, build_filter, filter_bytecode
from hoglab.filters.model import FilterError
from hoglab.functions.errors import InvalidFunctionError, Path
from hoglab.functions.site import filter_program, transpiled

if TYPE_CHECKING:
    from hoglab.functions.configuration.schemas import Filters

TABLE_SOURCES = frozenset({"data-warehouse-table", "data-warehouse-view"})
CONDITIONS = ("events", "actions", "properties", "data_warehouse")

_IGNORED = {
    "events": {"data_warehouse"},
    "person-updates": {"events", "actions", "data_warehouse"},
    "data-warehouse-table": {"events", "actions"},
    "data-warehouse-view": {"events", "actions"},
}
_PLACEHOLDER_TABLE = "Select a table"


def arrange_filters(sent: Filters | None, function_type: str | None) -> dict[str, Any]:
    """Return the filters as they are stored, before compilation: only what the source knows, source always named."""
    given = {} if sent is None else sent.sent()
    source = given.get("source")
    if source is None:
        source = "internal-events" if function_type == "internal_destination" else "events"
    ignored = _IGNORED.get(source, set())
    arranged: dict[str, Any] = {"source": source}
    for name in CONDITIONS:
        if given.get(name) is not None and name not in ignored:
            arranged[name] = given[name]
    tables = arranged.get("data_warehouse")
    if tables is not None:
        arranged["data_warehouse"] = [
            table for table in tables if table.get("table_name") != _PLACEHOLDER_TABLE
        ]
    if given.get("filter_test_accounts") is not None:
        arranged["filter_test_accounts"] = given["filter_test_accounts"]
    return arranged


def bare_filters(stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return stored filters without the fields that were computed from them."""
    derived = ("bytecode", "bytecode_error", "transpiled")
    return {name: value for name, value in (stored or {}).items() if name not in derived}


def without_events(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters of a function that has mappings, which choose the events themselves."""
    return {name: value for name, value in filters.items() if name not in ("events", "actions")}


def compile_filters(
    filters: Mapping[str, Any], context: FilterContext, *, browser: bool = False
) -> dict[str, Any]:
    """Return the filters with ``bytecode``, or ``transpiled`` for a browser.

    The field is null beside a ``bytecode_error`` if they cannot be compiled.
    """
    bare = bare_filters(filters)
    name = "transpiled" if browser else "bytecode"
    try:
        if browser:
            return {**bare, name: transpiled(filter_program(bare, context).javascript)}
        return {**bare, name: filter_bytecode(build_filter(bare, context))}
    except FilterError as error:
        return {**bare, name: None, "bytecode_error": str(error)}


def checked_filters(
    filters: Mapping[str, Any],
    context: FilterContext,
    *,
    active: bool,
    browser: bool = False,
    path: Path = ("filters",),
) -> dict[str, Any]:
    """Return compiled filters. Raises `InvalidFunctionError` if an active function cannot have them."""
    if active and filters["source"] == "data-warehouse-view":
        tables = filters.get("data_warehouse") or []
        if not any(table.get("table_name") for table in tables):
            raise InvalidFunctionError("Select the materialized view to trigger on.", *path)
    compiled = compile_filters(filters, context, browser=browser)
    if active and "bytecode_error" in compiled:
        raise InvalidFunctionError(
            f"Invalid filter configuration: {compiled['bytecode_error']}", *path, "non_field_errors"
        )
    return compiled
