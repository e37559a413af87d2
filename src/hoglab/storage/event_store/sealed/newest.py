"""The newest events that meet a condition: reading costs what is found, not what is stored.

First only what decides the order is read, from the newest window of time on, until there is enough; windows that lie
further back are longer. Then the columns that are asked for are read of the rows that were found. A query for
somebody's events by distinct id is told the places of sealed ones by an index, unless there are too many of them.
"""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from hoglab.storage.event_store.mirrored import restored
from hoglab.storage.event_store.rows import rows_of_events
from hoglab.storage.event_store.sealed.sealing import digest_of
from hoglab.storage.event_store.transactions import transaction

if TYPE_CHECKING:
    from hoglab.storage.event_store import Reader, Wanted

FIRST_WINDOW = timedelta(hours=1)
GROWTH = 24
MAX_WINDOW = timedelta(days=366 * 30)
"""A window that is longer reaches back to the beginning."""
MAX_PLACES = 2_000
"""Sealed events that the index is asked for; a person with more of them has some in the newest windows."""

Key = tuple[datetime, int, int]
"""Sort key of an event: its time, its ``seq``, and its row id, -1 where it is not sealed."""


def newest_events(
    reader: Reader, wanted: Wanted, columns: Sequence[str], *, limit: int, offset: int = 0, timeout_s: float
) -> list[tuple[Any, ...]]:
    """Return some columns of the newest events in ``stored_events``, newest first. Raises as `Reader.execute`."""
    keys: list[Key] = []
    with transaction(reader):  # in between, events may be sealed
        for relation, bounds in _parts(reader, wanted, timeout_s):
            missing = limit + offset - len(keys)
            keys += _keys(reader, wanted, relation, bounds, missing, timeout_s)
            if len(keys) >= limit + offset:
                break
        return rows_at(
            lambda sql: reader.execute(sql, timeout_s=timeout_s),
            [(seq, row_id) for _, seq, row_id in keys[offset:]],
            columns,
        )


_Bounds = tuple[datetime | None, datetime | None]


def _parts(reader: Reader, wanted: Wanted, timeout_s: float) -> Iterator[tuple[str, _Bounds]]:
    """Yield relations with the times from which on and before which they are asked, such that later ones are older."""
    relation = partial(rows_of_events, needs_whole="whole_properties" in wanted.condition)
    if wanted.distinct_ids is not None:
        places = _places(reader, wanted, timeout_s)
        if len(places) <= MAX_PLACES:
            chosen = f"place IN (SELECT unnest([{', '.join(map(str, places))}]::BIGINT[]))"
            yield f"{relation(sealed=chosen)} AS events", (None, wanted.before)
            return
    until = wanted.before
    newest = wanted.before or _newest_recent(reader, wanted.project_id, timeout_s) or datetime.now(UTC)
    window = FIRST_WINDOW
    while window <= MAX_WINDOW:
        since = _earlier(newest, window)
        if wanted.after is not None and since <= wanted.after:
            break
        yield f"{relation()} AS events", (since, until)
        until = newest = since
        window *= GROWTH
    yield f"{relation()} AS events", (None, until)


def _earlier(moment: datetime, by: timedelta) -> datetime:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    least = datetime(1, 1, 2, tzinfo=UTC)
    return aware - by if aware - least > by else least


def _newest_recent(reader: Reader, project_id: int, timeout_s: float) -> datetime | None:
    """Return the timestamp of the newest event that is not sealed; None without any."""
    sql = "SELECT max(timestamp) FROM events WHERE project_id = $project_id AND timestamp <= $now"
    values = {"project_id": project_id, "now": datetime.now(UTC)}
    [(newest,)] = reader.execute(sql, values, timeout_s=timeout_s)
    return None if newest is None else newest.replace(tzinfo=UTC)


def _places(reader: Reader, wanted: Wanted, timeout_s: float) -> list[int]:
    digests = {digest_of(wanted.project_id, distinct_id) for distinct_id in wanted.distinct_ids or ()}
    if not digests:
        return []
    rows = reader.execute(
        f"SELECT place FROM sealed_distinct_id WHERE digest IN ({', '.join(map(str, digests))}) "
        f"LIMIT {MAX_PLACES + 1}",
        timeout_s=timeout_s,
    )
    return [place for (place,) in rows]


def _keys(
    reader: Reader, wanted: Wanted, relation: str, bounds: _Bounds, limit: int, timeout_s: float
) -> list[Key]:
    since, until = bounds
    conditions = {
        "project_id = $project_id": wanted.project_id,
        "timestamp > $after": wanted.after,
        "timestamp >= $since": since,
        "timestamp < $until": until,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    values = {condition.rpartition("$")[2]: value for condition, value in given.items()}
    sql = (
        f"SELECT timestamp, seq, row_id FROM {relation} WHERE {' AND '.join(given)} AND {wanted.condition} "
        "ORDER BY timestamp DESC, seq DESC LIMIT $limit"
    )
    rows = reader.execute(sql, {**wanted.parameters, **values, "limit": limit}, timeout_s=timeout_s)
    return [(timestamp, seq, row_id) for timestamp, seq, row_id in rows]


def rows_at(
    run: Callable[[str], list[tuple[Any, ...]]], rows: Sequence[tuple[int, int]], columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return some columns of events in the order given: each by its ``seq``, and its row id, -1 where it is not sealed.

    ``run`` gives all rows of a query, in the transaction in which the row ids were read.
    """
    recent = [str(seq) for seq, row_id in rows if row_id < 0]
    sealed = [str(row_id) for _, row_id in rows if row_id >= 0]
    names = ", ".join("properties" if name == "whole_properties" else name for name in columns)
    by_seq: dict[int, tuple[Any, ...]] = {}
    if recent:
        by_seq |= {
            row[0]: row[1:]
            for row in run(f"SELECT seq, {names} FROM events WHERE seq IN ({', '.join(recent)})")
        }
    if sealed:
        # By their numbers the engine fetches rows alone; else it reads all of the blocks that they are in.
        chosen = f"SELECT unnest([{', '.join(sealed)}])"
        fetched = run(f"SELECT copied_at, seq, {names} FROM sealed_events WHERE rowid IN ({chosen})")
        at = columns.index("whole_properties") if "whole_properties" in columns else None
        for copied_at, seq, *values in fetched:
            if at is not None:
                values[at] = restored(values[at], copied_at)
            by_seq[seq] = tuple(values)
    return [by_seq[seq] for seq, _ in rows]
