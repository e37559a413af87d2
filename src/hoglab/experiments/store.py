"""The queries of experiments, holdouts and saved metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import blake2b
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from hoglab.flags.store import FlagRow
from hoglab.storage.database import PreparedSelect, among, listed
from hoglab.storage.database.tables import (
    experiment,
    experiment_holdout,
    experiment_saved_metric,
    feature_flag,
    saved_metric,
)


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """One experiment: the columns of its table."""

    id: int
    project_id: int
    name: str
    description: str | None
    feature_flag_id: int
    holdout_id: int | None
    exposure_cohort_id: int | None
    parameters: dict[str, Any] | None
    running_time_calculation: dict[str, Any]
    excluded_variants: list[str]
    secondary_metrics: Any
    filters: Any
    metrics: list[dict[str, Any]] | None
    metrics_secondary: list[dict[str, Any]] | None
    primary_metrics_ordered_uuids: list[str] | None
    secondary_metrics_ordered_uuids: list[str] | None
    exposure_criteria: dict[str, Any] | None
    stats_config: dict[str, Any] | None
    scheduling_config: dict[str, Any] | None
    only_count_matured_users: bool
    type: str | None
    start_date: datetime | None
    end_date: datetime | None
    archived: bool
    deleted: bool
    status: str
    conclusion: str | None
    conclusion_comment: str | None
    create_in_folder: str | None
    feature_flag_auto_archived: bool
    phases: list[dict[str, Any]] | None
    watched_at: datetime | None
    created_by_id: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def is_draft(self) -> bool:
        """Not launched yet (spec experiments-api 2.2)."""
        return self.start_date is None

    @property
    def is_stopped(self) -> bool:
        return self.start_date is not None and self.end_date is not None

    @property
    def is_running(self) -> bool:
        """Launched and not ended; paused experiments count too."""
        return self.start_date is not None and self.end_date is None


@dataclass(frozen=True, slots=True)
class HoldoutRow:
    id: int
    project_id: int
    name: str
    description: str | None
    filters: list[dict[str, Any]]
    created_by_id: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SavedMetricRow:
    id: int
    project_id: int
    name: str
    description: str | None
    query: dict[str, Any]
    tags: list[str]
    created_by_id: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SavedMetricLink:
    """A link of a saved metric to an experiment. ``metadata`` says whether it is primary or secondary."""

    id: int
    experiment_id: int
    saved_metric_id: int
    metadata: dict[str, Any]
    created_at: datetime
    query: dict[str, Any]
    name: str

    @property
    def is_primary(self) -> bool:
        """Whether the metric is primary: without a type, or with the type ``primary`` (spec experiments-api 3.9)."""
        return bool(self.metadata.get("type", "primary") == "primary")


_EXPERIMENT = tuple(experiment.c[f.name] for f in fields(ExperimentRow))
_NAMES = [f.name for f in fields(ExperimentRow)]
_FLAG_ID, _HOLDOUT_ID = _NAMES.index("feature_flag_id"), _NAMES.index("holdout_id")
_HOLDOUT = tuple(experiment_holdout.c[f.name] for f in fields(HoldoutRow))
_SAVED_METRIC = tuple(saved_metric.c[f.name] for f in fields(SavedMetricRow))
_FLAG = tuple(feature_flag.c[f.name] for f in fields(FlagRow))

_BY_ID = PreparedSelect(
    sa.select(*_EXPERIMENT).where(
        experiment.c.id == sa.bindparam("experiment_id"),
        experiment.c.project_id == sa.bindparam("project_id"),
    )
)
_VISIBLE = PreparedSelect(
    sa.select(*_EXPERIMENT).where(
        among(experiment.c.id, sa.bindparam("ids")),
        experiment.c.project_id == sa.bindparam("project_id"),
        experiment.c.deleted.is_(False),
    )
)
_FLAGS = PreparedSelect(sa.select(*_FLAG).where(among(feature_flag.c.id, sa.bindparam("ids"))))
_HOLDOUTS = PreparedSelect(sa.select(*_HOLDOUT).where(among(experiment_holdout.c.id, sa.bindparam("ids"))))
_LINKS = PreparedSelect(
    sa.select(
        experiment_saved_metric.c.id,
        experiment_saved_metric.c.experiment_id,
        experiment_saved_metric.c.saved_metric_id,
        experiment_saved_metric.c["metadata"],
        experiment_saved_metric.c.created_at,
        saved_metric.c.query,
        saved_metric.c.name,
    )
    .join_from(
        experiment_saved_metric, saved_metric, saved_metric.c.id == experiment_saved_metric.c.saved_metric_id
    )
    .where(among(experiment_saved_metric.c.experiment_id, sa.bindparam("ids")))
    .order_by(experiment_saved_metric.c.id)
)


# -- experiments -------------------------------------------------------------------------------------------------------


def get(connection: Connection, project_id: int, experiment_id: int) -> ExperimentRow | None:
    """Return one experiment of a project, deleted or not."""
    rows = _BY_ID.rows(connection, project_id=project_id, experiment_id=experiment_id)
    return ExperimentRow(*rows[0]) if rows else None


def visible(connection: Connection, project_id: int, ids: Iterable[int]) -> list[ExperimentRow]:
    """Return the given experiments of a project that are not deleted, in no order."""
    return [ExperimentRow(*row) for row in _VISIBLE.rows(connection, project_id=project_id, ids=listed(ids))]


def digests(connection: Connection, project_id: int, ids: Iterable[int]) -> dict[int, bytes]:
    """Return a digest of the rows of each experiment that is not deleted: its own, flag, holdout and saved metrics.

    Two digests are equal when none of these rows was changed; they are computed without reading any JSON.
    """
    rows = _VISIBLE.stored(connection, project_id=project_id, ids=listed(ids))
    flags = _by_id(_FLAGS.stored(connection, ids=listed({row[_FLAG_ID] for row in rows})))
    wanted = {row[_HOLDOUT_ID] for row in rows} - {None}
    holdouts = _by_id(_HOLDOUTS.stored(connection, ids=listed(wanted))) if wanted else {}
    links: dict[int, list[tuple[Any, ...]]] = {}
    for link in _LINKS.stored(connection, ids=listed(row[0] for row in rows)):
        links.setdefault(link[1], []).append(link)
    digests_by_id = {}
    for row in rows:
        whole = (row, flags.get(row[_FLAG_ID]), holdouts.get(row[_HOLDOUT_ID]), links.get(row[0]))
        digests_by_id[row[0]] = blake2b(orjson.dumps(whole), digest_size=16).digest()
    return digests_by_id


def _by_id(rows: Iterable[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in rows}


def insert(connection: Connection, values: Mapping[str, Any]) -> ExperimentRow:
    row = connection.execute(sa.insert(experiment).values(**values).returning(*_EXPERIMENT)).one()
    return ExperimentRow(*row)


def update(connection: Connection, experiment_id: int, values: Mapping[str, Any]) -> ExperimentRow:
    statement = sa.update(experiment).where(experiment.c.id == experiment_id).values(**values)
    return ExperimentRow(*connection.execute(statement.returning(*_EXPERIMENT)).one())


def running(connection: Connection, project_id: int | None = None) -> list[ExperimentRow]:
    """Return the running experiments of a project, or of every one: the work of the daily run."""
    statement = sa.select(*_EXPERIMENT).where(
        experiment.c.start_date.is_not(None), experiment.c.end_date.is_(None), experiment.c.deleted.is_(False)
    )
    if project_id is not None:
        statement = statement.where(experiment.c.project_id == project_id)
    return [ExperimentRow(*row) for row in connection.execute(statement.order_by(experiment.c.id))]


def running_experiments(connection: Connection, project_id: int) -> Iterator[tuple[str, object]]:
    """Yield the running experiments of a project, in words, with their metrics and their exposure criteria."""
    rows = running(connection, project_id)
    linked = links(connection, (row.id for row in rows))
    for row in rows:
        saved = [link.query for link in linked.get(row.id, ())]
        yield named([row]), [row.metrics, row.metrics_secondary, row.exposure_criteria, saved]


def named(rows: Iterable[ExperimentRow]) -> str:
    """Return running experiments as errors name them."""
    return ", ".join(f'running experiment "{row.name}" (ID: {row.id})' for row in rows)


def of_flags(
    connection: Connection, project_id: int, flag_ids: Collection[int] | None, *, deleted: bool = False
) -> list[ExperimentRow]:
    """Return the experiments of some flags (None: of all), by id; deleted ones only when asked for."""
    statement = sa.select(*_EXPERIMENT).where(experiment.c.project_id == project_id)
    if flag_ids is not None:
        statement = statement.where(experiment.c.feature_flag_id.in_(flag_ids))
    if not deleted:
        statement = statement.where(experiment.c.deleted.is_(False))
    return [ExperimentRow(*row) for row in connection.execute(statement.order_by(experiment.c.id))]


def in_holdout(connection: Connection, holdout_id: int) -> list[ExperimentRow]:
    statement = sa.select(*_EXPERIMENT).where(experiment.c.holdout_id == holdout_id)
    return [ExperimentRow(*row) for row in connection.execute(statement.order_by(experiment.c.id))]


def names_like(connection: Connection, project_id: int, prefix: str) -> set[str]:
    """Return the names of experiments that are not deleted and begin with ``prefix``."""
    statement = sa.select(experiment.c.name).where(
        experiment.c.project_id == project_id,
        experiment.c.deleted.is_(False),
        experiment.c.name.startswith(prefix, autoescape=True),
    )
    return set(connection.scalars(statement))


def flags(connection: Connection, ids: Iterable[int]) -> dict[int, FlagRow]:
    """Return flags by id, deleted ones too: an experiment shows its flag in any state."""
    rows = _FLAGS.rows(connection, ids=listed(set(ids)))
    return {flag.id: flag for flag in (FlagRow(*row) for row in rows)}


# -- saved metrics and their links -------------------------------------------------------------------------------------


def links(connection: Connection, experiment_ids: Iterable[int]) -> dict[int, list[SavedMetricLink]]:
    """Return the saved metrics of experiments, by experiment id, in the order in which they were linked."""
    by_experiment: dict[int, list[SavedMetricLink]] = {}
    for row in _LINKS.rows(connection, ids=listed(experiment_ids)):
        entry = SavedMetricLink(*row)
        by_experiment.setdefault(entry.experiment_id, []).append(entry)
    return by_experiment


def insert_link(
    connection: Connection,
    experiment_id: int,
    saved_metric_id: int,
    metadata: Mapping[str, Any],
    now: datetime,
) -> None:
    values = {
        "experiment_id": experiment_id,
        "saved_metric_id": saved_metric_id,
        "metadata": dict(metadata),
        "created_at": now,
    }
    connection.execute(sa.insert(experiment_saved_metric).values(values))


def update_link(connection: Connection, link_id: int, metadata: Mapping[str, Any]) -> None:
    table = experiment_saved_metric
    connection.execute(sa.update(table).where(table.c.id == link_id).values({"metadata": dict(metadata)}))


def delete_links(connection: Connection, link_ids: Iterable[int]) -> None:
    table = experiment_saved_metric
    connection.execute(sa.delete(table).where(table.c.id.in_(list(link_ids))))


def linked_experiments(connection: Connection, saved_metric_id: int) -> list[ExperimentRow]:
    """Return the experiments that use a saved metric."""
    statement = (
        sa.select(*_EXPERIMENT)
        .join_from(
            experiment, experiment_saved_metric, experiment_saved_metric.c.experiment_id == experiment.c.id
        )
        .where(experiment_saved_metric.c.saved_metric_id == saved_metric_id)
        .order_by(experiment.c.id)
    )
    return [ExperimentRow(*row) for row in connection.execute(statement)]


def saved_metrics(connection: Connection, project_id: int, ids: Iterable[int]) -> dict[int, SavedMetricRow]:
    """Return the saved metrics of a project by id."""
    statement = sa.select(*_SAVED_METRIC).where(
        saved_metric.c.project_id == project_id, saved_metric.c.id.in_(set(ids))
    )
    return {row.id: SavedMetricRow(*row) for row in connection.execute(statement)}


def saved_metric_named(connection: Connection, project_id: int, name: str) -> int | None:
    """Return the id of the saved metric of that name, ignoring case."""
    statement = sa.select(saved_metric.c.id).where(
        saved_metric.c.project_id == project_id, sa.func.lower(saved_metric.c.name) == name.lower()
    )
    return connection.scalar(statement.limit(1))


def list_saved_metrics(
    connection: Connection, project_id: int, *, search: str | None, limit: int, offset: int
) -> tuple[list[SavedMetricRow], int]:
    """Return a page of saved metrics by name, ignoring case, and how many there are."""
    where = [saved_metric.c.project_id == project_id]
    if search:
        where.append(saved_metric.c.name.icontains(search, autoescape=True))
    count = connection.scalar(sa.select(sa.func.count()).select_from(saved_metric).where(*where)) or 0
    statement = sa.select(*_SAVED_METRIC).where(*where)
    statement = statement.order_by(sa.func.lower(saved_metric.c.name), saved_metric.c.id)
    rows = connection.execute(statement.limit(limit).offset(offset))
    return [SavedMetricRow(*row) for row in rows], count


def insert_saved_metric(connection: Connection, values: Mapping[str, Any]) -> SavedMetricRow:
    row = connection.execute(sa.insert(saved_metric).values(**values).returning(*_SAVED_METRIC)).one()
    return SavedMetricRow(*row)


def update_saved_metric(connection: Connection, metric_id: int, values: Mapping[str, Any]) -> SavedMetricRow:
    statement = sa.update(saved_metric).where(saved_metric.c.id == metric_id).values(**values)
    return SavedMetricRow(*connection.execute(statement.returning(*_SAVED_METRIC)).one())


def delete_saved_metric(connection: Connection, metric_id: int) -> None:
    connection.execute(sa.delete(saved_metric).where(saved_metric.c.id == metric_id))


# -- holdouts ----------------------------------------------------------------------------------------------------------


def holdouts(connection: Connection, ids: Iterable[int]) -> dict[int, HoldoutRow]:
    wanted = set(ids)
    rows = _HOLDOUTS.rows(connection, ids=listed(wanted)) if wanted else []
    return {holdout.id: holdout for holdout in (HoldoutRow(*row) for row in rows)}


def holdout(connection: Connection, project_id: int, holdout_id: int) -> HoldoutRow | None:
    row = holdouts(connection, [holdout_id]).get(holdout_id)
    return row if row is not None and row.project_id == project_id else None


def list_holdouts(
    connection: Connection, project_id: int, *, limit: int, offset: int
) -> tuple[list[HoldoutRow], int]:
    """Return a page of holdouts, newest first, and how many there are."""
    where = experiment_holdout.c.project_id == project_id
    count = connection.scalar(sa.select(sa.func.count()).select_from(experiment_holdout).where(where)) or 0
    order = (experiment_holdout.c.created_at.desc(), experiment_holdout.c.id.desc())
    rows = connection.execute(sa.select(*_HOLDOUT).where(where).order_by(*order).limit(limit).offset(offset))
    return [HoldoutRow(*row) for row in rows], count


def insert_holdout(connection: Connection, values: Mapping[str, Any]) -> HoldoutRow:
    row = connection.execute(sa.insert(experiment_holdout).values(**values).returning(*_HOLDOUT)).one()
    return HoldoutRow(*row)


def update_holdout(connection: Connection, holdout_id: int, values: Mapping[str, Any]) -> HoldoutRow:
    table = experiment_holdout
    statement = sa.update(table).where(table.c.id == holdout_id).values(**values).returning(*_HOLDOUT)
    return HoldoutRow(*connection.execute(statement).one())


def delete_holdout(connection: Connection, holdout_id: int) -> None:
    connection.execute(sa.delete(experiment_holdout).where(experiment_holdout.c.id == holdout_id))
