"""Lists of experiments: filters, order and pages (spec experiments-api 5.6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from hoglab.actions import store as actions
from hoglab.experiments.definitions import metrics
from hoglab.experiments.wire.presentation import FROZEN, is_frozen
from hoglab.http.errors import validation_error
from hoglab.http.fields.fields import parse_integer
from hoglab.storage.database import among, listed, to_micros
from hoglab.storage.database.tables import (
    experiment,
    experiment_saved_metric,
    feature_flag,
    saved_metric,
    user,
)

ORDERS = ("created_at", "updated_at", "name", "start_date", "end_date", "duration", "status", "created_by")
_STATUSES = frozenset({"draft", "running", "paused", "exposure_frozen", "stopped", "complete"})

Query = Callable[[str], str | None]


def list_experiments(
    connection: Connection, project_id: int, query: Query, *, limit: int, offset: int, now: datetime
) -> tuple[list[int], int]:
    """Return the ids of a page of a project's experiments, and how many match in all. Raises 400 for bad parameters.

    ``query`` gives the raw query parameters.
    """
    where = [experiment.c.project_id == project_id, experiment.c.deleted.is_(False)]
    where += _conditions(connection, project_id, query)
    order = _order(query("order"), now)
    count = connection.scalar(sa.select(sa.func.count()).select_from(experiment).where(*where)) or 0
    statement = sa.select(experiment.c.id).where(*where).order_by(*order)
    return list(connection.scalars(statement.limit(limit).offset(offset))), count


def _conditions(connection: Connection, project_id: int, query: Query) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [
        experiment.c.archived.is_((query("archived") or "").lower() == "true"),
        *_status(connection, project_id, (query("status") or "").lower()),
    ]
    if authors := query("created_by_id"):
        where.append(experiment.c.created_by_id.in_(_integers(authors)))
    if (flag_id := query("feature_flag_id")) is not None:
        number = parse_integer(flag_id)
        if number is None or abs(number) >= 2**63:
            raise validation_error("feature_flag_id must be an integer")
        where.append(experiment.c.feature_flag_id == number)
    if search := (query("search") or "").replace("\0", "").strip():
        where.append(experiment.c.name.icontains(search, autoescape=True))
    if event := query("event"):
        where.append(_using_event(connection, project_id, event))
    if prompt := query("prompt_name"):
        where.append(among(experiment.c.id, listed(_with_prompt(connection, project_id, prompt))))
    return where


def _status(connection: Connection, project_id: int, wanted: str) -> list[ColumnElement[bool]]:
    if wanted not in _STATUSES:
        return []
    launched = experiment.c.start_date.is_not(None)
    if wanted == "draft":
        return [experiment.c.start_date.is_(None)]
    if wanted in ("stopped", "complete"):
        return [launched, experiment.c.end_date.is_not(None)]
    going = [launched, experiment.c.end_date.is_(None)]
    flag_id = experiment.c.feature_flag_id
    off = flag_id.in_(
        sa.select(feature_flag.c.id).where(
            feature_flag.c.project_id == project_id, feature_flag.c.active.is_(False)
        )
    )
    if wanted == "paused":
        return [*going, off]
    frozen = among(flag_id, listed(_frozen_flags(connection, project_id)))
    return [*going, sa.not_(off), frozen if wanted == FROZEN else sa.not_(frozen)]


def _frozen_flags(connection: Connection, project_id: int) -> list[int]:
    candidates = sa.select(feature_flag.c.id, feature_flag.c.filters).where(
        feature_flag.c.project_id == project_id,
        _text(feature_flag.c.filters).contains(FROZEN, autoescape=True),
    )
    return [row.id for row in connection.execute(candidates) if is_frozen(row.filters)]


def _integers(text: str) -> list[int]:
    """Read one integer, a comma-separated list, or a JSON list; anything else matches nobody."""
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
    except ValueError:
        return []
    numbers = [parse_integer(value) for value in values] if isinstance(values, list) else []
    return [value for value in numbers if value is not None and abs(value) < 2**63]


def _using_event(connection: Connection, project_id: int, event: str) -> ColumnElement[bool]:
    """Return the experiments whose inline or saved metrics use an event, by itself or through an action."""
    actions = _actions_with_event(connection, project_id, event)

    def uses(metric: Any) -> bool:
        return isinstance(metric, dict) and (
            event in metrics.event_names(metric) or not actions.isdisjoint(metrics.action_ids([metric]))
        )

    # The text comparison only narrows down what has to be read.
    needles = [orjson.dumps(event).decode()] + (['"ActionsNode"'] if actions else [])

    def mentions(column: ColumnElement[Any]) -> ColumnElement[bool]:
        return sa.or_(*(_text(column).contains(needle, autoescape=True) for needle in needles))

    inline = sa.select(experiment.c.id, experiment.c.metrics, experiment.c.metrics_secondary).where(
        experiment.c.project_id == project_id,
        sa.or_(mentions(experiment.c.metrics), mentions(experiment.c.metrics_secondary)),
    )
    own = [
        row.id
        for row in connection.execute(inline)
        if any(uses(metric) for metric in (*(row.metrics or ()), *(row.metrics_secondary or ())))
    ]
    shared = sa.select(saved_metric.c.id, saved_metric.c.query).where(
        saved_metric.c.project_id == project_id, mentions(saved_metric.c.query)
    )
    using = [row.id for row in connection.execute(shared) if uses(row.query)]
    links = experiment_saved_metric.c
    linked = sa.select(links.experiment_id).where(among(links.saved_metric_id, listed(using)))
    return sa.or_(among(experiment.c.id, listed(own)), experiment.c.id.in_(linked))


def _actions_with_event(connection: Connection, project_id: int, event: str) -> set[int]:
    steps_by_action = actions.steps(connection, project_id)
    return {
        number
        for number, steps in steps_by_action.items()
        if any(step.get("event") == event for step in steps)
    }


def _with_prompt(connection: Connection, project_id: int, name: str) -> list[int]:
    statement = sa.select(experiment.c.id, experiment.c.parameters).where(
        experiment.c.project_id == project_id,
        _text(experiment.c.parameters).contains("prompt_metadata", autoescape=True),
    )
    ids = []
    for row in connection.execute(statement):
        prompt = (row.parameters or {}).get("prompt_metadata")
        if isinstance(prompt, dict) and prompt.get("name") == name:
            ids.append(row.id)
    return ids


def _text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return a JSON column as the stored text."""
    return sa.type_coerce(column, sa.Text)


def _order(wanted: str | None, now: datetime) -> list[ColumnElement[Any]]:
    wanted = wanted or "-created_at"
    descending = wanted.startswith("-")
    name = wanted.removeprefix("-")
    if name not in ORDERS:
        raise validation_error(f"Invalid order field: '{wanted}'")
    key = _order_key(name, now)
    by_key = sa.desc(key).nulls_first() if descending else sa.asc(key).nulls_last()
    return [by_key, sa.desc(experiment.c.id)]


def _order_key(name: str, now: datetime) -> ColumnElement[Any]:
    match name:
        case "duration":
            start = sa.type_coerce(experiment.c.start_date, sa.BigInteger)
            end = sa.type_coerce(experiment.c.end_date, sa.BigInteger)
            return sa.func.coalesce(end, to_micros(now)) - start
        case "status":
            return sa.case(
                (experiment.c.start_date.is_(None), 0), (experiment.c.end_date.is_(None), 1), else_=2
            )
        case "created_by":
            name_of = sa.case((user.c.first_name != "", user.c.first_name), else_=user.c.email)
            return sa.select(name_of).where(user.c.id == experiment.c.created_by_id).scalar_subquery()
        case "name":
            return sa.func.lower(experiment.c.name)
        case _:
            return experiment.c[name]
