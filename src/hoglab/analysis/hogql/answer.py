"""The statement of a ``HogQLQuery``, and its answer as PostHog shows it."""

# ruff: noqa: S608 - see hoglab.analysis.query.scope

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution import StatementRunner, explained_failures
from hoglab.analysis.hogql.kinds import TYPES, shown
from hoglab.analysis.hogql.reading import HogqlQuery
from hoglab.analysis.hogql.translation import (
    GroupTranslation,
    QueryScope,
    RowTranslation,
    has_aggregate,
    same,
)
from hoglab.analysis.query.days import zone_of
from hoglab.analysis.query.event_relation import RESOLVED_EVENTS
from hoglab.analysis.query.expressions import ExpressionKind, Sql
from hoglab.analysis.query.scope import SqlStatement
from hoglab.filters import FilterError
from hoglab.hog import nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoglab.http.identity import Project
    from hoglab.storage.event_store.dialects import Dialect

MAX_ANSWER_BYTES = 16 * 2**20
"""Maximum size of the rows of an answer, as JSON."""
PLACE = "query.query:"
ALL = ("uuid", "event", "properties", "timestamp", "distinct_id", "elements_chain", "created_at", "person_id")
"""Columns that ``*`` stands for."""


def hogql_answer(
    runner: StatementRunner, project: Project, query: HogqlQuery, text: str, now: datetime
) -> dict[str, Any]:
    """Answer a query about the events of a project. Raises `DefinitionError` and `ComputationError`."""
    names, columns, statement = built(runner.dialect, project, query, now)
    with explained_failures(runner.timeout_s), runner.reader() as reader:
        rows = runner.executed(reader, statement)
    zone = zone_of(project.timezone)
    results = [
        [shown(value, column.kind, zone) for value, column in zip(row, columns, strict=True)]
        for row in rows[: query.limit]
    ]
    size = len(orjson.dumps(results))
    if size > MAX_ANSWER_BYTES:
        raise DefinitionError(
            f"The answer has {size:,} bytes, more than {MAX_ANSWER_BYTES:,}: ask for fewer columns or rows."
        )
    return {
        "kind": "HogQLQuery",
        "results": results,
        "columns": names,
        "types": [[name, TYPES[column.kind]] for name, column in zip(names, columns, strict=True)],
        "hasMore": len(rows) > query.limit,
        "limit": query.limit,
        "offset": query.offset,
        "query": text,
        "hogql": text,
        "error": None,
    }


def check_hogql(dialect: Dialect, project: Project, query: HogqlQuery, now: datetime) -> None:
    """Raise `DefinitionError` for a query that cannot be computed, before it waits for its turn."""
    built(dialect, project, query, now)


def built(
    dialect: Dialect, project: Project, query: HogqlQuery, now: datetime
) -> tuple[list[str], list[Sql], SqlStatement]:
    """Return names and columns of the answer, and the statement. Raises `DefinitionError`."""
    try:
        return _built(dialect, project, query, now)
    except FilterError as error:
        raise DefinitionError(str(error)) from error


def _built(
    dialect: Dialect, project: Project, query: HogqlQuery, now: datetime
) -> tuple[list[str], list[Sql], SqlStatement]:
    scope = QueryScope.of(dialect, now, zone_of(project.timezone), query.values)
    asked = [
        (name, nodes.Field(column.start, column.end, (name,)) if chosen == "*" else column)
        for chosen, column in query.columns
        for name in (ALL if chosen == "*" and isinstance(column, nodes.Field) else (chosen,))
    ]
    parts = [column for _, column in asked]
    counts = any(has_aggregate(part) for part in (*parts, *([] if query.having is None else [query.having])))
    groups = list(query.group_by)
    if query.distinct:
        if counts or groups:
            raise DefinitionError(f"{PLACE} DISTINCT cannot be used with aggregates or GROUP BY")
        groups = parts
    plain = {alias: part for alias, part in query.aliases.items() if not has_aggregate(part)}
    rows = RowTranslation(scope, PLACE, None, scope, query.table, plain)
    conditions = [f"project_id = {scope.bind(project.id)}"]
    if query.where is not None:
        conditions.append(rows.whole(query.where, RowTranslation.truth))
    inner: dict[str, str] = {}
    keys: dict[bytes, Sql] = {}
    outer = GroupTranslation(
        scope, PLACE, None, scope, query.table, query.aliases, counts or bool(groups), keys, inner
    )
    for group in groups:
        meant = query.aliases.get(group.chain[0], group) if isinstance(group, nodes.Field) else group
        keys[same(meant)] = keys[same(group)] = outer.column(rows.sized(meant))
    columns = [outer.sized(part) for part in parts]
    having = "" if query.having is None else f" HAVING {outer.whole(query.having, GroupTranslation.truth)}"
    order = [f"{outer.sized(part).text} {'DESC' if falls else 'ASC'}" for part, falls in query.order_by]
    grouped = f" GROUP BY {', '.join(dict.fromkeys(key.text for key in keys.values()))}" if keys else ""
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    chosen = ", ".join(f"{column.text} AS r{number}" for number, column in enumerate(columns))
    inner_columns = ", ".join(f"{sql} AS {name}" for sql, name in inner.items()) or "1 AS c0"
    matched = f"SELECT {inner_columns} FROM {RESOLVED_EVENTS} WHERE {' AND '.join(conditions)}"
    sql = (
        f"SELECT {chosen} FROM ({matched}) AS matched{grouped}{having}{ordered} "
        f"LIMIT {query.limit + 1} OFFSET {query.offset}"
    )
    sql = _cut(sql, [column.kind for column in columns])
    return [name for name, _ in asked], columns, SqlStatement(dialect.finished(sql), scope.parameters.values)


def _cut(sql: str, kinds: Sequence[ExpressionKind]) -> str:
    """Return the statement without the rows behind `MAX_ANSWER_BYTES` of text, which are refused, not sent.

    The row that goes beyond the limit is kept, so that the answer is seen to be too large.
    """
    texts = [
        f"coalesce(length(r{number}), 0)" for number, kind in enumerate(kinds) if kind is ExpressionKind.TEXT
    ]
    if not texts:
        return sql
    names = ", ".join(f"r{number}" for number in range(len(kinds)))
    size = " + ".join(texts)
    before = f"sum({size}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - ({size})"
    return (
        f"SELECT {names} FROM (SELECT {names}, {before} AS before FROM ({sql}) AS answered) AS weighed "
        f"WHERE before <= {MAX_ANSWER_BYTES}"
    )
