"""The rules of a verdict. docs/statistics.md, "The verdict", says them in words and shows how often they err."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from hoglab.statistics.config import BayesianConfig
from hoglab.statistics.verdict import words
from hoglab.statistics.verdict.model import (
    Case,
    Decision,
    Evidence,
    Judged,
    MetricDecision,
    MetricEvidence,
    Numbers,
    State,
    VariantDecision,
    VariantVerdict,
    Verdict,
    primary_decisions,
)


def verdict(case: Case) -> Verdict:
    """Decide what the results say: state, reasons and recommended action.

    Nothing is decided while there is a critical finding about the experiment or a primary metric; one about a secondary
    metric concerns that metric alone. A method of a single look decides at the planned end and not before; a sequential
    one whenever an effect is clear. Primary metrics decide; a secondary metric that is
    clearly worse makes a better variant a mixed one. Nothing is better while a primary metric has no statistics about
    it. Several better variants are compared with each other. A variant that is certainly worse on a primary metric, or
    on a secondary one that is to fall, is worse at any time. The order of metrics and variants decides nothing.
    """
    harms = _harms(case)
    metrics = tuple(_decided(case, metric, harms) for metric in case.metrics)
    variants = tuple(VariantVerdict(key, _state_of(case, key, metrics)) for key in _variants(case.metrics))
    state = _overall(case, variants)
    harmful = tuple(
        variant.variant for variant in variants if any(key == variant.variant for _, key in harms)
    )
    judged = Judged(case, state, variants, metrics, _leaders(case, variants), harmful)
    return Verdict(
        state=state,
        headline=words.headline(judged),
        action=words.action(judged),
        reasons=tuple(words.reasons(judged)),
        numbers=_numbers(case),
        variants=variants,
        metrics=metrics,
        reads_at_any_time=case.is_sequential,
        as_of=case.as_of,
        withholds=bool(case.invalidating),
    )


def _harms(case: Case) -> frozenset[tuple[str, str]]:
    """Return the metrics, by uuid, and variants with certain harm: none after the end, or while decisions are withheld.

    Primary metrics are watched, and secondary ones that are to fall, such as errors and refunds: nobody says so of a
    metric by accident.
    """
    if case.invalidating or case.has_ended:
        return frozenset()
    watched = [
        (metric, evidence)
        for metric in case.metrics
        if (metric.is_primary or metric.wants_decrease) and metric.uuid not in case.withheld
        for evidence in metric.variants
    ]
    return frozenset(
        (metric.uuid, evidence.variant)
        for metric, evidence in watched
        if evidence.is_harmful(wants_decrease=metric.wants_decrease, comparisons=len(watched))
    )


def _decided(case: Case, metric: MetricEvidence, harms: Container[tuple[str, str]]) -> MetricDecision:
    return MetricDecision(
        metric.uuid,
        metric.name,
        metric.is_primary,
        tuple(
            VariantDecision(
                evidence.variant,
                _decision(case, metric, evidence, harms),
                evidence.effect,
                evidence.interval,
                evidence.largest_difference,
                evidence.problem,
            )
            for evidence in metric.variants
        ),
    )


def _decision(
    case: Case, metric: MetricEvidence, evidence: Evidence, harms: Container[tuple[str, str]]
) -> Decision:
    if case.invalidating or metric.uuid in case.withheld:
        return Decision.WITHHELD
    if (metric.uuid, evidence.variant) in harms:
        return Decision.WORSE
    direction = evidence.direction(wants_decrease=metric.wants_decrease)
    return direction if case.may_decide or direction is Decision.MISSING else Decision.EARLY


def _variants(metrics: Iterable[MetricEvidence]) -> list[str]:
    return list(dict.fromkeys(evidence.variant for metric in metrics for evidence in metric.variants))


def _state_of(case: Case, variant: str, metrics: Iterable[MetricDecision]) -> State:
    if case.invalidating:
        return State.INVALID
    primary = primary_decisions(metrics, variant)
    is_worse = any(
        decided.decision is Decision.WORSE
        for metric in metrics
        for decided in metric.variants
        if decided.variant == variant
    )
    if Decision.BETTER in primary and is_worse:
        return State.MIXED
    if Decision.BETTER in primary and Decision.MISSING not in primary:
        return State.BETTER
    if Decision.WORSE in primary:
        return State.WORSE
    return State.INCONCLUSIVE if case.is_over else State.RUNNING


def _leaders(case: Case, variants: Sequence[VariantVerdict]) -> tuple[str, ...]:
    """Return the better variants that no other better one beats on primary metrics."""
    better = [verdict.variant for verdict in variants if verdict.state is State.BETTER]
    contests = [
        (metric, contest)
        for metric in case.metrics
        if metric.is_primary
        for contest in metric.contests
        if {contest.first, contest.evidence.variant} <= set(better)
    ]
    wins: dict[tuple[str, str], set[Decision]] = {}
    for metric, contest in contests:
        rival = replace(contest.evidence, is_significant=_is_clear(case, contest.evidence, len(contests)))
        decision = rival.direction(wants_decrease=metric.wants_decrease)
        wins.setdefault((contest.first, rival.variant), set()).add(decision)
    beaten = set()
    for (first, second), decisions in wins.items():
        if decisions >= {Decision.BETTER, Decision.WORSE}:
            continue
        if Decision.BETTER in decisions:
            beaten.add(first)
        elif Decision.WORSE in decisions:
            beaten.add(second)
    return tuple(variant for variant in better if variant not in beaten)


def _is_clear(case: Case, evidence: Evidence, count: int) -> bool:
    """Decide whether a comparison of two variants is clear, where so many of them are made (Bonferroni)."""
    test = case.config.inference_config
    if isinstance(test, BayesianConfig):
        chance = evidence.chance_to_win
        return chance is not None and min(chance, 1 - chance) < (1 - test.ci_level) / count
    return evidence.p_value is not None and evidence.p_value * count < test.alpha


def _overall(case: Case, variants: Sequence[VariantVerdict]) -> State:
    if case.invalidating:
        return State.INVALID
    states = {variant_verdict.state for variant_verdict in variants}
    for state in (State.BETTER, State.MIXED):
        if state in states:
            return state
    if states == {State.WORSE}:
        return State.WORSE
    return State.INCONCLUSIVE if case.is_over else State.RUNNING


def _numbers(case: Case) -> Numbers:
    progress = case.progress
    primary = [metric for metric in case.metrics if metric.is_primary]
    largest = [
        difference
        for metric in primary
        for evidence in metric.variants
        if (difference := evidence.largest_difference) is not None
    ]
    comparable = case.is_relative or len(primary) == 1
    unbounded = any(evidence.is_unbounded for metric in primary for evidence in metric.variants)
    return Numbers(
        people=progress.people,
        people_needed=progress.people_needed,
        people_remaining=progress.people_remaining,
        days=progress.days,
        days_needed=progress.days_needed,
        days_remaining=progress.days_remaining,
        plan_source=progress.source,
        largest_difference=max(largest) if largest and comparable and not unbounded else None,
    )
