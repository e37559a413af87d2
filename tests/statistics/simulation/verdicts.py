"""How often a verdict errs: experiments without any effect, read once at the planned end and read every day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt

from tests.statistics.simulation.kinds import Kind
from tests.statistics.simulation.promises import (
    ALPHA,
    DAYS,
    FALSE_POSITIVES,
    METHODS,
    Share,
    allowed_errors,
    config_of,
    random,
)

from hoglab.statistics import (
    Correction,
    DifferenceType,
    FrequentistConfig,
    SampleMean,
    StatisticsConfig,
    SufficientStatistics,
    VariantComparison,
    compare,
    sample_size_for,
)
from hoglab.statistics.verdict import (
    Case,
    Evidence,
    Look,
    Measured,
    MetricEvidence,
    Plan,
    State,
    planned_end,
    progress_at,
    verdict,
)

PLANNED_DAY = 30
EARLY_READS = 15
"""Before the planned end a method of a single look is read on every fifteenth day."""
WRITTEN, OWN_VARIANCE = "written down", "own variance"
Pair = tuple[SufficientStatistics, SufficientStatistics]


@dataclass(frozen=True)
class VerdictRates:
    """Verdicts of one method on one kind of metric, with a plan written down or made from the experiment's variance."""

    kind: str
    method: str
    plan: str
    once: Share
    """Better, read at the planned end alone."""
    better: Share
    """Ever better, read every day."""
    clear: Share
    """Ever better or worse, read every day. A relative effect errs a little less upwards than downwards."""

    @property
    def kept(self) -> bool:
        return all(_at_most(share) for share in (self.once, self.better, self.clear))


@dataclass(frozen=True)
class FamilyRates:
    """Three primary metrics and two variants: how often any of them is called better or worse."""

    correction: Correction
    clear: Share
    kind: str = "three means, two variants"

    @property
    def kept(self) -> bool:
        return self.correction is Correction.NONE or _at_most(self.clear)


def _at_most(share: Share) -> bool:
    """Whether something happened no more often than promised, as far as that can be told by so many runs."""
    return share.kept if share.at_most else share.standard_errors <= allowed_errors(share.runs)


def verdict_rates(kind: Kind, runs: int, days: int = DAYS) -> list[VerdictRates]:
    """All methods on the same experiments."""
    plans = {WRITTEN: Plan(days=PLANNED_DAY), OWN_VARIANCE: Plan(effect=_effect_found(kind))}
    cases = [
        (method, name)
        for method, config in METHODS.items()
        for name in plans
        # The plan decides nothing of what a sequential method calls better.
        if name == WRITTEN or method != "sequential"
    ]
    once, better, clear = (dict.fromkeys(cases, 0) for _ in range(3))
    control = kind.daily(random(kind.name, "verdict", "control"), runs, days, 1.0)
    test = kind.daily(random(kind.name, "verdict", "test"), runs, days, 1.0)
    for experiment in zip(control, test, strict=True):
        pairs = list(zip(*experiment, strict=True))
        looks = [_look(day, pair) for day, pair in enumerate(pairs, start=1)]
        for method, name in cases:
            reader = _Reader(config_of(method, DifferenceType.RELATIVE), plans[name], looks, pairs)
            states = set(reader.daily())
            better[method, name] += State.BETTER in states
            clear[method, name] += not states.isdisjoint((State.BETTER, State.WORSE))
            once[method, name] += reader.once() is State.BETTER

    return [
        VerdictRates(
            kind.name,
            method,
            name,
            Share(once[case], runs, FALSE_POSITIVES[method] / 2),
            Share(better[case], runs, FALSE_POSITIVES[method] / 2),
            Share(clear[case], runs, FALSE_POSITIVES[method], at_most=method == "sequential"),
        )
        for case in cases
        for method, name in [case]
    ]


def family_rates(runs: int, size: int = 400) -> list[FamilyRates]:
    """Frequentist verdicts at the planned end, without a correction and with one."""
    rng = random("family")
    plain = StatisticsConfig(FrequentistConfig(ALPHA))
    clear = dict.fromkeys((Correction.NONE, Correction.HOLM), 0)
    for _ in range(runs):
        values = rng.gamma(1.5, 2.0, (3, 3, size))
        groups = [
            [SampleMean(size, float(x.sum()), float((x**2).sum())) for x in metric] for metric in values
        ]
        looks = [
            [compare(StatisticsConfig(FrequentistConfig(ALPHA)), own[0], each) for each in own[1:]]
            for own in groups
        ]
        for correction in clear:
            config = replace(plain, correction=correction)
            adjusted = iter(correction.adjust([found.p_value for own in looks for found in own]))
            metrics = [
                MetricEvidence(
                    str(number),
                    f"metric {number}",
                    True,
                    [_evidence(f"variant {place}", found, next(adjusted)) for place, found in enumerate(own)],
                )
                for number, own in enumerate(looks)
            ]
            progress = progress_at(Plan(days=1), config, Look(3 * size, 1))
            found = verdict(Case(config, "control", metrics, progress))
            clear[correction] += any(each.state is not State.INCONCLUSIVE for each in found.variants)
    return [FamilyRates(correction, Share(count, runs, ALPHA)) for correction, count in clear.items()]


@dataclass(eq=False)
class _Reader:
    """Somebody who reads the verdict of one experiment."""

    config: StatisticsConfig
    plan: Plan
    looks: Sequence[Look]
    pairs: Sequence[Pair]
    _states: dict[int, State] = field(default_factory=dict)
    """What was read already, by look."""

    def daily(self) -> Iterator[State]:
        """What is read on the days; what is decided for good is read once."""
        if self.config.is_sequential:
            # Where the comparison is not significant nothing can be better or worse: most verdicts need not be read.
            days = enumerate(self.pairs)
            yield from (self._at(day) for day, pair in days if compare(self.config, *pair).significant)
            return
        end = self.end
        early = len(self.looks) if end is None else end
        yield from (self._at(day) for day in range(0, early, EARLY_READS))
        if end is not None:
            yield self._at(end)

    def once(self) -> State | None:
        """What is read at the planned end; None when it is not reached."""
        return None if self.end is None else self._at(self.end)

    @cached_property
    def end(self) -> int | None:
        """Number of the look at which the planned end is reached."""
        return planned_end(self.plan, self.config, self.looks)

    def _at(self, day: int) -> State:
        if day not in self._states:
            self._states[day] = self._read(day)
        return self._states[day]

    def _read(self, day: int) -> State:
        config = self.config
        found = compare(config, *self.pairs[day])
        metric = MetricEvidence("uuid", "metric", True, [_evidence("test", found, found.p_value)])
        progress = progress_at(self.plan, config, self.looks[day])
        return verdict(Case(config, "control", [metric], progress)).state


def _evidence(variant: str, found: VariantComparison, p_value: float | None) -> Evidence:
    significant = found.significant is True
    if p_value is not None and p_value != found.p_value:
        significant = p_value < ALPHA
    estimate = found.point_estimate
    return Evidence(
        variant,
        found.credible_interval or found.confidence_interval,
        None if estimate is None else estimate > 0,  # baselines are positive here
        estimate=estimate,
        p_above=p_above(found),
        is_significant=significant,
        p_value=p_value,
        chance_to_win=found.chance_to_win,
    )


def p_above(found: VariantComparison) -> float | None:
    """The one-sided p-value that the variant is above the baseline; of a posterior the chance that it is not."""
    if found.chance_to_win is not None:
        return 1 - found.chance_to_win
    if found.p_value is None or found.point_estimate is None:
        return None
    return found.p_value / 2 if found.point_estimate > 0 else 1 - found.p_value / 2


def _look(day: int, pair: Pair) -> Look:
    return Look(sum(group.number_of_samples for group in pair), day, [Measured(pair)])


def _effect_found(kind: Kind) -> float:
    """The effect that the fixed-horizon test of so many days has the planned power for, about."""
    groups = kind.daily(random(kind.name, "verdict", "history"), 1, PLANNED_DAY, 1.0)
    (day,) = ([*days][-1] for days in groups)
    config = config_of("frequentist", DifferenceType.RELATIVE)
    effect = abs(kind.lift)
    for _ in range(4):  # the size falls with the square of the effect
        effect *= sqrt(sample_size_for(config, day, effect) / (2 * day.number_of_samples))
    return effect
