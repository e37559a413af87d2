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
    ANEW,
    ENTITY,
    EVER,
    FURTHER,
    KNOWN,
    NEW_DAYS,
    NUMBERS_ANEW,
    OLD_DAYS,
    RECENT,
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
    """Make contributions, or histories and states, from the logs."""
    resuming = kept.resuming
    if resuming is None:
        statement = kept.contributions(merged=merged)
        with transaction(refresh.reader):
            _make(refresh, kept.table, statement)
            _note(refresh, kept, merges, increments=0)
    else:
        with _temporary_tables(refresh, UNITS, NEW_DAYS):
            _compute(refresh, resuming, kept.events(merged=merged))
            with transaction(refresh.reader):
                _make(refresh, kept.table, Statement(resuming.recorded(0), {}))
                _make(refresh, resuming.state, Statement(resuming.new_states(), {}))
                _make(refresh, kept.sums_table, kept.summed(f"({resuming.changes(gone=False)})"))
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
    """Let entities go on from their states where they can, or go back; compute the others anew."""
    with _temporary_tables(
        refresh, KNOWN, RECENT, TOUCHED, TOUCHED_EVENTS, UNITS, FURTHER, NEW_DAYS, OLD_DAYS
    ):
        some = _find_touched(refresh, kept, resuming, known, merged=merged)
        if some.entities:
            _read_touched(refresh, kept, resuming, some, merged=merged)
        if some.anew:
            anew = f" WHERE {ENTITY} IN ({ANEW})" if some.back else ""
            _compute(refresh, resuming, f"SELECT * FROM {TOUCHED_EVENTS}{anew}", first=resuming.next_number)
        [(going_on,)] = refresh.run(f"SELECT count(*) FROM {KNOWN}")
        if going_on:
            _make(
                refresh,
                FURTHER,
                resuming.further(_recent_events(kept, resuming), back=some.back > 0),
                temporary=True,
            )
            if some.anew:
                _insert(refresh, NEW_DAYS, resuming.further_days())
            else:
                _make(refresh, NEW_DAYS, resuming.further_days(), temporary=True)
        increments = known.increments + (1 if some.entities or going_on else 0)
        with transaction(refresh.reader):
            if some.recorded:
                refresh.run(
                    f"DELETE FROM {kept.table} WHERE rowid IN (SELECT place FROM {OLD_DAYS} WHERE is_gone)"
                )
                refresh.run(f"DELETE FROM {resuming.state} WHERE number IN ({NUMBERS_ANEW})")
            if some.entities or going_on:
                _insert(refresh, kept.table, Statement(resuming.recorded(increments), {}))
                changes = resuming.changes(gone=some.recorded > 0)
                _insert(refresh, kept.sums_table, kept.summed(f"({changes})"))
            if going_on:
                refresh.run(resuming.update())
            if some.anew:
                _insert(refresh, resuming.state, Statement(resuming.new_states(), {}))
            _note(refresh, kept, merges, increments=increments)
    refresh.work.entities = some.anew + going_on
    refresh.work.resumed = going_on - some.back


@dataclass(frozen=True, slots=True)
class _Touched:
    """How many entities do not go on from their states: computed anew, going back, of them those that may have a
    history, and those of whom all events matter; and from when on events of the others matter."""

    anew: int
    back: int
    recorded: int
    ever: int
    since: datetime | None

    @property
    def entities(self) -> int:
        return self.anew + self.back


_COUNTS = (
    "SELECT count(*) FILTER (day IS NULL), count(*) FILTER (day IS NOT NULL), count(number), "
    f"count(*) FILTER (since = {EVER}), make_timestamp(min(nullif(since, {EVER}))) FROM {TOUCHED}"
)


def _find_touched(
    refresh: Refresh, kept: Kept, resuming: Resuming, known: Covered, *, merged: bool
) -> _Touched:
    """See whose events are new, and who of them does not go on from its state."""
    others = list(_reached_or_merged(kept, known, merged=merged))
    of_others: dict[str, Any] = {name: value for _, more in others for name, value in more.items()}
    recent = resuming.recent(kept.recent(merged=merged))
    _make(refresh, RECENT, kept.stated(recent, {"watermark": known.watermark}), temporary=True)
    states = resuming.known([sql for sql, _ in others])
    _make(refresh, KNOWN, kept.stated(states, of_others), temporary=True)
    by_events = resuming.touched(_recent_events(kept, resuming), kept.exposed(merged=merged))
    parts = [f"SELECT entity, number, since, day FROM ({by_events.sql}) AS by_events"]
    parts += [
        f"SELECT other.entity, known.number, {EVER}, NULL FROM ({sql}) AS other "
        f"LEFT JOIN {KNOWN} AS known ON known.entity = other.entity"
        for sql, _ in others
    ]
    found = (
        f"SELECT entity, max(number) AS number, coalesce(min(since), {resuming.begin_of_day('min(day)')}) AS since, "
        f"CASE WHEN min(since) IS NULL THEN min(day) END AS day FROM ({' UNION ALL '.join(parts)}) AS touched "
        "GROUP BY entity"
    )
    _make(refresh, TOUCHED, kept.stated(found, of_others), temporary=True)
    return _Touched(*refresh.run(_COUNTS)[0])


def _recent_events(kept: Kept, resuming: Resuming) -> str:
    return kept.restored(RECENT, resuming.columns_of_known)


def _read_touched(refresh: Refresh, kept: Kept, resuming: Resuming, some: _Touched, *, merged: bool) -> None:
    """Read what there is of touched entities: the events that matter, and their history."""
    parts = []
    if some.ever:
        everything = f"SELECT entity FROM {TOUCHED} WHERE since = {EVER}"
        parts.append(kept.events(merged=merged, where=f"{ENTITY} IN ({everything})"))
    if some.since is not None:
        late = f"SELECT entity FROM {TOUCHED} WHERE since > {EVER}"
        parts.append(kept.events(merged=merged, where=f"timestamp >= $since AND {ENTITY} IN ({late})"))
    values = {} if some.since is None else {"since": some.since}
    _make(refresh, TOUCHED_EVENTS, kept.stated(" UNION ALL ".join(parts), values), temporary=True)
    if some.recorded:
        _make(refresh, OLD_DAYS, Statement(resuming.old_days(), {}), temporary=True)
    if some.back:
        refresh.run(resuming.go_back())
    if some.anew:
        refresh.run(f"DELETE FROM {KNOWN} WHERE number IN ({NUMBERS_ANEW})")


def _compute(refresh: Refresh, resuming: Resuming, events: str, *, first: str = "1") -> None:
    """Make `UNITS`, numbered from ``first`` on, and `NEW_DAYS` of entities from all events of theirs that matter."""
    _make(refresh, UNITS, resuming.units(events, first=first), temporary=True)
    _make(refresh, NEW_DAYS, resuming.days(events), temporary=True)


# -- others --------------------------------------------------------------------------------------------


def _compute_touched(refresh: Refresh, kept: Kept, known: Covered, merges: int, *, merged: bool) -> None:
    """Compute those entities again whose events are not the same as before."""
    recent = kept.events(merged=merged, where="seq > $watermark")
    # Whoever may have been exposed, and what contributed under a person that is another one now.
    exposed = f"{kept.exposed(merged=merged)} UNION ALL SELECT entity FROM {kept.table}"
    touched = [f"SELECT {ENTITY} AS entity FROM ({recent}) AS recent"]
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
            f"SELECT {ENTITY} AS entity "
            f"FROM ({kept.events(merged=merged, where='timestamp >= $reached AND seq <= $watermark')}) AS ahead"
        )
        yield ahead, {"reached": known.span_end, "watermark": known.watermark}
    if kept.is_of_people:
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
    statement = kept.summed(kept.sums_table) if kept.reads_sums else kept.query.statement
    return refresh.run(statement.sql, statement.parameters)


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
