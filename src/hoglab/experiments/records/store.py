"""The queries of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.storage.database.tables import experiment_record


class RecordKind(StrEnum):
    """The kinds of records, as the wire and the table name them."""

    LAUNCHED = "launched"
    """The plan at the launch."""
    KNOWN = "known"
    """The plan of an experiment that a version without records launched, when it was first kept."""
    AMENDED = "amended"
    """A plan that was changed after the launch, and what was changed."""
    HARM = "harm"
    """Variants that are certainly worse."""
    ENDED = "ended"
    SHIPPED = "shipped"


OF_PLANS = frozenset({RecordKind.LAUNCHED, RecordKind.KNOWN, RecordKind.AMENDED})


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """One record. ``user_id`` is None where the server itself wrote it."""

    id: int
    experiment_id: int
    kind: str
    detail: dict[str, Any]
    user_id: int | None
    created_at: datetime


_COLUMNS = tuple(experiment_record.c[f.name] for f in fields(ExperimentRecord))


def insert(
    connection: Connection,
    experiment_id: int,
    kind: RecordKind,
    detail: Mapping[str, Any],
    *,
    user_id: int | None,
    now: datetime,
) -> None:
    """Add a record."""
    connection.execute(
        sa.insert(experiment_record).values(
            experiment_id=experiment_id, kind=kind, detail=dict(detail), user_id=user_id, created_at=now
        )
    )


def of_launch(connection: Connection, experiment_id: int) -> list[ExperimentRecord]:
    """Return the records of an experiment since its newest launch, in the order in which they were written."""
    table = experiment_record.c
    launch = (
        sa.select(sa.func.coalesce(sa.func.max(table.id), 0))
        .where(table.experiment_id == experiment_id, table.kind == RecordKind.LAUNCHED)
        .scalar_subquery()
    )
    statement = sa.select(*_COLUMNS).where(table.experiment_id == experiment_id, table.id >= launch)
    return [ExperimentRecord(*row) for row in connection.execute(statement.order_by(table.id))]


def page(
    connection: Connection, experiment_id: int, *, limit: int, offset: int
) -> tuple[list[ExperimentRecord], int]:
    """Return a page of all records of an experiment, newest first, and how many there are."""
    table = experiment_record.c
    mine = table.experiment_id == experiment_id
    count = connection.scalar(sa.select(sa.func.count()).select_from(experiment_record).where(mine)) or 0
    statement = sa.select(*_COLUMNS).where(mine).order_by(table.id.desc()).limit(limit).offset(offset)
    return [ExperimentRecord(*row) for row in connection.execute(statement)], count
