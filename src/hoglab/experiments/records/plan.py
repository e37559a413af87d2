"""The plan of an experiment: everything that its error rates assume to be fixed before the first look.

These are the method with its settings, the metrics with their roles, margins, goals and definitions, the planned length
and effect, and the rules of who counts. Names, descriptions and orders are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

import orjson

from hoglab.experiments.definitions import metrics
from hoglab.experiments.definitions.fingerprint import hashed_part
from hoglab.experiments.store import ExperimentRow, SavedMetricLink
from hoglab.http.fields.dates import format_moment
from hoglab.statistics import resolve_config

_LENGTH = {
    "recommended_sample_size": "planned people",
    "recommended_running_time": "planned days",
    "minimum_detectable_effect": "smallest effect to find (%)",
}
"""Keys of the calculator that a plan consists of, in words."""
_OF_METRIC = ("role", "margin", "goal")
_DEFAULT_EFFECT = "default_minimum_detectable_effect"


def plan_of(
    row: ExperimentRow, links: Sequence[SavedMetricLink], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the plan of a launched experiment as it is stored; ``defaults`` are the project's."""
    calculation = row.running_time_calculation or {}
    length = {key: calculation.get(key) for key in _LENGTH}
    if length["minimum_detectable_effect"] is None:
        length["minimum_detectable_effect"] = defaults.get(_DEFAULT_EFFECT)
    plan = {
        "start_date": None if row.start_date is None else format_moment(row.start_date),
        "statistics": asdict(resolve_config(row.stats_config, defaults)),
        "length": length,
        "exposure_criteria": row.exposure_criteria,
        "excluded_variants": sorted(row.excluded_variants),
        "only_count_matured_users": row.only_count_matured_users,
        "metrics": dict(_metrics(row, links)),
    }
    stored: dict[str, Any] = orjson.loads(orjson.dumps(plan))
    return stored


def _metrics(row: ExperimentRow, links: Sequence[SavedMetricLink]) -> Iterator[tuple[str, dict[str, Any]]]:
    inline = [
        *((metric, True, None) for metric in row.metrics or ()),
        *((metric, False, None) for metric in row.metrics_secondary or ()),
    ]
    for metric, is_primary, saved_as in (
        *inline,
        *((link.query, link.is_primary, link.name) for link in links),
    ):
        if metrics.is_legacy(metric) or metric.get("uuid") is None:
            continue
        margin = None if is_primary else metrics.margin_of(metric)
        decisive = {key: value for key, value in hashed_part(metric).items() if key not in _OF_METRIC}
        yield (
            metric["uuid"],
            {
                "name": str(metric.get("name") or saved_as or metric.get("metric_type")),
                "role": "primary" if is_primary else "secondary" if margin is None else metrics.GUARDRAIL,
                "margin": margin,
                "goal": metric.get("goal") or "increase",
                "definition": digest(decisive),
            },
        )


def digest(value: Any) -> str:
    """Return a short digest of a JSON value; the order of keys does not matter."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what differs between two plans, in words; empty where nothing that decides does."""
    return [*_changed_settings(before, after), *_changed_metrics(before["metrics"], after["metrics"])]


def _changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for part, names in (("length", _LENGTH), ("statistics", {})):
        was, is_now = _flat(before[part]), _flat(after[part])
        for key in dict.fromkeys((*was, *is_now)):
            if was.get(key) != is_now.get(key):
                words = names.get(key) or key.replace("_", " ")
                yield f"{words} changed from {_said(was.get(key))} to {_said(is_now.get(key))}"
    if before["start_date"] != after["start_date"]:
        yield f"start moved from {_said(before['start_date'])} to {_said(after['start_date'])}"
    for key in ("exposure_criteria", "excluded_variants", "only_count_matured_users"):
        if before[key] != after[key]:
            yield f"{key.replace('_', ' ')} changed"


def _changed_metrics(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    for uuid, metric in after.items():
        was = before.get(uuid)
        if was is None:
            yield f"{metric['role']} metric “{metric['name']}” added"
            continue
        for key in _OF_METRIC:
            if was[key] != metric[key]:
                yield f"{key} of “{metric['name']}” changed from {_said(was[key])} to {_said(metric[key])}"
        if was["definition"] != metric["definition"]:
            yield f"definition of “{metric['name']}” changed"
    for uuid, metric in before.items():
        if uuid not in after:
            yield f"{metric['role']} metric “{metric['name']}” removed"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names, without the name of the part that holds the method's own."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = prefix if key == "inference_config" else f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}." if name else "")
        else:
            flat[name] = value
    return flat


def _said(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
