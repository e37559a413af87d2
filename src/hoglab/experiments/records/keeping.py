"""Writing records, always inside the transaction of the change that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hoglab.accounts import activity
from hoglab.experiments import milestones
from hoglab.experiments import store as experiments
from hoglab.experiments.actor import SCOPE
from hoglab.experiments.definitions.criteria import PAUSES_ON_HARM
from hoglab.experiments.records import plan, store
from hoglab.experiments.records.store import OF_PLANS, RecordKind
from hoglab.statistics.verdict import HARM_LEVEL

if TYPE_CHECKING:
    from hoglab.experiments.linkage import FlagLinkage
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project
    from hoglab.storage.database import Transaction

HARM_FIELD = "certain_harm"
"""Field of an entry of the activity log that names the variants that do harm."""


def keep_plan(
    tx: Transaction,
    project: Project,
    row: ExperimentRow,
    *,
    is_launch: bool,
    user_id: int | None,
    now: datetime,
) -> None:
    """Keep the plan of an experiment at its launch, and later what of it was changed, if anything was.

    ``user_id`` is None where the server finds a change, as of a default of the project.
    """
    links = experiments.links(tx.connection, [row.id]).get(row.id, [])
    present = plan.plan_of(row, links, project.experiment_defaults)
    detail: dict[str, Any] = {"plan": present, "digest": plan.digest(present)}
    if is_launch:
        store.insert(tx.connection, row.id, RecordKind.LAUNCHED, detail, user_id=user_id, now=now)
        return
    kept = [record for record in store.of_launch(tx.connection, row.id) if record.kind in OF_PLANS]
    if not kept:
        store.insert(tx.connection, row.id, RecordKind.KNOWN, detail, user_id=user_id, now=now)
        return
    changes = plan.changes(kept[-1].detail["plan"], present)
    if changes:
        detail["changes"] = changes
        store.insert(tx.connection, row.id, RecordKind.AMENDED, detail, user_id=user_id, now=now)


@dataclass(frozen=True, slots=True)
class TakenDecision:
    """A decision of a user: what the results said at that moment, and the variant that is shipped, if any."""

    judgement: Mapping[str, Any] | None
    shipped: str | None = None


def keep_decision(
    tx: Transaction, row: ExperimentRow, decision: TakenDecision, *, user_id: int, now: datetime
) -> None:
    """Record that an experiment was ended, or that a variant was shipped."""
    detail = {
        "variant": decision.shipped,
        "conclusion": row.conclusion,
        "conclusion_comment": row.conclusion_comment,
        "phases": row.phases,
        "results": None if decision.judgement is None else dict(decision.judgement),
    }
    kind = RecordKind.ENDED if decision.shipped is None else RecordKind.SHIPPED
    store.insert(tx.connection, row.id, kind, detail, user_id=user_id, now=now)


@dataclass(frozen=True, slots=True)
class Harm:
    """Certain harm of a running experiment: the variants that do it, and the verdict as on the wire."""

    variants: tuple[str, ...]
    verdict: Mapping[str, Any]


def raise_alarm(
    tx: Transaction, linkage: FlagLinkage, project: Project, row: ExperimentRow, harm: Harm, now: datetime
) -> bool:
    """Record harm, tell the activity log and functions of it, and pause the experiment where it asks for that.

    Return False, and do nothing, where the same variants were told of since the launch.
    """
    known = [record for record in store.of_launch(tx.connection, row.id) if record.kind == RecordKind.HARM]
    known_harmful = {variant for record in known for variant in record.detail["variants"]}
    if known_harmful.issuperset(harm.variants):
        return False
    flag = experiments.flags(tx.connection, [row.feature_flag_id])[row.feature_flag_id]
    pauses = (row.parameters or {}).get(PAUSES_ON_HARM) is True and flag.active and not flag.deleted
    variants = list(harm.variants)
    detail = {"variants": variants, "verdict": dict(harm.verdict), "paused": pauses}
    store.insert(tx.connection, row.id, RecordKind.HARM, detail, user_id=None, now=now)
    changes = [activity.change(SCOPE, HARM_FIELD, None, ", ".join(variants))]
    if pauses:
        changes.append(activity.change(SCOPE, "status", "running", "paused"))
    logged = {"name": row.name, "changes": changes}
    activity.record(tx, project.id, None, "updated", SCOPE, row.id, logged, is_system=True, now=now)
    facts = {
        "variants": variants,
        "headline": harm.verdict["headline"],
        "next_action": harm.verdict["next_action"]["text"],
        "error_rate": HARM_LEVEL,
        "paused": pauses,
    }
    milestones.emit(tx, row, "harm", user_id=None, now=now, **facts)
    if pauses:
        linkage.switch_off(tx, project, flag)
        milestones.emit(tx, row, "paused", user_id=None, now=now)
    tx.changed("experiments", project.id)
    return True
