"""Histories and states updated (spec experiment-results 11.4).

See `hoglab.analysis.incremental.aggregation`.

The rows of a table are computed into temporary tables first, each by a statement of its own, and then written in one
transaction with a note of their extent.
"""

# ruff: noqa: S608 - names of tables are made of digests, and numbers are numbers

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from hoglab.analysis.incremental.aggregation import (
    ENTITY,
    EVER,
    FURTHER,
    KNOWN,
    NEW_DAYS,
    NUMBER,
    OLD_DAYS,
    OTHERS,
    REBUILT,
    REBUILT_NUMBERS,
    RECENT,
    TOUCHED,
    TOUCHED_EVENTS,
    UNITS,
    IncrementalAggregation,
)
from hoglab.analysis.incremental.cache_tables import RefreshRun, insert, make, temporary_tables
from hoglab.analysis.incremental.materialization import Materialization
from hoglab.analysis.query.scope import SqlStatement
from hoglab.storage.event_store.transactions import transaction


def rebuild_histories(
    refresh: RefreshRun,
    view: Materialization,
    aggregation: IncrementalAggregation,
    note: Callable[[], None],
    *,
    merged: bool,
) -> None:
    """Build histories, states and sums from the logs; ``note`` their extent, in the transaction that writes them."""
    with temporary_tables(refresh, UNITS, NEW_DAYS):
        events = view.events(merged=merged)
        make(refresh, UNITS, aggregation.units(events), temporary=True)
        make(refresh, NEW_DAYS, aggregation.days(events), temporary=True)
        with transaction(refresh.reader):
            make(refresh, aggregation.history, SqlStatement(aggregation.recorded(0), {}))
            make(refresh, aggregation.state, SqlStatement(aggregation.new_states(), {}))
            make(refresh, view.sums_table, view.summed(f"({aggregation.changes(gone=False)})"))
            note()


def resume_histories(
    refresh: RefreshRun,
    view: Materialization,
    aggregation: IncrementalAggregation,
    delta: Delta,
    note: Callable[[int], None],
    *,
    merged: bool,
) -> None:
    """Continue entities from their states where possible, or let them go back; rebuild the others.

    ``note`` is called with 1, or with 0 where nothing changed, in the transaction of the changes.
    """
    with temporary_tables(
        refresh, OTHERS, KNOWN, RECENT, TOUCHED, TOUCHED_EVENTS, UNITS, FURTHER, NEW_DAYS, OLD_DAYS
    ):
        some = _look(refresh, view, aggregation, delta, merged=merged)
        if some.rebuilt or some.back:
            _read_touched(refresh, view, aggregation, some, merged=merged)
        if some.continuing:
            further = aggregation.further(_recent_events(view), back=some.back > 0)
            make(refresh, FURTHER, further, temporary=True)
            make(refresh, NEW_DAYS, aggregation.further_days(), temporary=True)
        if some.rebuilt:
            only = f" WHERE {ENTITY} IN ({REBUILT})" if some.back else ""
            events = f"SELECT * FROM {TOUCHED_EVENTS}{only}"
            make(refresh, UNITS, aggregation.units(events, first=aggregation.next_number), temporary=True)
            if some.continuing:
                insert(refresh, NEW_DAYS, aggregation.days(events))
            else:
                make(refresh, NEW_DAYS, aggregation.days(events), temporary=True)
        with transaction(refresh.reader):
            if some.rebuilt or some.continuing:
                _write(refresh, view, aggregation, some, delta.increment)
            note(1 if some.rebuilt or some.continuing else 0)
    refresh.work.entities = some.rebuilt + some.continuing
    refresh.work.resumed = some.continuing - some.back


def _write(
    refresh: RefreshRun,
    view: Materialization,
    aggregation: IncrementalAggregation,
    some: _TouchedCounts,
    increment: int,
) -> None:
    """Write the computed histories, states and sums."""
    if some.recorded:
        refresh.run(
            f"DELETE FROM {aggregation.history} WHERE rowid IN (SELECT place FROM {OLD_DAYS} WHERE is_gone)"
        )
        refresh.run(f"DELETE FROM {aggregation.state} WHERE number IN ({REBUILT_NUMBERS})")
    insert(refresh, aggregation.history, SqlStatement(aggregation.recorded(increment), {}))
    insert(refresh, view.sums_table, view.summed(f"({aggregation.changes(gone=some.recorded > 0)})"))
    if some.continuing:
        refresh.run(aggregation.update())
    if some.rebuilt:
        insert(refresh, aggregation.state, SqlStatement(aggregation.new_states(), {}))


@dataclass(frozen=True, slots=True)
class Delta:
    """The events and entities that a refresh adds.

    The events came in after the ``watermark``; ``others`` are statements for entities to examine for another reason.
    ``increment`` is the number of the increment that adds them.
    """

    watermark: int
    others: Sequence[SqlStatement]
    increment: int


@dataclass(frozen=True, slots=True)
class _TouchedCounts:
    """Numbers of entities that continue from their states, some after going ``back``, and of ``rebuilt`` ones.

    ``recorded`` is the number of entities that go back or are rebuilt with rows in the history, ``ever`` the number
    for which all events matter; the others matter from a moment on.
    """

    continuing: int = 0
    back: int = 0
    rebuilt: int = 0
    recorded: int = 0
    ever: int = 0
    since: datetime | None = None


_COUNTS = (
    f"SELECT (SELECT count(*) FROM {KNOWN}) - count(number) FILTER (day IS NULL), "
    "count(*) FILTER (day IS NOT NULL), count(*) FILTER (day IS NULL), count(number), "
    f"count(*) FILTER (since = {EVER}), make_timestamp(min(nullif(since, {EVER}))) FROM {TOUCHED}"
)


def _look(
    refresh: RefreshRun,
    view: Materialization,
    aggregation: IncrementalAggregation,
    delta: Delta,
    *,
    merged: bool,
) -> _TouchedCounts:
    """Find the entities with new events, and those of them that do not continue from their state."""
    watermark = {"watermark": delta.watermark}
    sql = " UNION ALL ".join(other.sql for other in delta.others) or "SELECT NULL AS entity LIMIT 0"
    values = {name: value for other in delta.others for name, value in other.parameters.items()}
    of_others = view.stated(sql, values)
    there_are = view.stated(f"SELECT EXISTS ({sql}), {view.has_recent}", values | watermark)
    [(others, recent)] = refresh.run(there_are.sql, there_are.parameters)
    if not others and not recent:
        return _TouchedCounts()
    if others:
        make(refresh, OTHERS, of_others, temporary=True)
    recent_events = aggregation.recent(view.recent(merged=merged), exposures_apart=len(view.logs) > 1)
    recent_statement = view.stated(recent_events, watermark)
    make(refresh, RECENT, recent_statement, temporary=True)
    make(refresh, KNOWN, SqlStatement(aggregation.known(others=others), {}), temporary=True)
    counted = view.restored(RECENT, [NUMBER], counted=True)
    exposed = view.exposed(merged=merged)
    touched = aggregation.touched(_recent_events(view), counted, exposed, others=others)
    make(refresh, TOUCHED, touched, temporary=True)
    return _TouchedCounts(*refresh.run(_COUNTS)[0])


def _recent_events(view: Materialization) -> str:
    return view.restored(RECENT, [NUMBER])


def _read_touched(
    refresh: RefreshRun,
    view: Materialization,
    aggregation: IncrementalAggregation,
    some: _TouchedCounts,
    *,
    merged: bool,
) -> None:
    """Read the events of touched entities that matter, and their history."""
    parts = []
    if some.ever:
        everything = f"SELECT entity FROM {TOUCHED} WHERE since = {EVER}"
        parts.append(view.events(merged=merged, where=f"{ENTITY} IN ({everything})"))
    if some.since is not None:
        late = f"SELECT entity FROM {TOUCHED} WHERE since > {EVER}"
        parts.append(view.events(merged=merged, where=f"timestamp >= $since AND {ENTITY} IN ({late})"))
    values = {} if some.since is None else {"since": some.since}
    make(refresh, TOUCHED_EVENTS, view.stated(" UNION ALL ".join(parts), values), temporary=True)
    if some.recorded:
        make(refresh, OLD_DAYS, SqlStatement(aggregation.old_days(), {}), temporary=True)
    if some.back:
        refresh.run(aggregation.go_back())
    if some.rebuilt:
        refresh.run(f"DELETE FROM {KNOWN} WHERE number IN ({REBUILT_NUMBERS})")
