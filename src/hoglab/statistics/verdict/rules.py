"""The rules of a verdict. docs/statistics.md, "The verdict", says them in words and shows how often they err."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from hoglab.statistics.config import BayesianConfig
from hoglab.statistics.multiple_testing import holm
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
    decisions_of,
)


def verdict(case: Case) -> Verdict:
    """Decide what the results say: state, reasons and recommended action.

    Nothing is decided while there is a critical finding about the experiment or a primary metric; one about a secondary
    metric concerns that metric alone. A method of a single look decides at the planned end and not before; a sequential
    one whenever an effect is clear. Primary metrics decide, at one level for all of them and all variants (Holm).
    Guardrails can hold a better variant back: one that loses, or is not shown to lose less than its margin. Secondary
    metrics decide nothing. Nothing is better while a primary metric or a guardrail has no statistics about it. Several
    better variants are compared with each other. A variant that is certainly worse on a primary metric or a guardrail
    is worse at any time. The order of metrics and variants decides nothing.
    """
    harms, gains = _harms(case), _gains(case)
    metrics = tuple(_decided(case, metric, harms, gains) for metric in case.metrics)
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

    Primary metrics and guardrails are watched.
    """
    if case.invalidating or case.has_ended:
        return frozenset()
    watched = [
        (metric, evidence)
        for metric in case.metrics
        if metric.decides and metric.uuid not in case.withheld
        for evidence in metric.variants
    ]
    return frozenset(
        (metric.uuid, evidence.variant)
        for metric, evidence in watched
        if evidence.is_harmful(wants_decrease=metric.wants_decrease, comparisons=len(watched))
    )


def _gains(case: Case) -> frozenset[tuple[str, str]]:
    """Return the primary metrics, by uuid, and variants that are better, over all of them at one level (Holm).

    Each is a one-sided test. One without statistics counts as a test that fails, so that the number of tests does not
    depend on the data.
    """
    tests = [
        (metric.uuid, evidence.variant, evidence.p_better(wants_decrease=metric.wants_decrease))
        for metric in case.metrics
        if metric.is_primary
        for evidence in metric.variants
    ]
    adjusted = holm([p_value for _, _, p_value in tests])
    return frozenset(
        (uuid, variant)
        for (uuid, variant, _), p_value in zip(tests, adjusted, strict=True)
        if p_value is not None and p_value < case.shipping_level
    )


def _decided(
    case: Case,
    metric: MetricEvidence,
    harms: Container[tuple[str, str]],
    gains: Container[tuple[str, str]],
) -> MetricDecision:
    return MetricDecision(
        metric.uuid,
        metric.name,
        metric.is_primary,
        tuple(
            VariantDecision(
                evidence.variant,
                _decision(case, metric, evidence, harms, gains),
                evidence.effect,
                evidence.interval,
                evidence.largest_difference,
                evidence.problem,
            )
            for evidence in metric.variants
        ),
        metric.margin,
    )


def _decision(
    case: Case,
    metric: MetricEvidence,
    evidence: Evidence,
    harms: Container[tuple[str, str]],
    gains: Container[tuple[str, str]],
) -> Decision:
    if case.invalidating or metric.uuid in case.withheld:
        return Decision.WITHHELD
    if (metric.uuid, evidence.variant) in harms:
        return Decision.WORSE
    direction = evidence.direction(wants_decrease=metric.wants_decrease)
    if direction is Decision.MISSING:
        # Where nothing happened in both groups, nothing was lost.
        is_lost = metric.margin != 0 or evidence.means != (0, 0)
        return direction if is_lost else Decision.UNCLEAR
    if not case.may_decide:
        return Decision.EARLY
    if metric.is_primary and direction is Decision.BETTER:
        return direction if (metric.uuid, evidence.variant) in gains else Decision.UNCLEAR
    if metric.margin and not metric.is_primary:
        if evidence.largest_loss is not None and evidence.largest_loss < metric.margin:
            return Decision.SAFE
        return direction if direction is Decision.WORSE else Decision.NOT_SHOWN_SAFE
    return direction


def _variants(metrics: Iterable[MetricEvidence]) -> list[str]:
    return list(dict.fromkeys(evidence.variant for metric in metrics for evidence in metric.variants))


def _state_of(case: Case, variant: str, metrics: Iterable[MetricDecision]) -> State:
    if case.invalidating:
        return State.INVALID
    primary = decisions_of(metrics, variant)
    guardrails = decisions_of(metrics, variant, guardrails=True)
    if Decision.BETTER in primary and Decision.WORSE in primary | guardrails:
        return State.MIXED
    if Decision.BETTER in primary and Decision.MISSING not in primary | guardrails:
        return State.NOT_SHOWN_SAFE if Decision.NOT_SHOWN_SAFE in guardrails else State.BETTER
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
    """Decide whether a comparison of two variants is clear, where ``count`` of them are made (Bonferroni)."""
    test = case.config.inference_config
    if isinstance(test, BayesianConfig):
        chance = evidence.chance_to_win
        return chance is not None and min(chance, 1 - chance) < (1 - test.ci_level) / count
    return evidence.p_value is not None and evidence.p_value * count < test.alpha


def _overall(case: Case, variants: Sequence[VariantVerdict]) -> State:
    if case.invalidating:
        return State.INVALID
    states = {variant_verdict.state for variant_verdict in variants}
    for state in (State.BETTER, State.NOT_SHOWN_SAFE, State.MIXED):
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
        analyses_done=None if case.analyses_planned is None else case.analyses_done,
        analyses_planned=case.analyses_planned,
        plan_source=progress.source,
        largest_difference=max(largest) if largest and comparable and not unbounded else None,
    )
