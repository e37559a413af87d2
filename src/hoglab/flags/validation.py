"""Validation of the ``filters`` of a flag, and the one form in which they are kept (spec: experiments-api 7.3.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import orjson

from hoglab.filters.evaluate import OPERATORS
from hoglab.filters.model import PropertyFilter
from hoglab.filters.operands import key_problem, operand_problem
from hoglab.flags.filter_schemas import FlagFilters
from hoglab.flags.payloads import REDACTED_PAYLOAD
from hoglab.http.errors import ApiError, validation_error
from hoglab.http.fields.unknown_keys import UnknownKey, refuse, unknown_keys
from hoglab.patterns import anchored
from hoglab.people.cohorts.definition import cohort_reference

MAX_KEY_LENGTH = 400
MAX_FILTERS_BYTES = 512 * 1024
MAX_VARIANTS = 200
"""Variants of a flag that belongs to no experiment; experiments allow fewer."""
MAX_CONDITIONS = 1_000
GROUP_TYPES = range(5)

_KEY = anchored(r"[a-zA-Z0-9_-]+")
_STORED_OPERATORS = {"min": "gte", "max": "lte"}
_OPERATORS = frozenset(OPERATORS) | {"in", "not_in", "flag_evaluates_to"}
_TEXT_OPERATORS = frozenset({"regex", "icontains"})
_PROPERTY_OPERATORS = frozenset({*OPERATORS, None})
_OPERATORS_OF = {
    "cohort": frozenset({"in", "not_in", "exact", None}),
    "flag": frozenset({"flag_evaluates_to"}),
}
"""Operators by the type of a filter, None for one that is not sent; other types are compared as properties."""
_PROPERTY_TYPES = frozenset({"person", "cohort", "group", "flag", "person_metadata"})
_SUM_TOLERANCE = 1e-9

CohortsExist = Callable[[Collection[int]], Collection[int]]
"""Function that returns which of some cohort ids exist in the project."""


def unknown_keys_of(filters: Mapping[str, Any]) -> Iterator[UnknownKey]:
    """Return the keys inside of the ``filters`` of a flag that have no effect."""
    return unknown_keys(FlagFilters, filters, ("filters",))


def filters_error(detail: str, code: str = "invalid_input") -> ApiError:
    """Return the 400 for the ``filters`` of a flag."""
    return validation_error(detail, "filters", code)


def _cross_field(rule: str, path: str, message: str) -> ApiError:
    return filters_error(f"{path}: {message}", f"cross_field.{rule}")


def check_key(key: str) -> None:
    """Raise 400 ``invalid_key`` for a key with characters that flags may not have."""
    if len(key) > MAX_KEY_LENGTH:
        text = f"Ensure this field has no more than {MAX_KEY_LENGTH} characters."
        raise validation_error(text, "key", "max_length")
    if not _KEY.fullmatch(key):
        text = "Only letters, numbers, hyphens (-) & underscores (_) are allowed."
        raise validation_error(text, "key", "invalid_key")


def new_filters(sent: Mapping[str, Any], cohorts_exist: CohortsExist) -> dict[str, Any]:
    """Return the filters of a new flag."""
    groups = sent.get("groups")
    if groups is None or groups == []:
        raise filters_error("Feature flags must have at least one condition set (group).")
    checked = _checked(sent, cohorts_exist)
    refuse(unknown_keys_of(sent))
    return checked


def changed_filters(
    stored: Mapping[str, Any], sent: Mapping[str, Any], cohorts_exist: CohortsExist
) -> dict[str, Any]:
    """Return the filters of a flag after a change: sent keys replace, all others stay."""
    merged = {**stored, **sent}
    payloads, kept = merged.get("payloads"), stored.get("payloads")
    if isinstance(payloads, dict) and isinstance(kept, dict):
        merged["payloads"] = {
            key: kept.get(key, value) if value == REDACTED_PAYLOAD else value
            for key, value in payloads.items()
        }
    if "aggregation_group_type_index" in sent and "groups" not in sent:
        merged["groups"] = _regrouped(stored, sent["aggregation_group_type_index"])
    checked = _checked(merged, cohorts_exist)
    refuse(unknown_keys_of(sent), unknown_keys_of(stored))
    return checked


def _regrouped(stored: Mapping[str, Any], aggregation: Any) -> list[dict[str, Any]]:
    """Return the stored conditions with another subject, where they had the subject of the flag as a whole."""
    name = "aggregation_group_type_index"
    return [
        {**group, name: aggregation} if group.get(name) == stored.get(name) else group
        for group in stored.get("groups") or ()
    ]


def _checked(filters: Mapping[str, Any], cohorts_exist: CohortsExist) -> dict[str, Any]:
    """Return a copy in the stored form. Raises 400 for the first broken rule: types, then relations."""
    checked = {name: value for name, value in filters.items() if name != "holdout_groups"}
    if checked.get("version") not in (None, 1):
        raise filters_error("Only flags of configuration version 1 are supported.")
    variants = _check_variants(checked)
    checked["groups"] = [
        _group(group, f"groups[{index}]") for index, group in enumerate(_groups(checked, "groups"))
    ]
    if checked.get("super_groups") is not None:
        checked["super_groups"] = [
            _group(group, f"super_groups[{index}]")
            for index, group in enumerate(_groups(checked, "super_groups"))
        ]
    _check_rest(checked)
    if checked.get("payloads") is not None:
        checked["payloads"] = _payloads(checked["payloads"])
    _share_aggregation(checked)
    _check_relations(checked, variants)
    check_cohorts(checked, cohorts_exist)
    if len(orjson.dumps(checked)) > MAX_FILTERS_BYTES:
        raise filters_error(f"The filters exceed the limit of {MAX_FILTERS_BYTES} bytes.")
    return checked


def _groups(filters: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    groups = filters.get(name)
    if groups is None:
        return []
    if not isinstance(groups, list):
        raise filters_error(f"{name} must be a list, got {_name(groups)}")
    if len(groups) > MAX_CONDITIONS:
        raise filters_error(f"{name} must have at most {MAX_CONDITIONS} entries")
    for index, group in enumerate(groups):
        if not isinstance(group, dict):
            raise filters_error(f"{name}[{index}] must be an object, got {_name(group)}")
    return groups


def _group(group: dict[str, Any], path: str) -> dict[str, Any]:
    _check_percentage(group.get("rollout_percentage"), f"{path}.rollout_percentage")
    _check_text(group.get("variant"), f"{path}.variant")
    _check_index(group.get("aggregation_group_type_index"), f"{path}.aggregation_group_type_index")
    properties = group.get("properties")
    if properties is None:
        return {**group, "properties": []}
    if not isinstance(properties, list):
        raise filters_error(f"{path}.properties must be a list or null, got {_name(properties)}")
    return {
        **group,
        "properties": [
            _property(item, f"{path}.properties[{index}]") for index, item in enumerate(properties)
        ],
    }


def check_conditions(group: Mapping[str, Any], path: str) -> None:
    """Raise 400 for ``properties`` of a group that is at ``path``, where a flag could not have them."""
    for index, leaf in enumerate(_group(dict(group), path)["properties"]):
        _check_can_match(leaf, f"{path}.properties[{index}]")


def _property(raw: Any, path: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise filters_error(f"{path} must be an object, got {_name(raw)}")
    kind = raw.get("type", "person")
    if kind not in _PROPERTY_TYPES:
        raise filters_error(f"{path}.type must be one of person, cohort, group, flag, got {_shown(kind)}")
    operator = raw.get("operator")
    if operator is not None and (not isinstance(operator, str) or operator not in _OPERATORS):
        raise filters_error(f"{path}.operator is not a known operator: {_shown(operator)}")
    key = raw.get("key", "id" if kind == "cohort" else None)
    if not isinstance(key, str):
        raise filters_error(f"{path}.key must be a string, got {_name(key)}")
    negation = raw.get("negation")
    if negation is not None and not isinstance(negation, bool):
        raise filters_error(f"{path}.negation must be a boolean, got {_name(negation)}")
    _check_index(raw.get("group_type_index"), f"{path}.group_type_index")
    stored = {**raw, "key": key, "type": kind}
    if operator is not None:
        stored["operator"] = _STORED_OPERATORS.get(operator, operator)
    return stored


def _check_variants(filters: Mapping[str, Any]) -> list[str]:
    """Return the keys of the variants, in order."""
    multivariate = filters.get("multivariate")
    if multivariate is None:
        return []
    if not isinstance(multivariate, dict):
        raise filters_error(f"multivariate must be an object or null, got {_name(multivariate)}")
    variants = multivariate.get("variants")
    if variants is None:
        return []
    if not isinstance(variants, list):
        raise filters_error(f"multivariate.variants must be a list, got {_name(variants)}")
    if len(variants) > MAX_VARIANTS:
        raise filters_error(f"multivariate.variants must have at most {MAX_VARIANTS} entries")
    for index, variant in enumerate(variants):
        path = f"multivariate.variants[{index}]"
        if not isinstance(variant, dict):
            raise filters_error(f"{path} must be an object, got {_name(variant)}")
        if not isinstance(variant.get("key"), str):
            raise filters_error(f"{path}.key must be a string")
        _check_text(variant.get("name"), f"{path}.name")
        if variant.get("rollout_percentage") is None:
            raise filters_error(f"{path}.rollout_percentage must be a number")
        _check_percentage(variant["rollout_percentage"], f"{path}.rollout_percentage")
    return [variant["key"] for variant in variants]


def variant_keys(filters: Mapping[str, Any]) -> list[str]:
    """Return the keys of a flag's variants, in order; [] for a boolean flag."""
    return [variant["key"] for variant in (filters.get("multivariate") or {}).get("variants") or ()]


def _check_rest(filters: Mapping[str, Any]) -> None:
    _check_index(filters.get("aggregation_group_type_index"), "aggregation_group_type_index")
    for name in ("early_exit", "feature_enrollment"):
        value = filters.get(name)
        if value is not None and not isinstance(value, bool):
            raise filters_error(f"{name} must be a boolean or null, got {_name(value)}")
    holdout = filters.get("holdout")
    if holdout is None:
        return
    if not isinstance(holdout, dict):
        raise filters_error(f"holdout must be an object or null, got {_name(holdout)}")
    if isinstance(holdout.get("id"), bool) or not isinstance(holdout.get("id"), int):
        raise filters_error("holdout.id must be an integer")
    if holdout.get("exclusion_percentage") is None:
        raise filters_error("holdout.exclusion_percentage must be a number")
    _check_percentage(holdout["exclusion_percentage"], "holdout.exclusion_percentage")


def _payloads(payloads: Any) -> dict[str, str]:
    """Return payloads as JSON text. A payload of null is none."""
    if not isinstance(payloads, dict):
        raise filters_error("Payloads must be passed as a dictionary")
    kept: dict[str, str] = {}
    for key, value in payloads.items():
        if isinstance(value, str):
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError:
                raise filters_error(f"Payload for key '{key}' is not valid JSON.") from None
            kept[key] = value
        elif value is not None:
            kept[key] = orjson.dumps(value).decode()
    return kept


def _share_aggregation(filters: dict[str, Any]) -> None:
    """Write the subject of the flag into each condition; the flag keeps what all of them have in common."""
    name = "aggregation_group_type_index"
    whole = filters.get(name)
    groups = [{**group, name: group.get(name, whole)} for group in filters["groups"]]
    common = {group[name] for group in groups} or {whole}
    filters["groups"] = groups
    filters[name] = common.pop() if len(common) == 1 else None


def _check_relations(filters: Mapping[str, Any], variants: list[str]) -> None:
    if variants:
        _check_split(filters["multivariate"]["variants"], variants)
    for key in filters.get("payloads") or ():
        if variants and key not in variants and not key.startswith("holdout-"):
            raise _cross_field(
                "payload_key_not_a_variant",
                f"payloads.{key}",
                f"Payload key '{key}' does not match any variant key.",
            )
        if not variants and key != "true" and not key.startswith("holdout-"):
            raise _cross_field(
                "payload_key_not_true",
                f"payloads.{key}",
                f"Payload key '{key}' is invalid: boolean flags only support the 'true' key.",
            )
    for name in ("groups", "super_groups"):
        for index, group in enumerate(filters.get(name) or ()):
            _check_group_relations(group, f"{name}[{index}]", variants)


def _check_split(variants: list[dict[str, Any]], keys: list[str]) -> None:
    total = math.fsum(variant["rollout_percentage"] for variant in variants)
    if abs(total - 100) > _SUM_TOLERANCE:
        raise _cross_field(
            "variant_rollout_sum_not_100",
            "multivariate.variants",
            f"Variant rollout percentages must sum to 100, got {total:.10g}.",
        )
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise _cross_field(
            "variant_keys_not_unique",
            "multivariate.variants",
            f"Variant keys must be unique, duplicated: {', '.join(repeated)}.",
        )


def _check_group_relations(group: Mapping[str, Any], path: str, variants: list[str]) -> None:
    override = group.get("variant")
    if override is not None and override not in variants:
        raise _cross_field(
            "group_variant_not_a_variant",
            f"{path}.variant",
            f"Variant override '{override}' does not match any variant key.",
        )
    about_persons = group.get("aggregation_group_type_index") is None
    for index, leaf in enumerate(group["properties"]):
        place = f"{path}.properties[{index}]"
        if about_persons and leaf["type"] == "group":
            raise _cross_field(
                "person_aggregation_property_type",
                place,
                "Person-aggregated conditions can only use person, cohort, and flag properties.",
            )
        _check_can_match(leaf, place)


def _check_can_match(leaf: Mapping[str, Any], place: str) -> None:
    """Raise 400 for a condition that can never match."""
    operator = leaf.get("operator")
    if operator in _TEXT_OPERATORS and not isinstance(leaf.get("value"), str):
        raise _cross_field(
            "operator_requires_string_value",
            f"{place}.value",
            f"Operator {operator} requires a string value.",
        )
    if operator not in _OPERATORS_OF.get(leaf["type"], _PROPERTY_OPERATORS):
        text = f"Operator {operator} does not compare filters of type {leaf['type']}."
        raise _cross_field("operator_never_matches", f"{place}.operator", text)
    if leaf["type"] not in _OPERATORS_OF and (problem := key_problem(leaf["type"], leaf["key"])):
        raise _cross_field("key_never_matches", f"{place}.key", problem)
    if operator is not None and (problem := _operand_problem(leaf["type"], operator, leaf.get("value"))):
        raise _cross_field("operand_never_matches", f"{place}.value", problem)


def _operand_problem(kind: str, operator: str, value: Any) -> str | None:
    """Return why a condition of a known operator can never match."""
    if kind == "flag":
        return (
            None if isinstance(value, (bool, str)) else "A flag evaluates to true, false or a variant's key."
        )
    return operand_problem(operator, value)


def check_cohorts(filters: Mapping[str, Any], cohorts_exist: CohortsExist) -> None:
    """Raise 400 for a condition on a cohort that the project does not have."""
    wanted: list[int] = []
    for group in (*(filters.get("groups") or ()), *(filters.get("super_groups") or ())):
        for leaf in group.get("properties") or ():
            if leaf.get("type") == "cohort":
                cohort_id = cohort_reference(PropertyFilter("id", "cohort", "in", leaf.get("value")))
                if cohort_id is None:
                    raise _no_cohort(leaf.get("value"))
                wanted.append(cohort_id)
    known = cohorts_exist(wanted) if wanted else ()
    for cohort_id in wanted:
        if cohort_id not in known:
            raise _no_cohort(cohort_id)


def _no_cohort(value: Any) -> ApiError:
    return filters_error(f"Cohort with id {_shown(value)} does not exist", "cohort_does_not_exist")


def _check_percentage(value: Any, path: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise filters_error(f"{path} must be a number or null, got {_name(value)}")
    if not 0 <= value <= 100:
        raise filters_error(f"{path} must be between 0 and 100, got {value}")


def _check_text(value: Any, path: str) -> None:
    if value is not None and not isinstance(value, str):
        raise filters_error(f"{path} must be a string or null, got {_name(value)}")


def _check_index(value: Any, path: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise filters_error(f"{path} must be an integer or null, got {_name(value)}")
    if value not in GROUP_TYPES:
        raise filters_error(f"{path} must be between 0 and {GROUP_TYPES[-1]}, got {value}")


def _name(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    return str(value)[:100]
