"""Merges of persons in ClickHouse: the row of somebody counts that the database of persons wrote last.

Several processes write them, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hoglab.storage.event_store.clickhouse.schema import OVERRIDES
from hoglab.storage.event_store.overrides import changed_by, involved_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import PersonOverride
    from hoglab.storage.event_store.clickhouse.connection import Connection

MERGE_TYPES: Final = {
    "project_id": "Int32",
    "old_person_id": "UUID",
    "person_id": "UUID",
    "version": "Int64",
    "log_partition": "UInt16",
    "log_offset": "Int64",
}


def write_merges(
    connection: Connection, overrides: Sequence[PersonOverride], partition: int, log_offset: SequenceNumber
) -> None:
    """Apply merges in order. The same again changes nothing.

    Somebody who is alive again became themselves.
    """
    people = list({person for _, person in involved_in(overrides)})
    known = _known(connection, people)
    changed = changed_by(overrides, known)
    if not changed:
        return
    versions = {(override.project_id, override.old_person_id): override.version for override in overrides}
    newest = max(versions.values())
    columns: dict[str, Sequence[Any]] = {
        "project_id": [project for project, _ in changed],
        "old_person_id": [old for _, old in changed],
        "person_id": [old if became is None else became for (_, old), became in changed.items()],
        "version": [versions.get(key, newest) for key in changed],
        "log_partition": [partition] * len(changed),
        "log_offset": [log_offset] * len(changed),
    }
    connection.insert(OVERRIDES, MERGE_TYPES, columns)


def _known(connection: Connection, people: Sequence[UUID]) -> list[tuple[int, UUID, UUID]]:
    """Return the merges that have to do with anybody of these."""
    listed = ", ".join(f"'{person}'" for person in people)
    rows = connection.rows(
        "SELECT project_id, old_person_id, person_id FROM person_override "  # noqa: S608
        f"WHERE old_person_id IN ({listed}) OR person_id IN ({listed})"
    )
    return [(project, old, new) for project, old, new in rows]
