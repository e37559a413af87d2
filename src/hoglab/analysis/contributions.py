"""Contributions and states brought up to date (spec experiment-results 11.4), and summed.

What is computed for a table is put into temporary tables first, each by a statement of its own, and then written
in one transaction with a note of how far it goes.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from math import isclose
from operator import add
from typing import Any

from hoglab.analysis.query.kept import SCHEMA, Kept
from hoglab.analysis.query.resuming import (
    CHANGED,
    EVER,
    FURTHER,
    GONE,
    KNOWN,
    NEW,
    OLD,
    RECENT,
    STEPS,
    TOUCHED,
    TOUCHED_EVENTS,
    UNITS,
    Resuming,
)
from hoglab.analysis.query.scope import Statement
from hoglab.analysis.state_tables import Refresh, naive, transaction
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError

TOLERANCE = 1e-9
"""How far sums of increments may be from those made anew, in relation to their size."""


@dataclass(frozen=True, slots=True)
class Covered:
    """What the catalog says of a table of contributions: how far it goes."""

    watermark: int
    span_end: datetime
    merges: int
    increments: int


def covered(refresh: Refresh, kept: Kept) -> Covered | None:
    """How far the contributions go; None when there are none."""
    found = refresh.run(
        f"SELECT watermark, span_end, merges, increments FROM {SCHEMA}.contributions WHERE key = $key",
        {"key": kept.key},
    )
    return Covered(*found[0]) if found else None


def rebuild(refresh: Refresh, kept: Kept, merges: int, *, merged: bool) -> None:
    """Make contributions and states from the logs."""
    resuming = kept.resuming
    if resuming is None:
        statement = kept.contributions(merged=merged)
        with transaction(refresh.reader):
            _make(refresh, kept.table, statement)
            _note(refresh, kept, merges, increments=0)
    else:
        events = kept.events(merged=merged)
        with _temporary_tables(refresh, UNITS, STEPS):
            _compute(refresh, resuming, events)
            with transaction(refresh.reader):
                _make(refresh, kept.table, resuming.changes())
                refresh.run(f"CREATE OR REPLACE TABLE {resuming.state} AS {resuming.states()}")
                refresh.run(f"DROP TABLE IF EXISTS {kept.sums_table}")
                _note(refresh, kept, merges, increments=0)
    refresh.work.rebuilt = True


def increment(refresh: Refresh, kept: Kept, known: Covered, merges: int, *, merged: bool) -> None:
    """Take in what is new since the contributions were brought up to date."""
    here = Covered(refresh.newest, naive(kept.question.span.end), merges, known.increments)
    if known == here:
        _note(refresh, kept, merges, increments=known.increments)
        return
    resuming = kept.resuming
    if resuming is None:
        _compute_touched(refresh, kept, known, merges, merged=merged)
    else:
        _resume(refresh, kept, resuming, known, merges, merged=merged)


# -- entities that go on from their states -------------------------------------------------------------


def _resume(
    refresh: Refresh, kept: Kept, resuming: Resuming, known: Covered, merges: int, *, merged: bool
) -> None:
    """Let entities go on from their states where they can; compute the others again."""
    _sum_up(refresh, kept)
    recent = kept.events(merged=merged, where="seq > $watermark")
    with _temporary_tables(
        refresh, RECENT, KNOWN, TOUCHED, TOUCHED_EVENTS, UNITS, STEPS, FURTHER, GONE, CHANGED
    ):
        _make(refresh, RECENT, kept.stated(recent, {"watermark": known.watermark}), temporary=True)
        _make(refresh, KNOWN, Statement(resuming.known(), {}), temporary=True)
        _make(refresh, TOUCHED, _touched(kept, resuming, known, merged=merged), temporary=True)
        refresh.run(f"DELETE FROM {KNOWN} WHERE entity IN (SELECT entity FROM {TOUCHED})")
        [(touched, resumed, old, since)] = refresh.run(
            f"SELECT (SELECT count(*) FROM {TOUCHED}), (SELECT count(*) FROM {KNOWN}), "
            f"(SELECT count(*) FROM ({OLD})), (SELECT make_timestamp(min(nullif(since, {EVER}))) FROM {TOUCHED})"
        )
        if touched:
            parts = [kept.events(merged=merged, where=f"{kept.entity} IN ({OLD})")] if old else []
            if since is not None:
                parts.append(
                    kept.events(merged=merged, where=f"timestamp >= $since AND {kept.entity} IN ({NEW})")
                )
            values = {} if since is None else {"since": since}
            _make(refresh, TOUCHED_EVENTS, kept.stated(" UNION ALL ".join(parts), values), temporary=True)
            _compute(refresh, resuming, f"SELECT * FROM {TOUCHED_EVENTS}")
        if old:
            _make(refresh, GONE, Statement(resuming.gone(kept.table), {}), temporary=True)
        _make(refresh, CHANGED, Statement(f"SELECT * FROM {kept.table} LIMIT 0", {}), temporary=True)
        if touched:
            _insert(refresh, CHANGED, resuming.changes())
        if resumed:
            _make(refresh, FURTHER, resuming.further(), temporary=True)
            _insert(refresh, CHANGED, resuming.further_changes())
        with transaction(refresh.reader):
            if old:
                refresh.run(f"DELETE FROM {kept.table} WHERE rowid IN (SELECT place FROM {GONE})")
                refresh.run(f"DELETE FROM {resuming.state} WHERE entity IN ({OLD})")
            if touched or resumed:
                _insert(refresh, kept.table, Statement(f"SELECT * FROM {CHANGED}", {}))
                gone = f"SELECT * EXCLUDE (place) FROM {GONE}"
                both = f"({gone} UNION ALL SELECT * FROM {CHANGED})" if old else CHANGED
                _insert(refresh, kept.sums_table, kept.summed(both))
            if resumed:
                refresh.run(resuming.update())
            if touched:
                _insert(refresh, resuming.state, Statement(resuming.states(), {}))
            some = 1 if touched or resumed else 0
            _note(refresh, kept, merges, increments=known.increments + some)
    refresh.work.entities = touched + resumed
    refresh.work.resumed = resumed


def _compute(refresh: Refresh, resuming: Resuming, events: str) -> None:
    """Make `UNITS` and `STEPS` from all events of some entities."""
    _make(refresh, UNITS, resuming.units(events), temporary=True)
    _make(refresh, STEPS, resuming.steps(events), temporary=True)


def _touched(kept: Kept, resuming: Resuming, known: Covered, *, merged: bool) -> Statement:
    """Entities that have to be computed again, and since when their events matter."""
    by_events = resuming.touched(kept.exposed(merged=merged))
    parts = [f"SELECT entity, since FROM ({by_events.sql}) AS by_events"]
    values = dict(by_events.parameters)
    for sql, more in _reached_or_merged(kept, known, merged=merged):
        parts.append(f"SELECT entity, {EVER} FROM ({sql}) AS by_time")
        values |= more
    found = (
        f"SELECT entity, min(since) AS since FROM ({' UNION ALL '.join(parts)}) AS touched GROUP BY entity"
    )
    return kept.stated(found, values)


# -- others --------------------------------------------------------------------------------------------


def _compute_touched(refresh: Refresh, kept: Kept, known: Covered, merges: int, *, merged: bool) -> None:
    """Compute those entities again whose events are not the same as before."""
    recent = kept.events(merged=merged, where="seq > $watermark")
    # Whoever may have been exposed, and what contributed under a person that is another one now.
    exposed = f"{kept.exposed(merged=merged)} UNION ALL SELECT entity FROM {kept.table}"
    touched = [f"SELECT {kept.entity} AS entity FROM ({recent}) AS recent"]
    values: dict[str, Any] = {"watermark": known.watermark}
    for sql, more in _reached_or_merged(kept, known, merged=merged):
        touched.append(sql)
        values |= more
    found = f"SELECT DISTINCT entity FROM ({' UNION ALL '.join(touched)}) WHERE entity IN ({exposed})"
    with _temporary_tables(refresh, TOUCHED):
        _make(refresh, TOUCHED, kept.stated(found, values), temporary=True)
        [(entities,)] = refresh.run(f"SELECT count(*) FROM {TOUCHED}")
        with transaction(refresh.reader):
            if entities:
                refresh.run(f"DELETE FROM {kept.table} WHERE entity IN (SELECT entity FROM {TOUCHED})")
                statement = kept.contributions(merged=merged, touched=True)
                _insert(refresh, kept.table, statement)
            _note(refresh, kept, merges, increments=known.increments + (1 if entities else 0))
    refresh.work.entities = entities


def _reached_or_merged(kept: Kept, known: Covered, *, merged: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entities with older events whose time has come, and those that were merged."""
    end = naive(kept.question.span.end)
    if known.span_end < end:
        ahead = (
            f"SELECT {kept.entity} AS entity "
            f"FROM ({kept.events(merged=merged, where='timestamp >= $reached AND seq <= $watermark')}) AS ahead"
        )
        yield ahead, {"reached": known.span_end, "watermark": known.watermark}
    if kept.entity == "person_id":
        sql = (
            f"SELECT person_id AS entity FROM {SCHEMA}.merge WHERE project_id = $project AND number > $merges"
        )
        yield sql, {"project": kept.question.exposures.project_id, "merges": known.merges}


# -- tables --------------------------------------------------------------------------------------------


def _make(refresh: Refresh, table: str, statement: Statement, *, temporary: bool = False) -> None:
    kind = "TEMP TABLE" if temporary else "TABLE"
    refresh.run(f"CREATE OR REPLACE {kind} {table} AS {statement.sql}", statement.parameters)


def _insert(refresh: Refresh, table: str, statement: Statement) -> None:
    refresh.run(f"INSERT INTO {table} {statement.sql}", statement.parameters)


@contextmanager
def _temporary_tables(refresh: Refresh, *tables: str) -> Iterator[None]:
    """The tables, which the block makes, are gone after it."""
    try:
        yield
    except BaseException:
        with suppress(QueryError, EventStoreUnavailableError):  # the error before this one is the one to tell
            _drop(refresh, tables)
        raise
    _drop(refresh, tables)


def _drop(refresh: Refresh, tables: tuple[str, ...]) -> None:
    for table in tables:
        refresh.run(f"DROP TABLE IF EXISTS {table}")


def _note(refresh: Refresh, kept: Kept, merges: int, *, increments: int) -> None:
    """Put into the catalog what the contributions cover, in the transaction that writes them."""
    refresh.run(f"DELETE FROM {SCHEMA}.contributions WHERE key = $key", {"key": kept.key})
    refresh.run(
        f"INSERT INTO {SCHEMA}.contributions VALUES ($key, $logs, $watermark, $end, $merges, $increments, $used)",
        {
            "key": kept.key,
            "logs": [log.key for log in kept.logs],
            "watermark": refresh.newest,
            "end": naive(kept.question.span.end),
            "merges": merges,
            "increments": increments,
            "used": time.time(),
        },
    )


# -- sums ----------------------------------------------------------------------------------------------


def sums(refresh: Refresh, kept: Kept) -> list[tuple[Any, ...]]:
    """The rows that answer the statement of ``kept``."""
    statement = kept.query.statement
    if kept.reads_sums:
        _sum_up(refresh, kept)
        statement = kept.summed(kept.sums_table)
    return refresh.run(statement.sql, statement.parameters)


def _sum_up(refresh: Refresh, kept: Kept) -> None:
    """Make the table of sums, if it is not there: not with the contributions, which their transaction cannot read."""
    statement = kept.summed(kept.table)
    refresh.run(f"CREATE TABLE IF NOT EXISTS {kept.sums_table} AS {statement.sql}", statement.parameters)


def same(kept: Kept, some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> bool:
    """Whether rows of sums are the same apart from rounding; a row that is missing is one of zeros."""
    key = 1 + len(kept.question.exposures.breakdowns) + (kept.query.question.span.days is not None)
    mine, theirs = (_by_place(rows, key) for rows in (some, others))
    for place in mine.keys() | theirs.keys():
        pair = (mine.get(place), theirs.get(place))
        width = len(pair[0] or pair[1] or ())
        left, right = (found or (0,) * width for found in pair)
        if not all(map(_close, left, right)):
            return False
    return True


def _by_place(rows: list[tuple[Any, ...]], key: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows by what comes before ``key``; several of one place are parts of the same sums."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        place, numbers = row[:key], row[key:]
        parts = found.get(place)
        found[place] = numbers if parts is None else tuple(map(add, parts, numbers))
    return found


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
