"""The rules of a verdict. docs/statistics.md, "The verdict", says them in words and shows how often they err."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hoglab.statistics.verdict import words
from hoglab.statistics.verdict.model import (
    Case,
    Decision,
    Evidence,
    MetricDecision,
    MetricEvidence,
    Numbers,
    State,
    VariantDecision,
    VariantVerdict,
    Verdict,
)


def verdict(case: Case) -> Verdict:
    """Decide what the results say: state, reasons and recommended action.

    Nothing is decided while there is a critical finding about the experiment or a primary metric; one about a secondary
    metric concerns that metric alone. A method of a single look decides at the planned end and not before; a sequential
    one whenever an effect is clear. Primary metrics decide; a secondary metric that is
    clearly worse makes a better variant a mixed one. The order of metrics and variants decides nothing.
    """
    metrics = tuple(_decided(case, metric) for metric in case.metrics)
    variants = tuple(VariantVerdict(key, _state_of(case, key, metrics)) for key in _variants(case.metrics))
    state = _overall(case, variants)
    return Verdict(
        state=state,
        headline=words.headline(case, state, variants, metrics),
        action=words.action(case, state, variants, metrics),
        reasons=tuple(words.reasons(case, state, variants, metrics)),
        numbers=_numbers(case),
        variants=variants,
        metrics=metrics,
        reads_at_any_time=case.is_sequential,
        as_of=case.as_of,
        withholds=bool(case.invalidating),
    )


def _decided(case: Case, metric: MetricEvidence) -> MetricDecision:
    return MetricDecision(
        metric.uuid,
        metric.name,
        metric.is_primary,
        tuple(
            VariantDecision(
                evidence.variant,
                _decision(case, metric, evidence),
                evidence.effect,
                evidence.interval,
                evidence.largest_difference,
                evidence.problem,
            )
            for evidence in metric.variants
        ),
    )


def _decision(case: Case, metric: MetricEvidence, evidence: Evidence) -> Decision:
    if case.invalidating or metric.uuid in case.withheld:
        return Decision.WITHHELD
    direction = evidence.direction(wants_decrease=metric.wants_decrease)
    return direction if case.may_decide or direction is Decision.MISSING else Decision.EARLY


def _variants(metrics: Iterable[MetricEvidence]) -> list[str]:
    return list(dict.fromkeys(evidence.variant for metric in metrics for evidence in metric.variants))


def _state_of(case: Case, variant: str, metrics: Iterable[MetricDecision]) -> State:
    if case.invalidating:
        return State.INVALID
    decisions: Mapping[bool, set[Decision]] = {True: set(), False: set()}
    for metric in metrics:
        decisions[metric.is_primary].update(
            variant_decision.decision
            for variant_decision in metric.variants
            if variant_decision.variant == variant
        )
    primary, secondary = decisions[True], decisions[False]
    if Decision.BETTER in primary:
        return State.MIXED if Decision.WORSE in primary | secondary else State.BETTER
    if Decision.WORSE in primary:
        return State.WORSE
    return State.INCONCLUSIVE if case.has_ended or case.progress.is_reached else State.RUNNING


def _overall(case: Case, variants: Sequence[VariantVerdict]) -> State:
    if case.invalidating:
        return State.INVALID
    states = {variant_verdict.state for variant_verdict in variants}
    for state in (State.BETTER, State.MIXED):
        if state in states:
            return state
    if states == {State.WORSE}:
        return State.WORSE
    return State.INCONCLUSIVE if case.has_ended or case.progress.is_reached else State.RUNNING


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
    return Numbers(
        people=progress.people,
        people_needed=progress.people_needed,
        people_remaining=progress.people_remaining,
        days=progress.days,
        days_needed=progress.days_needed,
        days_remaining=progress.days_remaining,
        plan_source=progress.source,
        largest_difference=max(largest) if largest and comparable else None,
    )
