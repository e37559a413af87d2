"""How often the rule of shipping errs: primary metrics and variants without an effect, guardrails that are harmed, and
winners whose guardrails are well.

Each metric is a rate: the sums of a group are one binomial number, so that many experiments are drawn in little time.
Metrics are independent, which is the worst case for the chance that any of them errs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

import numpy as np
from tests.statistics.simulation.promises import ALPHA, METHODS, Share, allowed_errors, random
from tests.statistics.simulation.verdicts import p_above

from hoglab.statistics import Proportion, StatisticsConfig, compare
from hoglab.statistics.verdict import (
    Case,
    Evidence,
    Look,
    Measured,
    MetricEvidence,
    Plan,
    State,
    largest_loss,
    progress_at,
    verdict,
)

RATE = 0.2
SIZE = 5_000
MARGIN = 0.05
EFFECT = 0.10
GUARDRAILS = 10
SHIPS = "ships without an effect"
HARMED, HARMED_THRICE = "one of 3 guardrails loses its margin", "one of 3 guardrails loses three margins"
WINS = f"a winner with {GUARDRAILS} guardrails that lose nothing"
FAMILIES = tuple(product(range(1, 6), range(1, 4)))
"""Numbers of primary metrics and of variants besides the baseline."""


@dataclass(frozen=True)
class RuleRates:
    """How often a variant ships."""

    kind: str
    method: str
    ships: Share

    @property
    def kept(self) -> bool:
        errors = self.ships.standard_errors
        return (
            errors >= -allowed_errors(self.ships.runs)
            if self.ships.at_least
            else errors <= allowed_errors(self.ships.runs)
        )


def false_ships(method: str, primaries: int, arms: int, runs: int) -> RuleRates:
    """Experiments without any effect."""
    rng = random("rule", "null", primaries, arms)
    rates = np.full((primaries, arms + 1), RATE)
    kind = f"{SHIPS}: {primaries} × {arms}"
    return RuleRates(
        kind, method, Share(_ships(method, rng, rates, runs, primaries=primaries), runs, ALPHA / 2)
    )


def harmed(method: str, margins: int, runs: int) -> RuleRates:
    """Experiments with a great gain, of which one guardrail loses its margin or several of them.

    They are as large as it takes to show all of them to be safe in four of five experiments.
    """
    rates = np.full((4, 2), RATE)
    rates[0, 1] *= 1 + 5 * EFFECT
    rates[1, 1] *= 1 - margins * MARGIN
    runs_that_ship = _ships(
        method, random("rule", "harmed", margins), rates, runs, primaries=1, size=_planned(method, 3)
    )
    nominal = ALPHA if margins == 1 else 0.005
    return RuleRates(HARMED if margins == 1 else HARMED_THRICE, method, Share(runs_that_ship, runs, nominal))


def winners(method: str, runs: int) -> RuleRates:
    """Experiments with the planned gain, and guardrails that lose nothing, at the planned size."""
    rates = np.full((1 + GUARDRAILS, 2), RATE)
    rates[0, 1] *= 1 + EFFECT
    size = _planned(method, GUARDRAILS)
    ships = _ships(method, random("rule", "winners"), rates, runs, primaries=1, size=size)
    return RuleRates(WINS, method, Share(ships, runs, 0.8, at_least=True))


def _planned(method: str, guardrails: int) -> int:
    """The number of people in each of two groups that the planner asks for."""
    history = Proportion(10 * SIZE, round(10 * SIZE * RATE))
    pair = (history, history)
    measured = [Measured(pair), *(Measured(pair, margin=MARGIN) for _ in range(guardrails))]
    look = Look(20 * SIZE, 1, measured)
    needed = progress_at(Plan(effect=EFFECT), StatisticsConfig(METHODS[method]), look).people_needed
    assert needed is not None
    return ceil(needed / 2)


def _ships(
    method: str, rng: np.random.Generator, rates: np.ndarray, runs: int, *, primaries: int, size: int = SIZE
) -> int:
    """Count the experiments that ship a variant. ``rates`` are by metric and group, the baseline first."""
    config = StatisticsConfig(METHODS[method])
    drawn = rng.binomial(size, rates, (runs, *rates.shape)).tolist()
    progress = progress_at(Plan(days=1), config, Look(size * rates.shape[1], 1))
    ships = 0
    for experiment in drawn:
        metrics = [
            _metric(config, number, [Proportion(size, count) for count in counts], number < primaries)
            for number, counts in enumerate(experiment)
        ]
        ships += verdict(Case(config, "control", metrics, progress)).state is State.BETTER
    return ships


def _metric(
    config: StatisticsConfig, number: int, groups: Sequence[Proportion], is_primary: bool
) -> MetricEvidence:
    variants = [
        _evidence(config, f"variant {place}", groups[0], group, guards=not is_primary)
        for place, group in enumerate(groups[1:])
    ]
    margin = None if is_primary else MARGIN
    return MetricEvidence(str(number), f"metric {number}", is_primary, variants, margin=margin)


def _evidence(
    config: StatisticsConfig, variant: str, baseline: Proportion, group: Proportion, *, guards: bool
) -> Evidence:
    """The evidence of two groups, of a metric that should grow."""
    compared = compare(config, baseline, group)
    estimate = compared.point_estimate
    return Evidence(
        variant,
        compared.credible_interval or compared.confidence_interval,
        None if not estimate else estimate > 0,
        estimate=estimate,
        p_above=p_above(compared),
        largest_loss=largest_loss(config, baseline, group, wants_decrease=False) if guards else None,
        is_significant=compared.significant is True,
    )
