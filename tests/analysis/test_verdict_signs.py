"""The sign of a verdict: that of the difference of the means, whatever the baseline is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.analysis.events import Event
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed

from hoglab.analysis.presentation import evidence_of, result_object
from hoglab.analysis.query import Answer
from hoglab.analysis.query.model import (
    EventSource,
    FunnelMeasure,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    RatioMeasure,
    RetentionMeasure,
    RetentionUnit,
    Value,
)
from hoglab.reports.report import metric_report
from hoglab.reports.terminal import results_table
from hoglab.statistics import (
    Proportion,
    QuantileSample,
    Ratio,
    Retention,
    SampleMean,
    StatisticsConfig,
    SufficientStatistics,
    WithCovariate,
    resolve_config,
)
from hoglab.statistics.verdict import Decision

START = NOW - timedelta(days=9)
RUNS, PEOPLE = 1000, 400
A_VALUE = Value(EventSource(()))
MEASURES: dict[str, Metric] = {
    "mean": MeanMeasure(A_VALUE),
    "ratio": RatioMeasure(A_VALUE, A_VALUE),
    "quantile": QuantileMeasure(A_VALUE, 0.5),
    "funnel": FunnelMeasure((EventSource(()),)),
    "retention": RetentionMeasure(EventSource(()), EventSource(()), 1, 7, RetentionUnit.DAY),
}
CONFIGS: dict[str, dict[str, Any]] = {
    f"{name}, {difference}": {**settings, kind: {**settings.get(kind, {}), "difference_type": difference}}
    for name, kind, settings in (
        ("frequentist", "frequentist", {"method": "frequentist"}),
        (
            "sequential",
            "frequentist",
            {
                "method": "frequentist",
                "frequentist": {"sequential_testing_enabled": True, "sequential_tuning_parameter": 800},
            },
        ),
        ("bayesian", "bayesian", {"method": "bayesian"}),
        ("CUPED", "frequentist", {"method": "frequentist", "cuped": {"enabled": True}}),
    )
    for difference in ("RELATIVE", "ABSOLUTE")
}


def drawn(rng: np.random.Generator, kind: str, level: float) -> SufficientStatistics:
    """People whose true mean, rate, ratio or median is the level."""
    values = rng.normal(level, 1, PEOPLE)
    match kind:
        case "funnel":
            return Proportion(PEOPLE, int(rng.binomial(PEOPLE, level)))
        case "retention":
            return Retention(PEOPLE, int(rng.binomial(PEOPLE, level)))
        case "ratio":
            return Ratio.of((value, 1 + number % 3) for number, value in enumerate(values * 2))
        case "quantile":
            return QuantileSample.of(values.tolist(), 0.5)
        case "mean with covariate":
            return WithCovariate.of(zip(values, values + rng.normal(0, 0.5, PEOPLE) - level, strict=True))
        case _:
            return SampleMean.of(values.tolist())


def decided(
    config: StatisticsConfig, kind: str, groups: dict[str, SufficientStatistics], *, falls: bool
) -> Decision:
    plain = kind.split(maxsplit=1)[0]
    result = result_object(Answer(groups), ["control", "test"], config, MEASURES[plain])
    (row,) = result["variant_results"]
    return evidence_of(row, config, plain, result["baseline"]).direction(wants_decrease=falls)


@pytest.mark.parametrize("kind", ["mean", "mean with covariate", "ratio", "quantile", "funnel", "retention"])
def test_no_signed_baseline_turns_a_verdict_round(kind: str) -> None:
    """Effects are twenty standard errors, so that the truth says what is right."""
    rng = np.random.default_rng(17)
    configs = {name: resolve_config(settings) for name, settings in CONFIGS.items()}
    clear = dict.fromkeys(configs, 0)
    for run in range(RUNS // 6):
        is_rate = kind in ("funnel", "retention")
        level = 0.5 if is_rate else float(rng.choice([-1, 1]) * rng.uniform(0.5, 20))
        difference = float(rng.choice([-1, 1])) * (0.4 if is_rate else 2.0)
        groups = {"control": drawn(rng, kind, level), "test": drawn(rng, kind, level + difference)}
        falls = bool(run % 2)
        right = Decision.BETTER if (difference > 0) != falls else Decision.WORSE
        for name, config in configs.items():
            found = decided(config, kind, groups, falls=falls)
            assert found in (right, Decision.MISSING), (name, level, difference)
            clear[name] += found is right
    assert all(count > RUNS / 6 / 3 for count in clear.values()), clear


def profits(levels: dict[str, float]) -> Iterator[Event]:
    """People with a profit, or a loss, around the level of their variant."""
    for variant, level in levels.items():
        for number in range(308):
            person = f"{variant}-{number}"
            yield exposed(person, variant, START)
            yield bought(person, START + timedelta(minutes=1), level + (number % 11 - 5) / 10)


@pytest.mark.parametrize(("goal", "state"), [("increase", "better"), ("decrease", "worse")])
def test_a_smaller_loss_is_better_from_the_event_to_the_verdict(lab: Lab, goal: str, state: str) -> None:
    config = {"method": "frequentist"}
    experiment = lab.experiment(
        start_date=START.isoformat(),
        stats_config=config,
        metrics=[REVENUE | {"name": "Profit", "goal": goal}],
        running_time_calculation={"recommended_sample_size": 616},
    )
    lab.send(profits({"control": -2, "test": -1.5}))
    found = lab.ok("GET", f"/experiments/{experiment['id']}/results/")
    (row,) = found["metrics"][0]["result"]["variant_results"]
    assert sum(row["confidence_interval"]) < 0, "the wire has PostHog's sign"
    said = found["verdict"]
    assert (said["state"], said["metrics"][0]["variants"][0]["decision"]) == (state, state)
    assert said["next_action"]["code"] == {"better": "ship_variant", "worse": "stop_for_harm"}[state]
    assert "“Profit”: from -2 to -1.5, -25" in said["headline"]
    shown = metric_report(
        experiment["metrics"][0], "Profit", primary=True, config=resolve_config(config),
        result=found["metrics"][0]["result"],
    )  # fmt: skip
    assert shown.result is not None
    assert shown.is_better(shown.result.variants[0]) is (state == "better")
    console = Console(width=100, force_terminal=False, record=True)
    console.print(results_table([shown], "Metrics", 0.95, relative=True))
    assert "% of -2 " in console.export_text()
