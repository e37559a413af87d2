"""What both peers of `api_experiments` say about an experiment: names of fields in their order, and what is derived."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

USER = (
    "id",
    "uuid",
    "distinct_id",
    "first_name",
    "last_name",
    "email",
    "is_email_verified",
    "hedgehog_config",
    "role_at_organization",
)
FLAG = (
    "id",
    "team_id",
    "name",
    "key",
    "filters",
    "deleted",
    "active",
    "ensure_experience_continuity",
    "has_encrypted_payloads",
    "version",
    "evaluation_runtime",
    "evaluation_tags",
    "bucketing_identifier",
    "evaluation_contexts",
)
HOLDOUT = ("id", "name", "description", "filters", "created_by", "created_at", "updated_at")
LINK = ("id", "experiment", "saved_metric", "metadata", "created_at", "query", "name")
EXPERIMENT = (
    "id",
    "name",
    "description",
    "start_date",
    "end_date",
    "feature_flag_key",
    "feature_flag",
    "holdout",
    "holdout_id",
    "exposure_cohort",
    "parameters",
    "running_time_calculation",
    "excluded_variants",
    "secondary_metrics",
    "saved_metrics",
    "saved_metrics_ids",
    "filters",
    "archived",
    "deleted",
    "created_by",
    "created_at",
    "updated_at",
    "type",
    "exposure_criteria",
    "metrics",
    "metrics_secondary",
    "stats_config",
    "scheduling_config",
    "_create_in_folder",
    "conclusion",
    "conclusion_comment",
    "primary_metrics_ordered_uuids",
    "secondary_metrics_ordered_uuids",
    "only_count_matured_users",
    "status",
    "is_legacy",
    "user_access_level",
)


def moment(micros: int | None) -> datetime | None:
    """A moment that is stored as microseconds."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros // 10**6, UTC).replace(microsecond=micros % 10**6)


def parameters(stored: dict[str, Any] | None, filters: dict[str, Any], continuity: bool | None) -> Any:
    """The stored parameters and the flag's part of them."""
    shown = {
        **(stored or {}),
        "feature_flag_variants": [
            {**variant, "split_percent": variant["rollout_percentage"]}
            for variant in filters["multivariate"]["variants"]
        ],
        "rollout_percentage": filters["groups"][0]["rollout_percentage"],
    }
    if continuity is not None:
        shown["ensure_experience_continuity"] = continuity
    return shown


def status(start: Any, end: Any, active: bool) -> str:
    """The state that an experiment is in."""
    if start is None:
        return "draft"
    if end is not None:
        return "stopped"
    return "running" if active else "paused"
