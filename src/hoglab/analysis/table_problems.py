"""Whether a metric that is about to be saved can be computed from the tables beside the events that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hoglab.actions import store as actions
from hoglab.analysis.cohorts import named_cohorts
from hoglab.analysis.definition import Reader
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.duckdb import DuckDb
from hoglab.analysis.query.model import KnownGroups, Question, Span
from hoglab.analysis.query.statements import compiled
from hoglab.experiments import metrics
from hoglab.experiments.fingerprint import Calculation
from hoglab.filters import FilterError
from hoglab.statistics import StatisticsConfig
from hoglab.warehouse import store as warehouse

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_SOME_EXPERIMENT = Calculation(_MOMENT, "flag", ("control",), StatisticsConfig())


def table_problem(connection: Connection, project_id: int, metric: Mapping[str, Any]) -> str | None:
    """Why results would be refused, in one line; None for what can be computed, and for metrics of events alone.

    Its statement is made as for a result, with the columns that its tables had when they were registered. No file is
    read.
    """
    names = metrics.table_names([metric])
    if not names:
        return None
    steps = actions.steps(connection, project_id, metrics.action_ids([metric]))
    reader = Reader(steps.get, warehouse.named(connection, project_id, names).get)
    try:
        question = Question(
            exposures=reader.exposures(project_id, _SOME_EXPERIMENT, metric),
            span=Span(_MOMENT, _MOMENT, _MOMENT),
            metric=reader.metric(metric),
            cohorts=named_cohorts(connection, project_id, [metric, list(steps.values())]),
        )
        groups = {index: KnownGroups((), ()) for index in question.group_properties}
        compiled(replace(question, groups=groups), DuckDb())
    except (DefinitionError, FilterError) as error:
        return str(error)
    return None
