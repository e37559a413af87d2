"""Erasing events: not only out of answers, but out of the file.

The engine marks rows as deleted and leaves their bytes where they were. So segments that lose events are rewritten
without them, what is left of recent events too, and blocks of the file that are free are overwritten. A segment that
loses all its events is dropped whole.
"""

# ruff: noqa: S608 - names of our own, and numbers

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hoglab.storage.event_store import EventsBefore, EventsOfPersons
from hoglab.storage.event_store.rows import FILLER
from hoglab.storage.event_store.sealed.sealing import TIMEOUT_S, Segment, rewrite, segments, within

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import ErasableEvents, Reader

_BLOCKS = (
    "SELECT block_size, free_blocks FROM pragma_database_size() WHERE database_name = current_database()"
)


# The places of the rows in each group of the engine. Rows that were added since the last checkpoint are in none.
_ROW_GROUPS = (
    "SELECT min(stats.min::BIGINT), max(stats.max::BIGINT) FROM pragma_storage_info('sealed_events') "
    "WHERE column_name = 'place' AND segment_type <> 'VALIDITY' GROUP BY row_group_id"
)
_METADATA = "SELECT coalesce(sum(len(free_list)), 0) FROM pragma_metadata_info()"

_SINCE = (
    "SELECT DISTINCT distinct_id FROM stored_events WHERE project_id = $project_id AND log_offset > $log_offset "
    "AND distinct_id IN (SELECT unnest($distinct_ids::VARCHAR[]))"
)

ROW_GROUP_ROWS = 122_880
"""Rows that the engine keeps together."""


def _condition_of(events: ErasableEvents) -> tuple[str, dict[str, Any]]:
    """Return SQL over a row of stored events, and its parameters."""
    match events:
        case EventsBefore(project_id, moment):
            values = {"project_id": project_id, "moment": moment}
            return "(project_id = $project_id AND timestamp < $moment)", values
        case EventsOfPersons(project_id, person_ids, distinct_ids, log_offset):
            values = {
                "project_id": project_id,
                "log_offset": log_offset,
                "person_ids": list(map(str, person_ids)),
                "distinct_ids": list(distinct_ids),
            }
            condition = (
                "(project_id = $project_id AND log_offset <= $log_offset "
                "AND (coalesce(person_id IN (SELECT unnest($person_ids::VARCHAR[])::UUID), FALSE) "
                "OR distinct_id IN (SELECT unnest($distinct_ids::VARCHAR[]))))"
            )
            return condition, values


def uuids(reader: Reader, events: ErasableEvents) -> list[UUID]:
    """Return the uuids of the events that `erase` would delete."""
    condition, values = _condition_of(events)
    sql = f"SELECT uuid FROM stored_events WHERE {condition}"
    return [uuid for (uuid,) in reader.execute(sql, values, timeout_s=TIMEOUT_S)]


def distinct_ids_since(
    reader: Reader, project_id: int, distinct_ids: Sequence[str], log_offset: SequenceNumber
) -> set[str]:
    """Return which of some distinct ids have events in later log records."""
    values = {"project_id": project_id, "distinct_ids": list(distinct_ids), "log_offset": log_offset}
    return {name for (name,) in reader.execute(_SINCE, values)}


def erase(reader: Reader, events: ErasableEvents) -> int:
    """Delete events, and return how many. Their bytes go with `DuckDbEventStore.scrub`.

    Each step is a transaction: after a failure some may be gone. Raises as `Reader.execute`.
    """
    condition, values = _condition_of(events)

    def count(rows: str) -> int:
        [(number,)] = reader.execute(
            f"SELECT count(*) FROM {rows} AND {condition}", values, timeout_s=TIMEOUT_S
        )
        return int(number)

    erased = 0
    for group in _sharing(reader):
        losses = [count(f"sealed_events WHERE {within(segment)}") for segment in group]
        if not any(losses) and not any(_has_holes(reader, segment) for segment in group):
            continue
        _fill_up(reader)
        # Also those that lose nothing: the engine keeps rows of a group of which one is left.
        for segment in group:
            rewrite(reader, [segment], without=condition, parameters=values)
        reader.execute(f"DELETE FROM sealed_events WHERE place = {FILLER}", timeout_s=TIMEOUT_S)
        erased += sum(losses)
    recent = count("events WHERE TRUE")
    if recent:
        reader.execute(f"DELETE FROM events WHERE {condition}", values, timeout_s=TIMEOUT_S)
    return erased + recent


def _has_holes(reader: Reader, segment: Segment) -> bool:
    """Return whether a segment has the bytes of events that were deleted one by one: corrections do that."""
    [(rows,)] = reader.execute(
        f"SELECT count(*) FROM sealed_events WHERE {within(segment)}", timeout_s=TIMEOUT_S
    )
    return bool(rows < segment.rows)


def _sharing(reader: Reader) -> list[list[Segment]]:
    """Return segments in the order of the table.

    Those of which rows may lie in one group of the engine are together.
    """
    ranges = reader.execute(_ROW_GROUPS, timeout_s=TIMEOUT_S)
    groups: list[list[Segment]] = []
    reached = 0  # up to which place the row groups of the last segments go
    for segment in sorted(segments(reader), key=attrgetter("first_place")):
        if groups and segment.first_place <= reached:
            groups[-1].append(segment)
        else:
            groups.append([segment])
        reached = max(
            [
                reached,
                *(
                    last
                    for first, last in ranges
                    if first <= segment.last_place and last >= segment.first_place
                ),
            ]
        )
    return groups


def _fill_up(reader: Reader) -> None:
    """Fill the last group of rows with rows that are no events, so that the next sealed events begin another."""
    nothing = ", ".join(
        f"{value} AS {name}"
        for name, value in {
            "seq": -1, "project_id": -1, "uuid": "uuid()", "event": "''", "distinct_id": "''",
            "timestamp": "TIMESTAMP '1970-01-01'", "captured_at": "TIMESTAMP '1970-01-01'", "person_mode": "''",
            "log_offset": -1, "elements_chain": "''", "properties": "'{}'", "person_properties": "'{}'",
        }.items()
    )  # fmt: skip
    reader.execute(
        f"INSERT INTO sealed_events BY NAME SELECT {FILLER} AS place, {nothing}, 0 AS copied_at "
        f"FROM range({ROW_GROUP_ROWS})",
        timeout_s=TIMEOUT_S,
    )


def overwrite_free_blocks(reader: Reader) -> None:
    """Write over blocks of the file that are free: they hold what was deleted.

    The caller makes checkpoints before, in between and after (see `DuckDbEventStore.scrub`).
    """
    [(size, free)] = reader.execute(_BLOCKS)
    numbers = int(size) // 8 * (int(free) + 8)
    reader.execute("CREATE OR REPLACE TABLE overwritten (number BIGINT USING COMPRESSION uncompressed)")
    reader.execute(f"INSERT INTO overwritten FROM range({numbers})", timeout_s=TIMEOUT_S)
    # Least and greatest values stand beside the description of tables, in parts of blocks that are reused one by one.
    [(parts,)] = reader.execute(_METADATA)
    reader.execute(f"COMMENT ON TABLE overwritten IS '{'.' * (4096 * (int(parts) + 64))}'")
