"""An experiment and its feature flag (spec experiments-api 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Connection

from hoglab.experiments import freezing, store
from hoglab.experiments.definitions import flag_config, phases
from hoglab.experiments.definitions.flag_config import FlagConfig
from hoglab.experiments.store import ExperimentRow, HoldoutRow
from hoglab.flags.store import FlagRow, LinkedExperiment
from hoglab.http.errors import validation_error

if TYPE_CHECKING:
    from hoglab.experiments.actor import Actor
    from hoglab.flags.service import FlagService
    from hoglab.http.identity import Project
    from hoglab.people.cohorts import CohortService
    from hoglab.storage.database import Transaction


def linked_experiments(
    connection: Connection, project_id: int, flag_ids: Collection[int] | None
) -> Mapping[int, list[LinkedExperiment]]:
    """Return the experiments of flags, in the form that the flags room asks for."""
    by_flag: dict[int, list[LinkedExperiment]] = {}
    for row in store.of_flags(connection, project_id, flag_ids, deleted=True):
        linked = LinkedExperiment(row.id, row.name, row.is_running, row.deleted)
        by_flag.setdefault(row.feature_flag_id, []).append(linked)
    return by_flag


def keep_shares(tx: Transaction, before: FlagRow, after: FlagRow, now: datetime) -> None:
    """Keep the shares of people that a flag gave to variants before a change, for each launched experiment on it.

    A running experiment enters a new phase where they are others now.
    """
    if phases.shares_of(before.filters) == phases.shares_of(after.filters):
        return
    for row in store.of_flags(tx.connection, after.project_id, [after.id], deleted=True):
        if row.start_date is None:
            continue
        known = row.phases or phases.first_phases(before.filters, row.start_date)
        if row.end_date is None:
            known = phases.with_shares(known, after.filters, now)
        if known != row.phases:
            store.update(tx.connection, row.id, {"phases": known})
            tx.changed("experiments", row.project_id)


class FlagLinkage:
    """Changes of flags by experiments, always inside the experiment's own transaction."""

    def __init__(self, flags: FlagService, cohorts: CohortService) -> None:
        self._flags = flags
        self._cohorts = cohorts

    def link(
        self,
        tx: Transaction,
        actor: Actor,
        key: str,
        experiment_name: str,
        config: FlagConfig,
        holdout: HoldoutRow | None,
        *,
        active: bool,
    ) -> FlagRow:
        """Return the flag of a new experiment: the existing one of that key unchanged, else a new one. Raises 400."""
        known = self._flags.get_by_key(tx.connection, actor.project.id, key)
        if known is not None:
            flag_config.check_suitable(known.filters)
            if config and not flag_config.equals_flag(
                config, known.filters, known.ensure_experience_continuity
            ):
                raise validation_error(
                    f"A feature flag with key '{key}' already exists; the experiment links to it as-is, so its "
                    "config cannot be set here. Omit feature_flag to reuse the existing flag, or edit the flag "
                    "directly.",
                    "feature_flag",
                )
            return known
        continuity = config.ensure_experience_continuity
        if continuity is None:
            default = actor.project.experiment_defaults.get("default_flag_persistence_enabled")
            continuity = bool(default)
        return self._flags.create_flag(
            tx,
            actor.project,
            actor.principal.user,
            {
                "key": key,
                "name": f"Feature Flag for Experiment {experiment_name}",
                "filters": flag_config.new_flag_filters(config, _holdout_filter(holdout)),
                "active": active,
                "ensure_experience_continuity": continuity,
                "creation_context": "experiments",
            },
        )

    def copy(self, tx: Transaction, actor: Actor, key: str, experiment_name: str, source: FlagRow) -> FlagRow:
        """Return the flag of a copied experiment: the existing one of that key, else one with the source's variants."""
        known = self._flags.get_by_key(tx.connection, actor.project.id, key)
        if known is not None:
            flag_config.check_suitable(known.filters)
            return known
        filters = source.filters
        config = FlagConfig(
            sent=frozenset({"variants", "rollout_percentage", "aggregation_group_type_index", "payloads"}),
            variants=flag_config.variants_of(filters),
            rollout_percentage=(filters.get("groups") or [{}])[0].get("rollout_percentage"),
            aggregation_group_type_index=filters.get("aggregation_group_type_index"),
            payloads=filters.get("payloads") or {},
            ensure_experience_continuity=source.ensure_experience_continuity,
        )
        return self.link(tx, actor, key, experiment_name, config, None, active=False)

    def reconfigure(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        flag: FlagRow,
        config: FlagConfig,
        *,
        forced: bool,
    ) -> FlagRow:
        """Apply the flag's part of a PATCH (spec experiments-api 4.3). An echo changes nothing. Raises 400."""
        if flag_config.equals_flag(config, flag.filters, flag.ensure_experience_continuity):
            return flag
        if not row.is_draft:
            if not forced:
                raise validation_error(
                    "This experiment is running. To change its flag config, send update_feature_flag_params=true "
                    "(or edit the feature flag directly).",
                    "feature_flag",
                )
            if "variants" in config.sent:
                self._check_same_variants(flag, config)
        changes: dict[str, Any] = {"filters": flag_config.applied(flag.filters, config)}
        if "ensure_experience_continuity" in config.sent:
            changes["ensure_experience_continuity"] = config.ensure_experience_continuity
        return self._update(tx, actor, flag, changes)

    def _check_same_variants(self, flag: FlagRow, config: FlagConfig) -> None:
        """Raise 400 unless the variants of a launched experiment stay; their shares and names may change."""
        wanted = [variant["key"] for variant in config.variants]
        if sorted(wanted) != sorted(flag_config.variant_keys(flag.filters)):
            raise validation_error("Can't update feature_flag_variants on Experiment")

    def set_holdout(
        self, tx: Transaction, actor: Actor, flag: FlagRow, holdout: HoldoutRow | None
    ) -> FlagRow:
        return self._update(tx, actor, flag, {"filters": {"holdout": _holdout_filter(holdout)}})

    def set_filters(
        self, tx: Transaction, actor: Actor, flag: FlagRow, filters: Mapping[str, Any]
    ) -> FlagRow:
        return self._update(tx, actor, flag, {"filters": filters})

    def freeze(
        self, tx: Transaction, actor: Actor, flag: FlagRow, cohort_name: str, persons: Iterable[UUID]
    ) -> None:
        """Close every release group to all but a new cohort of persons (spec experiments-api 6.8)."""
        cohort = self._cohorts.create_static(tx, actor.project, actor.principal.user, cohort_name, persons)
        self.set_filters(tx, actor, flag, {"groups": freezing.frozen_groups(flag.filters, cohort.id)})
        self.discard_cohorts(tx, actor, flag)

    def thaw(self, tx: Transaction, actor: Actor, flag: FlagRow) -> FlagRow:
        """Undo `freeze`; a flag that is not frozen stays untouched."""
        if not freezing.is_marked(flag.filters):
            return flag
        thawed = self.set_filters(tx, actor, flag, {"groups": freezing.thawed_groups(flag.filters)})
        self.discard_cohorts(tx, actor, flag)
        return thawed

    def discard_cohorts(self, tx: Transaction, actor: Actor, flag: FlagRow) -> None:
        """Delete the cohorts that a flag was frozen with; one that something else uses stays."""
        for cohort_id in freezing.cohorts_of(flag.filters):
            self._cohorts.discard(tx, actor.project, actor.principal.user, cohort_id)

    def set_active(self, tx: Transaction, actor: Actor, flag: FlagRow, *, active: bool) -> FlagRow:
        return self._flags.set_active(tx, actor.project, actor.principal.user, flag.id, active)

    def switch_off(self, tx: Transaction, project: Project, flag: FlagRow) -> None:
        """Switch a flag off by the server itself."""
        self._flags.set_active(tx, project, None, flag.id, False)

    def set_archived(
        self, tx: Transaction, actor: Actor, flag: FlagRow, *, archived: bool, active: bool | None = None
    ) -> FlagRow:
        changes: dict[str, Any] = {"archived": archived}
        if active is not None:
            changes["active"] = active
        return self._update(tx, actor, flag, changes)

    def _update(self, tx: Transaction, actor: Actor, flag: FlagRow, changes: Mapping[str, Any]) -> FlagRow:
        return self._flags.update_flag(tx, actor.project, actor.principal.user, flag.id, changes)

    def check_launchable(self, flag: FlagRow) -> None:
        """Raise 400 when the flag does not allow the launch (spec experiments-api 6.1)."""
        if flag.deleted:
            raise validation_error("Experiment cannot be launched because its feature flag has been deleted.")
        flag_config.check_suitable(flag.filters)

    def check_restorable(self, row: ExperimentRow, flag: FlagRow, *, restoring: bool) -> None:
        """Raise 400 for a deleted experiment whose flag is deleted too (spec experiments-api 5.4)."""
        if restoring and row.deleted and flag.deleted:
            raise validation_error(
                "Cannot restore experiment: the linked feature flag has been deleted. "
                "Restore the feature flag first, then restore the experiment."
            )


def _holdout_filter(holdout: HoldoutRow | None) -> Any:
    return flag_config.holdout_filter(*((holdout.id, holdout.filters) if holdout else (None, None)))
