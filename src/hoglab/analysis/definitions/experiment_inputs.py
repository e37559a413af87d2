"""Inputs of an experiment's results: its metrics, each with its key and its question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

from hoglab.actions import store as actions
from hoglab.analysis.definitions.cohorts import cohorts_of, named_cohorts
from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.analysis.definitions.naming import name_of
from hoglab.analysis.presentation import adjusted
from hoglab.analysis.query.days import DayGrid, end_of_day, zone_of
from hoglab.analysis.query.metrics.retention import span_us
from hoglab.analysis.query.model import CohortMembers, Question, RetentionMeasure, Span, later
from hoglab.analysis.query.scope import exclusive
from hoglab.experiments import store as experiments
from hoglab.experiments.definitions import metrics
from hoglab.experiments.definitions.fingerprint import Calculation, fingerprint, fingerprint_v1
from hoglab.experiments.wire.presentation import calculation, warnings_of
from hoglab.http.errors import validation_error
from hoglab.statistics import Correction
from hoglab.warehouse import store as warehouse

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.experiments.store import ExperimentRow, SavedMetricLink
    from hoglab.flags.store import FlagRow
    from hoglab.http.fields.unknown_keys import WarningEntry
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.table_files import FileTable


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Key of a series of points."""

    experiment_id: int
    metric_uuid: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ShownMetric:
    """A metric of an experiment as clients show it."""

    metric: dict[str, Any]
    is_primary: bool
    saved_as: str | None = None
    """The name of a saved metric; None for an inline one."""
    saved_metric_id: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.metric, self.saved_as)

    @property
    def margin(self) -> float | None:
        """The loss that a guardrail allows, as a share of the baseline; None for other metrics."""
        return None if self.is_primary else metrics.margin_of(self.metric)

    @property
    def role(self) -> str:
        return "primary" if self.is_primary else "secondary" if self.margin is None else metrics.GUARDRAIL


@dataclass(frozen=True, slots=True)
class ExperimentInputs:
    """An experiment with everything that decides its numbers."""

    project: Project
    row: ExperimentRow
    flag: FlagRow | None
    calculation: Calculation
    metrics: tuple[dict[str, Any], ...]
    """Inline and saved metrics that the present engine computes and that have a uuid."""
    primary: frozenset[str]
    """The uuids of the metrics that decide the experiment."""
    shown: tuple[ShownMetric, ...]
    """All metrics, also of the former engine: the primary ones first, in the order in which clients show them."""
    actions: Mapping[int, list[dict[str, Any]]]
    tables: Mapping[str, FileTable]
    cohorts: Mapping[int, CohortMembers]
    links: tuple[SavedMetricLink, ...] = ()
    """The saved metrics."""

    @property
    def warnings(self) -> list[WarningEntry]:
        """Warnings about parts of the experiment that have no effect, or an unexpected one."""
        return warnings_of(self.row, self.flag, self.links)

    @property
    def identity(self) -> object:
        """Everything that decides the numbers of a metric, apart from the metric itself, events and time."""
        row = self.row
        return (
            self.calculation,
            row.id,
            row.end_date,
            row.holdout_id,
            self.actions,
            self.tables,
            self.cohorts,
        )

    @property
    def reader(self) -> MetricParser:
        return MetricParser(self.actions.get, self.tables.get)

    def key(self, metric: Mapping[str, Any]) -> SeriesKey:
        """Return the key under which the points of a metric are stored now."""
        return SeriesKey(self.row.id, metric["uuid"], fingerprint(metric, self.calculation))

    def tables_of(self, metric: Mapping[str, Any]) -> tuple[FileTable, ...]:
        """Return the tables that a metric names and that exist."""
        names = sorted(metrics.table_names([metric]))
        return tuple(self.tables[name] for name in names if name in self.tables)

    def edited(self, metric: Mapping[str, Any]) -> tuple[object, ...]:
        """Return the objects named by a metric that can be edited separately and change its numbers.

        They are the actions and cohorts that the metric, the exposure criteria and the test accounts name, in their
        present state. Empty where they name none.
        """
        criteria = self.calculation.exposure_criteria or {}
        ids = metrics.action_ids([metric]) | set(exposure_action_ids(criteria))
        steps = {identifier: self.actions.get(identifier) for identifier in sorted(ids)}
        left_out = self.calculation.test_account_filters if self.calculation.filters_test_accounts else ()
        named = cohorts_of([metric, criteria, left_out, list(steps.values())], self.cohorts)
        return (*steps.items(), *((identifier, named[identifier].definition) for identifier in sorted(named)))

    def metric_of(self, key: SeriesKey) -> tuple[dict[str, Any], SeriesKey] | None:
        """Return the metric of a uuid whose present or version 1 fingerprint is given, and its present key."""
        for metric in self.metrics:
            if metric["uuid"] != key.metric_uuid:
                continue
            present = self.key(metric)
            if key == present or key.fingerprint == fingerprint_v1(metric, self.calculation):
                return metric, present
        return None

    def former_fingerprint(self, metric: Mapping[str, Any]) -> str:
        """Return the version 1 fingerprint, under which imported points may be stored."""
        return fingerprint_v1(metric, self.calculation)

    def others_of_family(self, metric: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the other primary metrics, where the metric is a primary one and p-values are to be corrected."""
        uuid = metric.get("uuid")
        if self.calculation.statistics.correction is Correction.NONE or uuid not in self.primary:
            return []
        return [
            other_metric
            for other_metric in self.metrics
            if other_metric["uuid"] in self.primary and other_metric["uuid"] != uuid
        ]

    def corrected(
        self, metric: Mapping[str, Any], result: dict[str, Any], others: Mapping[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a result with p-values corrected together with those of other primary metrics, by their uuids.

        A metric that is not among the primary ones of its experiment is corrected for its variants alone, and
        a secondary one not at all.
        """
        uuid = metric.get("uuid")
        secondary = any(metric["uuid"] == uuid for metric in self.metrics) and uuid not in self.primary
        family = {None: result} | {other: others[other] for other in others if other != uuid}
        outside = frozenset({None}) if secondary else frozenset()
        return adjusted(family, self.calculation.statistics.correction, outside=outside)[None]

    def span(self, now: datetime) -> Span | None:
        """Return the span from the start to now or the end, with its days; None before the start."""
        start = self.row.start_date
        if start is None or start > now:
            return None
        end = min(now, self.row.end_date) if self.row.end_date is not None else now
        end = max(start, end)
        return Span(start, end, now, DayGrid.between(start, end, zone_of(self.project.timezone)))

    def question(self, metric: Mapping[str, Any], span: Span) -> Question:
        """Return the question of a metric over a span. Raises `hoglab.analysis.errors.DefinitionError`."""
        return Question(
            exposures=self.reader.exposures(self.project.id, self.calculation, metric),
            span=span,
            metric=self.reader.metric(metric, cuped=self.calculation.statistics.cuped),
            matured_only=self.row.only_count_matured_users,
            zone=self.project.timezone,
            cohorts=self.cohorts,
        )


def query_to(span: Span, number: int) -> datetime:
    """Return the moment before which the point of a day lies: the end of the day, or of the span on its last day."""
    assert span.days is not None  # noqa: S101 - asked for points only
    if number == span.days.count - 1:
        return exclusive(span.end)
    return end_of_day(span.days.day(number), span.days.zone)


def final_at(question: Question, end_date: datetime) -> datetime:
    """Return the time after which no event can change the result of an ended experiment, late arrivals apart."""
    metric = question.metric
    extra = span_us(metric) if isinstance(metric, RetentionMeasure) else 0
    return later(end_date, metric.window_us + extra)


def read_inputs(
    connection: Connection,
    project: Project,
    row: ExperimentRow,
    *,
    further: tuple[Mapping[str, Any], ...] = (),
) -> ExperimentInputs:
    """Read the inputs of an experiment; ``further`` metrics are not its own, but their actions are looked up too."""
    flag = experiments.flags(connection, [row.feature_flag_id]).get(row.feature_flag_id)
    links = experiments.links(connection, [row.id]).get(row.id, [])
    stored = [
        *(ShownMetric(metric, True) for metric in row.metrics or ()),
        *(ShownMetric(metric, False) for metric in row.metrics_secondary or ()),
        *(ShownMetric(link.query, link.is_primary, link.name, link.saved_metric_id) for link in links),
    ]
    own = tuple(shown_metric.metric for shown_metric in stored if is_computed(shown_metric.metric))
    criteria = row.exposure_criteria or {}
    ids = metrics.action_ids([*own, *further]) | set(exposure_action_ids(criteria))
    steps = actions.steps(connection, project.id, ids)
    named = [*own, *further, criteria, list(steps.values()), project.test_account_filters]
    return ExperimentInputs(
        project=project,
        row=row,
        flag=flag,
        calculation=calculation(row, flag, project),
        metrics=own,
        primary=frozenset(
            shown_metric.metric["uuid"]
            for shown_metric in stored
            if shown_metric.is_primary and is_computed(shown_metric.metric)
        ),
        shown=tuple(
            _ordered(
                [shown_metric for shown_metric in stored if shown_metric.is_primary],
                row.primary_metrics_ordered_uuids,
            )
            + _ordered(
                [shown_metric for shown_metric in stored if not shown_metric.is_primary],
                row.secondary_metrics_ordered_uuids,
            )
        ),
        actions=steps,
        tables=warehouse.named(connection, project.id, metrics.table_names([*own, *further])),
        cohorts=named_cohorts(connection, project.id, named),
        links=tuple(links),
    )


def named_by_exposures(
    connection: Connection, project: Project, criteria: Mapping[str, Any] | None
) -> tuple[Mapping[int, Any], Mapping[int, CohortMembers]]:
    """Return the steps of actions, and the cohorts, that exposure criteria and filters of test accounts name."""
    steps = actions.steps(connection, project.id, set(exposure_action_ids(criteria or {})))
    named = [criteria, list(steps.values()), project.test_account_filters]
    return steps, named_cohorts(connection, project.id, named)


def inputs_asked(
    database: Database, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]
) -> ExperimentInputs:
    """Return the inputs of the experiment that a query names. Raises 400."""
    identifier = query.get("experiment_id")
    if not is_id(identifier):
        raise validation_error("experiment_id is required")
    with database.read() as connection:
        row = experiments.get(connection, project.id, identifier)
        if row is None or row.deleted:
            raise validation_error(f"Experiment with id {identifier} not found")
        return read_inputs(connection, project, row, further=further)


def is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _ordered(shown: list[ShownMetric], uuids: Sequence[str] | None) -> list[ShownMetric]:
    """Return metrics sorted by the stored order; metrics without a place come last."""
    place = {uuid: number for number, uuid in enumerate(uuids or ())}
    return sorted(shown, key=lambda shown_metric: place.get(shown_metric.metric.get("uuid", ""), len(place)))


def is_computed(metric: object) -> bool:
    """Return whether the present engine computes a metric, and it can be named."""
    return (
        isinstance(metric, Mapping)
        and isinstance(metric.get("metric_type"), str)
        and isinstance(metric.get("uuid"), str)
        and not metrics.is_legacy(metric)
    )


def exposure_action_ids(criteria: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ids of the actions by which exposure criteria say who is exposed, and who is activated."""
    for config in (criteria.get("exposure_config"), criteria.get("activation_config")):
        if isinstance(config, Mapping) and config.get("kind") == "ActionsNode":
            identifier = config.get("id")
            if isinstance(identifier, int):
                yield identifier


FINAL_AFTER = timedelta(hours=1)
"""Time after the last moment that counts during which late events still change an ended experiment's results."""
