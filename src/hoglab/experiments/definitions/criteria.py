"""Rules of ``exposure_criteria``, ``stats_config`` and the running-time calculator (spec experiments-api 3.4–3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hoglab.http.errors import validation_error
from hoglab.http.fields.fields import parse_number
from hoglab.patterns import ASCII, anchored

METHODS = ("bayesian", "frequentist")
_EXPOSURE_KINDS = ("ExperimentEventExposureConfig", "ActionsNode")
_EXPOSURE_HINT = (
    "Expected either an event-based config like {'kind': 'ExperimentEventExposureConfig', 'event': '<event_name>', "
    "'properties': []} or an action-based config like {'kind': 'ActionsNode', 'id': <action_id>}."
)
_EVENT_CONFIG_KEYS = frozenset({"kind", "event", "properties", "response", "version"})
_ACTION_CONFIG_KEYS = frozenset(
    {
        "kind",
        "id",
        "name",
        "custom_name",
        "properties",
        "fixedProperties",
        "math",
        "math_property",
        "math_property_type",
        "math_hogql",
        "math_group_type_index",
        "math_multiplier",
        "response",
        "version",
    }
)
CALCULATOR_KEYS = (
    "minimum_detectable_effect",
    "recommended_running_time",
    "recommended_sample_size",
    "exposure_estimate_config",
)
PAUSES_ON_HARM = "pause_on_harm"
"""Key of an experiment's parameters: whether certain harm switches the flag off."""
MAX_RECALCULATION_TIMES = 2
"""Maximum number of times a day at which the results of running experiments are computed."""
MIN_HOURS_APART = 6
_WHOLE_HOUR = anchored(r"([01]\d|2[0-3]):00(?::00)?", ASCII)
_DECIMALS = 10


def validate_exposure_criteria(value: Any) -> dict[str, Any]:
    """Return the criteria unchanged. Raises 400 with attr ``exposure_criteria``."""
    attr = "exposure_criteria"
    if not isinstance(value, dict):
        raise validation_error(
            f"exposure_criteria must be an object, got {type(value).__name__}. "
            "Expected shape: {'filterTestAccounts': <bool>, 'exposure_config': <object>}.",
            attr,
        )
    filtering = value.get("filterTestAccounts")
    if filtering is not None and not isinstance(filtering, bool):
        raise validation_error(
            "exposure_criteria.filterTestAccounts must be a boolean, "
            f"got {type(filtering).__name__}: {filtering!r}.",
            attr,
        )
    for name in ("exposure_config", "activation_config"):
        if value.get(name) is not None:
            _validate_exposure_config(value[name], name)
    return value


def _validate_exposure_config(config: Any, name: str) -> None:
    attr, path = "exposure_criteria", f"exposure_criteria.{name}"
    if not isinstance(config, dict):
        raise validation_error(
            f"{path} must be an object, got {type(config).__name__}. {_EXPOSURE_HINT}", attr
        )
    kind = config.get("kind", _EXPOSURE_KINDS[0])
    if kind not in _EXPOSURE_KINDS:
        raise validation_error(
            f"{path}.kind must be one of {list(_EXPOSURE_KINDS)}, got {kind!r}. {_EXPOSURE_HINT}", attr
        )
    problems = list(_exposure_config_problems(config, kind))
    if problems:
        raise validation_error(f"Invalid {path} (kind='{kind}'): {problems}. {_EXPOSURE_HINT}", attr)


def _exposure_config_problems(config: Mapping[str, Any], kind: str) -> Sequence[dict[str, Any]]:
    problems = []

    def problem(key: str, message: str) -> None:
        problems.append({"loc": (key,), "msg": message})

    if kind == "ActionsNode":
        if not isinstance(config.get("id"), int) or isinstance(config.get("id"), bool):
            problem("id", "A valid integer is required.")
        allowed = _ACTION_CONFIG_KEYS
    else:
        if not isinstance(config.get("event"), str):
            problem("event", "Not a valid string." if "event" in config else "This field is required.")
        elif config["event"] == "":
            problem("event", "No event has an empty name.")
        if "properties" not in config:
            problem("properties", "This field is required.")
        allowed = _EVENT_CONFIG_KEYS
    properties = config.get("properties")
    if properties is not None and not (
        isinstance(properties, list) and all(isinstance(item, dict) for item in properties)
    ):
        problem("properties", "Expected a list of objects.")
    for key in config:
        if key not in allowed:
            problem(key, "This key is not known here.")
    return problems


def created_exposure_criteria(value: dict[str, Any] | None) -> dict[str, Any]:
    """Return the exposure criteria of a new experiment: test accounts are filtered unless the request says no."""
    criteria = dict(value or {})
    if criteria.get("filterTestAccounts") is None:
        criteria["filterTestAccounts"] = True
    return criteria


def validate_stats_config(value: Any) -> dict[str, Any]:
    """Return the statistics settings unchanged. Raises 400."""
    if not isinstance(value, dict):
        raise validation_error("stats_config must be an object", "stats_config")
    method = value.get("method")
    if method not in (None, "", *METHODS):
        raise validation_error(f"Invalid stats method: {method!r}. Must be one of: bayesian, frequentist")
    return value


def validate_baseline(stats_config: Mapping[str, Any] | None, variant_keys: Sequence[str]) -> None:
    """Raise 400 for a baseline that is no variant of the flag."""
    key = (stats_config or {}).get("baseline_variant_key")
    if key is not None and key not in variant_keys:
        raise validation_error(
            f"Invalid baseline_variant_key: {key!r}. Must be one of: {', '.join(sorted(variant_keys))}"
        )


def created_stats_config(value: dict[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics settings of a new experiment; the project's method and confidence level are defaults."""
    config = dict(value or {})
    if not config.get("method"):
        method = defaults.get("default_experiment_stats_method")
        config["method"] = method if method in METHODS else METHODS[0]
    level = defaults.get("default_experiment_confidence_level")
    if isinstance(level, int | float) and not isinstance(level, bool) and 0 < level < 1:
        config["bayesian"] = {"ci_level": level, **_object(config.get("bayesian"))}
        config["frequentist"] = {"alpha": round(1 - level, _DECIMALS), **_object(config.get("frequentist"))}
    return config


def validate_confidence_level(value: Any) -> float:
    """Return a project's confidence level: a number between 0 and 1, both excluded. Raises 400."""
    number = parse_number(value)
    if number is None:
        raise validation_error("A valid number is required.")
    if not 0 < number < 1:
        raise validation_error("Ensure this value is greater than 0 and less than 1.")
    return number


def validate_recalculation_times(value: Any) -> list[str]:
    """Return one or two whole hours of the day in UTC, at least six hours apart (spec experiment-results 7.1).

    Raises 400.
    """
    if not isinstance(value, list):
        raise validation_error(f'Expected a list of items but got type "{type(value).__name__}".')
    hours = []
    for text in value:
        match = _WHOLE_HOUR.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise validation_error(f"{text!r} is no whole hour: expected '00:00:00' to '23:00:00'.")
        hours.append(int(match[1]))
    if not 1 <= len(hours) <= MAX_RECALCULATION_TIMES:
        raise validation_error(f"Expected one or {MAX_RECALCULATION_TIMES} times.")
    apart = abs(hours[0] - hours[-1])
    if len(hours) > 1 and min(apart, 24 - apart) < MIN_HOURS_APART:
        raise validation_error(f"The times must be at least {MIN_HOURS_APART} hours apart.")
    return [f"{hour:02}:00:00" for hour in sorted(hours)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def validate_running_time(value: Any) -> dict[str, Any]:
    """Return the calculator's object unchanged. Raises 400 with attr ``running_time_calculation``."""
    attr = "running_time_calculation"
    if not isinstance(value, dict):
        raise validation_error("running_time_calculation must be an object", attr)
    if unknown := [key for key in value if key not in CALCULATOR_KEYS]:
        raise validation_error(f"running_time_calculation got unknown keys: {unknown}", attr)
    for key in CALCULATOR_KEYS[:3]:
        number = value.get(key)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
            raise validation_error(f"{key} must be a number", attr)
    estimate = value.get("exposure_estimate_config")
    if estimate is not None and not isinstance(estimate, dict):
        raise validation_error("exposure_estimate_config must be an object", attr)
    return value


def running_time_of(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the calculator's keys of ``parameters``."""
    return {key: parameters[key] for key in CALCULATOR_KEYS if parameters is not None and key in parameters}


def with_running_time(
    parameters: Mapping[str, Any] | None, running_time: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return ``parameters`` with the calculator's keys replaced by those of ``running_time``."""
    if parameters is None and not running_time:
        return None
    kept = {key: value for key, value in (parameters or {}).items() if key not in CALCULATOR_KEYS}
    return {**kept, **running_time}
