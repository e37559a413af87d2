"""Checks whether metrics and exposure criteria that are about to be saved can be computed.

Their statements are compiled as for a result, which finds everything that cannot be read or has no meaning in SQL:
expressions, filters, breakdowns, cohorts, and the columns that tables had when they were registered. No event and no
file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from hoglab.actions import store as actions
from hoglab.analysis.definitions.cohorts import named_cohorts
from hoglab.analysis.definitions.experiment_inputs import exposure_action_ids
from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query import compiled
from hoglab.analysis.query.model import (
    CohortMembers,
    EventSource,
    FunnelMeasure,
    KnownGroups,
    MeanMeasure,
    Metric,
    Question,
    Span,
    Value,
)
from hoglab.experiments.definitions import metrics
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.filters import FilterError
from hoglab.statistics import StatisticsConfig
from hoglab.warehouse import store as warehouse

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.storage.event_store.dialects import Dialect

_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_SOME_EXPERIMENT = Calculation(_MOMENT, "flag", ("control",), StatisticsConfig())
_EVERYTHING = MeanMeasure(Value(EventSource(())))


@dataclass(frozen=True, slots=True)
class Named:
    """Objects of a project that its definitions name, looked up."""

    project_id: int
    reader: MetricParser
    cohorts: Mapping[int, CohortMembers]
    dialect: Dialect

    def metric_problem(self, metric: Mapping[str, Any]) -> str | None:
        """Return the reason why the results of a metric would be refused, with the place in it, in one line.

        The result is None for a metric that can be computed.
        """
        try:
            self._compile(self._question(_SOME_EXPERIMENT, metric, self.reader.metric(metric)))
        except DefinitionError as error:
            return str(error)
        except FilterError as error:
            for place, part in _parts(self.reader, metric):
                problem = self._problem_of(partial(self._question, _SOME_EXPERIMENT, {}, part))
                if problem is not None:
                    return f"{place}: {problem}"
            return str(error)
        return None

    def exposure_problem(
        self, criteria: Mapping[str, Any], test_account_filters: Sequence[Mapping[str, Any]] = ()
    ) -> str | None:
        """Return the reason why exposures by these criteria would be refused, in one line.

        The result is None when they are valid.
        """
        experiment = replace(
            _SOME_EXPERIMENT, exposure_criteria=criteria, test_account_filters=test_account_filters
        )
        return self._problem_of(partial(self._question, experiment, {}, _EVERYTHING))

    def _question(self, experiment: Calculation, breakdowns: Mapping[str, Any], metric: Metric) -> Question:
        return Question(
            exposures=self.reader.exposures(self.project_id, experiment, breakdowns),
            span=Span(_MOMENT, _MOMENT, _MOMENT),
            metric=metric,
            cohorts=self.cohorts,
        )

    def _problem_of(self, question: Callable[[], Question]) -> str | None:
        try:
            self._compile(question())
        except (DefinitionError, FilterError) as error:
            return str(error)
        return None

    def _compile(self, question: Question) -> None:
        groups = {index: KnownGroups((), ()) for index in question.group_properties}
        compiled(replace(question, groups=groups), self.dialect)


def metric_problem(
    dialect: Dialect, connection: Connection, project_id: int, metric: Mapping[str, Any]
) -> str | None:
    """Return the reason why a metric would be refused, as `Named.metric_problem` does."""
    return _named_by(dialect, connection, project_id, metric).metric_problem(metric)


def exposure_problem(
    dialect: Dialect, connection: Connection, project_id: int, criteria: Mapping[str, Any]
) -> str | None:
    """Return the reason why exposures would be refused, as `Named.exposure_problem` does."""
    return _named_by(dialect, connection, project_id, criteria).exposure_problem(criteria)


def account_filters_problem(
    dialect: Dialect, connection: Connection, project_id: int, filters: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return the reason why filters of test accounts would be refused, in one line.

    The result is None when they can be computed.
    """
    named = _named_by(dialect, connection, project_id, {"properties": filters})
    return named.exposure_problem({"filterTestAccounts": True}, filters)


def _named_by(
    dialect: Dialect, connection: Connection, project_id: int, definition: Mapping[str, Any]
) -> Named:
    ids = metrics.action_ids([definition]) | set(exposure_action_ids(definition))
    steps = actions.steps(connection, project_id, ids)
    tables = warehouse.named(connection, project_id, metrics.table_names([definition]))
    cohorts = {
        # The first calculation takes a moment; a metric can be saved before it has ended.
        identifier: replace(members, is_calculated=True)
        for identifier, members in named_cohorts(
            connection, project_id, [definition, list(steps.values())]
        ).items()
    }
    return Named(project_id, MetricParser(steps.get, tables.get), cohorts, dialect)


def _parts(reader: MetricParser, metric: Mapping[str, Any]) -> Iterator[tuple[str, Metric]]:
    """Yield each source of a metric that can be read, with its place and a metric of it alone."""
    for place, node in metrics.placed_sources(metric):
        if metric.get("metric_type") in ("funnel", "retention"):
            yield place, FunnelMeasure((reader.source(node, place),))
        else:
            yield place, MeanMeasure(reader.value(node, place))
