"""The rules of creating, changing and reading experiments (spec experiments-api 3–5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from hoglab.accounts import activity
from hoglab.actions.references import check_references
from hoglab.experiments import milestones, store
from hoglab.experiments.actor import SCOPE, Actor
from hoglab.experiments.definitions import criteria, flag_config, metrics, phases
from hoglab.experiments.definitions.problems import DefinitionProblems, Problem, no_problem, when_saved
from hoglab.experiments.linkage import FlagLinkage
from hoglab.experiments.metric_lists import MetricLists
from hoglab.experiments.records import keeping
from hoglab.experiments.records.keeping import TakenDecision
from hoglab.experiments.store import ExperimentRow, SavedMetricLink
from hoglab.experiments.wire.presentation import experiment_object, load_related, settings_of
from hoglab.experiments.wire.schemas import ExperimentCreate, ExperimentPatch
from hoglab.flags.store import FlagRow
from hoglab.http.errors import does_not_exist, not_found, validation_error
from hoglab.http.fields.dates import utc_now
from hoglab.http.fields.fields import parse_bool
from hoglab.http.fields.unknown_keys import refuse, within

if TYPE_CHECKING:
    from hoglab.flags.service import FlagService
    from hoglab.http.identity import Project
    from hoglab.people.cohorts import CohortService
    from hoglab.storage.database import Database, Transaction

# Columns that a request sets as they came.
_PLAIN = (
    "name",
    "description",
    "start_date",
    "end_date",
    "secondary_metrics",
    "filters",
    "archived",
    "scheduling_config",
    "create_in_folder",
    "conclusion",
    "conclusion_comment",
    "only_count_matured_users",
)
_NAMING = ("exposure_criteria", "metrics", "metrics_secondary")
# What a legacy experiment may still change.
_LEGACY_FIELDS = frozenset({"name", "description", "end_date", "deleted"})
# Input that is not a column, and never counts as a change of its own.
_OPTIONS = frozenset({"allow_unknown_events", "update_feature_flag_params", "create_in_folder"})
_NOT_LOGGED = frozenset({"updated_at", "created_at", "id", "project_id", "phases", "watched_at"})

Judge = Callable[["Project", int], Mapping[str, Any] | None]
"""Returns what the results of an experiment say now, with the verdict; None where that is not known soon enough."""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far a client's clock may be ahead when it ends an experiment."""


class ExperimentService:
    """Experiments of all projects. Every write is one transaction: all of it is stored or nothing."""

    def __init__(
        self,
        database: Database,
        flags: FlagService,
        cohorts: CohortService,
        *,
        metric_problem: Problem = no_problem,
        exposure_problem: Problem = no_problem,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.database = database
        self.cohorts = cohorts
        self.problems = DefinitionProblems(database, when_saved(metric_problem), exposure_problem)
        self._metrics = MetricLists(self.problems.of_metric)
        self.linkage = FlagLinkage(flags, cohorts)
        self.now = now
        self.judge: Judge = lambda _project, _experiment_id: None
        """Set by who computes results, which needs this service."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def find(self, project: Project, experiment_id: int) -> ExperimentRow:
        """Return an experiment that is not deleted. Raises 404."""
        with self.database.read() as connection:
            return self.visible(connection, project, experiment_id)

    def visible(self, connection: Connection, project: Project, experiment_id: int) -> ExperimentRow:
        """Return an experiment that is not deleted, on an open connection. Raises 404."""
        row = store.get(connection, project.id, experiment_id)
        if row is None or row.deleted:
            raise not_found()
        return row

    def check_reachable(self, project: Project, experiment_id: int, body: Mapping[str, Any]) -> None:
        """Raise 404 for an experiment that a change with this body cannot reach, before any other error."""
        with self.database.read() as connection:
            row = store.get(connection, project.id, experiment_id)
        if row is None or (row.deleted and parse_bool(body.get("deleted", True))):
            raise not_found()

    def to_change(self, tx: Transaction, actor: Actor, experiment_id: int) -> ExperimentRow:
        """Return an experiment that the caller is about to change or to copy. Raises 404, and 412 as `check_state`."""
        row = self.visible(tx.connection, actor.project, experiment_id)
        self.check_state(tx, actor, row)
        return row

    def check_state(self, tx: Transaction, actor: Actor, row: ExperimentRow) -> None:
        """Raise 412 when the experiment, or what it shows of its flag, is not in the state the caller asks for."""
        if actor.if_match is not None:
            actor.if_match.require(self.present(tx.connection, actor, row))

    def present(self, connection: Connection, actor: Actor, row: ExperimentRow) -> dict[str, Any]:
        related = load_related(connection, actor.project, [row])
        return experiment_object(row, related, actor.project, actor.principal)

    # -- creating --------------------------------------------------------------------------------------------------

    def create(self, actor: Actor, body: ExperimentCreate) -> dict[str, Any]:
        """Create an experiment, and its flag when there is none of that key. Raises 400."""
        refuse(within(ExperimentPatch, body.sent()))
        new = [*(body.metrics or ()), *(body.metrics_secondary or ())]
        with (
            self.problems.prechecked(actor.project.id, self._metrics.unlike(new), body.exposure_criteria),
            self.database.write() as tx,
        ):
            row = self.create_in(tx, actor, body)
            return self.present(tx.connection, actor, row)

    def create_in(self, tx: Transaction, actor: Actor, body: ExperimentCreate) -> ExperimentRow:
        """Create an experiment, inside a transaction of the caller. Raises 400."""
        project = actor.project
        sent = body.sent()
        _check_dates(body.start_date, body.end_date)
        _check_end(body.end_date, actor.now)
        stats_config = (
            None if body.stats_config is None else criteria.validate_stats_config(body.stats_config)
        )
        holdout = self._holdout(tx.connection, project, body.holdout_id)
        config, parameters = _split_parameters(body)
        flag = self.linkage.link(
            tx, actor, body.feature_flag_key, body.name, config, holdout, active=body.start_date is not None
        )
        keys = flag_config.variant_keys(flag.filters)
        stored_config = criteria.created_stats_config(stats_config, project.experiment_defaults)
        criteria.validate_baseline(stored_config, keys)
        running_time, parameters = _running_time(body, parameters, sent)
        inline = self._metrics.created(tx.connection, project, body)
        self._check_exposures(tx.connection, project, body.exposure_criteria)
        check_references(tx.connection, project.id, _naming(sent))
        values = {
            **{name: getattr(body, name) for name in _PLAIN},
            "project_id": project.id,
            "deleted": bool(body.deleted),
            "feature_flag_id": flag.id,
            "holdout_id": body.holdout_id,
            "parameters": parameters,
            "running_time_calculation": running_time,
            "excluded_variants": _excluded(body, parameters, keys, stored_config),
            "secondary_metrics": [] if body.secondary_metrics is None else body.secondary_metrics,
            **inline,
            "exposure_criteria": criteria.created_exposure_criteria(body.exposure_criteria),
            "stats_config": stored_config,
            "type": body.type,
            "only_count_matured_users": body.only_count_matured_users
            if "only_count_matured_users" in sent
            else bool(project.experiment_defaults.get("default_only_count_matured_users")),
            "status": _stored_status(body.start_date, body.end_date),
            "phases": None if body.start_date is None else phases.first_phases(flag.filters, body.start_date),
            "created_by_id": actor.principal.user.id,
            "created_at": actor.now,
            "updated_at": actor.now,
        }
        row = store.insert(tx.connection, values)
        orders = self._metrics.link_created(tx, actor, row, body, sent)
        row = store.update(tx.connection, row.id, orders)
        activity.record(
            tx,
            project.id,
            actor.principal.user.id,
            "created",
            SCOPE,
            row.id,
            {"name": row.name, "changes": None},
            now=actor.now,
        )
        if row.start_date is not None:
            self._keep_plan(tx, actor, row, is_launch=True)
        milestones.emit(tx, row, "created", user_id=actor.user_id, now=actor.now)
        self.announce(tx, project.id)
        return row

    def announce(self, tx: Transaction, project_id: int) -> None:
        """Announce a change to everything that remembers experiments, what they show, or which flags have one."""
        tx.changed("experiments", project_id)

    # -- changing --------------------------------------------------------------------------------------------------

    def patch(self, actor: Actor, experiment_id: int, body: ExperimentPatch) -> dict[str, Any]:
        """Change the fields that were sent. Raises 400, and 404 for an experiment that stays deleted."""
        judgement = None if body.sent().get("end_date") is None else self.judgement(actor, experiment_id)
        with self._prechecked(actor, experiment_id, body), self.database.write() as tx:
            row = store.get(tx.connection, actor.project.id, experiment_id)
            if row is None or (row.deleted and not _restores(body)):
                raise not_found()
            self.check_state(tx, actor, row)
            row = self._patch(tx, actor, row, body, judgement)
            return self.present(tx.connection, actor, row)

    def judgement(self, actor: Actor, experiment_id: int) -> Mapping[str, Any] | None:
        """Return what the results of an experiment say now, before a decision about it; None for a draft."""
        with self.database.read() as connection:
            row = store.get(connection, actor.project.id, experiment_id)
        if row is None or row.is_draft or row.deleted:
            return None
        return self.judge(actor.project, experiment_id)

    def _prechecked(
        self, actor: Actor, experiment_id: int, body: ExperimentPatch
    ) -> AbstractContextManager[None]:
        """Check the new parts of a change before the transaction."""
        with self.database.read() as connection:
            row = store.get(connection, actor.project.id, experiment_id)
        if row is None:
            return nullcontext()
        known = [*(row.metrics or ()), *(row.metrics_secondary or ())]
        new = self._metrics.unlike([*(body.metrics or ()), *(body.metrics_secondary or ())], known)
        criteria = body.exposure_criteria
        is_known = criteria == row.exposure_criteria
        return self.problems.prechecked(actor.project.id, new, None if is_known else criteria)

    def _patch(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        body: ExperimentPatch,
        judgement: Mapping[str, Any] | None,
    ) -> ExperimentRow:
        sent = body.sent()
        flag = store.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
        links = store.links(tx.connection, [row.id]).get(row.id, [])
        refuse(within(ExperimentPatch, sent), within(ExperimentPatch, settings_of(row, flag)))
        _check_immutable(row, flag, body, sent)
        _check_legacy(row, links, sent)
        if "start_date" in sent and "end_date" in sent:
            _check_dates(body.start_date, body.end_date)
        if body.end_date != row.end_date:
            _check_end(body.end_date, actor.now)

        values: dict[str, Any] = {name: sent[name] for name in _PLAIN if name in sent}
        if row.deleted or "deleted" in sent:
            self.linkage.check_restorable(row, flag, restoring=row.deleted)
            values["deleted"] = bool(body.deleted)
        if "exposure_criteria" in sent:
            self._check_exposures(
                tx.connection, actor.project, body.exposure_criteria, known=row.exposure_criteria
            )
            values["exposure_criteria"] = body.exposure_criteria
        flag = self._patch_flag(tx, actor, row, flag, body, sent, values)
        keys = flag_config.variant_keys(flag.filters)
        self._patch_settings(row, body, sent, values, keys)
        values |= self._metrics.changed(tx, actor, row, body, sent, links)
        check_references(tx.connection, actor.project.id, _naming(sent), settings_of(row, flag))

        if not row.is_draft and "start_date" in values and values["start_date"] is None:
            flag = self.linkage.thaw(tx, actor, flag)
        launching = row.is_draft and values.get("start_date") is not None
        row = self.save(tx, actor, row, values, decision=TakenDecision(judgement))
        if launching:
            self.check_launchable(tx, actor, row, flag)
            self.linkage.set_active(tx, actor, flag, active=True)
        return row

    def save(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        values: Mapping[str, Any],
        further: Sequence[dict[str, Any]] = (),
        *,
        decision: TakenDecision | None = None,
    ) -> ExperimentRow:
        """Store changed columns and the status that follows from them, and log the change as activity.

        ``further`` are changes of the experiment that none of its columns shows. A ``decision`` is recorded where it
        ends the experiment or ships a variant.
        """
        values = dict(values)
        start = values.get("start_date", row.start_date)
        end = values.get("end_date", row.end_date)
        values["status"] = _stored_status(start, end)
        if start is None:
            values |= {"phases": None, "watched_at": None}
        elif row.start_date is None:
            flag = store.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
            values["phases"] = phases.first_phases(flag.filters, start)
        after = store.update(tx.connection, row.id, {**values, "updated_at": actor.now})
        changes = [
            activity.change(SCOPE, name, _plain(getattr(row, name)), _plain(getattr(after, name)))
            for name in values
            if name not in _NOT_LOGGED and getattr(row, name) != getattr(after, name)
        ] + list(further)
        if changes:
            what = "updated"
            if row.deleted != after.deleted:
                what = "deleted" if after.deleted else "restored"
            detail = {"name": after.name, "changes": changes}
            user_id = actor.principal.user.id
            activity.record(tx, actor.project.id, user_id, what, SCOPE, row.id, detail, now=actor.now)
        if after.start_date is not None:
            self._keep_plan(tx, actor, after, is_launch=row.is_draft)
        decision = decision or TakenDecision(None)
        if decision.shipped is not None or (after.is_stopped and not row.is_stopped):
            keeping.keep_decision(tx, after, decision, user_id=actor.user_id, now=actor.now)
        for milestone in milestones.passed(row, after):
            milestones.emit(tx, after, milestone, user_id=actor.user_id, now=actor.now)
        self.announce(tx, actor.project.id)
        return after

    def _keep_plan(self, tx: Transaction, actor: Actor, row: ExperimentRow, *, is_launch: bool) -> None:
        keeping.keep_plan(tx, actor.project, row, is_launch=is_launch, user_id=actor.user_id, now=actor.now)

    def keep_plans_of(self, tx: Transaction, actor: Actor, rows: Iterable[ExperimentRow]) -> None:
        """Keep what a change of something that these experiments share amends of their plans."""
        for row in rows:
            if not row.is_draft:
                self._keep_plan(tx, actor, row, is_launch=False)

    def _patch_flag(
        self,
        tx: Transaction,
        actor: Actor,
        row: ExperimentRow,
        flag: FlagRow,
        body: ExperimentPatch,
        sent: Mapping[str, Any],
        values: dict[str, Any],
    ) -> FlagRow:
        """Apply the flag's part and the holdout to the flag (spec experiments-api 4.3)."""
        if "holdout_id" in sent and body.holdout_id != row.holdout_id:
            if not row.is_draft:
                raise validation_error("Can't update holdout on running Experiment")
            holdout = self._holdout(tx.connection, actor.project, body.holdout_id)
            values["holdout_id"] = body.holdout_id
            flag = self.linkage.set_holdout(tx, actor, flag, holdout)
        config, parameters = _split_parameters(body)
        if "parameters" in sent:
            values["parameters"] = parameters
        if config:
            flag = self.linkage.reconfigure(
                tx, actor, row, flag, config, forced=body.update_feature_flag_params
            )
        return flag

    def _patch_settings(
        self,
        row: ExperimentRow,
        body: ExperimentPatch,
        sent: Mapping[str, Any],
        values: dict[str, Any],
        keys: Sequence[str],
    ) -> None:
        if "stats_config" in sent:
            config = body.stats_config
            values["stats_config"] = None if config is None else criteria.validate_stats_config(config)
        config = values.get("stats_config", row.stats_config)
        variants_sent = "parameters" in sent or "feature_flag" in sent
        if "stats_config" in sent or variants_sent:
            criteria.validate_baseline(config, keys)
        if "excluded_variants" in sent or "excluded_variants" in (body.parameters or {}):
            values["excluded_variants"] = _excluded(body, body.parameters, keys, config)
        if "running_time_calculation" in sent or "parameters" in sent:
            own = values.get("parameters", row.parameters)
            values["running_time_calculation"], values["parameters"] = _running_time(body, own, sent)

    def check_launchable(self, tx: Transaction, actor: Actor, row: ExperimentRow, flag: FlagRow) -> None:
        """Raise 400 for a flag that does not allow the launch, and for actions and cohorts that are gone."""
        self.linkage.check_launchable(flag)
        links = store.links(tx.connection, [row.id]).get(row.id, [])
        named = {name: getattr(row, name) for name in _NAMING}
        saved = {"saved_metrics": [link.query for link in links]}
        check_references(tx.connection, actor.project.id, named | saved)

    # -- shared parts ----------------------------------------------------------------------------------------------

    def _holdout(
        self, connection: Connection, project: Project, holdout_id: int | None
    ) -> store.HoldoutRow | None:
        if holdout_id is None:
            return None
        row = store.holdout(connection, project.id, holdout_id)
        if row is None:
            raise does_not_exist(holdout_id, "holdout_id")
        return row

    def _check_exposures(
        self,
        connection: Connection,
        project: Project,
        criteria: Mapping[str, Any] | None,
        *,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise 400 for new criteria by which nobody could be counted."""
        if criteria and criteria != known:
            problem = self.problems.of_exposures(connection, project.id, criteria)
            if problem is not None:
                raise validation_error(f"Invalid exposure_criteria: {problem}", "exposure_criteria")


def check_none_runs(rows: Iterable[ExperimentRow], used: str) -> None:
    """Raise 400 when one of the experiments runs that use an object, named in words, that is to be deleted."""
    running = [row for row in rows if row.is_running and not row.deleted]
    if running:
        raise validation_error(
            f"This {used} cannot be deleted while it is in use by {store.named(running)}. "
            "End the experiment(s) first."
        )


def _naming(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that may name actions and cohorts."""
    return {name: sent[name] for name in _NAMING if name in sent}


def _restores(body: ExperimentPatch) -> bool:
    return "deleted" in body.model_fields_set and not body.deleted


def _stored_status(start: datetime | None, end: datetime | None) -> str:
    if start is None:
        return "draft"
    return "running" if end is None else "stopped"


def _check_end(end: datetime | None, now: datetime) -> None:
    """Raise 400 for an end in the future: an experiment with an end has ended, for lists, flag and verdict alike."""
    if end is not None and end > now + CLOCK_TOLERANCE:
        raise validation_error(
            "end_date is in the future. An experiment with an end_date has ended: end it when it is over, or write the "
            "planned length into running_time_calculation.recommended_running_time.",
            "end_date",
        )


def _check_dates(start: datetime | None, end: datetime | None) -> None:
    if start is not None and end is not None and start >= end:
        raise validation_error("End date must be after start date")


def _check_immutable(
    row: ExperimentRow, flag: FlagRow, body: ExperimentPatch, sent: Mapping[str, Any]
) -> None:
    """Raise 400 for keys that must not change and are not ignored (spec experiments-api 5.3)."""
    refused = []
    if "feature_flag_key" in sent and body.feature_flag_key != flag.key:
        refused.append("get_feature_flag_key")  # the name that clients know from the wire
    if "type" in sent and body.type != row.type:
        refused.append("type")
    if refused:
        raise validation_error(f"Can't update keys: {', '.join(sorted(refused))} on Experiment")
    if isinstance(sent.get("filters"), Mapping) and sent["filters"].get("properties"):
        raise validation_error("Experiments do not support global filter properties")


def _check_legacy(row: ExperimentRow, links: Sequence[SavedMetricLink], sent: Mapping[str, Any]) -> None:
    stored = [*(row.metrics or ()), *(row.metrics_secondary or ()), *(link.query for link in links)]
    if not any(metrics.is_legacy(metric) for metric in stored):
        return
    if refused := sorted(sent.keys() - _LEGACY_FIELDS - _OPTIONS):
        raise validation_error(
            "This experiment uses legacy metric formats and can only have its name, description, or end_date "
            f"updated. Cannot update: {', '.join(refused)}"
        )
    if sent.get("end_date") is not None:
        _check_dates(row.start_date, sent["end_date"])


def _split_parameters(body: ExperimentPatch) -> tuple[flag_config.FlagConfig, dict[str, Any] | None]:
    """Return the flag's part of a request, from either of its places, and the experiment's own parameters."""
    own: dict[str, Any] | None = None
    config = flag_config.FlagConfig()
    if body.parameters is not None:
        config, own = flag_config.from_parameters(body.parameters)
    direct = flag_config.from_flag_object(body.feature_flag)
    if direct:
        fields = {name: getattr(direct, name) for name in direct.sent}
        config = replace(config, sent=config.sent | direct.sent, **fields)
    return config, own


def _running_time(
    body: ExperimentPatch, parameters: dict[str, Any] | None, sent: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the calculator's values in both of their places (spec experiments-api 3.4)."""
    if "running_time_calculation" in sent:
        calculation = dict(body.running_time_calculation)
        return calculation, criteria.with_running_time(parameters, calculation)
    return criteria.running_time_of(parameters), parameters


def _excluded(
    body: ExperimentPatch,
    parameters: Mapping[str, Any] | None,
    keys: Sequence[str],
    stats_config: Mapping[str, Any] | None,
) -> list[str]:
    baseline = (stats_config or {}).get("baseline_variant_key")
    if baseline is None:
        baseline = flag_config.CONTROL if flag_config.CONTROL in keys else next(iter(keys), "")
    if "excluded_variants" in body.model_fields_set:
        return flag_config.check_excluded(body.excluded_variants, keys, baseline)
    given = (parameters or {}).get("excluded_variants")
    return flag_config.check_excluded(given, keys, baseline, attr="parameters")


def _plain(value: Any) -> Any:
    """Return a column's value as the activity log keeps it."""
    return value.isoformat() if isinstance(value, datetime) else value
