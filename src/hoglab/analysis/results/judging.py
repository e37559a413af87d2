"""The verdict on an experiment: its stored results, as evidence for `hoglab.statistics.verdict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hoglab.accounts import store as accounts
from hoglab.analysis.definitions import ExperimentInputs, ShownMetric, is_computed, query_to
from hoglab.analysis.presentation import (
    adjusted,
    compared_again,
    contests_of,
    evidence_of,
    interval_object,
    statistics_of,
)
from hoglab.analysis.query.days import zone_of
from hoglab.analysis.results.health import Finding, Severity
from hoglab.analysis.results.plan import plan_of
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.store import COMPLETED
from hoglab.experiments.records import store as records
from hoglab.experiments.records.store import RecordKind
from hoglab.statistics import StatisticsConfig
from hoglab.statistics import verdict as verdicts
from hoglab.statistics.verdict import (
    Alarm,
    Amendment,
    Case,
    Concern,
    Contest,
    Evidence,
    Look,
    Measured,
    MetricEvidence,
    PastDecision,
    Progress,
    Verdict,
    analyses,
    judging_at,
    progress_at,
    standing,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.analysis.query.model import Span

A_DAY = timedelta(days=1)
COUNT_EVERYBODY = frozenset({"mean", "funnel", "ratio"})
"""Types of metrics whose samples are all exposed people."""
_OF_SHARES = ("funnel", "retention")
Result = Mapping[str, Any]


def judged(
    connection: Connection,
    inputs: ExperimentInputs,
    now: datetime,
    exposures: Mapping[str, Any] | None,
    findings: Sequence[Finding],
) -> Verdict | None:
    """Judge an experiment by its stored results; None before the start and without a metric of the present engine."""
    span = inputs.span(now)
    own = [shown_metric for shown_metric in inputs.shown if is_computed(shown_metric.metric)]
    if span is None or span.days is None or (inputs.shown and not own):
        return None
    config = inputs.calculation.statistics
    plan = plan_of(inputs)
    is_over = inputs.row.is_stopped
    looks = _looks(connection, inputs, span, exposures, measures=not plan.is_written)
    last = span.days.count - 1
    days = span.days
    critical = [
        Concern(finding.code, finding.message, finding.advice, finding.details.get("metric_uuid"))
        for finding in findings
        if finding.severity is Severity.CRITICAL
    ]
    past = _past(connection, inputs)

    def at(number: int, progress: Progress, config: StatisticsConfig, analyses_done: int) -> Verdict:
        moment = query_to(span, number) if number < last else None
        case = Case(
            config=config,
            baseline=config.baseline_key(inputs.calculation.variants) if inputs.calculation.variants else "",
            metrics=_evidence(connection, inputs, config, own, moment, people=progress.people),
            progress=progress,
            critical=critical,
            has_ended=is_over,
            as_of=days.day(number) if number < last else None,
            analyses_done=analyses_done,
            past=past,
        )
        return verdicts.verdict(case)

    analyses_due = (
        analyses(plan, config, looks if is_over else looks[:-1]) if config.is_group_sequential else []
    )
    for place, (number, analysis) in enumerate(analyses_due, start=1):
        verdict = at(number, progress_at(plan, config, looks[number]), config.at(analysis), place)
        if verdict.is_final or analysis.is_last:
            return verdict
    number, progress = standing(plan, config, looks, last_is_over=is_over)
    config = judging_at(plan, config, looks[number], is_reached=progress.is_reached)
    return at(number, progress, config, len(analyses_due))


def _past(connection: Connection, inputs: ExperimentInputs) -> list[Amendment | Alarm | PastDecision]:
    """Return what was recorded since the launch, besides the plan itself."""
    kept = records.of_launch(connection, inputs.row.id)
    authors = accounts.users(connection, (record.user_id for record in kept))
    zone = zone_of(inputs.project.timezone)
    past: list[Amendment | Alarm | PastDecision] = []
    for record in kept:
        author = authors.get(record.user_id or 0)
        by = None if author is None else author.first_name or author.email
        on, detail = record.created_at.astimezone(zone).date(), record.detail
        match record.kind:
            case RecordKind.AMENDED:
                past.append(Amendment(on, by, detail["changes"]))
            case RecordKind.HARM:
                past.append(Alarm(on, detail["verdict"]["headline"], detail["paused"]))
            case RecordKind.ENDED | RecordKind.SHIPPED:
                verdict = (detail["results"] or {}).get("verdict")
                headline = None if verdict is None else verdict["headline"]
                past.append(PastDecision(on, by, detail["variant"], headline))
    return past


def _looks(
    connection: Connection,
    inputs: ExperimentInputs,
    span: Span,
    exposures: Mapping[str, Any] | None,
    *,
    measures: bool,
) -> list[Look]:
    """Return a look at the end of each day; with ``measures`` they have the statistics of primary metrics."""
    assert span.days is not None  # noqa: S101 - made by ExperimentInputs.span
    people = _people(inputs, exposures)
    partial = [metric["uuid"] for metric in inputs.metrics if _counts_some(inputs, metric)]
    measured = _measured(connection, inputs) if measures or partial else {}
    looks, counted = [], dict.fromkeys(partial, 0)
    for number, day in enumerate(span.days.days):
        exposed, primary = people.get(day.isoformat(), 0), measured.get(day, {})
        # A day without a point tells nothing newer.
        counted |= {uuid: _samples(primary[uuid]) for uuid in partial if uuid in primary}
        days = (query_to(span, number) - span.start) / A_DAY
        counts = [exposed, *counted.values()]
        looks.append(Look(min(counts), days, list(primary.values()) if measures else (), exposed))
    return looks


def _counts_some(inputs: ExperimentInputs, metric: Mapping[str, Any]) -> bool:
    """Return whether a primary metric counts only some of the exposed people, or later than they are exposed."""
    if metric["uuid"] not in inputs.primary:
        return False
    return inputs.row.only_count_matured_users or metric["metric_type"] not in COUNT_EVERYBODY


def _samples(measured: Measured) -> int:
    return sum(group.number_of_samples for group in measured.groups)


def _people(inputs: ExperimentInputs, exposures: Mapping[str, Any] | None) -> dict[str, int]:
    """Count the exposed people in the compared variants up to each day."""
    counted: dict[str, int] = {}
    for series in (exposures or {}).get("timeseries", ()):
        if series["variant"] in inputs.calculation.variants:
            for day, count in zip(series["days"], series["exposure_counts"], strict=True):
                counted[day] = counted.get(day, 0) + count
    return counted


def _measured(connection: Connection, inputs: ExperimentInputs) -> dict[date, dict[str, Measured]]:
    """Return the statistics of primary metrics, and of guardrails with a margin, by day and by uuid."""
    zone = zone_of(inputs.project.timezone)
    by_day: dict[date, dict[str, Measured]] = {}
    for shown in inputs.shown:
        metric = shown.metric
        if not is_computed(metric) or not (shown.is_primary or shown.margin):
            continue
        for point in store.points(connection, inputs.key(metric)):
            if point.status == COMPLETED and point.result is not None:
                rows = (point.result["baseline"], *point.result["variant_results"])
                groups = tuple(statistics_of(row, metric["metric_type"]) for row in rows)
                by_day.setdefault(point.day(zone), {})[metric["uuid"]] = Measured(
                    groups, _wants_decrease(metric), shown.margin
                )
    return by_day


def _evidence(
    connection: Connection,
    inputs: ExperimentInputs,
    config: StatisticsConfig,
    own: Sequence[ShownMetric],
    moment: datetime | None,
    *,
    people: int,
) -> list[MetricEvidence]:
    """Return the evidence of metrics at a moment with so many people, or now; p-values are corrected together."""
    results: dict[str, Result] = {}
    for shown in own:
        key = inputs.key(shown.metric)
        point = (
            store.newest_result(connection, key)
            if moment is None
            else store.result_near(connection, key, moment)
        )
        if point is not None and point.result is not None:
            results[shown.metric["uuid"]] = (
                point.result
                if config.analysis is None
                else compared_again(point.result, config, shown.metric["metric_type"])
            )
    results = corrected(inputs, results)
    evidence = [
        MetricEvidence(
            uuid=shown_metric.metric["uuid"],
            name=shown_metric.name,
            is_primary=shown_metric.is_primary,
            variants=_variants(inputs, config, shown_metric, results.get(shown_metric.metric["uuid"])),
            margin=shown_metric.margin,
            wants_decrease=_wants_decrease(shown_metric.metric),
            is_share=shown_metric.metric["metric_type"] in _OF_SHARES,
            contests=_contests(config, shown_metric, results.get(shown_metric.metric["uuid"])),
        )
        for shown_metric in own
    ]
    guardrails = sum(bool(metric.margin) for metric in evidence)
    return [
        replace(metric, people_to_show=_people_to_show(inputs, shown_metric, result, people, guardrails))
        if metric.margin and (result := results.get(metric.uuid)) is not None
        else metric
        for metric, shown_metric in zip(evidence, own, strict=True)
    ]


def _people_to_show(
    inputs: ExperimentInputs, shown: ShownMetric, result: Result, people: int, guardrails: int
) -> int | None:
    """Return how many people in all show that a guardrail is safe, judged by those who came so far."""
    rows = (result["baseline"], *result["variant_results"])
    groups = tuple(statistics_of(row, shown.metric["metric_type"]) for row in rows)
    measured = Measured(groups, _wants_decrease(shown.metric), shown.margin)
    return verdicts.people_to_show(
        inputs.calculation.statistics, measured, people=people, guardrails=guardrails
    )


def corrected(inputs: ExperimentInputs, results: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results of one moment, by metric, with the p-values of the primary ones corrected."""
    outside = frozenset(results) - inputs.primary
    return dict(adjusted(results, inputs.calculation.statistics.correction, outside=outside))


def _variants(
    inputs: ExperimentInputs, config: StatisticsConfig, shown: ShownMetric, result: Result | None
) -> list[Evidence]:
    if result is None:
        baseline = config.baseline_key(inputs.calculation.variants) if inputs.calculation.variants else ""
        return [
            Evidence(key, problem="not computed") for key in inputs.calculation.variants if key != baseline
        ]
    baseline_row, kind = result["baseline"], shown.metric["metric_type"]
    evidence = [evidence_of(row, config, kind, baseline_row) for row in result["variant_results"]]
    if not shown.margin:
        return evidence
    return [
        replace(
            variant,
            largest_loss=verdicts.largest_loss(
                config,
                statistics_of(baseline_row, kind),
                statistics_of(row, kind),
                wants_decrease=_wants_decrease(shown.metric),
            ),
        )
        for variant, row in zip(evidence, result["variant_results"], strict=True)
    ]


def _contests(config: StatisticsConfig, shown: ShownMetric, result: Result | None) -> list[Contest]:
    if result is None or not shown.is_primary:
        return []
    return contests_of(result, config, shown.metric["metric_type"])


def _wants_decrease(metric: Mapping[str, Any]) -> bool:
    return metric.get("goal") == "decrease"


def verdict_object(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as on the wire."""
    shown = asdict(verdict)
    return {
        "state": shown["state"],
        "headline": shown["headline"],
        "next_action": shown["action"],
        "reasons": list(shown["reasons"]),
        "numbers": shown["numbers"],
        "variants": list(shown["variants"]),
        "metrics": [
            {**metric, "variants": [_decision_object(decision) for decision in metric["variants"]]}
            for metric in shown["metrics"]
        ],
        "reads_at_any_time": shown["reads_at_any_time"],
        "as_of": None if verdict.as_of is None else verdict.as_of.isoformat(),
        "withholds_decisions": shown["withholds"],
    }


def _decision_object(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {**decision, "interval": interval_object(decision["interval"])}
