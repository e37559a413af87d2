"""The fingerprint of a metric: the key under which its results are stored (spec experiment-results 6).

Two metrics with one fingerprint have the same results. Version 2 is stamped on everything; version 1 is what
older servers stored, and is computed to find rows that were imported from them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from hoglab.http.fields.dates import format_offset
from hoglab.statistics import BayesianConfig, CupedConfig, RelativeVariance, StatisticsConfig

DEFAULT_EXPOSURE_EVENT = "$feature_flag_called"
WRITTEN_EXPOSURE_EVENT = "$experiment_exposure"
"""Event that some servers write besides each flag call that gave a variant; counted only where a criterion names it."""
_DEFAULT_EXPOSURE_LITERAL = "$default_exposure_event"
# Events that stand for "the flag was shown", with or without further property filters.
DEFAULT_EXPOSURES = frozenset({DEFAULT_EXPOSURE_EVENT, WRITTEN_EXPOSURE_EVENT})

_NOT_HASHED = frozenset({"uuid", "name", "kind", "fingerprint", "only_count_matured_users", "role", "margin"})
_DISABLED_LOOKBACK_DAYS = 14
_OWN_TEST = "difference"
"""Name of hoglab's own test in keys; it changes with the numbers that the test gives."""
_INACTIVE_TUNING_PARAMETER = 5000
_ZONELESS_METRICS = frozenset({"mean", "funnel", "ratio"})
_SIGNIFICANT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Calculation:
    """Everything besides the metric itself that decides the numbers of a result."""

    start_date: datetime | None
    feature_flag_key: str
    variants: Sequence[str]  # in flag order, without the excluded ones
    statistics: StatisticsConfig
    aggregation_group_type_index: int | None = None
    excluded_variants: Iterable[str] = ()
    exposure_criteria: Mapping[str, Any] | None = None
    test_account_filters: Sequence[Mapping[str, Any]] = ()
    only_count_matured_users: bool = False
    timezone: str = "UTC"
    stats_config: Mapping[str, Any] | None = field(default=None)

    @property
    def filters_test_accounts(self) -> bool:
        """Whether the test accounts of the project are left out: unless the criteria say otherwise."""
        filtering = (self.exposure_criteria or {}).get("filterTestAccounts")
        return True if filtering is None else bool(filtering)


def fingerprint(metric: Mapping[str, Any], calculation: Calculation) -> str:
    """Return version 2: 64 lower-case hex digits over everything that the numbers depend on."""
    return Fingerprints(calculation).of(metric)


class Fingerprints:
    """The fingerprints of one experiment's metrics, which share everything but the metric."""

    def __init__(self, calculation: Calculation) -> None:
        content = _rounded(_settings(calculation))
        # Keys are sorted, so that the metric stands between two texts that are the same for each.
        self._before = _text({key: value for key, value in content.items() if key < "metric"})[:-1]
        after = {key: value for key, value in content.items() if key > "metric"}
        self._after = _text(after)[1:]
        self._after_zoned = _text({**after, "timezone": calculation.timezone})[1:]

    def of(self, metric: Mapping[str, Any]) -> str:
        """Return the fingerprint of a metric."""
        zoneless = metric.get("metric_type") in _ZONELESS_METRICS
        after = self._after if zoneless else self._after_zoned
        return _digest(f'{self._before},"metric":{_text(_rounded(hashed_part(metric)))},{after}')


def _settings(calculation: Calculation) -> dict[str, Any]:
    criteria = calculation.exposure_criteria or {}
    filtering = calculation.filters_test_accounts
    variants = list(calculation.variants)
    return {
        "key_version": 2,
        "start_date": _start(calculation.start_date),
        "feature_flag_key": calculation.feature_flag_key,
        "aggregation_group_type_index": calculation.aggregation_group_type_index,
        "variants": variants,
        "baseline": calculation.statistics.baseline_key(variants) if variants else None,
        "excluded_variants": sorted(set(calculation.excluded_variants)),
        "exposure": _exposure(criteria, filtering),
        "test_account_filters": list(calculation.test_account_filters) if filtering else [],
        "stats": _statistics(calculation.statistics),
        "cuped": _cuped(calculation.statistics.cuped),
        "only_count_matured_users": calculation.only_count_matured_users,
    }


def fingerprint_v1(metric: Mapping[str, Any], calculation: Calculation) -> str:
    """Return version 1, for rows that another server stored (spec experiment-results 6.2)."""
    stats = calculation.stats_config or {}
    content: dict[str, Any] = {
        "metric": hashed_part(metric),
        "start_date": _start(calculation.start_date),
        "stats_method": stats.get("method") or "bayesian",
    }
    if calculation.exposure_criteria:
        content["exposure_criteria"] = dict(calculation.exposure_criteria)
    if calculation.only_count_matured_users:
        content["only_count_matured_users"] = True
    if excluded := sorted(set(calculation.excluded_variants)):
        content["excluded_variants"] = excluded
    return _digest(_text(content))


_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _text(content: Any) -> str:
    return _encoder.encode(content)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hashed_part(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric without the fields that do not change its numbers."""
    kept = {key: value for key, value in metric.items() if key not in _NOT_HASHED}
    if "breakdownFilter" in kept:
        breakdown = kept["breakdownFilter"]
        if isinstance(breakdown, Mapping):
            breakdown = {k: v for k, v in breakdown.items() if k != "breakdowns" or v}
        if breakdown:
            kept["breakdownFilter"] = breakdown
        else:
            del kept["breakdownFilter"]
    return kept


def _start(moment: datetime | None) -> str | None:
    return None if moment is None else format_offset(moment)


def _exposure(criteria: Mapping[str, Any], filtering: bool) -> dict[str, Any]:
    exposure: dict[str, Any] = {
        "exposure": _event(criteria.get("exposure_config")),
        "multiple_variant_handling": criteria.get("multiple_variant_handling") or "exclude",
        "filter_test_accounts": filtering,
    }
    if isinstance(criteria.get("activation_config"), Mapping):
        exposure["activation"] = _event(criteria["activation_config"])
    return exposure


def _event(config: Any) -> dict[str, Any]:
    """Return one exposure config as an event or action with properties; the default exposure has a name of its own."""
    if not isinstance(config, Mapping):
        return {"event": _DEFAULT_EXPOSURE_LITERAL, "properties": []}
    properties = config.get("properties") or []
    if config.get("kind") == "ActionsNode":
        return {"action_id": config.get("id"), "properties": properties}
    event = config.get("event")
    name = _DEFAULT_EXPOSURE_LITERAL if event in DEFAULT_EXPOSURES else event
    return {"event": name, "properties": properties}


def _cuped(config: CupedConfig) -> dict[str, Any]:
    """Return the CUPED settings of the key.

    Settings that PostHog does not have are left out at their default, so that keys agree.
    """
    if not config.enabled:
        return {"enabled": False, "lookback_days": _DISABLED_LOOKBACK_DAYS}
    settings: dict[str, Any] = {"enabled": True, "lookback_days": config.lookback_days}
    if config.relative_variance is not RelativeVariance.DELTA:
        settings["relative_variance"] = config.relative_variance.value
    return settings


def _statistics(config: StatisticsConfig) -> dict[str, Any]:
    """Return the statistics settings of the key; the prior only where there is one.

    PostHog's numbers have PostHog's key. Results of the test on the difference, and none that were stored before there
    was one, have another.
    """
    test = config.inference_config
    shared = {"method": test.method.value, "difference_type": test.difference_type.value.lower()}
    if not config.posthog_numbers:
        shared["test"] = _OWN_TEST
    if isinstance(test, BayesianConfig):
        prior = {} if test.prior is None else {"prior": _rounded(asdict(test.prior))}
        return {**shared, "ci_level": test.ci_level, **prior}
    sequential = test.sequential_testing_enabled
    return {
        **shared,
        "alpha": test.alpha,
        "sequential_testing_enabled": sequential,
        "sequential_tuning_parameter": test.sequential_tuning_parameter
        if sequential
        else _INACTIVE_TUNING_PARAMETER,
    }


def _rounded(value: Any) -> Any:
    """Return floats at 12 significant digits, whole ones as integers, so that noise does not start a new series."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is dict:
        return {key: _rounded(item) for key, item in value.items()}
    if kind is list:
        return [_rounded(item) for item in value]
    if kind is float:
        rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
        return int(rounded) if rounded.is_integer() else rounded
    return value
