"""The queries of hog functions and actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, select, update

from hoglab.actions import store as actions
from hoglab.filters.hog import FilterContext, ReferencedCohort
from hoglab.storage.database.tables import cohort, hog_function

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select

    from hoglab.http.identity import Project

Row = Mapping[str, Any]

UNSEEN_TYPE = "warehouse_source_webhook"
"""The type that this API neither shows nor changes."""

_column = hog_function.c
_visible = func.coalesce(_column.type, "") != UNSEEN_TYPE
_order = (_column.execution_order.is_(None), _column.execution_order, _column.updated_at.desc(), _column.id)

_SUMMARY = [
    column
    for column in hog_function.c
    if column.name not in ("bytecode", "inputs", "encrypted_inputs", "masking", "mappings", "inputs_schema")
]


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of functions for a list; None leaves a column unrestricted."""

    types: tuple[str, ...] | None = None
    enabled: bool | None = None
    id: str | None = None
    created_by: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def where(self, project_id: int) -> ColumnElement[bool]:
        clauses = [_column.project_id == project_id, _column.deleted.is_(False), _visible]
        if self.types is not None:
            clauses.append(func.coalesce(_column.type, "destination").in_(self.types))
        wanted = {
            _column.enabled: self.enabled,
            _column.id: self.id,
            _column.created_by_id: self.created_by,
            _column.created_at: self.created_at,
            _column.updated_at: self.updated_at,
        }
        clauses += [column == value for column, value in wanted.items() if value is not None]
        return and_(*clauses)


def _rows(connection: Connection, query: Select[Any]) -> list[Row]:
    return [dict(row) for row in connection.execute(query).mappings()]


def get(connection: Connection, project_id: int, function_id: str) -> Row | None:
    """Return one function of a project, deleted or not; None when there is none that this API may show."""
    query = select(hog_function).where(_column.project_id == project_id, _column.id == function_id, _visible)
    rows = _rows(connection, query)
    return rows[0] if rows else None


def by_id(connection: Connection, function_id: str) -> Row | None:
    """Return one function of any project, deleted or not; None when there is none."""
    rows = _rows(connection, select(hog_function).where(_column.id == function_id))
    return rows[0] if rows else None


def page(
    connection: Connection, project_id: int, selection: Selection, *, limit: int, offset: int, full: bool
) -> list[Row]:
    """Return functions in the order of the list; without ``full`` only the columns that lists show."""
    columns = [*hog_function.c] if full else _SUMMARY
    query = select(*columns).where(selection.where(project_id)).order_by(*_order).limit(limit).offset(offset)
    return _rows(connection, query)


def count(connection: Connection, project_id: int, selection: Selection) -> int:
    query = select(func.count()).select_from(hog_function).where(selection.where(project_id))
    return connection.scalar(query) or 0


def searchable(connection: Connection, project_id: int, selection: Selection) -> list[Row]:
    """Return the columns that searches and filters read, of every selected function in the order of the list."""
    columns = (_column.id, _column.name, _column.description, _column.filters)
    query = select(*columns).where(selection.where(project_id)).order_by(*_order)
    return _rows(connection, query)


def by_ids(connection: Connection, project_id: int, ids: Collection[str], *, full: bool) -> dict[str, Row]:
    columns = [*hog_function.c] if full else _SUMMARY
    query = select(*columns).where(_column.project_id == project_id, _column.id.in_(ids))
    return {row["id"]: row for row in _rows(connection, query)}


def all_of_type(connection: Connection, project_id: int, function_type: str) -> list[Row]:
    """Return every function of a type that is not deleted, by execution order."""
    query = (
        select(hog_function)
        .where(_column.project_id == project_id, _column.type == function_type, _column.deleted.is_(False))
        .order_by(*_order)
    )
    return _rows(connection, query)


def runnable(connection: Connection, project_id: int) -> list[Row]:
    """Return every function that may run, in the order of spec hog-runtime 0, step 5."""
    query = (
        select(hog_function)
        .where(_column.project_id == project_id, _column.enabled.is_(True), _column.deleted.is_(False))
        .order_by(_column.execution_order.is_(None), _column.execution_order, _column.created_at, _column.id)
    )
    return _rows(connection, query)


def enabled_functions(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    """Yield the functions of a project that may run, in words, with their filters."""
    for row in runnable(connection, project_id):
        yield (
            f'function "{row["name"]}" (ID: {row["id"]})',
            {name: row[name] for name in ("filters", "mappings")},
        )


def site_functions(connection: Connection, project_id: int, types: Sequence[str]) -> list[Row]:
    """Return the ids and the JavaScript of the enabled functions of some types, oldest first."""
    query = (
        select(_column.id, _column.transpiled)
        .where(
            _column.project_id == project_id,
            _column.type.in_(types),
            _column.enabled.is_(True),
            _column.deleted.is_(False),
            _column.transpiled.is_not(None),
        )
        .order_by(_column.created_at, _column.id)
    )
    return _rows(connection, query)


def everything(connection: Connection, project_id: int) -> list[Row]:
    """Return every function of a project that is not deleted."""
    query = select(hog_function).where(_column.project_id == project_id, _column.deleted.is_(False))
    return _rows(connection, query)


def projects_with_functions(connection: Connection) -> list[int]:
    return list(connection.scalars(select(_column.project_id).distinct()))


def add(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.execute(insert(hog_function).values(**values))


def change(connection: Connection, function_id: str, values: Mapping[str, Any]) -> None:
    if values:
        connection.execute(update(hog_function).where(_column.id == function_id).values(**values))


def count_active(connection: Connection, project_id: int, function_type: str) -> int:
    """Return the number of functions of a type that are enabled and not deleted."""
    query = (
        select(func.count())
        .select_from(hog_function)
        .where(
            _column.project_id == project_id,
            _column.type == function_type,
            _column.enabled.is_(True),
            _column.deleted.is_(False),
        )
    )
    return connection.scalar(query) or 0


def last_order(connection: Connection, project_id: int, function_type: str, but: str | None = None) -> int:
    """Return the highest execution order of a type's functions, 0 for none; ``but`` names one to leave out."""
    query = select(func.max(_column.execution_order)).where(
        _column.project_id == project_id, _column.type == function_type, _column.deleted.is_(False)
    )
    if but is not None:
        query = query.where(_column.id != but)
    return connection.scalar(query) or 0


def ever_of_template(connection: Connection, project_id: int, template_id: str) -> bool:
    """Return whether a project has a function of a template, or had one that was deleted."""
    query = select(_column.id).where(_column.project_id == project_id, _column.template_id == template_id)
    return connection.scalar(query.limit(1)) is not None


def first_order(connection: Connection, project_id: int, function_type: str) -> int | None:
    """Return the lowest execution order of a type's functions, None when no function has one."""
    query = select(func.min(_column.execution_order)).where(
        _column.project_id == project_id, _column.type == function_type, _column.deleted.is_(False)
    )
    first: int | None = connection.scalar(query)
    return first


def template_use(connection: Connection) -> Counter[str]:
    """Return the number of enabled functions made from each template."""
    query = (
        select(_column.template_id, func.count())
        .where(_column.template_id.is_not(None), _column.enabled.is_(True), _column.deleted.is_(False))
        .group_by(_column.template_id)
    )
    return Counter({row[0]: row[1] for row in connection.execute(query)})


def filter_context(connection: Connection, project: Project) -> FilterContext:
    """Return everything that filters of a project's functions may refer to."""
    columns = (cohort.c.id, cohort.c.name, cohort.c.filters, cohort.c.is_static)
    cohorts = connection.execute(
        select(*columns).where(cohort.c.project_id == project.id, cohort.c.deleted.is_(False))
    )
    return FilterContext(
        test_account_filters=project.test_account_filters,
        actions=actions.steps(connection, project.id),
        cohorts={row.id: _cohort(row) for row in cohorts},
        timezone=project.timezone,
        path_cleaning=bool(project.settings.get("path_cleaning_filters")),
    )


def _cohort(row: Any) -> ReferencedCohort:
    return ReferencedCohort(row.id, row.name or "", row.filters, bool(row.is_static))


def ids_of(rows: Iterable[Row]) -> list[str]:
    return [row["id"] for row in rows]
