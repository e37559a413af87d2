"""A question as a statement, stage by stage: who is exposed, what entities did, their contributions, the sums.

A stage is known by its name, and by the columns that it uses of events. So statements over parts, made from tables
that replace some stages, take the other stages unchanged.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hoglab.analysis.query.event_relation import ALL_EVENTS, ColumnUse, EventRelation
from hoglab.analysis.query.exposures import define_exposures, define_units
from hoglab.analysis.query.metrics.funnels import (
    define_funnel_covariate,
    define_funnel_rows,
    define_progress,
    funnel_outcome,
)
from hoglab.analysis.query.metrics.outcome import (
    Days,
    Outcome,
    Total,
    define_days,
    define_values,
    total_of_days,
    total_of_values,
)
from hoglab.analysis.query.metrics.quantiles import (
    define_quantile_rows,
    define_quantile_values,
    define_quantiles,
    quantile_values,
)
from hoglab.analysis.query.metrics.retention import RETENTION_OUTCOME, define_retention
from hoglab.analysis.query.metrics.values import (
    bounds_of,
    define_clamped,
    define_mean_covariate,
    define_partials,
    define_sides,
    mean_outcome,
    ratio_outcome,
    valued_outcome,
)
from hoglab.analysis.query.model import (
    FunnelMeasure,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    Question,
    RatioMeasure,
    RetentionMeasure,
)
from hoglab.analysis.query.scope import Scope, SqlStatement, Stage, Subquery
from hoglab.analysis.query.statements import Compiled
from hoglab.storage.event_store.dialects import Dialect


@dataclass(frozen=True, slots=True)
class Units:
    """The stages that lead to ``unit``, with a row for each entity that counts."""

    exposures: Stage
    """``flagged``: the variant that each entity saw, and since when."""
    entry: tuple[Subquery, ...]
    """Subqueries of the time from which an entity counts: activations, and the days on which it leaves its variant."""
    covariate: tuple[Subquery, ...]
    """The value of the time before the exposure, where the metric has one."""
    unit: Subquery

    @property
    def subqueries(self) -> tuple[Subquery, ...]:
        return (*self.exposures.subqueries, *self.entry, *self.covariate, self.unit)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages of a question's statement, in this order; see `Scope` for its values."""

    scope: Scope
    outcome: Outcome
    units: Units
    funnel_rows: Stage | None
    """``funnel_row``: events of entities that are steps; None for other metrics."""
    partials: Stage
    """Numbers per entity, and with a grid of days per day, that combine by sum, min or max."""
    days: Days | None
    """Values of entities on each day of a grid; None for a whole span."""
    values: Stage | None
    """``valued``: the values of each entity over a whole span; None with days."""
    picked: tuple[Subquery, ...]
    """Values that bounds and quantiles pick from the values of all entities."""
    total: Total

    @property
    def contributions(self) -> Stage:
        """Contributions of entities, which depend only on their own events."""
        if self.values is not None:
            return self.values
        assert self.days is not None  # noqa: S101 - it is the one or the other
        return Stage(self.days.subqueries)

    @property
    def to_contributions(self) -> tuple[Subquery, ...]:
        """All subqueries up to the contributions."""
        rows = () if self.funnel_rows is None else self.funnel_rows.subqueries
        return (
            *self.units.subqueries,
            *rows,
            *self.partials.subqueries,
            *self.contributions.subqueries,
        )

    @property
    def use_of_exposures(self) -> ColumnUse:
        """Columns and properties used of the events that decide who is exposed."""
        return self.units.exposures.column_use | self.use_of_entry

    @property
    def use_of_entry(self) -> ColumnUse:
        """Columns and properties used of these events beside the first stage."""
        return _union_of_uses([*self.units.entry, self.units.unit])

    @property
    def use_of_metric(self) -> ColumnUse:
        """Columns and properties used of the events that the metric counts."""
        rows = () if self.funnel_rows is None else self.funnel_rows.subqueries
        return _union_of_uses([*self.units.covariate, *rows, *self.partials.subqueries])

    @property
    def column_use(self) -> ColumnUse:
        return self.use_of_exposures | self.use_of_metric

    @property
    def compiled(self) -> Compiled:
        return self._compiled([*self.to_contributions, *self.picked], self.total.over())

    def from_contributions(self, table: str) -> Compiled:
        """Return the rest of the statement, where a table has the contributions."""
        return self._compiled(
            [self.contributions.giving(f"SELECT * FROM {table}"), *self.picked], self.total.over()
        )

    def from_sums(self, relation: str) -> Compiled:
        """Return the sums over a relation of contributions, or over one of such sums."""
        return self._compiled([], self.total.over(relation))

    def _compiled(self, subqueries: Iterable[Subquery], sql: str) -> Compiled:
        return Compiled(self.scope.question, self.scope.stated(subqueries, sql), self.outcome)


def _union_of_uses(subqueries: Iterable[Subquery]) -> ColumnUse:
    return ColumnUse.of(subquery.column_use for subquery in subqueries)


def pipeline_of(scope: Scope) -> Pipeline:
    """Return the stages for a scope's question.

    Raises `hoglab.filters.FilterError` for filters that SQL cannot answer.
    """
    metric = scope.question.metric
    outcome = outcome_of(metric, resumable=scope.resumable)
    units = _units(scope, metric)
    rows = _funnel_rows(scope, metric)
    partials = Stage(scope.collect(lambda scope: _define_partials(scope, metric)))
    days, values = None, None
    if scope.days is not None:
        days = define_days(scope, outcome, partials.name)
    else:
        values = Stage(scope.collect(lambda scope: _define_values(scope, metric, outcome, partials.name)))
    end = len(scope.subqueries)
    total = _define_total(scope, metric, outcome)
    picked = tuple(scope.subqueries[end:])
    return Pipeline(scope, outcome, units, rows, partials, days, values, picked, total)


def compiled(
    question: Question,
    dialect: Dialect,
    relation: EventRelation = ALL_EVENTS,
    *,
    entities: int | None = None,
) -> Compiled:
    """Compile the statement for a question. Raises `hoglab.filters.FilterError` for filters that SQL cannot answer.

    With ``entities`` it gives the contribution of each of that many entities, for metrics that add up.
    """
    return pipeline_of(Scope(question, dialect, relation, entities)).compiled


def value_statement(scope: Scope, people: int, limit: int) -> SqlStatement:
    """Return rows ``(entity, value)`` of the values that a quantile is taken of, for a number of entities."""
    metric = scope.question.metric
    assert isinstance(metric, QuantileMeasure)  # noqa: S101 - others have sums
    _units(scope, metric)
    partials = Stage(scope.collect(lambda scope: define_quantile_rows(scope, metric)))
    define_quantile_values(scope, metric, partials.name)
    return scope.statement(quantile_values(scope, metric, people, limit))


def outcome_of(metric: Metric, *, resumable: bool = False) -> Outcome:
    """Return the outcome of a metric's partials; ``resumable``: see `Scope`."""
    match metric:
        case MeanMeasure():
            return mean_outcome(metric)
        case RatioMeasure():
            return ratio_outcome(metric)
        case FunnelMeasure():
            return funnel_outcome(metric, resumable=resumable)
        case RetentionMeasure():
            return RETENTION_OUTCOME
        case QuantileMeasure():
            return valued_outcome(metric.value, "a")


def _units(scope: Scope, metric: Metric) -> Units:
    """Define ``unit``, with the covariate ``x`` where the metric has one."""
    anchored_on_exposure = scope.question.matured_only and not isinstance(metric, RetentionMeasure)
    maturity_us = metric.window_us if anchored_on_exposure else 0
    exposures = Stage(scope.collect(define_exposures))
    if not isinstance(metric, MeanMeasure | FunnelMeasure) or not metric.covariate_us:
        *entry, unit = scope.collect(lambda scope: define_units(scope, maturity_us))
        return Units(exposures, tuple(entry), (), unit)
    entry = list(scope.collect(lambda scope: define_units(scope, maturity_us, name="exposed")))
    *covariate, unit = scope.collect(lambda scope: _define_unit_with_covariate(scope, metric))
    return Units(exposures, tuple(entry), tuple(covariate), unit)


def _define_unit_with_covariate(scope: Scope, metric: MeanMeasure | FunnelMeasure) -> None:
    if isinstance(metric, MeanMeasure):
        define_mean_covariate(scope, metric.value, metric.covariate_us, "exposed")
    else:
        define_funnel_covariate(scope, metric, "exposed")
    scope.define(
        "unit",
        "SELECT exposed.*, coalesce(covariate.x, 0) AS x "
        "FROM exposed LEFT JOIN covariate ON covariate.entity = exposed.entity",
    )


def _funnel_rows(scope: Scope, metric: Metric) -> Stage | None:
    if not isinstance(metric, FunnelMeasure):
        return None
    return Stage(scope.collect(lambda scope: define_funnel_rows(scope, metric)))


def _define_partials(scope: Scope, metric: Metric) -> None:
    match metric:
        case MeanMeasure():
            define_partials(scope, metric.value, "a", metric.window_us)
        case RatioMeasure():
            define_sides(scope, metric)
        case FunnelMeasure():
            define_progress(scope, metric)
        case RetentionMeasure():
            define_retention(scope, metric, matured_only=scope.question.matured_only)
        case QuantileMeasure():
            define_quantile_rows(scope, metric)


def _define_values(scope: Scope, metric: Metric, outcome: Outcome, partials: str) -> None:
    if isinstance(metric, QuantileMeasure):
        define_quantile_values(scope, metric, partials)
    else:
        required = isinstance(metric, MeanMeasure) and metric.value.session_property is not None
        define_values(scope, outcome, partials, required=required)


def _define_total(scope: Scope, metric: Metric, outcome: Outcome) -> Total:
    if isinstance(metric, QuantileMeasure):
        return define_quantiles(scope, metric)
    if scope.days is not None:
        return total_of_days(scope, outcome)
    bounds = bounds_of(metric)
    values = define_clamped(scope, "valued", outcome.values, bounds) if bounds else "valued"
    return total_of_values(scope, outcome, values)
