"""Roles of metrics, from request to verdict: a guardrail holds back what may harm it, a secondary metric nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, Lab, bought, exposed

from hoglab.analysis.results.judging import plan_of
from hoglab.reports.html import page
from hoglab.reports.report import ExperimentReport, metric_report
from hoglab.reports.terminal import report_lines
from hoglab.statistics import resolve_config

START = NOW - timedelta(days=3)
PEOPLE = 1000
METHODS = [
    {"method": "frequentist"},
    {"method": "bayesian"},
    {"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}},
]
STAYED = {
    **PURCHASES,
    "name": "Stayed",
    "role": "guardrail",
    "series": [{"kind": "EventsNode", "event": "stayed"}],
}


def crowd(buyers: dict[str, int], stayed: dict[str, int]) -> Iterator[Event]:
    for variant, count in buyers.items():
        for number in range(PEOPLE):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            if number < count:
                yield bought(person, START + timedelta(minutes=1), 5)
            if number % PEOPLE >= PEOPLE - stayed[variant]:
                yield Event(person, START + timedelta(minutes=1), "stayed")


def ended(lab: Lab, secondary: dict[str, Any], config: dict[str, Any] | None = None) -> dict[str, Any]:
    return lab.experiment(
        start_date=START.isoformat(),
        end_date=NOW.isoformat(),
        stats_config=config or METHODS[0],
        metrics=[PURCHASES],
        metrics_secondary=[secondary],
        running_time_calculation={"recommended_running_time": 2},
    )


def results(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = lab.ok(
        "GET", f"/experiments/{experiment['id']}/results/", params={"refresh": "1"}
    )
    return answer


@pytest.mark.parametrize("config", METHODS[:2])
@pytest.mark.parametrize(
    ("margin", "stayed", "state", "action"),
    [
        (0.2, 500, "better", "ship_variant"),
        (0.01, 500, "not_shown_safe", "show_safety"),
        (0.01, 400, "mixed", "do_not_ship"),
        (0.3, 460, "better", "ship_variant"),
        (None, 500, "better", "ship_variant"),
        (None, 400, "mixed", "do_not_ship"),
    ],
)
def test_a_guardrail_holds_back_what_may_harm_it(
    lab: Lab, config: dict[str, Any], margin: float | None, stayed: int, state: str, action: str
) -> None:
    guardrail = STAYED if margin is None else {**STAYED, "margin": margin}
    experiment = ended(lab, guardrail, config)
    assert experiment["metrics_secondary"][0]["role"] == "guardrail"
    lab.send(crowd({"control": 200, "test": 300}, {"control": 500, "test": stayed}))
    answer = results(lab, experiment)
    verdict = answer["verdict"]
    assert (verdict["state"], verdict["next_action"]["code"]) == (state, action)
    assert [(each["role"], each["margin"]) for each in answer["metrics"]] == [
        ("primary", None),
        ("guardrail", margin or 0),
    ]
    assert [each["margin"] for each in verdict["metrics"]] == [None, margin or 0]
    if state == "not_shown_safe":
        assert "more people can show" in verdict["next_action"]["text"]
    settings = resolve_config(config)
    shown = [
        metric_report(
            metric, each["name"], primary=each["is_primary"], config=settings, result=each["result"]
        )
        for metric, each in zip(
            [*experiment["metrics"], *experiment["metrics_secondary"]], answer["metrics"], strict=True
        )
    ]
    report = ExperimentReport(experiment, settings, (), answer["exposures"], tuple(shown), NOW, verdict)
    console = Console(width=400, force_terminal=False, record=True)
    console.print(*report_lines(report))
    chip = f"Stayed (guardrail, margin {margin * 100:g}%)" if margin else "Stayed (guardrail)"
    for text in (console.export_text(), page(report)):
        assert chip in text


def test_the_same_metric_holds_back_nothing_as_a_secondary_one(lab: Lab) -> None:
    experiment = ended(lab, {**STAYED, "role": "secondary"})
    lab.send(crowd({"control": 200, "test": 300}, {"control": 500, "test": 300}))
    verdict = results(lab, experiment)["verdict"]
    assert (verdict["state"], verdict["next_action"]["code"]) == ("better", "ship_variant")
    assert "“Stayed” (-40.0%)" in verdict["next_action"]["text"]


def test_a_role_is_no_other_metric(lab: Lab) -> None:
    """A change of role or margin keeps the results that are stored."""
    experiment = ended(lab, {**STAYED, "margin": 0.01})
    (metric,) = experiment["metrics_secondary"]
    changed = lab.ok(
        "PATCH", f"/experiments/{experiment['id']}/", {"metrics_secondary": [{**metric, "margin": 0.2}]}
    )
    assert changed["metrics_secondary"][0]["margin"] == 0.2
    assert changed["metrics_secondary"][0]["fingerprint"] == metric["fingerprint"]
    plain = {key: value for key, value in metric.items() if key not in ("role", "margin")}
    again = lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"metrics_secondary": [plain]})
    assert again["metrics_secondary"][0]["fingerprint"] == metric["fingerprint"]


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("metrics_secondary", {"margin": 1}, "'margin'"),
        ("metrics_secondary", {"margin": -0.1}, "'margin'"),
        ("metrics_secondary", {"margin": "0.1"}, "'margin'"),
        ("metrics_secondary", {"margin": True}, "'margin'"),
        ("metrics_secondary", {"role": "guard"}, "'role'"),
        ("metrics_secondary", {"role": "primary"}, "'role'"),
        ("metrics_secondary", {"role": "secondary", "margin": 0.1}, "set role to guardrail, too"),
        ("metrics_secondary", {"role": None, "margin": 0.1}, "set role to guardrail, too"),
        ("metrics", {}, "role: a metric of this list is a primary one"),
    ],
)
def test_a_role_or_margin_without_meaning_is_refused_with_its_place(
    lab: Lab, name: str, change: dict[str, Any], text: str
) -> None:
    experiment = lab.experiment()
    body = {name: [PURCHASES if name != "metrics" else STAYED, {**STAYED, **change}]}
    refused = lab.ok("PATCH", f"/experiments/{experiment['id']}/", body, status=400)
    assert refused["attr"] == name
    assert text in refused["detail"]
    assert f"at index {0 if name == 'metrics' else 1}" in refused["detail"]


def test_the_plan_from_the_own_variance_provides_for_guardrails(lab: Lab) -> None:
    """More people are needed for a guardrail with a small margin than for the effect."""
    needed = []
    for key, metrics in (("none", []), ("one", [{**STAYED, "margin": 0.02}])):
        experiment = lab.experiment(
            key=key,
            start_date=START.isoformat(),
            stats_config=METHODS[0],
            metrics=[PURCHASES],
            metrics_secondary=metrics,
            running_time_calculation={"minimum_detectable_effect": 20},
        )
        lab.send(
            Event(
                event.person,
                event.timestamp,
                event.event,
                {**event.properties, **({"$feature_flag": key} if event.event.startswith("$") else {})},
            )
            for event in crowd({"control": 200, "test": 200}, {"control": 500, "test": 500})
        )
        project = lab.accounts.project(1)
        assert project is not None
        assert plan_of(lab.service.plan_of(project, experiment["id"])).effect == 0.2
        needed.append(results(lab, experiment)["verdict"]["numbers"]["people_needed"])
    assert needed[1] > 5 * needed[0]
