"""Clear effects in words: statements that a verdict's sentences are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoglab.statistics.numbers import effect_text, interval_text, mean_text, number_text
from hoglab.statistics.verdict.model import Case, Decision, Evidence, MetricDecision, MetricEvidence, Reason

SAYS = {Decision.BETTER: "better", Decision.WORSE: "worse"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A clear decision of one metric about one variant."""

    case: Case
    metric: MetricEvidence
    evidence: Evidence
    decision: Decision

    @property
    def effect(self) -> str:
        baseline = None if self.evidence.means is None else self.evidence.means[0]
        return effect_text(
            self.evidence.effect or 0.0,
            relative=self.case.is_relative,
            is_share=self.metric.is_share,
            baseline=baseline,
        )

    @property
    def numbers(self) -> str:
        """``“Revenue”: +5.0% (95% interval +1.0% … +9.0%)``; without an interval ``“Revenue”: from 20% to 0%``."""
        if self.evidence.interval is None:
            before, after = self.evidence.means or (None, None)
            former, present = (mean_text(mean, is_share=self.metric.is_share) for mean in (before, after))
            return f"“{self.metric.name}”: from {former} to {present}"
        interval = interval_text(
            self.evidence.interval, relative=self.case.is_relative, is_share=self.metric.is_share
        )
        means = self.evidence.means
        is_odd = self.case.is_relative and means is not None and means[0] < 0
        way = f"from {number_text(means[0])} to {number_text(means[1])}, " if means and is_odd else ""
        return f"“{self.metric.name}”: {way}{self.effect} ({self.case.level * 100:g}% interval {interval})"

    @property
    def reason(self) -> Reason:
        role, said = self.metric.role, SAYS[self.decision]
        name = role if self.metric.is_guardrail else f"{role} metric"
        text = f"“{self.evidence.variant}” does {said} on the {name} {self.numbers}."
        return Reason(f"{role}_{said}", text, self.metric.uuid, self.evidence.variant)


def clear_statements(case: Case, metrics: Sequence[MetricDecision]) -> list[Statement]:
    """Return every clear decision, primary metrics first."""
    statements = [
        Statement(case, metric, evidence, decided.decision)
        for metric, decisions in zip(case.metrics, metrics, strict=True)
        for evidence, decided in zip(metric.variants, decisions.variants, strict=True)
        if decided.decision in SAYS
    ]
    return sorted(statements, key=lambda statement: not statement.metric.is_primary)


def of_primary(said: Sequence[Statement], decision: Decision) -> list[Statement]:
    """Return the clear decisions of primary metrics, the clearest first."""
    statements = [
        statement for statement in said if statement.metric.is_primary and statement.decision is decision
    ]
    return sorted(
        statements,
        key=lambda statement: (
            -statement.evidence.strength,
            statement.evidence.variant,
            statement.metric.uuid,
        ),
    )


def clearest_first(leaders: Sequence[str], said: Sequence[Statement]) -> list[str]:
    """Return the leading variants, the one with the clearest gain first."""
    clearest = dict.fromkeys(statement.evidence.variant for statement in of_primary(said, Decision.BETTER))
    return [variant for variant in clearest if variant in leaders]


def losses_of(variant: str, said: Sequence[Statement]) -> str:
    """Write what a variant loses on primary metrics and guardrails."""
    return joined(
        [
            statement.numbers
            for statement in said
            if statement.evidence.variant == variant
            and statement.metric.decides
            and statement.decision is Decision.WORSE
        ]
    )


def gains_of(variant: str, said: Sequence[Statement]) -> str:
    """Write what a variant gains on primary metrics."""
    return joined(
        [
            statement.numbers
            for statement in said
            if statement.evidence.variant == variant
            and statement.metric.is_primary
            and statement.decision is Decision.BETTER
        ]
    )


def secondary_losses_of(variant: str, said: Sequence[Statement]) -> str:
    """Write which secondary metrics a variant loses on; empty without any."""
    names = [
        f"“{statement.metric.name}” ({statement.effect})"
        for statement in said
        if statement.evidence.variant == variant
        and not statement.metric.decides
        and statement.decision is Decision.WORSE
    ]
    if not names:
        return ""
    decides = "a secondary metric, which decides" if len(names) == 1 else "secondary metrics, which decide"
    return f"Look at {joined(names)} before: {'it is' if len(names) == 1 else 'they are'} {decides} nothing."


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 day``, ``2 days``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def joined(parts: Sequence[str]) -> str:
    """Return parts as an enumeration: ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def written_effect(case: Case, metric: MetricEvidence, effect: float) -> str:
    """Return an effect in the unit that the experiment shows it in."""
    return effect_text(effect, relative=case.is_relative, is_share=metric.is_share)
