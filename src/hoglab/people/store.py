"""The queries of persons and groups. Every statement works on a whole batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import orjson
import sqlalchemy as sa
from sqlalchemy import BindParameter, Connection, bindparam

from hoglab.people.batch import IngestionWarning, PeopleBatch
from hoglab.people.groups import GroupChange
from hoglab.people.person_states import insert_distinct_ids, insert_persons, update_persons
from hoglab.people.properties import MAX_PROPERTIES_BYTES
from hoglab.storage.database import DatabaseConflictError
from hoglab.storage.database.person_rows import person_rows
from hoglab.storage.database.tables import (
    cohort_person,
    feature_flag,
    flag_hash_key_override,
    group,
    group_type,
    ingestion_progress,
    ingestion_warning,
    person,
    person_distinct_id,
    person_override,
)
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import PersonOverride

NAMES_PER_QUERY = 2_000
WARNINGS_PER_TYPE = 100
"""Maximum number of warnings of one type that a batch writes for one project; further ones are only counted."""

T = TypeVar("T")


def chunks(values: Iterable[T], size: int = NAMES_PER_QUERY) -> Iterator[list[T]]:
    """Yield the values in lists that fit one statement."""
    every = list(values)
    for start in range(0, len(every), size):
        yield every[start : start + size]


def save_persons(connection: Connection, batch: PeopleBatch) -> None:
    """Write what a batch did to the persons of its project: new ones, changes, distinct ids, merges."""
    project_id = batch.project_id
    living = [person for person in batch.persons() if person.into is None and person.changed]
    new = [person for person in living if person.row_id is None]
    if new:
        insert_persons(connection, project_id, new)
    old = [person for person in living if person.is_stored]
    if old:
        for row in old:
            row.version += 1
        update_persons(connection, old)
    if batch.new_distinct_ids:
        insert_distinct_ids(connection, project_id, batch.new_distinct_ids)
    gone = [(person.row_id, person.root().row_id) for person in batch.merged if person.is_stored]
    if gone:
        _move_to_survivors(connection, [(old_id, new_id) for old_id, new_id in gone if old_id and new_id])
    visitors = batch.visitors()
    if visitors:
        _keep_bucketing(connection, project_id, visitors)


def claim_persons(connection: Connection, batch: PeopleBatch) -> None:
    """Lock the persons that a batch changes until the end of the transaction.

    Raises `DatabaseConflictError` when another transaction changed any of them since they were loaded.
    """
    versions = list(batch.touched().items())
    if person_rows(connection).claim(connection, versions) < len(versions):
        raise DatabaseConflictError("persons of a batch were changed by another process meanwhile")


def _move_to_survivors(connection: Connection, moves: Sequence[tuple[int, int]]) -> None:
    """Move everything that belongs to merged persons to the persons they were merged into, and delete them.

    What the survivor has already stays as it is.
    """
    pairs = [{"gone": gone, "into": into} for gone, into in moves]
    gone: BindParameter[int] = bindparam("gone", type_=sa.Integer)
    into: BindParameter[int] = bindparam("into", type_=sa.Integer)
    connection.execute(
        sa.update(person_distinct_id)
        .where(person_distinct_id.c.person_id == gone)
        .values(person_id=into, version=person_distinct_id.c.version + 1),
        pairs,
    )
    ours = cohort_person.alias()
    connection.execute(
        sa.insert(cohort_person).from_select(
            ["cohort_id", "person_id"],
            sa.select(cohort_person.c.cohort_id, into).where(
                cohort_person.c.person_id == gone,
                ~sa.exists().where(ours.c.person_id == into, ours.c.cohort_id == cohort_person.c.cohort_id),
            ),
        ),
        pairs,
    )
    theirs, kept = flag_hash_key_override, flag_hash_key_override.alias()
    connection.execute(
        sa.insert(theirs).from_select(
            ["project_id", "person_id", "feature_flag_key", "hash_key"],
            sa.select(theirs.c.project_id, into, theirs.c.feature_flag_key, theirs.c.hash_key).where(
                theirs.c.person_id == gone,
                ~sa.exists().where(
                    kept.c.project_id == theirs.c.project_id,
                    kept.c.person_id == into,
                    kept.c.feature_flag_key == theirs.c.feature_flag_key,
                ),
            ),
        ),
        pairs,
    )
    connection.execute(sa.delete(person).where(person.c.id == gone), pairs)  # the rest goes by cascade


def _keep_bucketing(connection: Connection, project_id: int, visitors: Mapping[int, str]) -> None:
    """Give persons who logged in the bucketing of their anonymous ids, as a request for flags at that moment does.

    Only for active flags that persist across log-in; bucketing ids that a person has stay. The request may be
    answered before the person exists, and the next one, which names no anonymous id, must not see another variant.
    """
    flag, stored = feature_flag.c, flag_hash_key_override
    persists = sa.and_(
        flag.project_id == project_id,
        flag.deleted.is_(False),
        flag.active.is_(True),
        flag.ensure_experience_continuity.is_(True),
    )
    if connection.execute(sa.select(flag.id).where(persists).limit(1)).first() is None:
        return
    person_id: BindParameter[int] = bindparam("visitor", type_=sa.Integer)
    anonymous_id: BindParameter[str] = bindparam("anonymous_id", type_=sa.String)
    connection.execute(
        sa.insert(stored).from_select(
            ["project_id", "person_id", "feature_flag_key", "hash_key"],
            sa.select(flag.project_id, person_id, flag.key, anonymous_id).where(
                persists,
                ~sa.exists().where(
                    stored.c.project_id == project_id,
                    stored.c.person_id == person_id,
                    stored.c.feature_flag_key == flag.key,
                ),
            ),
        ),
        [{"visitor": row_id, "anonymous_id": name} for row_id, name in visitors.items()],
    )


def save_overrides(
    connection: Connection, project_id: int, overrides: Mapping[UUID, UUID], log_offset: SequenceNumber
) -> list[PersonOverride]:
    """Write person overrides; older ones that led to a person who is gone now lead further.

    Returns every override that is new or changed.
    """
    version = person_rows(connection).moment(connection)
    final = dict(overrides)
    for olds in chunks(str(person_id) for person_id in overrides):
        for old, target in connection.execute(
            sa.select(person_override.c.old_person_id, person_override.c.person_id).where(
                person_override.c.project_id == project_id, person_override.c.person_id.in_(olds)
            )
        ):
            final.setdefault(UUID(old), overrides[UUID(target)])
    for olds in chunks(str(person_id) for person_id in final):
        connection.execute(
            sa.delete(person_override).where(
                person_override.c.project_id == project_id, person_override.c.old_person_id.in_(olds)
            )
        )
    if final:
        connection.execute(
            sa.insert(person_override),
            [
                {
                    "project_id": project_id,
                    "old_person_id": str(old),
                    "person_id": str(new),
                    "log_offset": log_offset,
                }
                for old, new in final.items()
            ],
        )
    return [PersonOverride(project_id, old, new, version) for old, new in final.items()]


def load_overrides(connection: Connection, after: int, until: int | None) -> list[PersonOverride]:
    """Return the overrides that log records between two offsets caused, as they are now."""
    version = person_rows(connection).moment(
        connection
    )  # read first, so that later changes have a newer version
    rows = connection.execute(
        sa.select(
            person_override.c.project_id, person_override.c.old_person_id, person_override.c.person_id
        ).where(
            person_override.c.log_offset > after,
            sa.true() if until is None else person_override.c.log_offset <= until,
        )
    )
    return [PersonOverride(project_id, UUID(old), UUID(new), version) for project_id, old, new in rows]


def load_position(connection: Connection, stage: str) -> SequenceNumber:
    """Return the log offset up to which events of a stage were applied to persons; 0 when none were."""
    offset = connection.execute(
        sa.select(ingestion_progress.c.log_offset).where(ingestion_progress.c.stage == stage)
    ).scalar()
    return SequenceNumber(offset or 0)


def save_position(connection: Connection, stage: str, log_offset: SequenceNumber) -> None:
    """Store the log offset up to which events of a stage were applied to persons."""
    moved = connection.execute(
        sa.update(ingestion_progress).where(ingestion_progress.c.stage == stage).values(log_offset=log_offset)
    )
    if moved.rowcount == 0:
        connection.execute(sa.insert(ingestion_progress), {"stage": stage, "log_offset": log_offset})


def save_warnings(connection: Connection, warnings: Sequence[IngestionWarning], at: datetime) -> None:
    """Write warnings that are not there yet, at most `WARNINGS_PER_TYPE` of a type for one project."""
    kept: dict[tuple[int, str], dict[str, IngestionWarning]] = {}
    for warning in warnings:
        group_ = kept.setdefault((warning.project_id, warning.type), {})
        if len(group_) < WARNINGS_PER_TYPE:
            group_[str(warning.event_uuid)] = warning
    for (project_id, kind), by_event in kept.items():
        known = set(
            connection.scalars(
                sa.select(ingestion_warning.c.event_uuid).where(
                    ingestion_warning.c.project_id == project_id,
                    ingestion_warning.c.type == kind,
                    ingestion_warning.c.event_uuid.in_(list(by_event)),
                )
            )
        )
        rows = [
            {
                "project_id": project_id,
                "type": kind,
                "event_uuid": uuid,
                "details": warning.details,
                "timestamp": at,
            }
            for uuid, warning in by_event.items()
            if uuid not in known
        ]
        if rows:
            connection.execute(sa.insert(ingestion_warning), rows)


def delete_warnings(connection: Connection, before: datetime) -> int:
    """Delete warnings older than a moment, and return how many they were."""
    return connection.execute(
        sa.delete(ingestion_warning).where(ingestion_warning.c.timestamp < before)
    ).rowcount


def load_group_types(connection: Connection, project_id: int) -> dict[str, int]:
    """Return the index of every group type of a project."""
    rows = connection.execute(
        sa.select(group_type.c.group_type, group_type.c.group_type_index)
        .where(group_type.c.project_id == project_id)
        .order_by(group_type.c.group_type_index)
    )
    return {name: index for name, index in rows}  # noqa: C416 - rows are not tuples for mypy


def save_group_types(
    connection: Connection, project_id: int, new_types: Mapping[str, tuple[int, datetime]]
) -> None:
    connection.execute(
        sa.insert(group_type),
        [
            {"project_id": project_id, "group_type": name, "group_type_index": index, "created_at": at}
            for name, (index, at) in new_types.items()
        ],
    )


def save_groups(
    connection: Connection, project_id: int, changes: Mapping[tuple[int, str], GroupChange]
) -> list[IngestionWarning]:
    """Merge new properties into those of groups, creating groups that are missing.

    Returns a warning for each group that would become too large; it stays as it was.
    """
    stored: dict[tuple[int, str], tuple[dict[str, Any], int]] = {}
    for keys in chunks(sorted({key for _, key in changes})):
        for row in connection.execute(
            sa.select(group)
            .where(group.c.project_id == project_id, group.c.group_key.in_(keys))
            .order_by(group.c.group_type_index, group.c.group_key)
            .with_for_update()
        ):
            stored[row.group_type_index, row.group_key] = (row.properties, row.version)
    warnings: list[IngestionWarning] = []
    inserts: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    for (index, key), change in changes.items():
        before, version = stored.get((index, key), ({}, -1))
        after = {**before, **change.properties}
        size = len(orjson.dumps(after))
        if size > MAX_PROPERTIES_BYTES:
            details = {"group_type_index": index, "group_key": key, "bytes": size}
            kind = "group_properties_size_violation"
            warnings.append(IngestionWarning(project_id, kind, change.event_uuid, details))
        elif version < 0:
            inserts.append(
                {
                    "project_id": project_id,
                    "group_type_index": index,
                    "group_key": key,
                    "properties": after,
                    "created_at": change.created_at,
                }
            )
        elif orjson.dumps(after) != orjson.dumps(before):
            updates.append({"index": index, "key": key, "after": after, "next": version + 1})
    if inserts:
        connection.execute(sa.insert(group), inserts)
    if updates:
        connection.execute(
            sa.update(group)
            .where(
                group.c.project_id == project_id,
                group.c.group_type_index == bindparam("index"),
                group.c.group_key == bindparam("key"),
            )
            .values(properties=bindparam("after"), version=bindparam("next")),
            updates,
        )
    return warnings
