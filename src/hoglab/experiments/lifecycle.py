"""Actions on experiments (spec experiments-api 6).

::

    draft --launch--> running --end--> stopped --archive--> archived
            running --pause--> paused --resume--> running
            running --freeze_exposure--> exposure_frozen --unfreeze_exposure--> running
            running|stopped --ship_variant--> stopped
            any launched --reset--> draft
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.accounts import activity
from hoglab.experiments import freezing, milestones, store
from hoglab.experiments.actor import SCOPE, Actor
from hoglab.experiments.definitions import flag_config, metrics, ordering
from hoglab.experiments.exposed import Performed, exposed_persons
from hoglab.experiments.records.keeping import TakenDecision
from hoglab.experiments.service import ExperimentService
from hoglab.experiments.store import ExperimentRow
from hoglab.experiments.wire.presentation import status
from hoglab.experiments.wire.schemas import (
    ArchiveBody,
    CopyBody,
    DuplicateBody,
    EndBody,
    ShipVariantBody,
)
from hoglab.flags.store import FlagRow
from hoglab.http.errors import BareError, permission_denied, validation_error

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.storage.database import Transaction

SHIPPED_DESCRIPTION = "Added automatically when the experiment was ended to keep only one variant."

SHIPPED = "shipped_variant"
"""Field of an entry of the activity log that names the variant that was shipped."""
NOT_LAUNCHED = "Experiment has not been launched yet."
ENDED = "Experiment has already ended."

# What an action does: new column values of the experiment, after changing the flag if it has to.
Step = Callable[["Transaction", ExperimentRow, FlagRow], Mapping[str, Any]]


class Lifecycle:
    """Launch, pause, freeze, end, reset, archive, ship, duplicate. Each is one transaction; guards raise 400."""

    def __init__(self, service: ExperimentService, performed: Performed) -> None:
        self._service = service
        self._linkage = service.linkage
        self._performed = performed

    def _act(
        self,
        actor: Actor,
        experiment_id: int,
        step: Step,
        milestone: str | None = None,
        *,
        decides: bool = False,
        shipped: str | None = None,
    ) -> dict[str, Any]:
        """Take a step, log it and announce its ``milestone``; ``shipped`` is the variant that it ships.

        A step that ``decides`` is recorded with what the results say before it.
        """
        judgement = self._service.judgement(actor, experiment_id) if decides else None
        with self._service.database.write() as tx:
            row = self._service.to_change(tx, actor, experiment_id)
            flag = store.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
            values = step(tx, row, flag)
            changes = [] if shipped is None else [activity.change(SCOPE, SHIPPED, None, shipped)]
            if not values:
                # Only the flag changed: it decides whether a running experiment is paused or frozen.
                changed = store.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
                before, after = status(row, flag), status(row, changed)
                changes += [activity.change(SCOPE, "status", before, after)] if before != after else []
            decision = TakenDecision(judgement, shipped)
            row = self._service.save(tx, actor, row, values, changes, decision=decision)
            if milestone is not None:
                facts = {} if shipped is None else {"variant": shipped}
                milestones.emit(tx, row, milestone, user_id=actor.user_id, now=actor.now, **facts)
            return self._service.present(tx.connection, actor, row)

    def launch(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _refuse(not row.is_draft, "Experiment has already been launched.")
            self._service.check_launchable(tx, actor, row, flag)
            self._linkage.set_active(tx, actor, flag, active=True)
            return {"start_date": actor.now}

        return self._act(actor, experiment_id, step)

    def pause(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _require_running(row)
            _refuse(not flag.active, "Experiment is already paused.")
            self._linkage.set_active(tx, actor, flag, active=False)
            return {}

        return self._act(actor, experiment_id, step, "paused")

    def resume(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _require_running(row)
            _refuse(flag.active, "Experiment is not paused.")
            self._linkage.set_active(tx, actor, flag, active=True)
            return {}

        return self._act(actor, experiment_id, step, "resumed")

    def freeze_exposure(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        """Close a running experiment to everybody who has not seen a variant yet (spec experiments-api 6.8)."""
        with self._service.database.read() as connection:
            row = self._service.visible(connection, actor.project, experiment_id)
            flag = store.flags(connection, [row.feature_flag_id])[row.feature_flag_id]
        _require_running(row)
        freezing.check_freezable(row, flag)
        # Before the transaction: the search may take a while, and nobody else could write meanwhile.
        persons = list(exposed_persons(self._performed, actor.project, row, flag))

        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _require_running(row)
            freezing.check_freezable(row, flag)
            name = f'Users exposed to experiment "{row.name}" when it was frozen'
            self._linkage.freeze(tx, actor, flag, name, persons)
            return {}

        return self._act(actor, experiment_id, step, "exposure_frozen")

    def unfreeze_exposure(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        """Open a frozen experiment again to everybody whom the flag reaches."""

        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _require_running(row)
            _refuse(not freezing.is_marked(flag.filters), "Experiment exposure is not frozen.")
            self._linkage.thaw(tx, actor, flag)
            return {}

        return self._act(actor, experiment_id, step, "exposure_unfrozen")

    def end(self, actor: Actor, experiment_id: int, body: EndBody) -> dict[str, Any]:
        def step(_tx: Transaction, row: ExperimentRow, _flag: FlagRow) -> Mapping[str, Any]:
            _require_running(row)
            return {
                "end_date": actor.now,
                "conclusion": body.conclusion,
                "conclusion_comment": body.conclusion_comment,
            }

        return self._act(actor, experiment_id, step, decides=True)

    def reset(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _refuse(row.is_draft, "Experiment is already in draft state.")
            self._linkage.thaw(tx, actor, flag)
            return {
                "start_date": None,
                "end_date": None,
                "conclusion": None,
                "conclusion_comment": None,
                "archived": False,
            }

        return self._act(actor, experiment_id, step)

    def archive(self, actor: Actor, experiment_id: int, body: ArchiveBody) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _refuse(row.archived, "Experiment is already archived.")
            _refuse(not row.is_stopped, "Experiment must be ended before it can be archived.")
            archived_before = row.feature_flag_auto_archived and flag.archived
            archived_now = self._archive_flag(tx, actor, row, flag, body)
            return {"archived": True, "feature_flag_auto_archived": archived_before or archived_now}

        return self._act(actor, experiment_id, step)

    def _archive_flag(
        self, tx: Transaction, actor: Actor, row: ExperimentRow, flag: FlagRow, body: ArchiveBody
    ) -> bool:
        """Archive the flag too, where nothing else needs it; return whether it was archived."""
        may_write = actor.principal.has_scope("feature_flag:write")
        if body.disable_feature_flag and not may_write:
            raise permission_denied(
                "You don't have feature flag write access, so this experiment's feature flag can't be disabled."
            )
        others = store.of_flags(tx.connection, row.project_id, [flag.id])
        shared = any(other.id != row.id and not other.archived for other in others)
        if flag.deleted or flag.archived or shared or not may_write:
            return False
        if flag.active and not body.disable_feature_flag:
            return False
        self._linkage.set_archived(tx, actor, flag, archived=True, active=False)
        return True

    def unarchive(self, actor: Actor, experiment_id: int) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _refuse(not row.archived, "Experiment is not archived.")
            if row.feature_flag_auto_archived and flag.archived and not flag.deleted:
                self._linkage.set_archived(tx, actor, flag, archived=False)
            return {"archived": False, "feature_flag_auto_archived": False}

        return self._act(actor, experiment_id, step)

    def ship_variant(self, actor: Actor, experiment_id: int, body: ShipVariantBody) -> dict[str, Any]:
        def step(tx: Transaction, row: ExperimentRow, flag: FlagRow) -> Mapping[str, Any]:
            _refuse(row.is_draft, NOT_LAUNCHED)
            _refuse(flag.deleted, "Experiment does not have a linked feature flag.")
            if body.variant_key not in flag_config.variant_keys(flag.filters):
                raise validation_error(f"Variant '{body.variant_key}' not found on feature flag.")
            self._linkage.set_filters(tx, actor, flag, shipped_filters(flag.filters, body))
            self._linkage.discard_cohorts(tx, actor, flag)
            values: dict[str, Any] = {}
            if row.is_running:
                values["end_date"] = actor.now
            if body.conclusion is not None:
                values["conclusion"] = body.conclusion
            if body.conclusion_comment is not None:
                values["conclusion_comment"] = body.conclusion_comment
            return values

        return self._act(
            actor, experiment_id, step, "variant_shipped", decides=True, shipped=body.variant_key
        )

    # -- copies ----------------------------------------------------------------------------------------------------

    def duplicate(self, actor: Actor, experiment_id: int, body: DuplicateBody) -> dict[str, Any]:
        """Create a new draft like this one (spec experiments-api 6.9)."""
        with self._service.database.write() as tx:
            source = self._service.to_change(tx, actor, experiment_id)
            self._refuse_legacy(tx, source, "Duplication")
            flag = store.flags(tx.connection, [source.feature_flag_id])[source.feature_flag_id]
            name = body.name or self._free_name(tx, actor.project, source.name)
            key = (body.feature_flag_key or "").strip()
            target = flag if not key or key == flag.key else self._linkage.copy(tx, actor, key, name, flag)
            row = self._copy(tx, actor, source, target, name)
            for link in store.links(tx.connection, [source.id]).get(source.id, []):
                store.insert_link(tx.connection, row.id, link.saved_metric_id, link.metadata, actor.now)
            return self._service.present(tx.connection, actor, row)

    def copy_to_project(
        self, actor: Actor, experiment_id: int, body: CopyBody, target: Project | None
    ) -> dict[str, Any]:
        """Create a new draft like this one in another project of the organization (spec experiments-api 6.10)."""
        if target is None or target.organization_id != actor.project.organization_id:
            raise BareError(404, {"detail": "Target team not found."})
        if not actor.principal.reaches_project(target):
            raise BareError(403, {"detail": "You do not have write access to the target project."})
        there = replace(actor, project=target)
        with self._service.database.write() as tx:
            source = self._service.to_change(tx, actor, experiment_id)
            self._refuse_legacy(tx, source, "Copying")
            flag = store.flags(tx.connection, [source.feature_flag_id])[source.feature_flag_id]
            name = body.name or self._free_name(tx, target, source.name)
            key = (body.feature_flag_key or "").strip() or flag.key
            row = self._copy(tx, there, source, self._linkage.copy(tx, there, key, name, flag), name)
            return self._service.present(tx.connection, there, row)

    def _refuse_legacy(self, tx: Transaction, source: ExperimentRow, what: str) -> None:
        links = store.links(tx.connection, [source.id]).get(source.id, [])
        stored = [*(source.metrics or ()), *(source.metrics_secondary or ()), *(link.query for link in links)]
        if any(metrics.is_legacy(metric) for metric in stored):
            text = f"{what} is not supported for experiments using legacy metrics."
            raise BareError(400, {"detail": text})

    def _free_name(self, tx: Transaction, project: Project, name: str) -> str:
        wanted = f"{name} (Copy)"[:400]
        taken = store.names_like(tx.connection, project.id, wanted)
        number, free = 1, wanted
        while free in taken:
            free, number = f"{wanted} {number}", number + 1
        return free

    def _copy(
        self, tx: Transaction, actor: Actor, source: ExperimentRow, flag: FlagRow, name: str
    ) -> ExperimentRow:
        """Create a draft with the source's settings; its inline metrics get uuids of their own."""
        fresh: dict[str, str] = {uuid: str(uuid4()) for uuid in _inline_uuids(source)}

        def renamed(inline: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
            return [
                {**metric, "uuid": fresh.get(metric.get("uuid", ""), str(uuid4()))} for metric in inline or ()
            ]

        def reordered(order: list[str] | None) -> list[str] | None:
            return None if order is None else [fresh.get(uuid, uuid) for uuid in order]

        primary, secondary = renamed(source.metrics), renamed(source.metrics_secondary)
        values = {
            "project_id": actor.project.id,
            "name": name,
            "description": source.description,
            "feature_flag_id": flag.id,
            "type": source.type or "product",
            "parameters": source.parameters,
            "running_time_calculation": source.running_time_calculation,
            "excluded_variants": source.excluded_variants
            if set(source.excluded_variants) <= set(flag_config.variant_keys(flag.filters))
            else [],
            "filters": source.filters,
            "secondary_metrics": source.secondary_metrics,
            "metrics": primary,
            "metrics_secondary": secondary,
            "primary_metrics_ordered_uuids": _complete(
                reordered(source.primary_metrics_ordered_uuids), primary
            ),
            "secondary_metrics_ordered_uuids": _complete(
                reordered(source.secondary_metrics_ordered_uuids), secondary
            ),
            "stats_config": source.stats_config,
            "scheduling_config": source.scheduling_config,
            "exposure_criteria": source.exposure_criteria,
            "only_count_matured_users": source.only_count_matured_users,
            "status": "draft",
            "created_by_id": actor.principal.user.id,
            "created_at": actor.now,
            "updated_at": actor.now,
        }
        row = store.insert(tx.connection, values)
        user_id = actor.principal.user.id
        detail = {"name": row.name, "changes": None}
        activity.record(tx, actor.project.id, user_id, "created", SCOPE, row.id, detail, now=actor.now)
        milestones.emit(tx, row, "created", user_id=actor.user_id, now=actor.now)
        self._service.announce(tx, actor.project.id)
        return row


def shipped_filters(filters: Mapping[str, Any], body: ShipVariantBody) -> dict[str, Any]:
    """Return a flag's filters with one variant shipped to all whom it reaches (spec experiments-api 6.7)."""
    variants = []
    for variant in flag_config.variants_of(filters):
        share = 100 if variant["key"] == body.variant_key else 0
        kept: dict[str, Any] = {"key": variant["key"], "rollout_percentage": share}
        if variant.get("name"):
            kept["name"] = variant["name"]
        variants.append(kept)
    groups = freezing.thawed_groups(filters)
    if body.release_to_everyone:
        everyone = {"properties": [], "rollout_percentage": 100, "description": SHIPPED_DESCRIPTION}
        groups = [everyone, *groups]
    return {
        "groups": groups,
        "multivariate": {"variants": variants},
        "aggregation_group_type_index": filters.get("aggregation_group_type_index"),
        "payloads": filters.get("payloads") or {},
    }


def _inline_uuids(row: ExperimentRow) -> list[str]:
    return [*metrics.uuids(row.metrics), *metrics.uuids(row.metrics_secondary)]


def _complete(order: list[str] | None, inline: list[dict[str, Any]]) -> list[str] | None:
    return ordering.completed(order or [], metrics.uuids(inline)) if order is not None or inline else None


def _refuse(condition: bool, text: str) -> None:
    if condition:
        raise validation_error(text)


def _require_running(row: ExperimentRow) -> None:
    _refuse(row.is_draft, NOT_LAUNCHED)
    _refuse(row.is_stopped, ENDED)
