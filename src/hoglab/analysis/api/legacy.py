"""Results of the two metric kinds of the former engine, for experiments that still have them.

Source: spec experiment-results 1.8, 4.8, 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hoglab.analysis.definitions import window_us
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.model import (
    NO_FILTERS,
    EventSource,
    Exposures,
    FunnelMeasure,
    FunnelOrder,
    Math,
    MeanMeasure,
    Question,
    Value,
)
from hoglab.http.errors import ApiError
from hoglab.statistics import FunnelVariant, TrendsVariant, VariantCountError, legacy_result
from hoglab.statistics.legacy.kinds import LegacyVariant

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.execution import Computer
    from hoglab.analysis.query.model import Span

DEFAULT_WINDOW = (14, "day")
"""Default length of a funnel of the former engine."""
STATS_VERSION = 2


def legacy_answer(
    inputs: ExperimentInputs, span: Span | None, query: Mapping[str, Any], computer: Computer
) -> dict[str, Any]:
    """Return the answer to an ``ExperimentTrendsQuery`` or ``ExperimentFunnelsQuery``.

    Raises `ApiError` and `DefinitionError`.
    """
    if span is None:
        raise _no_results(exposures=False, baseline=None, tests=False)
    if query["kind"] == "ExperimentTrendsQuery":
        return _trends(inputs, span, query, computer)
    return _funnels(inputs, span, query, computer)


def _trends(
    inputs: ExperimentInputs, span: Span, query: Mapping[str, Any], computer: Computer
) -> dict[str, Any]:
    counting = _object(query, "count_query")
    node = _series(counting, "count_query")[0]
    asked = _question(inputs, span, counting, node)
    summed = node.get("math") not in (None, "total")
    prop = node.get("math_property") if summed else None
    value = Value(asked.exposures.source, Math.SUM, None if prop is None else str(prop))
    daily = computer.tagged_events(replace(asked, metric=MeanMeasure(value)))
    counts = {key: sum(days) for key, days in daily.items()}
    exposed = _exposed(inputs, span, query, computer)
    baseline = inputs.calculation.statistics.baseline_key(inputs.calculation.variants)
    variants = [
        TrendsVariant(key, counts[key], exposed.get(key, 0), summed=prop is not None)
        for key in asked.exposures.variants
        if counts.get(key) or exposed.get(key)
    ]
    statistics = _judged(variants, baseline, exposures=any(exposed.values()))
    base = exposed.get(baseline, 0)
    return {
        "kind": "ExperimentTrendsQuery",
        "insight": [
            {
                "label": key,
                "breakdown_value": key,
                "count": counts[key],
                "data": list(accumulate(daily[key])),
                "days": _days(span),
            }
            for key in daily
        ],
        "count_query": counting,
        "exposure_query": query.get("exposure_query"),
        "variants": [
            {
                "key": variant.key,
                "count": variant.count,
                "exposure": variant.absolute_exposure / base if base else 0,
                "absolute_exposure": variant.absolute_exposure,
            }
            for variant in variants
        ],
        **statistics,
    }


def _exposed(
    inputs: ExperimentInputs, span: Span, query: Mapping[str, Any], computer: Computer
) -> dict[str, int]:
    """Count the exposed users by variant: by the flag's own event, or by the event of ``exposure_query``."""
    given = query.get("exposure_query")
    if not isinstance(given, Mapping):
        exposures = inputs.reader.exposures(inputs.project.id, inputs.calculation)
        exposures = replace(exposures, variants=_variants(inputs), test_account_filters=NO_FILTERS)
        return dict(computer.tagged_people(_of(inputs, span, exposures)))
    node = _series(given, "exposure_query")[0]
    asked = _question(inputs, span, given, node)
    if node.get("math") == "dau":
        return dict(computer.tagged_people(asked))
    return {key: int(sum(days)) for key, days in computer.tagged_events(asked).items()}


def _funnels(
    inputs: ExperimentInputs, span: Span, query: Mapping[str, Any], computer: Computer
) -> dict[str, Any]:
    asking = _object(query, "funnels_query")
    series = _series(asking, "funnels_query")
    settings = asking.get("funnelsFilter")
    settings = settings if isinstance(settings, Mapping) else {}
    order = settings.get("funnelOrderType") or FunnelOrder.ORDERED
    if order not in list(FunnelOrder):
        raise DefinitionError(f"Funnels of order {order!r} are not supported.")
    length, unit = DEFAULT_WINDOW
    window = {
        "conversion_window": settings.get("funnelWindowInterval") or length,
        "conversion_window_unit": settings.get("funnelWindowIntervalUnit") or unit,
    }
    steps = tuple(inputs.reader.events(node, f"series[{place}]") for place, node in enumerate(series[1:], 1))
    metric = FunnelMeasure(steps or (EventSource(()),), FunnelOrder(order), window_us(window))
    asked = replace(_question(inputs, span, asking, series[0]), metric=metric)
    groups = computer.result(replace(asked, span=replace(span, capped=True))).groups
    variants, insight = [], []
    for key in asked.exposures.variants:
        group = groups.get(key)
        if group is None:
            continue
        entered = group.number_of_samples
        reached = [entered, *(getattr(group, "step_counts", ()) if steps else ())]
        variants.append(FunnelVariant(key, reached[-1], entered - reached[-1]))
        insight.append(
            [
                {"order": place, "count": count, "breakdown_value": [key], "name": series[place].get("event")}
                for place, count in enumerate(reached)
            ]
        )
    baseline = inputs.calculation.statistics.baseline_key(inputs.calculation.variants)
    statistics = _judged(variants, baseline, exposures=bool(variants))
    return {
        "kind": "ExperimentFunnelsQuery",
        "funnels_query": asking,
        "insight": insight,
        "variants": [
            {
                "key": variant.key,
                "success_count": variant.success_count,
                "failure_count": variant.failure_count,
            }
            for variant in variants
        ],
        "expected_loss": statistics.pop("p_value"),
        **statistics,
    }


def _judged(variants: Sequence[LegacyVariant], baseline: str, *, exposures: bool) -> dict[str, Any]:
    """Compute the statistics of either response. Raises `ApiError` without the data for them."""
    by_key = {variant.key: variant for variant in variants}
    tests = [variant for variant in variants if variant.key != baseline]
    if baseline not in by_key or not tests or not exposures:
        raise _no_results(exposures=exposures, baseline=by_key.get(baseline), tests=bool(tests))
    try:
        result = legacy_result(by_key[baseline], tests)
    except VariantCountError as error:
        raise ApiError(400, "validation_error", error.code, str(error)) from error
    return {
        "probability": result.probability,
        "significant": result.significant,
        "significance_code": str(result.significance_code),
        "stats_version": STATS_VERSION,
        "p_value": result.p_value,
        "credible_intervals": {key: list(interval) for key, interval in result.credible_intervals.items()},
    }


def _no_results(*, exposures: bool, baseline: object, tests: bool) -> ApiError:
    missing = {
        "no-exposures": not exposures,
        "no-control-variant": baseline is None,
        "no-test-variant": not tests,
    }
    return ApiError(400, "validation_error", "no-results", json.dumps(missing))


def _question(
    inputs: ExperimentInputs, span: Span, query: Mapping[str, Any], node: Mapping[str, Any]
) -> Question:
    """Return the question of a node's events by the variant in their own property."""
    calculation = inputs.calculation
    defaults = inputs.reader.exposures(inputs.project.id, replace(calculation, exposure_criteria=None))
    exposures = replace(
        defaults,
        source=inputs.reader.events(node, "series[0]"),
        flag_key=None,
        variant_property=f"$feature/{calculation.feature_flag_key}",
        variants=_variants(inputs),
        test_account_filters=defaults.test_account_filters if query.get("filterTestAccounts") else NO_FILTERS,
        first_seen=True,
    )
    return _of(inputs, span, exposures)


def _of(inputs: ExperimentInputs, span: Span, exposures: Exposures) -> Question:
    nothing = MeanMeasure(Value(EventSource(())))
    return Question(exposures, span, nothing, zone=inputs.project.timezone, cohorts=inputs.cohorts)


def _variants(inputs: ExperimentInputs) -> tuple[str, ...]:
    """Return the variants and, where the experiment has one, its holdout, which counted as another variant."""
    holdout = inputs.row.holdout_id
    return (*inputs.calculation.variants, *([] if holdout is None else [f"holdout-{holdout}"]))


def _days(span: Span) -> list[str]:
    grid: DayGrid | None = span.days
    return [] if grid is None else [day.isoformat() for day in grid.days]


def _object(query: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = query.get(name)
    if not isinstance(part, Mapping):
        raise DefinitionError(f"{name} is required")
    return part


def _series(query: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    series = query.get("series")
    if not isinstance(series, list) or not series or not all(isinstance(node, Mapping) for node in series):
        raise DefinitionError(f"{name}.series must be a list of events or actions.")
    return series
