"""Scopes of keys: the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Set

from hoglab.patterns import anchored

EVERYTHING = "*"

SERVED = frozenset(
    {
        "action",
        "activity_log",
        "cohort",
        "experiment",
        "experiment_holdout",
        "experiment_saved_metric",
        "feature_flag",
        "group",
        "hog_function",
        "organization",
        "organization_member",
        "person",
        "personal_api_key",
        "project",
        "query",
        "user",
        "warehouse_table",
    }
)
"""Objects that endpoints of this server ask for."""

UNSERVED = frozenset(
    {
        "annotation",
        "batch_export",
        "dashboard",
        "dashboard_template",
        "dataset",
        "early_access_feature",
        "element",
        "endpoint",
        "error_tracking",
        "evaluation",
        "event",
        "event_definition",
        "export",
        "external_data_source",
        "file_system",
        "heatmap",
        "hog_flow",
        "insight",
        "insight_variable",
        "integration",
        "live_debugger",
        "llm_analytics",
        "logs",
        "notebook",
        "organization_integration",
        "plugin",
        "property_definition",
        "session_recording",
        "session_recording_playlist",
        "sharing_configuration",
        "subscription",
        "survey",
        "tag",
        "task",
        "warehouse_view",
        "web_analytics",
        "webhook",
    }
)
"""Objects of PostHog's that this server has no endpoints for: keys that were made for both may name them."""

KNOWN = SERVED | UNSERVED

_SCOPE = anchored(r"([A-Za-z][A-Za-z0-9_]*):(read|write)")


def scope_fault(scope: str, objects: Set[str] = KNOWN) -> str | None:
    """Return the problem of a scope, in words.

    None for ``*`` and for ``object:read`` and ``object:write`` of one of the ``objects``.
    """
    if scope == EVERYTHING:
        return None
    match = _SCOPE.fullmatch(scope)
    if match is not None and match[1] in objects:
        return None
    name, _, action = scope.partition(":")
    likely = difflib.get_close_matches(name, sorted(objects), n=1)
    if likely:
        return f"Did you mean {likely[0]}:{action if action in ('read', 'write') else 'read'}?"
    return "A scope is an object and read or write, such as experiment:read, or * for everything."
