"""Flags in answers of the management API (spec: experiments-api 3.2, 7.3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.flags.payloads import REDACTED_PAYLOAD
from hoglab.flags.validation import unknown_keys_of, variant_keys
from hoglab.http.fields.unknown_keys import warnings_of, with_warnings
from hoglab.http.fields.wire import user_object

if TYPE_CHECKING:
    from hoglab.flags.store import FlagRow, LinkedExperiment
    from hoglab.http.identity import User

STALE_AFTER = timedelta(days=30)
"""Age after which a flag that no longer decides anything is stale."""

EXPERIMENT_VARIANTS = range(2, 21)
"""Numbers of variants with which a flag can serve an experiment."""


def flag_object(
    row: FlagRow,
    *,
    users: Mapping[int, User],
    linked: Sequence[LinkedExperiment],
    access_level: str,
    now: datetime,
) -> dict[str, Any]:
    """Return a flag in full."""
    live = [experiment for experiment in linked if not experiment.deleted]
    simple = is_simple(row)
    shown = {
        "id": row.id,
        "name": row.name,
        "key": row.key,
        "filters": shown_filters(row),
        "deleted": row.deleted,
        "active": row.active,
        "archived": row.archived,
        "created_by": user_object(users.get(row.created_by_id or 0)),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "version": row.version,
        "last_modified_by": user_object(users.get(row.last_modified_by_id or 0)),
        "ensure_experience_continuity": row.ensure_experience_continuity,
        "experiment_set": [experiment.id for experiment in live],
        "experiment_set_metadata": [
            {"id": experiment.id, "name": experiment.name, "is_running": experiment.is_running}
            for experiment in live
        ],
        "surveys": [],
        "features": [],
        "can_edit": True,
        "tags": row.tags,
        "evaluation_contexts": row.evaluation_contexts,
        "evaluation_tags": row.evaluation_contexts,
        "usage_dashboard": None,
        "analytics_dashboards": [],
        "has_enriched_analytics": False,
        "user_access_level": access_level,
        "is_remote_configuration": row.is_remote_configuration,
        "has_encrypted_payloads": row.has_encrypted_payloads,
        "status": status_of(row, now),
        "evaluation_runtime": row.evaluation_runtime,
        "bucketing_identifier": row.bucketing_identifier,
        "last_called_at": row.last_called_at,
        "is_used_in_replay_settings": False,
        "is_eligible_for_experiment": is_eligible_for_experiment(row),
        "is_simple_flag": simple,
        "rollout_percentage": _rollout(row.filters["groups"][0]) if simple else None,
    }
    return with_warnings(shown, warnings_of(unknown_keys_of(row.filters)))


def shown_filters(row: FlagRow) -> dict[str, Any]:
    """Return the filters of a flag, encrypted payloads left out."""
    payloads = row.filters.get("payloads")
    if not row.has_encrypted_payloads or not payloads:
        return row.filters
    return {**row.filters, "payloads": dict.fromkeys(payloads, REDACTED_PAYLOAD)}


def status_of(row: FlagRow, now: datetime) -> str:
    """Return ``ACTIVE``, ``INACTIVE``, ``STALE`` or ``DELETED``; see `status_with_reason`."""
    return status_with_reason(row, now)[0]


def status_with_reason(row: FlagRow, now: datetime) -> tuple[str, str]:
    """Return ``ACTIVE``, ``INACTIVE``, ``STALE`` or ``DELETED``, and the reason in a sentence.

    A flag is stale when it is older than `STALE_AFTER` and was not called for as long, or, when nothing is known
    about calls, when it gives everybody the same value.
    """
    if row.deleted:
        return "DELETED", "The flag is deleted."
    if not row.active:
        return "INACTIVE", "The flag is switched off."
    if now - row.created_at < STALE_AFTER:
        return "ACTIVE", f"The flag is on, and younger than {STALE_AFTER.days} days."
    if row.last_called_at is not None:
        days = (now - row.last_called_at).days
        if now - row.last_called_at > STALE_AFTER:
            return "STALE", f"No SDK has called the flag for {days} days."
        return "ACTIVE", "The flag is on, and SDKs call it."
    if _is_rolled_out(row):
        return "STALE", f"The flag gives everybody the same value, and is older than {STALE_AFTER.days} days."
    return "ACTIVE", "The flag is on, and its values differ between people."


def is_simple(row: FlagRow) -> bool:
    """Return whether a flag is nothing but one rollout: one condition about persons, without filters or variants."""
    groups = row.filters.get("groups") or []
    return (
        len(groups) == 1
        and not groups[0].get("properties")
        and groups[0].get("aggregation_group_type_index") is None
        and not variant_keys(row.filters)
    )


def is_eligible_for_experiment(row: FlagRow) -> bool:
    """Return whether an experiment may link to a flag as it is."""
    return not row.deleted and len(variant_keys(row.filters)) in EXPERIMENT_VARIANTS


def _is_rolled_out(row: FlagRow) -> bool:
    """Return whether every subject gets the same value."""
    everybody = any(
        not group.get("properties") and _rollout(group) == 100 for group in row.filters.get("groups") or ()
    )
    if not everybody:
        return False
    variants = (row.filters.get("multivariate") or {}).get("variants") or []
    return not variants or any(variant.get("rollout_percentage") == 100 for variant in variants)


def _rollout(group: Mapping[str, Any]) -> float:
    share = group.get("rollout_percentage")
    return 100 if share is None else share
