"""Guardrails in words: which of them are safe, are not shown to be, or are harmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from hoglab.statistics.verdict.model import Decision, Evidence, Judged, MetricEvidence, Reason, State
from hoglab.statistics.verdict.statements import Statement, clearest_first, counted, gains_of, joined


def about_guardrails(judged: Judged) -> Iterator[Reason]:
    """Yield what is known of the guardrails that have a margin."""
    for metric, evidence, decision in _guarded(judged):
        if decision not in (Decision.SAFE, Decision.NOT_SHOWN_SAFE):
            continue
        loss = evidence.largest_loss
        most = "may lose any amount" if loss is None or loss == inf else f"loses {max(loss, 0):.1%} at most"
        is_safe = decision is Decision.SAFE
        yield Reason(
            "guardrail_safe" if is_safe else "guardrail_not_shown_safe",
            f"The guardrail “{metric.name}” is {'safe' if is_safe else 'not shown to be safe'}: for "
            f"“{evidence.variant}” it {most} (one-sided {judged.case.level:.0%} bound), "
            f"{'and' if is_safe else 'but'} {metric.margin:.1%} are allowed.",
            metric.uuid,
            evidence.variant,
        )


def _guarded(judged: Judged) -> list[tuple[MetricEvidence, Evidence, Decision]]:
    """Return the guardrails, with the evidence and the decision about each variant."""
    return [
        (metric, evidence, decided.decision)
        for metric, decisions in zip(judged.case.metrics, judged.metrics, strict=True)
        if metric.is_guardrail
        for evidence, decided in zip(metric.variants, decisions.variants, strict=True)
    ]


def harmed_guardrails(judged: Judged) -> list[tuple[MetricEvidence, Evidence]]:
    """Return the guardrails that variants harm which are better otherwise."""
    mixed = {verdict.variant for verdict in judged.variants if verdict.state is State.MIXED}
    return [
        (metric, evidence)
        for metric, evidence, decision in _guarded(judged)
        if evidence.variant in mixed and decision is Decision.WORSE
    ]


def _not_shown(judged: Judged) -> list[tuple[MetricEvidence, Evidence]]:
    """Return the guardrails that are not shown to be safe, of variants that are better otherwise."""
    waiting = {verdict.variant for verdict in judged.variants if verdict.state is State.NOT_SHOWN_SAFE}
    return [
        (metric, evidence)
        for metric, evidence, decision in _guarded(judged)
        if evidence.variant in waiting and decision is Decision.NOT_SHOWN_SAFE
    ]


def not_shown_safe_headline(judged: Judged, said: Sequence[Statement]) -> str:
    """Return the headline about the clearest of the variants that wait for their guardrails."""
    waiting = [verdict.variant for verdict in judged.variants if verdict.state is State.NOT_SHOWN_SAFE]
    clearest = clearest_first(waiting, said)[0]
    names = [
        f"“{metric.name}” (a loss of {metric.margin:.1%} is allowed)"
        for metric, evidence in _not_shown(judged)
        if evidence.variant == clearest
    ]
    verb = "is" if len(names) == 1 else "are"
    return f"“{clearest}” does better on {gains_of(clearest, said)}, but {joined(names)} {verb} not shown to be safe."


def show_safety(judged: Judged) -> str:
    """Return the next step: how many more people the guardrails need."""
    case = judged.case
    needed = [metric.people_to_show for metric, _ in _not_shown(judged)]
    known = [people for people in needed if people is not None]
    more = max(known) - case.progress.people if len(known) == len(needed) else 0
    people = f"About {counted(_rounded(more), 'more person', 'more people')}" if more > 0 else "More people"
    if case.is_sequential and not case.has_ended:
        return f"Keep it running. {people} can show that the guardrail is safe, if nothing is lost."
    return (
        f"Do not ship yet. {people} can show that the guardrail is safe, if nothing is lost: plan an experiment of "
        "that size, since this one was planned for a single look."
    )


def _rounded(people: int) -> int:
    """Return a number of people with two digits, since it is an estimate."""
    digits = max(len(str(people)) - 2, 0)
    return round(people, -digits)
