"""Scenario of the demo: what the simulated users do, and the truth that the experiment has to find.

A user's behaviour depends only on the seed, the user's id and the variant that the server gave it, so that
two runs of the demo have the same outcome however the requests interleave.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

FLAG_KEY = "demo-checkout"
BASELINE = "control"
TREATMENT = "test"
PURCHASE = "purchase"
DAYS = 14
"""Days that the experiment is planned for."""
START_BEFORE = timedelta(days=DAYS + 1)
"""Time before the demo at which the experiment began, and from which on traffic is simulated.

A plan is decided at the end of a day: one day more than planned, it is over at any hour, so that the first page that a
visitor sees is a decision.
"""
PURCHASE_AFTER = timedelta(minutes=7)
"""Time between the visit of a user and the purchase."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The data-generating process: purchase probability of the baseline and the relative lift of the test."""

    baseline_rate: float = 0.10
    relative_lift: float = 0.20
    mean_amount: float = 40.0

    def purchase_rate(self, variant: str) -> float:
        return self.baseline_rate * (1 + self.relative_lift if variant == TREATMENT else 1)


@dataclass(frozen=True, slots=True)
class Purchase:
    amount: float


@dataclass(frozen=True, slots=True)
class SimulatedUser:
    distinct_id: str
    plan: str
    _seed: str

    @property
    def person_properties(self) -> dict[str, Any]:
        return {"email": f"{self.distinct_id}@example.com", "plan": self.plan}

    def visited(self, start: datetime, end: datetime) -> datetime:
        """Return the time of this user's visit, evenly between two times."""
        dice = random.Random(f"{self._seed}:visit")  # noqa: S311 - a simulation, not a secret
        return start + (end - start) * dice.random()

    def purchase(self, variant: str, truth: Truth) -> Purchase | None:
        """Return the purchase of this user when shown ``variant``; None without one.

        The amount is drawn before the decision: it does not depend on the variant, so the true lift of
        revenue per user equals the true lift of the purchase rate.
        """
        dice = random.Random(self._seed)  # noqa: S311 - a simulation, not a secret
        amount = round(dice.gammavariate(4.0, truth.mean_amount / 4.0), 2)
        return Purchase(amount) if dice.random() < truth.purchase_rate(variant) else None


def population(size: int, seed: int) -> Iterator[SimulatedUser]:
    """Return ``size`` users with ids ``user-1`` …, which are the same for the same seed."""
    for number in range(1, size + 1):
        distinct_id = f"user-{number}"
        plan = "pro" if random.Random(f"{seed}:plan:{distinct_id}").random() < 0.3 else "free"  # noqa: S311
        yield SimulatedUser(distinct_id, plan, f"{seed}:behaviour:{distinct_id}")
