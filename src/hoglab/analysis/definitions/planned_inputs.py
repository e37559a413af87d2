"""Inputs of plans and simulations: of a saved experiment, or of the settings of one that is not saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.actions import store as actions
from hoglab.analysis.definitions.cohorts import named_cohorts
from hoglab.analysis.definitions.experiment_inputs import exposure_action_ids, inputs_asked
from hoglab.analysis.definitions.metric_parser import MetricParser
from hoglab.experiments.definitions import criteria, flag_config, metrics
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.http.errors import validation_error
from hoglab.statistics import resolve_config
from hoglab.warehouse import store as warehouse

if TYPE_CHECKING:
    from hoglab.analysis.query.model import CohortMembers
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.table_files import FileTable


@dataclass(frozen=True, slots=True)
class PlannedInputs:
    """The parts of an experiment that decide its plan."""

    project: Project
    calculation: Calculation
    shares: Mapping[str, float]
    """Shares of people by variant, in percent; excluded variants too."""
    reach: float
    """Share of the people of the history whom the flag lets take part; 1 where only the flag's conditions know."""
    reader: MetricParser
    tables: Mapping[str, FileTable]
    cohorts: Mapping[int, CohortMembers]
    identity: object
    """Everything that decides the numbers of a plan, apart from the query, events and time."""

    def tables_of(self, metric: Mapping[str, Any]) -> tuple[FileTable, ...]:
        """Return the tables that a metric names and that exist."""
        names = sorted(metrics.table_names([metric]))
        return tuple(self.tables[name] for name in names if name in self.tables)


def planned_inputs(
    database: Database, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]
) -> PlannedInputs:
    """Return the inputs of the experiment that a query names, or describes as ``experiment``. Raises `ApiError`."""
    described = query.get("experiment")
    if described is None:
        return _saved(database, project, query, *further)
    if query.get("experiment_id") is not None:
        raise validation_error("Give experiment_id, or the experiment itself, not both.", "query__experiment")
    return _unsaved(database, project, described, *further)


def _saved(
    database: Database, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]
) -> PlannedInputs:
    inputs = inputs_asked(database, project, query, *further)
    return PlannedInputs(
        project=project,
        calculation=inputs.calculation,
        shares=_shares({} if inputs.flag is None else inputs.flag.filters),
        reach=1.0,
        reader=inputs.reader,
        tables=inputs.tables,
        cohorts=inputs.cohorts,
        identity=inputs.identity,
    )


def _unsaved(
    database: Database, project: Project, described: Mapping[str, Any], *further: Mapping[str, Any]
) -> PlannedInputs:
    config, _ = flag_config.from_parameters(described.get("parameters") or {})
    filters = flag_config.new_flag_filters(config, None)
    given_settings, given_criteria = described.get("stats_config"), described.get("exposure_criteria")
    settings = criteria.created_stats_config(
        None if given_settings is None else criteria.validate_stats_config(given_settings),
        project.experiment_defaults,
    )
    exposures = criteria.created_exposure_criteria(
        None if given_criteria is None else criteria.validate_exposure_criteria(given_criteria)
    )
    variants = flag_config.variant_keys(filters)
    criteria.validate_baseline(settings, variants)
    with database.read() as connection:
        ids = metrics.action_ids(further) | set(exposure_action_ids(exposures))
        steps = actions.steps(connection, project.id, ids)
        tables = warehouse.named(connection, project.id, metrics.table_names(further))
        named = [*further, exposures, list(steps.values()), project.test_account_filters]
        cohorts = named_cohorts(connection, project.id, named)
    calculation = Calculation(
        start_date=None,
        feature_flag_key="",
        variants=variants,
        statistics=resolve_config(settings, project.experiment_defaults),
        stats_config=settings,
        aggregation_group_type_index=filters["aggregation_group_type_index"],
        exposure_criteria=exposures,
        test_account_filters=project.test_account_filters,
        timezone=project.timezone,
    )
    return PlannedInputs(
        project=project,
        calculation=calculation,
        shares=_shares(filters),
        reach=float(filters["groups"][0]["rollout_percentage"]) / 100,
        reader=MetricParser(steps.get, tables.get),
        tables=tables,
        cohorts=cohorts,
        identity=(calculation, filters, steps, tables, cohorts),
    )


def _shares(filters: Mapping[str, Any]) -> dict[str, float]:
    return {
        variant["key"]: float(variant.get("rollout_percentage") or 0)
        for variant in flag_config.variants_of(filters)
    }
