"""Merges of persons, applied to the ``person_override`` table (spec: sdk-wire 1.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.storage.event_store.arrow import ArrowTable, small_integers, uuids

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import duckdb

    from hoglab.storage.event_log import SequenceNumber
    from hoglab.storage.event_store import PersonOverride

    Person = tuple[int, UUID]


def write_overrides(
    connection: duckdb.DuckDBPyConnection, overrides: Sequence[PersonOverride], log_offset: SequenceNumber
) -> None:
    """Apply merges in order, inside the transaction of ``connection``.

    The table always leads to the final person in one step: when B becomes C, every person who became B before
    becomes C too. Rows that change say so with the ``log_offset``; the others are left alone.
    """
    changed = changed_by(overrides, _known(connection, overrides))
    if not changed:
        return
    keys = list(changed)
    kept = {key: person for key, person in changed.items() if person is not None}
    connection.register("merged", _table(keys, [key[1] for key in keys]))
    connection.execute(
        "DELETE FROM person_override USING merged WHERE person_override.project_id = merged.project_id "
        "AND person_override.old_person_id = merged.old_person_id"
    )
    connection.unregister("merged")
    if kept:
        connection.register("merged", _table(list(kept), list(kept.values())))
        connection.execute(
            "INSERT INTO person_override BY NAME SELECT *, $1::BIGINT AS log_offset FROM merged", [log_offset]
        )
        connection.unregister("merged")


def involved_in(overrides: Sequence[PersonOverride]) -> list[Person]:
    """Return everybody whom merges name, with their projects."""
    return list(
        dict.fromkeys(
            (override.project_id, person)
            for override in overrides
            for person in (override.old_person_id, override.person_id)
        )
    )


def changed_by(
    overrides: Sequence[PersonOverride], known: Sequence[tuple[int, UUID, UUID]]
) -> dict[Person, UUID | None]:
    """Return persons whose final person merges change, with the new one; None for a person that is final itself again.

    ``known`` has the project, old and final person of everybody who became, or is, one of those `involved_in` it.
    """
    before: dict[Person, UUID] = {(project, old): new for project, old, new in known}
    became = dict(before)
    old_people: dict[Person, set[UUID]] = {}
    for project, old, new in known:
        old_people.setdefault((project, new), set()).add(old)
    touched: dict[Person, None] = {}
    for override in overrides:
        _merge(override, became, old_people, touched)
    return {key: became.get(key) for key in touched if became.get(key) != before.get(key)}


def _known(
    connection: duckdb.DuckDBPyConnection, overrides: Sequence[PersonOverride]
) -> list[tuple[int, UUID, UUID]]:
    """Return the stored rows that have to do with anybody in these merges."""
    people = involved_in(overrides)
    connection.register("involved", _table(people, [person for _, person in people]))
    rows: list[tuple[int, UUID, UUID]] = connection.execute(
        "SELECT project_id, old_person_id, person_id FROM person_override AS stored "
        "WHERE (project_id, old_person_id) IN (SELECT (project_id, person_id) FROM involved) "
        "OR (project_id, person_id) IN (SELECT (project_id, person_id) FROM involved)"
    ).fetchall()
    connection.unregister("involved")
    return rows


def _merge(
    override: PersonOverride,
    became: dict[Person, UUID],
    old_people: dict[Person, set[UUID]],
    touched: dict[Person, None],
) -> None:
    project, old = override.project_id, override.old_person_id
    if old == override.person_id:
        return
    new = became.get((project, override.person_id), override.person_id)
    if new == old:  # the person that took over is itself taken over: it is alive again
        new = override.person_id
        old_people[project, old].discard(new)
        became.pop((project, new))
        touched[project, new] = None
    for moved in [old, *old_people.pop((project, old), ())]:
        previous = became.get((project, moved))
        if previous is not None:
            old_people.get((project, previous), set()).discard(moved)
        became[project, moved] = new
        old_people.setdefault((project, new), set()).add(moved)
        touched[project, moved] = None


def _table(keys: Sequence[Person], people: Sequence[UUID]) -> ArrowTable:
    return ArrowTable(
        {
            "project_id": small_integers([project for project, _ in keys]),
            "old_person_id": uuids([old for _, old in keys]),
            "person_id": uuids(people),
        }
    )
