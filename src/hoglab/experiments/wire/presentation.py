"""Experiments, holdouts and saved metrics as they go on the wire (spec experiments-api 3.1–3.3, 3.8, 3.9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from hoglab.accounts import store as accounts
from hoglab.actions import store as actions
from hoglab.experiments import store
from hoglab.experiments.definitions import flag_config, metrics
from hoglab.experiments.definitions.fingerprint import Calculation, Fingerprints
from hoglab.experiments.store import ExperimentRow, HoldoutRow, SavedMetricLink, SavedMetricRow
from hoglab.experiments.wire.schemas import ExperimentPatch
from hoglab.experiments.wire.setting_schemas import HoldoutGroup
from hoglab.flags.store import FlagRow
from hoglab.flags.validation import unknown_keys_of
from hoglab.http.fields import unknown_keys
from hoglab.http.fields.dates import format_moment
from hoglab.http.fields.unknown_keys import WarningEntry, with_warnings
from hoglab.http.fields.wire import user_object
from hoglab.http.identity import Principal, Project, User
from hoglab.people import cohorts
from hoglab.statistics import resolve_config
from hoglab.statistics.verdict import Plan

FROZEN = "exposure_frozen"


@dataclass(frozen=True, slots=True)
class Related:
    """Objects that experiments show besides their own columns, loaded for a whole page at once."""

    flags: Mapping[int, FlagRow]
    holdouts: Mapping[int, HoldoutRow]
    users: Mapping[int, User]
    links: Mapping[int, list[SavedMetricLink]]
    action_names: Mapping[int, str | None]
    cohorts: Collection[int]
    """Exposure cohorts that are not deleted."""


def load_related(connection: Connection, project: Project, rows: Sequence[ExperimentRow]) -> Related:
    """Load the objects that a page of experiments shows, by a fixed number of queries."""
    flags = store.flags(connection, (row.feature_flag_id for row in rows))
    holdouts = store.holdouts(connection, (row.holdout_id for row in rows if row.holdout_id is not None))
    links = store.links(connection, (row.id for row in rows))
    author_ids = [row.created_by_id for row in rows] + [row.created_by_id for row in holdouts.values()]
    cohort_ids = {row.exposure_cohort_id for row in rows if row.exposure_cohort_id is not None}
    queries = [link.query for group in links.values() for link in group]
    inline = [m for row in rows for m in (*(row.metrics or ()), *(row.metrics_secondary or ()))]
    return Related(
        flags=flags,
        holdouts=holdouts,
        users=accounts.users(connection, author_ids),
        links=links,
        action_names=actions.names(connection, project.id, metrics.action_ids([*queries, *inline])),
        cohorts=cohorts.existing(connection, project.id, cohort_ids) if cohort_ids else (),
    )


def calculation(row: ExperimentRow, flag: FlagRow | None, project: Project) -> Calculation:
    """Return the calculation settings, which decide the numbers of an experiment's results besides the metric."""
    filters = flag.filters if flag is not None else {}
    excluded = set(row.excluded_variants)
    variants = [key for key in flag_config.variant_keys(filters) if key not in excluded]
    people = Plan.of(row.running_time_calculation or {}).people
    return Calculation(
        start_date=row.start_date,
        feature_flag_key=live_key(flag.key) if flag is not None else "",
        variants=variants,
        statistics=resolve_config(
            row.stats_config,
            project.experiment_defaults,
            planned_size=people * 2 / len(variants) if people is not None and variants else None,
        ),
        stats_config=row.stats_config,
        aggregation_group_type_index=filters.get("aggregation_group_type_index"),
        excluded_variants=row.excluded_variants,
        exposure_criteria=row.exposure_criteria,
        test_account_filters=project.test_account_filters,
        only_count_matured_users=row.only_count_matured_users,
        timezone=project.timezone,
    )


def live_key(key: str) -> str:
    """Return a flag's key without the mark that soft deletion leaves (spec experiments-api 7.3.5)."""
    name, mark, _ = key.partition(":deleted:")
    return name if mark else key


def stamped(metric: dict[str, Any], fingerprints: Fingerprints) -> dict[str, Any]:
    """Return the metric with its fingerprint; legacy kinds have none."""
    if metrics.is_legacy(metric):
        return metric
    return {**metric, "fingerprint": fingerprints.of(metric)}


def status(row: ExperimentRow, flag: FlagRow | None) -> str:
    """Return ``draft``, ``running``, ``paused``, ``exposure_frozen`` or ``stopped`` (spec experiments-api 2.2)."""
    if row.is_draft:
        return "draft"
    if row.is_stopped:
        return "stopped"
    if flag is not None and not flag.active:
        return "paused"
    if flag is not None and is_frozen(flag.filters):
        return "exposure_frozen"
    return "running"


def is_frozen(filters: Mapping[str, Any]) -> bool:
    """Return whether every release group of a flag is closed to new people."""
    groups = filters.get("groups") or []
    return bool(groups) and all(group.get(FROZEN) is True for group in groups)


def experiment_object(
    row: ExperimentRow, related: Related, project: Project, principal: Principal
) -> dict[str, Any]:
    """Return the full form, keys in the order of spec experiments-api 3.1."""
    level = principal.access_level(row.created_by_id)
    return {**experiment_state(row, related, project), "user_access_level": level}


def experiment_state(row: ExperimentRow, related: Related, project: Project) -> dict[str, Any]:
    """Return the full form without its last key, which depends on the caller."""
    flag = related.flags.get(row.feature_flag_id)
    holdout = related.holdouts.get(row.holdout_id) if row.holdout_id is not None else None
    fingerprints = Fingerprints(calculation(row, flag, project))
    links = related.links.get(row.id, [])
    everything = [*(row.metrics or ()), *(row.metrics_secondary or ()), *(link.query for link in links)]
    shown = {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "start_date": row.start_date,
        "end_date": row.end_date,
        "feature_flag_key": flag.key if flag is not None else None,
        "feature_flag": flag_object(flag) if flag is not None else None,
        "holdout": holdout_object(holdout, related.users) if holdout is not None else None,
        "holdout_id": row.holdout_id,
        "exposure_cohort": row.exposure_cohort_id if row.exposure_cohort_id in related.cohorts else None,
        "parameters": _parameters(row, flag),
        "running_time_calculation": row.running_time_calculation,
        "excluded_variants": row.excluded_variants,
        "secondary_metrics": row.secondary_metrics,
        "saved_metrics": [_link_object(link, fingerprints, related) for link in links],
        "saved_metrics_ids": None,
        "filters": row.filters,
        "archived": row.archived,
        "deleted": row.deleted,
        "created_by": user_object(_user(related.users, row.created_by_id)),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "type": row.type,
        "exposure_criteria": row.exposure_criteria,
        "metrics": _metrics(row.metrics, row, fingerprints, related),
        "metrics_secondary": _metrics(row.metrics_secondary, row, fingerprints, related),
        "stats_config": row.stats_config,
        "scheduling_config": row.scheduling_config,
        "_create_in_folder": row.create_in_folder,
        "conclusion": row.conclusion,
        "conclusion_comment": row.conclusion_comment,
        "primary_metrics_ordered_uuids": row.primary_metrics_ordered_uuids,
        "secondary_metrics_ordered_uuids": row.secondary_metrics_ordered_uuids,
        "only_count_matured_users": row.only_count_matured_users,
        "status": status(row, flag),
        "is_legacy": any(metrics.is_legacy(metric) for metric in everything),
    }
    return with_warnings(shown, warnings_of(row, flag, links))


def settings_of(row: ExperimentRow, flag: FlagRow | None) -> dict[str, Any]:
    """Return the settings of an experiment that decide its results, under the names of the wire."""
    return {
        "parameters": _parameters(row, flag),
        "exposure_criteria": row.exposure_criteria,
        "metrics": row.metrics,
        "metrics_secondary": row.metrics_secondary,
        "stats_config": row.stats_config,
    }


def warnings_of(
    row: ExperimentRow, flag: FlagRow | None, links: Sequence[SavedMetricLink]
) -> list[WarningEntry]:
    """Return warnings about parts of an experiment, its flag and saved metrics that have no or an unexpected effect."""
    warnings = unknown_keys.warnings_of(unknown_keys.within(ExperimentPatch, settings_of(row, flag)))
    if flag is not None:
        warnings += [
            replace(unknown, path=("feature_flag", *unknown.path)).warning()
            for unknown in unknown_keys_of(flag.filters)
        ]
    for name in ("metrics", "metrics_secondary"):
        for index, metric in enumerate(getattr(row, name) or ()):
            warnings += metrics.warnings_of(metric, (name, index))
    for index, link in enumerate(links):
        warnings += warnings_of_saved(link.query, ("saved_metrics", index, "query"))
    return warnings


def warnings_of_saved(query: Mapping[str, Any], path: unknown_keys.Path) -> list[WarningEntry]:
    """Return warnings about parts of a saved metric that have no effect, or an unexpected one."""
    unknown = unknown_keys.unknown_keys(metrics.StoredMetric, query, path)
    return unknown_keys.warnings_of(unknown) + metrics.warnings_of(query, path)


def _user(users: Mapping[int, User], user_id: int | None) -> User | None:
    return None if user_id is None else users.get(user_id)


def _parameters(row: ExperimentRow, flag: FlagRow | None) -> dict[str, Any] | None:
    if flag is None:
        return row.parameters
    return flag_config.projected(row.parameters, flag.filters, flag.ensure_experience_continuity)


def _metrics(
    stored: Iterable[dict[str, Any]] | None, row: ExperimentRow, fingerprints: Fingerprints, related: Related
) -> list[dict[str, Any]] | None:
    """Add to stored metrics the fields that are only known when they are read (spec experiments-api 3.8)."""
    if stored is None:
        return None
    shown = []
    for metric in stored:
        if metrics.is_legacy(metric):
            shown.append(_with_date_range(metric, row))
        else:
            shown.append(_as_read(metric, fingerprints, related))
    return shown


def _as_read(metric: dict[str, Any], fingerprints: Fingerprints, related: Related) -> dict[str, Any]:
    """Return a stored metric with its fingerprint, the key of its results, which ignores the names of its actions."""
    return metrics.with_action_names(stamped(metric, fingerprints), related.action_names)


def _with_date_range(metric: dict[str, Any], row: ExperimentRow) -> dict[str, Any]:
    """Return a legacy metric's query over the experiment's dates."""
    shown = dict(metric)
    for name in ("count_query", "funnels_query"):
        query = shown.get(name)
        if isinstance(query, dict) and "dateRange" in query:
            shown[name] = {
                **query,
                "dateRange": {
                    "date_from": format_moment(row.start_date) if row.start_date else "",
                    "date_to": format_moment(row.end_date) if row.end_date else "",
                    "explicitDate": True,
                },
            }
    return shown


def _link_object(link: SavedMetricLink, fingerprints: Fingerprints, related: Related) -> dict[str, Any]:
    return {
        "id": link.id,
        "experiment": link.experiment_id,
        "saved_metric": link.saved_metric_id,
        "metadata": link.metadata,
        "created_at": link.created_at,
        "query": _as_read(link.query, fingerprints, related),
        "name": link.name,
    }


def flag_object(flag: FlagRow) -> dict[str, Any]:
    """Return the ``feature_flag`` object of an experiment (spec experiments-api 3.2)."""
    return {
        "id": flag.id,
        "team_id": flag.project_id,
        "name": flag.name,
        "key": flag.key,
        "filters": flag.filters,
        "deleted": flag.deleted,
        "active": flag.active,
        "ensure_experience_continuity": flag.ensure_experience_continuity,
        "has_encrypted_payloads": flag.has_encrypted_payloads,
        "version": flag.version,
        "evaluation_runtime": flag.evaluation_runtime,
        "evaluation_tags": flag.evaluation_contexts,
        "bucketing_identifier": flag.bucketing_identifier,
        "evaluation_contexts": flag.evaluation_contexts,
    }


def holdout_object(row: HoldoutRow, users: Mapping[int, User]) -> dict[str, Any]:
    shown = {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "filters": row.filters,
        "created_by": user_object(_user(users, row.created_by_id)),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
    unknown = unknown_keys.unknown_keys(list[HoldoutGroup], row.filters, ("filters",))
    return with_warnings(shown, unknown_keys.warnings_of(unknown))


def saved_metric_object(
    row: SavedMetricRow, users: Mapping[int, User], principal: Principal
) -> dict[str, Any]:
    shown = {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "query": row.query,
        "created_by": user_object(_user(users, row.created_by_id)),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "tags": row.tags,
        "user_access_level": principal.access_level(row.created_by_id),
    }
    return with_warnings(shown, warnings_of_saved(row.query, ("query",)))
