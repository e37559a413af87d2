"""Sealing: events that are not new any more are sorted and compressed, to take little room and be found quickly.

New events are appended to the table ``events`` in the order in which they come. Later they are moved to
``sealed_events``, a segment at a time: the events of a range of ``seq``, sorted by project, name and person. So the
engine skips events of other names without reading them, and text of one kind lies side by side, which makes it
small. Each row has a ``place``, ascending in the order of the table; ``sealed_distinct_id`` tells the places of a
distinct id by a digest.

A segment is written in the transaction that deletes its events from where they were. Small ones, which come about
when little is sent, are merged later on.
"""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING, Any

from hoglab.storage.event_store.mirrored import shortened
from hoglab.storage.event_store.rows import COLUMNS, EVENTS_TABLE
from hoglab.storage.event_store.transactions import transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hoglab.storage.event_store import Reader

TIMEOUT_S = 600.0
"""Time limit of one statement."""

SPARSE_ROWS = 50_000
"""Number of deleted rows from which on the remaining rows are rewritten."""

ORDER = "project_id, event, person_id, timestamp, seq"

_COLUMNS = ", ".join(COLUMNS)
_KEPT = (
    "SELECT coalesce(sum(rows), 0) FROM (SELECT max(start + count) AS rows FROM pragma_storage_info('events') "
    "GROUP BY row_group_id)"
)
_SEGMENTS = "SELECT first_place, last_place, first_seq, last_seq FROM sealed_segment ORDER BY first_seq"


@dataclass(frozen=True, slots=True)
class SealingLimits:
    """Limits of sealing: the numbers of events at which it begins and ends."""

    segment_rows: int = 2 * 122_880
    """Events of a segment at most. What is sorted at once has to fit into the engine's memory or its spill file."""
    busy_rows: int = 61_440
    """Number of events that are sealed at once while others come in."""
    idle_rows: int = 20_480
    """Least number of events that are sealed while none come in."""
    recent_rows: int = 20_480
    """Number of the newest events that are never sealed: they are read most, and cost little to read as they are."""
    growth: int = 3
    """Divisor of a segment's size: it is merged with others if they are together at least as large as the quotient."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of ``sealed_events``: first and last place, first and last ``seq``."""

    first_place: int
    last_place: int
    first_seq: int
    last_seq: int

    @property
    def rows(self) -> int:
        return self.last_place - self.first_place + 1


def digest(project: str, distinct_id: str) -> str:
    """Return SQL of the number that ``sealed_distinct_id`` knows a distinct id of a project by."""
    return f"(md5_number_lower({project} || ' ' || {distinct_id}) >> 32)::UINTEGER"


def digest_of(project_id: int, distinct_id: str) -> int:
    """Return the number that SQL of `digest` gives."""
    text = f"{project_id} {distinct_id}".encode(errors="replace")
    return int.from_bytes(md5(text, usedforsecurity=False).digest()[12:], "little")


def segments(reader: Reader) -> list[Segment]:
    """Return all segments, oldest first."""
    return [Segment(*row) for row in _run(reader, _SEGMENTS)]


def seal(reader: Reader, limits: SealingLimits, *, is_idle: bool) -> int:
    """Seal or merge once, in a transaction of ``reader``, and return the rows written, 0 when nothing is to be done.

    Raises the engine's errors; then nothing has changed.
    """
    [(first, last)] = _run(reader, "SELECT min(seq), max(seq) FROM events")
    ready = 0 if first is None else last - first + 1 - limits.recent_rows
    if ready >= (limits.idle_rows if is_idle else limits.busy_rows):
        return rewrite(reader, [], through=first + min(ready, limits.segment_rows) - 1)
    if group := _mergeable(segments(reader), limits, is_idle=is_idle):
        return rewrite(reader, group)
    return 0


def _mergeable(known: Sequence[Segment], limits: SealingLimits, *, is_idle: bool) -> Sequence[Segment]:
    """Return neighbours that are worth merging into one segment; nothing when there are none."""
    for start in range(len(known)):
        end, rows = start, 0
        while end < len(known) and rows + known[end].rows <= limits.segment_rows:
            rows += known[end].rows
            end += 1
        group = known[start:end]
        largest = max((segment.rows for segment in group), default=0)
        is_full = rows > limits.segment_rows - limits.busy_rows
        if len(group) > 1 and largest <= limits.growth * (rows - largest) and (is_idle or is_full):
            return group
    return ()


def is_sparse(reader: Reader) -> bool:
    """Return whether ``events`` holds many more rows in the file than there are.

    The engine keeps all rows of a group of which one is left.
    """
    [(rows,)] = _run(reader, "SELECT count(*) FROM events")
    [(kept,)] = _run(reader, _KEPT)
    return bool(kept - rows > SPARSE_ROWS)


def tidy(reader: Reader) -> None:
    """Make room of what is left of sealed events in ``events``. Nobody may be appending."""
    with transaction(reader):
        for statement in (
            "ALTER TABLE events RENAME TO left_over",
            EVENTS_TABLE,
            "INSERT INTO events BY NAME SELECT * FROM left_over ORDER BY seq",
            "DROP TABLE left_over",
        ):
            _run(reader, statement)


def rewrite(
    reader: Reader,
    group: Sequence[Segment],
    *,
    through: int | None = None,
    without: str = "FALSE",
    parameters: Mapping[str, Any] | None = None,
) -> int:
    """Merge segments, and the unsealed events up to ``through``, into one segment, and return its number of rows.

    ``without``: events that meet this condition, which has ``parameters``, are left out.
    """
    origins = [(f"sealed_events WHERE {within(segment)} AND NOT {without}", "copied_at") for segment in group]
    if through is not None:
        origins.append((f"events WHERE seq <= {through} AND NOT {without}", ""))
    wide = [
        f"SELECT {_COLUMNS}, copied_at FROM {origin}"
        if is_sealed
        else f"SELECT {_COLUMNS}, copied_at FROM ({shortened(f'(SELECT {_COLUMNS} FROM {origin})')})"
        for origin, is_sealed in origins
    ]
    narrow = [f"SELECT {ORDER}, distinct_id FROM {origin}" for origin, _ in origins]
    with transaction(reader):
        [(base,)] = _run(reader, "SELECT coalesce(max(last_place), 0) + 1 FROM sealed_segment")
        place = f"{base - 1} + row_number() OVER"
        [(rows,)] = _run(
            reader,
            f"INSERT INTO sealed_events BY NAME SELECT {place} () AS place, * "
            f"FROM ({' UNION ALL '.join(wide)} ORDER BY {ORDER})",
            parameters,
        )
        _run(
            reader,
            f"INSERT INTO sealed_distinct_id SELECT {digest('project_id', 'distinct_id')} AS digest, "
            f"{place} (ORDER BY {ORDER}) FROM ({' UNION ALL '.join(narrow)}) ORDER BY digest, 2",
            parameters,
        )
        first_seq, last_seq = _extent(reader, group, through)
        for table in group:
            drop(reader, table)
        if through is not None:
            _run(reader, f"DELETE FROM events WHERE seq <= {through}")
        if rows:
            extent = f"{base}, {base + rows - 1}, {first_seq}, {last_seq}"
            _run(reader, f"INSERT INTO sealed_segment VALUES ({extent})")
    return int(rows)


def drop(reader: Reader, segment: Segment) -> None:
    """Delete a segment, in the transaction of the reader."""
    for table in ("sealed_events", "sealed_distinct_id"):
        _run(reader, f"DELETE FROM {table} WHERE {within(segment)}")
    _run(reader, f"DELETE FROM sealed_segment WHERE first_place = {segment.first_place}")


def _extent(reader: Reader, group: Sequence[Segment], through: int | None) -> tuple[int, int]:
    """Return the range of ``seq`` of what is put together."""
    bounds = [(segment.first_seq, segment.last_seq) for segment in group]
    if through is not None:
        [(first,)] = _run(reader, "SELECT min(seq) FROM events")
        bounds.append((first, through))
    return min(first for first, _ in bounds), max(last for _, last in bounds)


def within(segment: Segment) -> str:
    """Return SQL: whether a row is of the segment."""
    return f"place BETWEEN {segment.first_place} AND {segment.last_place}"


def _run(reader: Reader, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    return reader.execute(sql, parameters or None, timeout_s=TIMEOUT_S)
