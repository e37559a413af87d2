"""Contributions and states updated (spec experiment-results 11.4), and summed.

The rows of a table are computed into temporary tables first, each by a statement of its own, and then written in one
transaction with a note of their extent.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isclose
from operator import add
from typing import Any

from hoglab.analysis.incremental.aggregation import ENTITY, TOUCHED
from hoglab.analysis.incremental.cache_tables import (
    TO_BE_REBUILT,
    RefreshRun,
    insert,
    make,
    naive,
    temporary_tables,
)
from hoglab.analysis.incremental.materialization import SCHEMA, Materialization
from hoglab.analysis.incremental.resume import Delta, rebuild_histories, resume_histories
from hoglab.analysis.query.scope import SqlStatement
from hoglab.storage.event_store.transactions import transaction

TOLERANCE = 1e-9
"""Maximum distance of incremental sums from rebuilt ones, in relation to their size."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Extent of a table of contributions, from the catalog."""

    watermark: int
    span_end: datetime
    merges: int
    increments: int


def covered(refresh: RefreshRun, view: Materialization) -> Covered | None:
    """Return the extent of the contributions; None without any that can go on."""
    rows = refresh.run(
        f"SELECT watermark, span_end, merges, increments FROM {SCHEMA}.contributions WHERE key = $key",
        {"key": view.key},
    )
    return Covered(*rows[0]) if rows and rows[0][0] != TO_BE_REBUILT else None


def rebuild(refresh: RefreshRun, view: Materialization, merges: int, *, merged: bool) -> None:
    """Build contributions, or histories and states, from the logs."""

    def note() -> None:
        refresh.run(f"DELETE FROM {SCHEMA}.contributions WHERE key = $key", {"key": view.key})
        refresh.run(
            f"INSERT INTO {SCHEMA}.contributions (key, logs) VALUES ($key, $logs)",
            {"key": view.key, "logs": [log.key for log in view.logs]},
        )
        _note(refresh, view, merges, increments=0)

    refresh.work.rebuilt = True
    if view.aggregation is not None:
        rebuild_histories(refresh, view, view.aggregation, note, merged=merged)
        return
    with transaction(refresh.reader):
        make(refresh, view.table, view.contributions(merged=merged))
        note()


def increment(
    refresh: RefreshRun, view: Materialization, known: Covered, merges: int, *, merged: bool
) -> None:
    """Add the changes since the last update of the contributions."""

    def note(more: int) -> None:
        _note(refresh, view, merges, increments=known.increments + more)

    here = Covered(refresh.newest, naive(view.question.span.end), merges, known.increments)
    if known == here:
        note(0)
        return
    others = list(_reached_or_merged(view, known, merges, merged=merged))
    if view.aggregation is not None:
        delta = Delta(known.watermark, others, known.increments + 1)
        resume_histories(refresh, view, view.aggregation, delta, note, merged=merged)
    else:
        _compute_touched(refresh, view, known.watermark, others, note, merged=merged)


def _compute_touched(
    refresh: RefreshRun,
    view: Materialization,
    watermark: int,
    others: Sequence[SqlStatement],
    note: Callable[[int], None],
    *,
    merged: bool,
) -> None:
    """Compute the entities again whose events have changed."""
    recent = view.events(merged=merged, where="seq > $watermark")
    # Entities that may have been exposed, and persons with contributions who have been merged since.
    exposed = f"{view.exposed(merged=merged)} UNION ALL SELECT entity FROM {view.table}"
    touched = [f"SELECT {ENTITY} AS entity FROM ({recent}) AS recent", *(other.sql for other in others)]
    values: dict[str, Any] = {name: value for other in others for name, value in other.parameters.items()}
    touched_sql = f"SELECT DISTINCT entity FROM ({' UNION ALL '.join(touched)}) WHERE entity IN ({exposed})"
    with temporary_tables(refresh, TOUCHED):
        make(refresh, TOUCHED, view.stated(touched_sql, values | {"watermark": watermark}), temporary=True)
        [(entities,)] = refresh.run(f"SELECT count(*) FROM {TOUCHED}")
        with transaction(refresh.reader):
            if entities:
                refresh.run(f"DELETE FROM {view.table} WHERE entity IN (SELECT entity FROM {TOUCHED})")
                insert(refresh, view.table, view.contributions(merged=merged, touched=True))
            note(1 if entities else 0)
    refresh.work.entities = entities


def _reached_or_merged(
    view: Materialization, known: Covered, merges: int, *, merged: bool
) -> Iterator[SqlStatement]:
    """Yield entities with older events that matter only now, and merged ones."""
    end = naive(view.question.span.end)
    if known.span_end < end:
        ahead = view.events(merged=merged, where="timestamp >= $reached AND seq <= $watermark")
        values = {"reached": known.span_end, "watermark": known.watermark}
        yield SqlStatement(f"SELECT {ENTITY} AS entity FROM ({ahead}) AS ahead", values)
    if view.is_of_people and known.merges < merges:
        values = {"project": view.question.exposures.project_id, "merges": known.merges}
        sql = (
            f"SELECT person_id AS entity FROM {SCHEMA}.merge WHERE project_id = $project AND number > $merges"
        )
        yield SqlStatement(sql, values)


def _note(refresh: RefreshRun, view: Materialization, merges: int, *, increments: int) -> None:
    """Record the extent of the contributions in the catalog, in the transaction that writes them."""
    refresh.run(
        f"UPDATE {SCHEMA}.contributions SET watermark = $watermark, span_end = $end, merges = $merges, "
        "increments = $increments, used = $used WHERE key = $key",
        {
            "key": view.key,
            "watermark": refresh.newest,
            "end": naive(view.question.span.end),
            "merges": merges,
            "increments": increments,
            "used": time.time(),
        },
    )


# -- sums ----------------------------------------------------------------------------------------------


def sums(refresh: RefreshRun, view: Materialization) -> list[tuple[Any, ...]]:
    """Return the rows that answer the statement of ``view``."""
    statement = view.query.statement
    return refresh.run(statement.sql, statement.parameters)


def same(view: Materialization, some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> bool:
    """Return whether sums are equal apart from rounding; a missing row is a row of zeros."""
    key = 1 + len(view.question.exposures.breakdowns) + (view.query.question.span.days is not None)
    mine, theirs = (_by_place(rows, key) for rows in (some, others))
    for place in mine.keys() | theirs.keys():
        pair = (mine.get(place), theirs.get(place))
        width = len(pair[0] or pair[1] or ())
        left, right = (numbers or (0,) * width for numbers in pair)
        if not all(map(_close, left, right)):
            return False
    return True


def _by_place(rows: list[tuple[Any, ...]], key: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Group rows by the columns before ``key``; several rows of one place are parts of the same sums."""
    totals: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        place, numbers = row[:key], row[key:]
        parts = totals.get(place)
        totals[place] = numbers if parts is None else tuple(map(add, parts, numbers))
    return totals


def _close(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    return isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
