"""The parts of a verdict: what it is made from, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from math import inf

from hoglab.statistics.config import DifferenceType, StatisticsConfig
from hoglab.statistics.verdict.harm import HARM_LEVEL
from hoglab.statistics.verdict.planned import PlanSource, Progress

Interval = tuple[float, float]


class State(StrEnum):
    """State of an experiment, or of one of its variants."""

    INVALID = "invalid"
    """Something critical is wrong with the experiment: its numbers say nothing."""
    RUNNING = "running"
    """Too early to decide."""
    BETTER = "better"
    WORSE = "worse"
    MIXED = "mixed"
    """Better on a primary metric, and worse on another one or on a guardrail."""
    NOT_SHOWN_SAFE = "not_shown_safe"
    """Better on a primary metric, and a guardrail may still lose more than its margin."""
    INCONCLUSIVE = "inconclusive"
    """It is over, or as large as planned, and no difference is clear."""


class Decision(StrEnum):
    """Decision of one metric about one variant."""

    BETTER = "better"
    WORSE = "worse"
    SAFE = "safe"
    """Decision of a guardrail: it loses no more than its margin."""
    NOT_SHOWN_SAFE = "not_shown_safe"
    """Decision of a guardrail: it may lose more than its margin."""
    UNCLEAR = "unclear"
    EARLY = "early"
    """Decision of a method that allows a single look, before its planned end."""
    MISSING = "missing"
    """Decision without statistics."""
    WITHHELD = "withheld"
    """Decision withheld: a critical finding is about the experiment or about this metric."""


class Action(StrEnum):
    """Kind of the recommended next action."""

    FIX = "fix"
    FIX_ASSIGNMENT = "fix_assignment"
    FIX_FLAG = "fix_flag"
    FIX_EXPOSURES = "fix_exposures"
    FIX_METRIC = "fix_metric"
    ADD_METRIC = "add_metric"
    KEEP_RUNNING = "keep_running"
    WRITE_PLAN = "write_plan"
    """Nothing is clear at the default planned end: somebody has to say how long the experiment runs."""
    SHIP_VARIANT = "ship_variant"
    CHOOSE_VARIANT = "choose_variant"
    """Ship one of several variants that are better than the baseline and not told apart."""
    KEEP_BASELINE = "keep_baseline"
    WEIGH = "weigh"
    DO_NOT_SHIP = "do_not_ship"
    """A better variant harms a guardrail."""
    SHOW_SAFETY = "show_safety"
    """Get more people: a guardrail of a better variant is not shown to be safe."""
    STOP = "stop"
    STOP_FOR_HARM = "stop_for_harm"
    """Stop before the planned end: a variant is certainly worse."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A critical finding about the health of the experiment. ``metric_uuid`` is the only metric that it is about."""

    code: str
    message: str
    advice: str
    metric_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One variant against the baseline, on one metric."""

    variant: str
    interval: Interval | None = None
    """Interval of the effect; a side without a bound is infinite."""
    is_above: bool | None = None
    """Whether the variant's mean is above the baseline's, adjusted as the test is; None: equal, or not known.

    A relative effect does not say: of a negative baseline it is negative where the mean is above.
    """
    means: tuple[float, float] | None = None
    """Means of the baseline and of the variant, as measured."""
    anytime_p: float | None = None
    """One-sided p-value, valid at any time, of the side on which the variant is seen (`.harm`)."""
    p_above: float | None = None
    """One-sided p-value, without a correction, that the variant's mean is above the baseline's; of a posterior the
    probability that it is below."""
    largest_loss: float | None = None
    """Largest loss of a guardrail that is still possible, as a share of the baseline (`.guardrails`)."""
    is_significant: bool = False
    """Whether the method calls the effect significant; its p-value is corrected where the experiment asks for that."""
    p_value: float | None = None
    """P-value, corrected where the experiment asks for that."""
    chance_to_win: float | None = None
    problem: str | None = None
    """Reason for which there are no statistics."""
    estimate: float | None = None
    """Point estimate of the effect; None for the middle of the interval."""

    @property
    def effect(self) -> float | None:
        """The point estimate; None without an interval."""
        if self.interval is None or self.estimate is not None:
            return self.estimate
        return (self.interval[0] + self.interval[1]) / 2

    def direction(self, *, wants_decrease: bool) -> Decision:
        """Return the decision of this evidence alone: better or worse, by the goal of the metric, where significant."""
        if self.interval is None:
            return Decision.MISSING
        if not self.is_significant or self.is_above is None:
            return Decision.UNCLEAR
        return Decision.WORSE if self.is_above == wants_decrease else Decision.BETTER

    def p_better(self, *, wants_decrease: bool) -> float:
        """Return the one-sided p-value of the variant being better; 1 without statistics."""
        if self.interval is None or self.p_above is None:
            return 1.0
        return 1 - self.p_above if wants_decrease else self.p_above

    def is_harmful(self, *, wants_decrease: bool, comparisons: int) -> bool:
        """Return whether the variant is certainly worse, where this number of comparisons is watched."""
        if self.anytime_p is None or self.means is None or self.means[0] == self.means[1]:
            return False
        is_worse = (self.means[1] > self.means[0]) == wants_decrease
        return is_worse and self.anytime_p * comparisons < HARM_LEVEL

    @property
    def strength(self) -> float:
        """Effect over its distance from the bound towards zero: comparable between metrics, above 1 where clear."""
        if self.interval is None or self.effect is None:
            return 0.0
        distance = self.effect - self.interval[0] if self.effect > 0 else self.interval[1] - self.effect
        return abs(self.effect) / distance if distance > 0 else 0.0

    @property
    def largest_difference(self) -> float | None:
        """Largest effect, up or down, that is still possible; None without a bound on it."""
        largest = inf if self.interval is None else max(map(abs, self.interval))
        return None if largest == inf else largest

    @property
    def is_unbounded(self) -> bool:
        """Whether there is an interval, and a side of it has no bound."""
        return self.interval is not None and self.largest_difference is None


@dataclass(frozen=True, slots=True)
class Contest:
    """Comparison of two test variants with each other, on one metric: the evidence is about the second of them."""

    first: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """Evidence of one metric."""

    uuid: str
    name: str
    is_primary: bool
    variants: Sequence[Evidence]
    wants_decrease: bool = False
    is_share: bool = False
    """Whether its values are shares of people, and so absolute differences in percentage points."""
    contests: Sequence[Contest] = ()
    """Comparisons of test variants with each other, by the method of the experiment, without a correction."""
    margin: float | None = None
    """Loss that a guardrail allows, as a share of the baseline, 0 for a clear one; None for another metric."""
    people_to_show: int | None = None
    """Number of people in all variants together that would show a guardrail to be safe, if it loses nothing."""

    @property
    def is_guardrail(self) -> bool:
        return self.margin is not None

    @property
    def decides(self) -> bool:
        """Whether the metric can change what is decided: secondary ones cannot."""
        return self.is_primary or self.is_guardrail

    @property
    def role(self) -> str:
        return "primary" if self.is_primary else "guardrail" if self.is_guardrail else "secondary"


@dataclass(frozen=True, slots=True)
class Amendment:
    """Changes of the plan after the launch; ``by`` is None where nobody of the experiment made them."""

    on: date
    by: str | None
    changes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that the server raised by itself."""

    on: date
    headline: str
    has_paused: bool


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A decision of people about the experiment; ``headline`` is that of the verdict then, None for no verdict."""

    on: date
    by: str | None
    shipped: str | None
    """The variant that was shipped; None where the experiment was ended alone."""
    headline: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a verdict depends on.

    For a method of a single look whose planned end is reached, metrics and progress are as of that end.
    """

    config: StatisticsConfig
    baseline: str
    metrics: Sequence[MetricEvidence]
    progress: Progress
    critical: Sequence[Concern] = ()
    has_ended: bool = False
    as_of: date | None = None
    """The day at whose end the numbers are final, where later ones do not count."""
    analyses_done: int = 0
    """Number of planned analyses of a group sequential design that were made."""
    past: Sequence[Amendment | Alarm | PastDecision] = ()
    """What was recorded since the launch. It is told beside the verdict, and changes nothing of it."""

    @property
    def is_amended(self) -> bool:
        return any(isinstance(record, Amendment) for record in self.past)

    @property
    def invalidating(self) -> Sequence[Concern]:
        """Critical findings about the experiment as a whole, or about a metric that decides it."""
        secondary = {metric.uuid for metric in self.metrics if not metric.decides}
        return [concern for concern in self.critical if concern.metric_uuid not in secondary]

    @property
    def withheld(self) -> frozenset[str]:
        """The metrics, by uuid, that have a critical finding of their own."""
        return frozenset(concern.metric_uuid for concern in self.critical if concern.metric_uuid is not None)

    @property
    def is_sequential(self) -> bool:
        """Whether the method may be read at any time; one of a hybrid design until its planned end."""
        return self.config.is_sequential or (self.config.is_hybrid and not self.progress.is_reached)

    @property
    def is_relative(self) -> bool:
        return self.config.inference_config.difference_type is DifferenceType.RELATIVE

    @property
    def level(self) -> float:
        """Confidence level of the intervals, e.g. 0.95."""
        return self.config.level

    @property
    def shipping_level(self) -> float:
        """How often at most any variant is better without an effect, over all primary metrics together: 0.025."""
        return (1 - self.level) / 2

    @property
    def is_over(self) -> bool:
        """Whether an experiment without a clear effect is over: it ended, or is as large as somebody planned it."""
        is_planned = self.progress.source is not PlanSource.DEFAULT
        return self.has_ended or (self.progress.is_reached and is_planned)

    @property
    def may_decide(self) -> bool:
        """Whether this is a moment at which the method decides."""
        return self.is_sequential or self.progress.is_reached or self.config.analysis is not None

    @property
    def analyses_planned(self) -> int | None:
        """Number of analyses of a group sequential design, the last one included; None for other methods."""
        monitoring = self.config.monitoring
        return (
            monitoring.planned_analyses
            if monitoring is not None and self.config.is_group_sequential
            else None
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """A fact that the verdict rests on. ``code`` is for programs, ``text`` for people."""

    code: str
    text: str
    metric_uuid: str | None = None
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class NextAction:
    """Recommended next action."""

    code: Action
    text: str
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """Progress of the experiment, and effects still possible. None: not known."""

    people: int
    """People whom the plan counts: those whom every primary metric counts already."""
    people_needed: int | None
    people_remaining: int | None
    days: int
    days_needed: int | None
    days_remaining: int | None
    analyses_done: int | None
    """Number of planned analyses that were made; None for a method without any."""
    analyses_planned: int | None
    plan_source: PlanSource
    largest_difference: float | None
    """The largest effect on a primary metric, up or down, that is still possible; None where several primary metrics
    have units of their own, and where an interval has no bound."""


@dataclass(frozen=True, slots=True)
class VariantDecision:
    """Decision of one metric about one variant, with the numbers that it rests on."""

    variant: str
    decision: Decision
    effect: float | None
    interval: Interval | None
    largest_difference: float | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class MetricDecision:
    """Decisions of one metric."""

    metric_uuid: str
    name: str
    is_primary: bool
    variants: tuple[VariantDecision, ...]
    margin: float | None = None
    """Loss that a guardrail allows, as a share of the baseline; None for another metric."""

    @property
    def decides(self) -> bool:
        return self.is_primary or self.margin is not None


@dataclass(frozen=True, slots=True)
class VariantVerdict:
    """State of one variant by all metrics together."""

    variant: str
    state: State


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with everything that was decided about it: what a verdict puts into words."""

    case: Case
    state: State
    variants: tuple[VariantVerdict, ...]
    metrics: tuple[MetricDecision, ...]
    leaders: tuple[str, ...]
    """Better variants than which no other better one is clearly better still."""
    harmful: tuple[str, ...] = ()
    """Variants that are certainly worse, before the end."""

    @property
    def held_back(self) -> tuple[str, ...]:
        """Variants that would be better, were there statistics of all primary metrics and guardrails."""
        return tuple(
            verdict.variant
            for verdict in self.variants
            if verdict.state in (State.RUNNING, State.INCONCLUSIVE)
            and Decision.BETTER in decisions_of(self.metrics, verdict.variant)
        )


def decisions_of(
    metrics: Iterable[MetricDecision], variant: str, *, guardrails: bool = False
) -> set[Decision]:
    """Return the decisions of primary metrics about a variant, or those of guardrails."""
    return {
        decided.decision
        for metric in metrics
        if (metric.margin is not None if guardrails else metric.is_primary)
        for decided in metric.variants
        if decided.variant == variant
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an experiment: state, reasons and recommended action."""

    state: State
    headline: str
    action: NextAction
    reasons: tuple[Reason, ...]
    numbers: Numbers
    variants: tuple[VariantVerdict, ...] = ()
    metrics: tuple[MetricDecision, ...] = ()
    reads_at_any_time: bool = False
    """Whether looking often and stopping early keeps the error rate of the method."""
    as_of: date | None = None
    """The day at whose end the deciding numbers are; None: the newest ones."""
    withholds: bool = field(default=False)
    """Whether nothing may be marked as significant, better or a winner anywhere."""

    @property
    def is_final(self) -> bool:
        """Whether an early analysis of a group sequential design ends the experiment with it."""
        ends = self.state in (State.BETTER, State.WORSE, State.MIXED)
        return ends and self.action.code is not Action.STOP_FOR_HARM
