"""What ships and what keeps it back: verdicts on several metrics, variants and people, from the event on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, Lab, bought, exposed

START = NOW - timedelta(days=9)
METHODS = [{"method": "frequentist"}, {"method": "bayesian"}]
SIGNUPS = {**PURCHASES, "name": "Signups", "series": [{"kind": "EventsNode", "event": "signed up"}]}


def crowd(groups: dict[str, tuple[int, int]]) -> Iterator[Event]:
    """For each variant a number of people, and how many of them buy."""
    for variant, (people, buyers) in groups.items():
        for number in range(people):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            if number < buyers:
                yield bought(person, START + timedelta(minutes=1), 5)


def results(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok(
        "GET", f"/experiments/{experiment['id']}/results/", params={"refresh": "true"}
    )
    assert found["status"] == "complete"
    return found


def experiment(lab: Lab, shares: dict[str, int] | None = None, **fields: Any) -> dict[str, Any]:
    variants = [
        {"key": key, "rollout_percentage": share}
        for key, share in (shares or {"control": 50, "test": 50}).items()
    ]
    given = {
        "start_date": START.isoformat(),
        "metrics": [PURCHASES],
        "parameters": {"feature_flag_variants": variants},
        "running_time_calculation": {"recommended_running_time": 8},
    }
    return lab.experiment(**{**given, **fields})


@pytest.mark.parametrize("config", METHODS)
def test_a_primary_metric_without_data_never_ships(lab: Lab, config: dict[str, Any]) -> None:
    made = experiment(lab, stats_config=config, metrics=[PURCHASES, SIGNUPS])
    lab.send(crowd({"control": (300, 30), "test": (300, 90)}))
    said = results(lab, made)["verdict"]
    decisions = {metric["name"]: metric["variants"][0]["decision"] for metric in said["metrics"]}
    assert decisions == {"Purchase rate": "better", "Signups": "missing"}
    assert (said["state"], said["next_action"]["code"]) == ("inconclusive", "fix_metric")
    assert said["headline"].startswith("“test” does better on “Purchase rate”: +200.0%")
    assert said["headline"].endswith("but there are no statistics of “Signups”.")
    assert "Ship" not in said["next_action"]["text"]
    lab.send([Event(f"{variant}-{number}", START + timedelta(hours=1), "signed up")
              for variant in ("control", "test") for number in range(20)])  # fmt: skip
    assert results(lab, made)["verdict"]["next_action"]["code"] == "ship_variant"


@pytest.mark.parametrize("config", METHODS)
@pytest.mark.parametrize(
    ("shares", "groups", "action", "variant"),
    [
        # The larger gain is that of a small group: nobody knows which of the two is better.
        (
            {"control": 47, "test": 47, "small": 6},
            {"control": (1880, 376), "test": (1880, 450), "small": (240, 65)},
            "choose_variant",
            None,
        ),
        (
            {"control": 34, "test": 33, "more": 33},
            {"control": (680, 136), "test": (660, 180), "more": (660, 400)},
            "ship_variant",
            "more",
        ),
    ],
)
def test_better_variants_are_compared_with_each_other(
    lab: Lab,
    config: dict[str, Any],
    shares: dict[str, int],
    groups: dict[str, tuple[int, int]],
    action: str,
    variant: str | None,
) -> None:
    made = experiment(lab, shares, stats_config=config)
    lab.send(crowd(groups))
    said = results(lab, made)["verdict"]
    assert [each["state"] for each in said["variants"]] == ["better", "better"]
    assert (said["next_action"]["code"], said["next_action"]["variant"]) == (action, variant)
    assert ("are not told apart" in said["headline"]) == (variant is None)


@pytest.mark.parametrize("shares", [{"control": 50, "test": 50}, {"control": 90, "test": 10}])
@pytest.mark.parametrize(("crossing", "withheld"), [(3, False), (30, True), (400, True)])
def test_people_who_saw_both_variants_withhold_the_decision(
    lab: Lab, shares: dict[str, int], crossing: int, withheld: bool
) -> None:
    made = experiment(lab, shares)
    people = {key: 10 * share for key, share in shares.items()}
    lab.send(crowd({key: (count, count // (2 if key == "test" else 10)) for key, count in people.items()}))
    lab.send(exposed(f"both-{number}", variant, START + timedelta(hours=place))
             for number in range(crossing) for place, variant in enumerate(shares))  # fmt: skip
    lab.ok("POST", f"/experiments/{made['id']}/end/")
    lab.now += timedelta(minutes=1)
    found = results(lab, made)
    said = found["verdict"]
    assert said["withholds_decisions"] is withheld
    assert (said["state"], said["next_action"]["code"]) == (
        ("invalid", "fix_assignment") if withheld else ("better", "ship_variant")
    )
    severities = [
        each["severity"] for each in found["health"]["findings"] if each["code"] == "multiple_variants"
    ]
    assert severities == (["critical"] if withheld else [])
    summary = lab.ok("GET", "/experiments/results_summary/", params={"ids": str(made["id"])})[0]
    assert summary["withholds_decisions"] is withheld
