"""Feature flags in the OpenAPI document: their fields, and the endpoints that SDKs call (spec: sdk-wire 2, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoglab.http.fields.notes import Note, Notes

FLAG: Notes = {
    "name": Note("Display name.", "New button"),
    "key": Note("Key of the flag in code.", "button-colour"),
    "filters": Note(
        "Release groups (`groups`), variants (`multivariate`), `payloads` and `holdout`.",
        {
            "groups": [{"properties": [], "rollout_percentage": 100}],
            "multivariate": {
                "variants": [
                    {"key": "control", "rollout_percentage": 50},
                    {"key": "test", "rollout_percentage": 50},
                ]
            },
        },
    ),
    "active": "Whether it is switched on.",
    "archived": "Whether it is archived: lists leave it out unless asked.",
    "ensure_experience_continuity": "Whether people keep their variant when they sign in.",
    "evaluation_contexts": Note("The contexts that it is limited to; empty for everywhere.", []),
    "evaluation_tags": Note("Another name of `evaluation_contexts`.", []),
    "is_remote_configuration": "Whether it is a setting to be read, not a flag to be evaluated.",
    "has_encrypted_payloads": "Whether its payloads are stored and shown as secrets.",
    "evaluation_runtime": Note("SDKs that get the flag: `server`, `client` or `all`.", "all"),
    "bucketing_identifier": (
        "Identifier that decides the variant: `distinct_id` or `device_id`; null for the first."
    ),
    "creation_context": "Product that made the flag; kept for clients that set it.",
    "version": "Number that grows by one with each change.",
    "status": Note("`ACTIVE`, `INACTIVE`, `STALE` or `DELETED`.", "ACTIVE"),
    "last_called_at": "Time when an SDK last reported a value of the flag, by the hour; null for never.",
    "experiment_set": Note("The ids of the experiments that use it.", []),
    "experiment_set_metadata": Note("Experiments that use the flag, with their names.", []),
    "is_running": "Whether it is running.",
    "can_edit": "Always true here; see `user_access_level`.",
    "surveys": Note("Always empty here; there for clients that read it.", []),
    "features": Note("Always empty here; there for clients that read it.", []),
    "usage_dashboard": "Always null here; there for clients that read it.",
    "analytics_dashboards": Note("Always empty here; there for clients that read it.", []),
    "has_enriched_analytics": "Always false here; there for clients that read it.",
    "is_used_in_replay_settings": "Always false here; there for clients that read it.",
    "is_eligible_for_experiment": "Whether an experiment can be built on it: it has 2 to 20 variants.",
    "is_simple_flag": "Whether it has one release group without conditions, and no variants.",
    "rollout_percentage": "The share of subjects for which a simple flag is on; null for other flags.",
    "eligible_for_experiment": "Only flags that can carry an experiment (`true`), or cannot (`false`).",
    "has_evaluation_contexts": "Only flags that are limited to contexts (`true`), or not (`false`).",
}
"""Notes on the fields of a flag."""

_OBJECT = {"type": "object"}
_ASKED = {
    "type": "object",
    "required": ["token", "distinct_id"],
    "properties": {
        "token": {"type": "string", "description": "The project token, `phc_…`."},
        "distinct_id": {"type": "string"},
        "person_properties": _OBJECT,
        "groups": {"type": "object", "additionalProperties": {"type": "string"}},
        "group_properties": {"type": "object", "additionalProperties": _OBJECT},
        "flag_keys_to_evaluate": {"type": "array", "items": {"type": "string"}},
        "disable_flags": {"type": "boolean"},
    },
}


def flag_paths() -> Mapping[str, Any]:
    """Return the ``paths`` of flag evaluation, local evaluation and remote configuration."""
    token = {"name": "token", "in": "path", "required": True, "schema": {"type": "string"}}
    config = _operation("flags_remote_config", "Remote configuration of posthog-js", ())
    return {
        "/flags/": {"post": _evaluation("flags_evaluate", "Evaluate flags")},
        "/decide/": {"post": _evaluation("flags_decide", "Evaluate flags (older path)")},
        "/flags/definitions": {
            "get": {
                **_operation(
                    "flags_definitions", "Definitions for local evaluation", ("token", "send_cohorts")
                ),
                "security": [{"PersonalApiKey": ["feature_flag:read"]}],
            }
        },
        "/array/{token}/config": {"parameters": [token], "get": config},
    }


def _evaluation(name: str, summary: str) -> dict[str, Any]:
    return {
        **_operation(name, summary, ("v", "config", "compression")),
        "requestBody": {"content": {"application/json": {"schema": _ASKED}}},
    }


def _operation(name: str, summary: str, query: tuple[str, ...]) -> dict[str, Any]:
    return {
        "operationId": name,
        "tags": ["flag evaluation"],
        "summary": summary,
        "security": [],
        "parameters": [
            {"name": parameter, "in": "query", "schema": {"type": "string"}} for parameter in query
        ],
        "responses": {
            "200": {
                "description": "The form depends on the requested version.",
                "content": {"application/json": {"schema": _OBJECT}},
            }
        },
    }
