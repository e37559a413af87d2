"""People who differed before they saw a variant were not divided by chance: the health warns of that, with CUPED."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed

START = NOW - timedelta(days=3)
PEOPLE = 200
CUPED = {"method": "frequentist", "cuped": {"enabled": True, "lookback_days": 14}}


def crowd(before: dict[str, int]) -> Iterator[Event]:
    """People of each variant: all buy after the exposure, and every second one bought before, for so much."""
    for variant, amount in before.items():
        for number in range(PEOPLE):
            person = f"{variant}-{number}"
            if number % 2:
                yield bought(person, START - timedelta(days=1), amount)
            yield exposed(person, variant, START)
            yield bought(person, START + timedelta(minutes=1), 5 + number % 7)


def findings(lab: Lab, before: dict[str, int], config: dict[str, Any]) -> tuple[list[Any], str]:
    made = lab.experiment(start_date=START.isoformat(), stats_config=config, metrics=[REVENUE])
    lab.send(crowd(before))
    answer = lab.ok("GET", f"/experiments/{made['id']}/results/", params={"refresh": "1"})
    found = [each for each in answer["health"]["findings"] if each["code"] == "pre_period_imbalance"]
    return found, answer["verdict"]["next_action"]["code"]


def test_another_past_is_told_of_and_withholds_nothing(lab: Lab) -> None:
    [found], action = findings(lab, {"control": 10, "test": 30}, CUPED)
    assert found["severity"] == "warning"
    assert "the people of “test” already differed" in found["message"]
    assert "“Revenue”: 15 against 5" in found["message"]
    assert found["details"]["p_value"] < 0.001
    assert action != "fix"


@pytest.mark.parametrize(
    ("before", "config"),
    [({"control": 10, "test": 11}, CUPED), ({"control": 10, "test": 30}, {"method": "frequentist"})],
)
def test_chance_and_experiments_without_a_past_are_silent(
    lab: Lab, before: dict[str, int], config: dict[str, Any]
) -> None:
    assert findings(lab, before, config)[0] == []
