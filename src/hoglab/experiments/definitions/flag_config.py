"""The part of a feature flag that an experiment configures (spec experiments-api 3.4, 3.5, 4.3, 4.4).

Clients send it inside ``parameters`` or as a ``feature_flag`` object. It is never stored on the experiment: it is
applied to the flag, and read back from the flag.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoglab.http.errors import validation_error

MAX_VARIANTS = 20
MIN_VARIANTS = 2
CONTROL = "control"
HOLDOUT_PREFIX = "holdout-"
TOO_FEW_VARIANTS = "Feature flag must have at least 2 variants (control and at least one test variant)"

DEFAULT_VARIANTS: tuple[dict[str, Any], ...] = (
    {"key": "control", "name": "Control Group", "rollout_percentage": 50},
    {"key": "test", "name": "Test Variant", "rollout_percentage": 50},
)

# Key in ``parameters`` -> name of the field here.
_PARAMETER_KEYS = {
    "feature_flag_variants": "variants",
    "rollout_percentage": "rollout_percentage",
    "aggregation_group_type_index": "aggregation_group_type_index",
    "feature_flag_payloads": "payloads",
    "ensure_experience_continuity": "ensure_experience_continuity",
}
_INPUT_KEYS = frozenset({"filters", "ensure_experience_continuity", "id"})
_FILTER_KEYS = frozenset({"groups", "multivariate", "aggregation_group_type_index", "payloads"})
_GROUP_KEYS = frozenset({"properties", "rollout_percentage"})
_VARIANT_KEYS = frozenset({"key", "name", "rollout_percentage", "split_percent"})


@dataclass(frozen=True, slots=True)
class FlagConfig:
    """Flag settings in a request. Only the fields named in ``sent`` count."""

    sent: frozenset[str] = frozenset()
    variants: list[dict[str, Any]] = field(default_factory=list)
    rollout_percentage: float | None = None
    aggregation_group_type_index: int | None = None
    payloads: dict[str, Any] = field(default_factory=dict)
    ensure_experience_continuity: bool | None = None

    def __bool__(self) -> bool:
        return bool(self.sent)


def from_parameters(parameters: Mapping[str, Any]) -> tuple[FlagConfig, dict[str, Any]]:
    """Split ``parameters`` into the flag's part and the experiment's own. Raises 400."""
    given = {name: parameters[key] for key, name in _PARAMETER_KEYS.items() if key in parameters}
    rest = {key: value for key, value in parameters.items() if key not in _PARAMETER_KEYS}
    return _config(given, "parameters"), rest


def from_flag_object(value: Any) -> FlagConfig:
    """Read the ``feature_flag`` object of a request, where it asks for a change. Raises 400.

    An object with an id (the echo of a response), or without anything to write, changes nothing.
    """
    if not isinstance(value, dict) or value.get("id") is not None:
        return FlagConfig()
    if not ({"filters", "ensure_experience_continuity"} & value.keys()):
        return FlagConfig()
    _refuse_unknown(value, _INPUT_KEYS, "feature_flag")
    given: dict[str, Any] = {}
    if "ensure_experience_continuity" in value:
        given["ensure_experience_continuity"] = value["ensure_experience_continuity"]
    filters = value.get("filters")
    if filters is not None:
        if not isinstance(filters, dict):
            raise validation_error("filters must be an object", "feature_flag__filters")
        _refuse_unknown(filters, _FILTER_KEYS, "feature_flag__filters")
        given |= _from_filters(filters)
    return _config(given, None)


def _from_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    path = "feature_flag__filters"
    groups = filters.get("groups")
    if groups is not None:
        if not isinstance(groups, list) or len(groups) > 1 or not all(isinstance(g, dict) for g in groups):
            raise validation_error("groups must be a list with at most one object", f"{path}__groups")
        for group in groups:
            _refuse_unknown(group, _GROUP_KEYS, f"{path}__groups__0")
            if group.get("properties"):
                raise validation_error(
                    "An experiment cannot set release conditions; edit the feature flag directly.",
                    f"{path}__groups__0__properties",
                )
            if "rollout_percentage" in group:
                given["rollout_percentage"] = group["rollout_percentage"]
    multivariate = filters.get("multivariate")
    if multivariate is not None:
        if not isinstance(multivariate, dict):
            raise validation_error("multivariate must be an object", f"{path}__multivariate")
        _refuse_unknown(multivariate, frozenset({"variants"}), f"{path}__multivariate")
        variants = multivariate.get("variants")
        if isinstance(variants, list):
            for index, variant in enumerate(variants):
                if isinstance(variant, dict):
                    _refuse_unknown(variant, _VARIANT_KEYS, f"{path}__multivariate__variants__{index}")
        given["variants"] = variants
    for name in ("aggregation_group_type_index", "payloads"):
        if name in filters:
            given[name] = filters[name]
    return given


def _refuse_unknown(value: Mapping[str, Any], known: frozenset[str], path: str) -> None:
    for key in value:
        if key not in known:
            raise validation_error("Unsupported key for the experiment feature_flag input.", f"{path}__{key}")


def _config(given: dict[str, Any], attr: str | None) -> FlagConfig:
    """Check and normalise the settings in a request. Null means "not sent" where a flag has no null."""
    given = {k: v for k, v in given.items() if v is not None or k == "aggregation_group_type_index"}
    if "variants" in given:
        given["variants"] = normalise_variants(given["variants"], attr)
        if not given["variants"]:
            del given["variants"]  # an empty list means the defaults
    if "rollout_percentage" in given:
        rollout = given["rollout_percentage"]
        if not _is_number(rollout) or not 0 <= rollout <= 100:
            raise validation_error("rollout_percentage must be a number between 0 and 100", attr)
    if "aggregation_group_type_index" in given:
        index = given["aggregation_group_type_index"]
        if index is not None and (
            isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= 4
        ):
            raise validation_error(
                "aggregation_group_type_index must be an integer from 0 to 4, or null", attr
            )
    if not isinstance(given.get("payloads", {}), dict):
        raise validation_error("Payloads must be passed as a dictionary", attr)
    if not isinstance(given.get("ensure_experience_continuity", False), bool):
        raise validation_error("ensure_experience_continuity must be a boolean", attr)
    return FlagConfig(sent=frozenset(given), **given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def normalise_variants(value: Any, attr: str | None) -> list[dict[str, Any]]:
    """Return variants in the flag's form: ``split_percent`` replaced, ``Control`` renamed. Raises 400 with ``attr``."""
    if not isinstance(value, list):
        raise validation_error("Feature flag variants must be a list", attr)
    for index, variant in enumerate(value):
        if not isinstance(variant, dict):
            raise validation_error(f"Feature flag variant at index {index} must be an object", attr)
        if not isinstance(variant.get("key"), str) or not variant["key"]:
            raise validation_error(f"Feature flag variant at index {index} must have a 'key' field", attr)
        share = variant.get("split_percent", variant.get("rollout_percentage"))
        if share is None:
            raise validation_error(
                "Each variant must include split_percent (recommended) or rollout_percentage (deprecated).",
                attr,
            )
        if not _is_number(share):
            raise validation_error(f"Feature flag variant at index {index} must have a number as share", attr)
    if len(value) > MAX_VARIANTS:
        raise validation_error("Feature flag variants must be less than 21", attr)
    if 0 < len(value) < MIN_VARIANTS:
        raise validation_error(TOO_FEW_VARIANTS, attr)
    keys = [variant["key"] for variant in value]
    renamed = None
    if CONTROL not in keys:
        renamed = next((index for index, key in enumerate(keys) if key.lower() == CONTROL), None)
    return [_variant(variant, rename=index == renamed) for index, variant in enumerate(value)]


def _variant(variant: Mapping[str, Any], *, rename: bool) -> dict[str, Any]:
    share = variant.get("split_percent", variant.get("rollout_percentage"))
    kept = {key: value for key, value in variant.items() if key != "split_percent"}
    return {**kept, "key": CONTROL if rename else variant["key"], "rollout_percentage": share}


# -- the flag's side ---------------------------------------------------------------------------------------------------


def variants_of(filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variants of a flag, in order."""
    multivariate = filters.get("multivariate")
    variants = multivariate.get("variants") if isinstance(multivariate, Mapping) else None
    return [variant for variant in variants or () if isinstance(variant, dict)]


def variant_keys(filters: Mapping[str, Any]) -> list[str]:
    """Return the variant keys of a flag, in order."""
    return [variant["key"] for variant in variants_of(filters)]


def holdout_filter(holdout_id: int | None, holdout_filters: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return ``filters.holdout`` of a flag whose experiment is in a holdout (spec experiments-api 4.1)."""
    if holdout_id is None:
        return None
    first = (holdout_filters or [{}])[0]
    return {"id": holdout_id, "exclusion_percentage": first.get("rollout_percentage", 100)}


def new_flag_filters(config: FlagConfig, holdout: Any) -> dict[str, Any]:
    """Return the filters of a flag that an experiment creates."""
    rollout = config.rollout_percentage if "rollout_percentage" in config.sent else 100
    filters: dict[str, Any] = {
        "groups": [{"properties": [], "rollout_percentage": rollout}],
        "multivariate": {"variants": config.variants or [dict(variant) for variant in DEFAULT_VARIANTS]},
        "aggregation_group_type_index": config.aggregation_group_type_index,
        "holdout": holdout,
    }
    if config.payloads:
        filters["payloads"] = config.payloads
    return filters


def applied(filters: Mapping[str, Any], config: FlagConfig) -> dict[str, Any]:
    """Return a flag's filters with the sent part of ``config`` applied (spec experiments-api 4.3)."""
    changed = dict(filters)
    if "variants" in config.sent:
        changed["multivariate"] = {**(changed.get("multivariate") or {}), "variants": config.variants}
    if "rollout_percentage" in config.sent:
        groups = [dict(group) for group in changed.get("groups") or [{"properties": []}]]
        groups[0]["rollout_percentage"] = config.rollout_percentage
        changed["groups"] = groups
    if "aggregation_group_type_index" in config.sent:
        changed["aggregation_group_type_index"] = config.aggregation_group_type_index
        changed["groups"] = [
            {**group, "aggregation_group_type_index": config.aggregation_group_type_index}
            for group in changed.get("groups") or []
        ]
    if "payloads" in config.sent:
        changed["payloads"] = config.payloads
    return changed


def equals_flag(config: FlagConfig, filters: Mapping[str, Any], continuity: bool | None) -> bool:
    """Return whether the flag already has everything that was sent: the echo of a response."""
    groups = filters.get("groups") or [{}]
    current = {
        "variants": [_comparable(variant) for variant in variants_of(filters)],
        "rollout_percentage": _or(groups[0].get("rollout_percentage"), 100),
        "aggregation_group_type_index": filters.get("aggregation_group_type_index"),
        "payloads": filters.get("payloads") or {},
        "ensure_experience_continuity": bool(continuity),
    }
    wanted = {
        "variants": [_comparable(variant) for variant in config.variants],
        "rollout_percentage": config.rollout_percentage,
        "aggregation_group_type_index": config.aggregation_group_type_index,
        "payloads": config.payloads,
        "ensure_experience_continuity": bool(config.ensure_experience_continuity),
    }
    return all(current[name] == wanted[name] for name in config.sent)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _comparable(variant: Mapping[str, Any]) -> tuple[Any, Any, float]:
    return variant.get("key"), variant.get("name") or None, float(variant.get("rollout_percentage") or 0)


def projected(
    parameters: Mapping[str, Any] | None, filters: Mapping[str, Any], continuity: Any
) -> dict[str, Any]:
    """Return ``parameters`` as a response shows them: the flag's part read back from the live flag."""
    groups = filters.get("groups") or []
    shown: dict[str, Any] = {
        "feature_flag_variants": [
            {**variant, "split_percent": variant.get("rollout_percentage")}
            for variant in variants_of(filters)
        ]
    }
    if groups and groups[0].get("rollout_percentage") is not None:
        shown["rollout_percentage"] = groups[0]["rollout_percentage"]
    if filters.get("aggregation_group_type_index") is not None:
        shown["aggregation_group_type_index"] = filters["aggregation_group_type_index"]
    if filters.get("payloads"):
        shown["feature_flag_payloads"] = filters["payloads"]
    if continuity is not None:
        shown["ensure_experience_continuity"] = continuity
    own = {key: value for key, value in (parameters or {}).items() if key not in _PARAMETER_KEYS}
    return {**own, **shown}


def check_suitable(filters: Mapping[str, Any]) -> None:
    """Raise 400 for an existing flag that cannot carry an experiment (spec experiments-api 4.2)."""
    count = len(variants_of(filters))
    if count < MIN_VARIANTS:
        raise validation_error(TOO_FEW_VARIANTS)
    if count > MAX_VARIANTS:
        raise validation_error("Feature flag must have at most 20 variants.")


def check_excluded(
    value: Any, keys: Sequence[str], baseline: str, attr: str | None = "excluded_variants"
) -> list[str]:
    """Return ``excluded_variants``, checked against the flag (spec experiments-api 3.5). Raises 400."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise validation_error("excluded_variants must be a list of strings", attr)
    if held := [key for key in value if key.startswith(HOLDOUT_PREFIX)]:
        raise validation_error(f"cannot exclude holdout pseudo-variants: {held}", attr)
    if baseline in value:
        raise validation_error(f"baseline variant cannot be excluded ('{baseline}')", attr)
    if unknown := [key for key in value if key not in keys]:
        raise validation_error(f"unknown variants for this experiment: {unknown}", attr)
    if value and not [key for key in keys if key != baseline and key not in value]:
        raise validation_error("at least one test variant must remain in analysis", attr)
    return value
