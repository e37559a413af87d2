"""Results as they go on the wire (spec experiment-results 2.6, 5.1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from math import inf, isfinite
from typing import Any, TypeVar

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query import Answer, Groups
from hoglab.analysis.query.model import FunnelMeasure, Metric, QuantileMeasure, RatioMeasure, RetentionMeasure
from hoglab.statistics import (
    REFUSAL_WORDS,
    BayesianConfig,
    Correction,
    DifferenceType,
    FrequentistConfig,
    Method,
    Proportion,
    QuantileSample,
    Ratio,
    RefusalError,
    Retention,
    SampleMean,
    StatisticsConfig,
    StatisticsRefusal,
    SufficientStatistics,
    VariantComparison,
    WithCovariate,
    baseline_failures,
    compare,
    estimate_effect,
)
from hoglab.statistics.verdict import Contest, Evidence, anytime_p_value

Key = TypeVar("Key", bound=Hashable)
Result = Mapping[str, Any]

FAILURES = {
    "not-enough-exposures": "fewer than 50 people",
    "not-enough-metric-data": "fewer than 5 conversions",
    "baseline-mean-is-zero": "its value is zero, so there is no relative change",
}
"""Codes of ``validation_failures`` in words (spec experiment-results 4.4)."""
NO_STATISTICS = "the stored result does not say why; recalculate it"
"""Problem of a row that was stored before rows had one."""
BASELINE_NEAR_ZERO = "baseline-near-zero"
"""Reason why an interval of a relative effect has no bound on a side: the baseline's mean is not told from zero."""
_SUMS = (
    "denominator_sum",
    "denominator_sum_squares",
    "numerator_denominator_sum_product",
    "covariate_sum",
    "covariate_sum_squares",
    "covariate_sum_product",
)
_ROWS = ("baseline", "variant_results", "breakdown_results", "variants")
"""Fields of a result that hold rows."""
_LEGACY_KEYS = (
    "metric",
    "insight",
    "variants",
    "probability",
    "credible_intervals",
    "significant",
    "significance_code",
    "p_value",
    "stats_version",
)


def result_object(
    answer: Answer, variants: Sequence[str], config: StatisticsConfig, metric: Metric
) -> dict[str, Any]:
    """Return the ``ExperimentQuery`` response. Variants without data have rows of zeros.

    Raises `DefinitionError` when no variant can be the baseline.
    """
    key = config.baseline_key(variants) if variants else None
    if key is None or key not in variants:
        raise DefinitionError("No control variant found")
    baseline, rows = _rows(answer.groups, key, variants, config, metric)
    broken_down = []
    for cell, groups in answer.cells.items():
        cell_baseline, cell_rows = _rows(groups, key, variants, config, metric)
        broken_down.append({"breakdown_value": list(cell), "baseline": cell_baseline, "variants": cell_rows})
    return {
        "kind": "ExperimentQuery",
        "baseline": baseline,
        "variant_results": rows,
        "breakdown_results": broken_down or None,
        "clickhouse_sql": None,
        "hogql": None,
        "is_precomputed": False,
        **dict.fromkeys(_LEGACY_KEYS),
    }


def adjusted(
    results: Mapping[Key, Result], correction: Correction, *, outside: frozenset[Key] = frozenset()
) -> dict[Key, dict[str, Any]]:
    """Return the results of one moment with ``adjusted_p_value`` in the rows of variants (spec experiment-results 10).

    The family of an experiment is every primary metric with every test variant. Without a correction, rows are as
    PostHog's.

    Results whose key is ``outside`` are not of the family: their rows get null. So do rows without a p-value,
    which do not count towards the size of the family.
    """
    if correction is Correction.NONE:
        return {key: dict(result) for key, result in results.items()}
    family = [
        (key, place, row.get("p_value"))
        for key, result in results.items()
        if key not in outside
        for place, row in enumerate(result["variant_results"])
    ]
    values = correction.adjust([value for _, _, value in family])
    adjusted_values = {(key, place): value for (key, place, _), value in zip(family, values, strict=True)}
    return {
        key: {
            **result,
            "variant_results": [
                {**row, "adjusted_p_value": adjusted_values.get((key, place))}
                for place, row in enumerate(result["variant_results"])
            ],
        }
        for key, result in results.items()
    }


def evidence_of(
    row: Mapping[str, Any],
    config: StatisticsConfig,
    metric_type: str,
    baseline: Mapping[str, Any] | None = None,
) -> Evidence:
    """Return the evidence of a row about its variant: the rule of significance for every presentation of results.

    A corrected p-value decides where there is one. The row of the baseline, which has no method, gives no evidence;
    ``baseline`` is that row, for the others.
    """
    bounds = row.get("credible_interval") or row.get("confidence_interval")
    estimate = row.get("point_estimate")
    complete = bounds is not None and (estimate is not None or None not in bounds)
    low, high = bounds if bounds is not None and complete else (None, None)
    corrected = row.get("adjusted_p_value")
    problem = None
    if not complete and "method" in row:
        problem = row.get("problem") or _problem(row, baseline, None)
    significant = bool(row.get("significant"))
    if corrected is not None and isinstance(config.inference_config, FrequentistConfig):
        significant = bool(corrected < config.inference_config.alpha)
    is_above, means, anytime_p, p_above = None, None, None, None
    if baseline is not None:
        groups = statistics_of(baseline, metric_type), statistics_of(row, metric_type)
        with suppress(RefusalError):
            means, anytime_p = (groups[0].mean, groups[1].mean), anytime_p_value(*groups)
            is_above = _is_above(row, config, *groups) if complete else None
            p_above = _p_above(row, is_above) if complete else None
    return Evidence(
        variant=row["key"],
        interval=(-inf if low is None else low, inf if high is None else high) if complete else None,
        estimate=estimate,
        is_above=is_above,
        means=means,
        anytime_p=anytime_p,
        p_above=p_above,
        is_significant=significant,
        p_value=row.get("p_value") if corrected is None else corrected,
        chance_to_win=row.get("chance_to_win"),
        problem=problem,
    )


def compared_again(result: Result, config: StatisticsConfig, metric_type: str) -> dict[str, Any]:
    """Return a result whose variants are compared with the baseline by another configuration, from their sums."""
    baseline = result["baseline"]
    control = statistics_of(baseline, metric_type)
    rows = []
    for row in result["variant_results"]:
        comparison = compare(config, control, statistics_of(row, metric_type))
        rows.append({**row, **_inference(comparison, baseline)})
    return {**result, "variant_results": rows}


def contests_of(result: Result, config: StatisticsConfig, metric_type: str) -> list[Contest]:
    """Return the comparisons of the variants of a result with each other, the baseline left out.

    Differences are absolute and without a prior: no variant is the baseline that a relative one or a prior is of.
    """
    test = replace(config.inference_config, difference_type=DifferenceType.ABSOLUTE)
    if isinstance(test, BayesianConfig):
        test = replace(test, prior=None)
    plain = replace(config, inference_config=test, correction=Correction.NONE)
    contests = []
    for first, second in combinations(result["variant_results"], 2):
        compared = compare(plain, statistics_of(first, metric_type), statistics_of(second, metric_type))
        row = _variant(second["key"], compared, first, missing=False)
        contests.append(Contest(first["key"], evidence_of(row, plain, metric_type, first)))
    return contests


def statistics_of(row: Mapping[str, Any], metric_type: str) -> SufficientStatistics:
    """Return the sums of a row, as `sums_object` wrote them."""
    n, total = row["number_of_samples"], row["sum"] or 0.0
    plain: Proportion | SampleMean
    match metric_type:
        case "ratio":
            names = ("sum", "sum_squares", *_SUMS[:3])
            return Ratio(
                n, *(row.get(name) or 0.0 for name in names), people_counted=row.get("people_counted")
            )
        case "retention":
            return Retention(n, round(total))
        case "quantile":
            middle, low, high = (row.get(f"quantile{part}") or 0.0 for part in ("", "_lower", "_upper"))
            factor, tie = row.get("cluster_factor") or 1.0, row.get("largest_tie") or 1
            return QuantileSample(
                n, row["quantile_level"], middle, low, high, factor, tie, row.get("people_counted")
            )
        case "funnel":
            plain = Proportion(n, round(total))
        case _:
            plain = SampleMean(n, total, row["sum_squares"] or 0.0)
    if row.get("covariate_sum") is None:
        return plain
    return WithCovariate(plain, *(row.get(name) or 0.0 for name in _SUMS[3:]))


def _is_above(
    row: Mapping[str, Any],
    config: StatisticsConfig,
    baseline: SufficientStatistics,
    variant: SufficientStatistics,
) -> bool | None:
    """Return whether a variant's mean is above the baseline's by its method; None where they are equal.

    A posterior says it by its chance, which contains the prior. Else the difference of the means does, with CUPED
    that of the adjusted ones, whatever difference the experiment shows. Raises `RefusalError`.
    """
    chance = row.get("chance_to_win")
    if chance is not None:
        return None if chance == 0.5 else bool(chance > 0.5)
    absolute = replace(config.inference_config, difference_type=DifferenceType.ABSOLUTE)
    effect, _ = estimate_effect(replace(config, inference_config=absolute), baseline, variant)
    return None if effect.estimate == 0 else effect.estimate > 0


def _p_above(row: Mapping[str, Any], is_above: bool | None) -> float | None:
    """Return the one-sided p-value, without a correction, that a variant's mean is above the baseline's."""
    if row.get("chance_to_win") is not None:
        return float(1 - row["chance_to_win"])
    two_sided = row.get("p_value")
    if two_sided is None:
        return None
    return 0.5 if is_above is None else two_sided / 2 if is_above else 1 - two_sided / 2


def _rows(
    groups: Groups, key: str, variants: Sequence[str], config: StatisticsConfig, metric: Metric
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the row of the baseline and the rows of the others: variants with data first, in flag order."""
    baseline = groups.get(key, _nothing(metric))
    row = {
        "key": key,
        **sums_object(baseline, missing=key not in groups),
        "validation_failures": [str(failure) for failure in baseline_failures(baseline)],
    }
    others = sorted(
        (variant for variant in variants if variant != key), key=lambda variant: variant not in groups
    )
    return row, [
        _variant(
            variant,
            compare(config, baseline, groups.get(variant, _nothing(metric))),
            row,
            missing=variant not in groups,
        )
        for variant in others
    ]


def _variant(
    key: str, comparison: VariantComparison, baseline: Mapping[str, Any], *, missing: bool
) -> dict[str, Any]:
    return {
        "key": key,
        "method": str(comparison.method),
        **sums_object(comparison.statistics, missing=missing),
        **_inference(comparison, baseline),
    }


def _inference(comparison: VariantComparison, baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that its comparison with the baseline decides."""
    row: dict[str, Any] = {}
    if comparison.method is Method.BAYESIAN:
        row["chance_to_win"] = _finite(comparison.chance_to_win)
        row["credible_interval"] = interval_object(comparison.credible_interval)
    else:
        row["p_value"] = _finite(comparison.p_value)
        row["confidence_interval"] = interval_object(comparison.confidence_interval)
    row["point_estimate"] = _finite(comparison.point_estimate)
    row["unbounded_reason"] = BASELINE_NEAR_ZERO if comparison.is_unbounded else None
    row["significant"] = comparison.significant
    row["validation_failures"] = [str(failure) for failure in comparison.validation_failures]
    refusal = comparison.refusal
    row["refusal"] = None if refusal is None else str(refusal)
    row["problem"] = None if refusal is None else _problem(row, baseline, refusal)
    return row


def _problem(
    row: Mapping[str, Any], baseline: Mapping[str, Any] | None, refusal: StatisticsRefusal | None
) -> str:
    """Describe why a row has no statistics: what is missing of it or of the baseline, else the method's refusal."""
    own = [FAILURES.get(code, code) for code in row["validation_failures"]]
    codes = () if baseline is None else baseline["validation_failures"]
    behind = [f"baseline: {FAILURES.get(code, code)}" for code in codes]
    return ", ".join(own or behind) or (NO_STATISTICS if refusal is None else REFUSAL_WORDS[refusal])


def sums_object(statistics: SufficientStatistics, *, missing: bool = False) -> dict[str, Any]:
    """Return the sums of one row; a variant that nobody saw has only the first three."""
    plain = statistics.outcome if isinstance(statistics, WithCovariate) else statistics
    return {
        "number_of_samples": statistics.number_of_samples,
        "sum": _finite(statistics.sum),
        "sum_squares": _finite(statistics.sum_squares),
        "step_counts": list(plain.step_counts) if isinstance(plain, Proportion) and not missing else None,
        "step_sessions": None,
        **{name: None if missing else _finite(getattr(statistics, name, None)) for name in _SUMS},
        **(_quantile(statistics) if isinstance(statistics, QuantileSample) else {}),
        **(
            {"people_counted": statistics.people_counted}
            if isinstance(statistics, QuantileSample | Ratio)
            else {}
        ),
    }


def without_step_sessions(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a point of a series: rows do not list sessions (spec experiments-api 8.2)."""
    return {
        name: [without_step_sessions(row) for row in value]
        if name in _ROWS and isinstance(value, list)
        else without_step_sessions(value)
        if name in _ROWS and isinstance(value, Mapping)
        else value
        for name, value in result.items()
        if name != "step_sessions"
    }


def _quantile(statistics: QuantileSample) -> dict[str, Any]:
    """Return the further fields of a row of a quantile metric (an extension, spec experiment-results 10)."""
    return {
        "quantile_level": statistics.level,
        "quantile": _finite(statistics.quantile),
        "quantile_lower": _finite(statistics.quantile_lower),
        "quantile_upper": _finite(statistics.quantile_upper),
        "cluster_factor": _finite(statistics.cluster_factor),
        "largest_tie": statistics.largest_tie,
    }


def _nothing(metric: Metric) -> SufficientStatistics:
    """Return the statistics of an empty group (spec experiment-results 3.10)."""
    match metric:
        case FunnelMeasure():
            return Proportion(0, 0)
        case RatioMeasure():
            return Ratio(0, 0, 0, 0, 0, 0)
        case RetentionMeasure():
            return Retention(0, 0)
        case QuantileMeasure():
            return QuantileSample(0, metric.level, 0, 0, 0)
        case _:
            return SampleMean(0, 0, 0)


def _finite(number: float | None) -> float | None:
    return number if number is None or isfinite(number) else None


def interval_object(interval: tuple[float, float] | None) -> list[float | None] | None:
    """Return an interval as on the wire; a side without a bound is null."""
    return None if interval is None else [_finite(bound) for bound in interval]
