"""A variant that does harm is stopped at once, whatever the plan says: from the event to the verdict and its words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, Lab, bought, exposed

from hoglab.reports.html import page
from hoglab.reports.report import ExperimentReport, metric_report
from hoglab.reports.terminal import report_lines
from hoglab.statistics import resolve_config

START = NOW - timedelta(days=3)
PEOPLE = 700
METHODS = [
    {"method": "frequentist"},
    {"method": "bayesian"},
    {"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}},
]
CRASHES = {
    **PURCHASES,
    "name": "Crash rate",
    "goal": "decrease",
    "role": "guardrail",
    "series": [{"kind": "EventsNode", "event": "crash"}],
}


def crowd(buyers: dict[str, int], crashes: dict[str, int] | None = None) -> Iterator[Event]:
    for variant, count in buyers.items():
        for number in range(PEOPLE):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            if number < count:
                yield bought(person, START + timedelta(minutes=1), 5)
            if number < (crashes or {}).get(variant, 0):
                yield Event(person, START + timedelta(minutes=1), "crash")


def launched(lab: Lab, config: dict[str, Any], *variants: str, **fields: Any) -> dict[str, Any]:
    shares = [{"key": key, "rollout_percentage": 100 // len(variants)} for key in variants]
    shares[0]["rollout_percentage"] += 100 - 100 // len(variants) * len(variants)
    given = {
        "start_date": START.isoformat(),
        "stats_config": config,
        "metrics": [PURCHASES],
        "parameters": {"feature_flag_variants": shares},
        "running_time_calculation": {"recommended_running_time": 15},
    }
    return lab.experiment(**{**given, **fields})


def results(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok(
        "GET", f"/experiments/{experiment['id']}/results/", params={"refresh": "1"}
    )
    return found


@pytest.mark.parametrize("config", METHODS)
@pytest.mark.parametrize(
    ("left", "text"), [(18, "“Purchase rate”: -87.1%"), (0, "“Purchase rate”: from 20.00% to 0.00%")]
)
def test_a_conversion_that_collapses_stops_the_experiment_on_day_three(
    lab: Lab, config: dict[str, Any], left: int, text: str
) -> None:  # fmt: skip
    made = launched(lab, config, "control", "test")
    lab.send(crowd({"control": 140, "test": left}))
    found = results(lab, made)
    said = found["verdict"]
    assert (said["state"], said["withholds_decisions"]) == ("worse", False)
    assert said["next_action"] == {
        "code": "stop_for_harm",
        "text": "Stop now: “test” does harm. End the experiment and keep “control”.",
        "variant": "control",
    }
    assert said["headline"].startswith(f"“test” does harm: {text}")
    assert [each["decision"] for metric in said["metrics"] for each in metric["variants"]] == ["worse"]
    (reason,) = (each for each in said["reasons"] if each["code"] == "harm")
    assert "at most 1%" in reason["text"]
    settings = resolve_config(config)
    shown = metric_report(
        made["metrics"][0],
        "Purchase rate",
        primary=True,
        config=settings,
        result=found["metrics"][0]["result"],
    )
    report = ExperimentReport(made, settings, (), found["exposures"], (shown,), NOW, said)
    console = Console(width=400, force_terminal=False, record=True)
    console.print(*report_lines(report))
    for page_text in (console.export_text(), page(report)):
        assert "Stop now: “test” does harm." in page_text
        assert text in page_text


@pytest.mark.parametrize("config", METHODS)
def test_a_guardrail_is_watched_too(lab: Lab, config: dict[str, Any]) -> None:
    made = launched(lab, config, "control", "test", metrics_secondary=[CRASHES])
    lab.send(crowd({"control": 140, "test": 141}, {"control": 14, "test": 70}))
    said = results(lab, made)["verdict"]
    assert (said["state"], said["next_action"]["code"]) == ("running", "stop_for_harm")
    assert said["headline"].startswith("“test” does harm: “Crash rate”: +400.0%")


def test_a_secondary_metric_stops_nothing(lab: Lab) -> None:
    made = launched(lab, METHODS[0], "control", "test", metrics_secondary=[{**CRASHES, "role": "secondary"}])
    lab.send(crowd({"control": 140, "test": 141}, {"control": 14, "test": 70}))
    assert results(lab, made)["verdict"]["next_action"]["code"] == "keep_running"


def test_one_harmful_variant_of_several_is_named(lab: Lab) -> None:
    made = launched(lab, METHODS[0], "control", "good", "bad")
    lab.send(crowd({"control": 140, "good": 150, "bad": 20}))
    said = results(lab, made)["verdict"]
    assert (said["state"], said["next_action"]["code"]) == ("running", "stop_for_harm")
    assert said["next_action"]["text"].startswith("Show “bad” to nobody any more")
    assert [each["state"] for each in said["variants"]] == ["running", "worse"]


@pytest.mark.parametrize("config", METHODS[:2])
def test_noise_stops_nothing(lab: Lab, config: dict[str, Any]) -> None:
    """A difference that a single look would call significant is no certain harm."""
    made = launched(lab, config, "control", "test")
    lab.send(crowd({"control": 140, "test": 108}))
    found = results(lab, made)
    assert found["metrics"][0]["result"]["variant_results"][0]["significant"] is True
    assert (found["verdict"]["state"], found["verdict"]["next_action"]["code"]) == ("running", "keep_running")


def test_wrong_shares_of_people_are_no_harm(lab: Lab) -> None:
    """Something loses people of one variant, so that nothing is certain."""
    made = launched(lab, METHODS[0], "control", "test")
    lab.send(crowd({"control": 140, "test": 18}))
    lab.send(exposed(f"more-{number}", "test", START) for number in range(500))
    assert results(lab, made)["verdict"]["next_action"]["code"] == "fix_assignment"
