"""Plans and simulations from what a project's people did before (``ExperimentPlanQuery``, ``…SimulationQuery``)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from itertools import chain
from math import sqrt
from typing import Any

import numpy as np
import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought

from hoglab.analysis.cancellation import Cancellation, cancellable
from hoglab.analysis.definitions import planned_inputs
from hoglab.analysis.errors import ComputationError
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.planning import experiment_simulation
from hoglab.analysis.planning.experiment_simulation import simulation_answer
from hoglab.analysis.planning.simulated_people import ValuedPeople
from hoglab.statistics import (
    FrequentistConfig,
    Proportion,
    QuantileSample,
    SampleMean,
    StatisticsConfig,
    power_at,
    sample_size_for,
)

DAYS = 10
PER_DAY = 100
CONFIG = StatisticsConfig(FrequentistConfig())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hundred new people a day, of whom three in ten buy; and some who only ever buy."""
    lab = Lab(tmp_path_factory.mktemp("history"))
    dice = random.Random(5)
    events = []
    for day in range(DAYS):
        for number in range(PER_DAY):
            person = f"p{day}-{number}"
            seen = NOW - timedelta(days=DAYS - day) + timedelta(minutes=number)
            events.append(Event(person, seen, "visit", {"page": number}))
            if dice.random() < 0.3:
                events.append(bought(person, seen + timedelta(hours=1), dice.uniform(1, 50)))
    events += [bought(f"late{number}", NOW - timedelta(hours=2), 1000) for number in range(40)]
    lab.send(events)
    lab.experiment(
        metrics=[REVENUE, PURCHASES],
        stats_config={"method": "frequentist"},
    )
    yield lab
    lab.close()


def values(events_of: Lab) -> list[float]:
    """What every visitor spent."""
    with events_of.events.reader() as reader:
        rows = reader.execute(
            "SELECT coalesce(sum(CASE WHEN event = 'purchase' THEN (properties->>'amount')::DOUBLE END), 0) "
            "FROM resolved_events GROUP BY person_id HAVING count_if(event = 'visit') > 0"
        )
    return [row[0] for row in rows]


def ask(lab: Lab, kind: str, metric: dict[str, Any], *, status: int = 200, **fields: Any) -> dict[str, Any]:
    query = {"kind": kind, "experiment_id": 1, "metric": metric, "history_days": 14} | fields
    return lab.query(query, status=status)


HALVES = [{"key": "control", "split_percent": 50}, {"key": "test", "split_percent": 50}]
VISIT = {"kind": "EventsNode", "event": "visit"}


def test_a_plan_is_that_of_the_people_of_the_history(lab: Lab) -> None:
    answer = ask(lab, "ExperimentPlanQuery", REVENUE, exposure=VISIT, effects=[0.1, -0.2])
    history = answer["history"]
    expected = SampleMean.of(values(lab))
    assert history["people"] == expected.number_of_samples == DAYS * PER_DAY
    assert history["event"] == "visit"
    assert sum(history["people_per_day"]) == DAYS * PER_DAY
    assert history["mean"] == pytest.approx(expected.mean)
    assert history["statistics"]["sum_squares"] == pytest.approx(expected.sum_squares)
    for row, effect in zip(answer["effects"], (0.1, -0.2), strict=True):
        assert row["people"] == sample_size_for(CONFIG, expected, effect)
        # A hundred come each day after the history, or nearly: today is not over.
        assert row["days"] == pytest.approx(row["people"] / PER_DAY, rel=0.1, abs=3)


def test_what_can_be_found_has_the_power_that_was_asked_for(lab: Lab) -> None:
    answer = ask(lab, "ExperimentPlanQuery", PURCHASES, exposure=VISIT, power=0.9)
    buyers = [value > 0 for value in values(lab)]
    history = Proportion(len(buyers), sum(buyers))
    for row in answer["detectable"]:
        if row["effect"] is not None:
            assert power_at(CONFIG, history, row["effect"], row["people"]) == pytest.approx(0.9, abs=0.01)
    effects = [row["effect"] for row in answer["detectable"] if row["effect"] is not None]
    assert effects == sorted(effects, reverse=True)
    assert len(effects) >= 2


def test_an_experiment_can_be_planned_before_it_is_saved(lab: Lab) -> None:
    """The settings of the body that would create it give the plan of the saved experiment."""
    saved = ask(lab, "ExperimentPlanQuery", REVENUE, exposure=VISIT, effects=[0.2])
    described = {
        "parameters": {"feature_flag_variants": HALVES, "rollout_percentage": 100},
        "stats_config": {"method": "frequentist"},
    }

    def planned(**changes: Any) -> dict[str, Any]:
        fields = {"experiment_id": None, "experiment": described | changes}
        return ask(lab, "ExperimentPlanQuery", REVENUE, exposure=VISIT, effects=[0.2], **fields)

    unsaved = planned()
    assert [unsaved[name] for name in ("effects", "detectable")] == [
        saved[name] for name in ("effects", "detectable")
    ]
    (whole,) = unsaved["effects"]
    thirds = [{"key": key, "split_percent": share} for key, share in zip("abc", (34, 33, 33), strict=True)]
    (of_three,) = planned(parameters={"feature_flag_variants": thirds})["effects"]
    assert of_three["people"] == pytest.approx(whole["people"] * 1.5, rel=0.02)
    (of_a_tenth,) = planned(parameters=described["parameters"] | {"rollout_percentage": 10})["effects"]
    assert of_a_tenth["people"] == whole["people"]
    assert of_a_tenth["days"] == pytest.approx(whole["days"] * 10, rel=0.2)
    (sequential,) = planned(
        stats_config={"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}}
    )["effects"]
    assert sequential["people"] > whole["people"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"experiment_id": 1}, "not both"),
        ({"experiment": {"parameters": {"rollout_percentage": 0}}}, "rollout_percentage is 0"),
        ({"experiment": {"parameters": {"rollout_percentage": "x"}}}, "between 0 and 100"),
        ({"experiment": {"stats_config": {"method": "tarot"}}}, "Invalid stats method"),
        ({"experiment": {"stats_config": {"baseline_variant_key": "x"}}}, "Invalid baseline_variant_key"),
        ({"experiment": {"exposure_criteria": {"exposure_config": {"event": ""}}}}, "Invalid exposure"),
        ({"experiment": {"parameters": {"feature_flag_variants": [{"key": "a"}]}}}, "split_percent"),
    ],
)
def test_an_unsaved_experiment_is_checked_as_when_it_is_saved(
    lab: Lab, fields: dict[str, Any], message: str
) -> None:
    described = {"experiment_id": None, "experiment": {}} | fields
    answer = ask(lab, "ExperimentPlanQuery", REVENUE, status=400, **described)
    assert message in answer["detail"]


def test_without_an_event_everybody_counts(lab: Lab) -> None:
    history = ask(lab, "ExperimentPlanQuery", REVENUE)["history"]
    assert history["event"] == "any event"
    assert history["people"] == DAYS * PER_DAY + 40


def test_only_people_whose_window_is_over_are_judged(lab: Lab) -> None:
    window = {"conversion_window": 3, "conversion_window_unit": "day"}
    answer = ask(lab, "ExperimentPlanQuery", PURCHASES | window, exposure=VISIT)
    assert answer["history"]["statistics"]["number_of_samples"] == pytest.approx(
        (DAYS - 3) * PER_DAY, abs=PER_DAY
    )
    assert answer["history"]["people"] == DAYS * PER_DAY


def test_people_whose_window_is_not_over_are_not_missing_values(lab: Lab) -> None:
    """Everybody has one value; seven of ten days are judged."""
    metric = {**REVENUE, "metric_type": "quantile", "quantile_level": 0.9}
    window = {"conversion_window": 3, "conversion_window_unit": "day"}
    answer = ask(lab, "ExperimentPlanQuery", metric | window, exposure=VISIT, effects=[0.3])
    sums = answer["history"]["statistics"]
    fields = ("number_of_samples", "quantile_level", "quantile", "quantile_lower", "quantile_upper")
    history = QuantileSample(*(sums[name] for name in fields))
    assert history.number_of_samples == pytest.approx((DAYS - 3) * PER_DAY, abs=PER_DAY)
    needed = sample_size_for(CONFIG, history, 0.3)
    assert answer["effects"][0]["people"] == pytest.approx(needed, rel=0.2)


@pytest.mark.parametrize("metric", [REVENUE, PURCHASES], ids=["mean", "funnel"])
def test_a_simulation_keeps_what_the_methods_promise(lab: Lab, metric: dict[str, Any]) -> None:
    runs = 400
    answer = ask(
        lab,
        "ExperimentSimulationQuery",
        metric,
        exposure=VISIT,
        effect=0.25,
        experiments=runs,
        looks=5,
        people=2000,
    )
    assert (answer["people"], answer["experiments"], answer["looks"]) == (2000, runs, 5)
    methods = {row["method"]: row for row in answer["methods"]}
    slack = 4 * sqrt(0.05 * 0.95 / runs)
    fixed, sequential, bayesian = (methods[name] for name in ("frequentist", "sequential", "bayesian"))
    assert fixed["false_positives"] == pytest.approx(0.05, abs=slack)
    assert bayesian["false_positives"] == pytest.approx(0.10, abs=4 * sqrt(0.1 * 0.9 / runs))
    assert fixed["coverage"] == pytest.approx(0.95, abs=slack)
    assert fixed["false_positives_watched"] > 0.05 + slack > sequential["false_positives_watched"]
    amounts = values(lab)
    history = (
        SampleMean.of(amounts) if metric is REVENUE else Proportion(len(amounts), sum(v > 0 for v in amounts))
    )
    promised = power_at(CONFIG, history, 0.25, 2000)
    assert fixed["power"] == pytest.approx(promised, abs=4 * sqrt(promised * (1 - promised) / runs))
    assert sequential["power"] < fixed["power"]
    assert {row["refused"] for row in answer["methods"]} == {0}


def test_the_same_seed_gives_the_same_answer(lab: Lab) -> None:
    asked = {"exposure": VISIT, "experiments": 30, "people": 500, "looks": 3}
    first, again, other = (
        ask(lab, "ExperimentSimulationQuery", REVENUE, seed=seed, **asked)["methods"] for seed in (7, 7, 8)
    )
    assert first == again != other


def test_a_simulation_that_is_cancelled_gives_no_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    cancellation = Cancellation()
    drawn = []

    def cancelled_at_the_third(*arguments: Any) -> SampleMean:
        drawn.append(arguments)
        if len(drawn) == 3:
            cancellation.request()
        return SampleMean(*arguments)

    entities = Computer.entities
    monkeypatch.setattr(
        Computer,
        "entities",
        lambda *asked: (entities(*asked)[0], lambda sums: cancelled_at_the_third(int(sums[0]), *sums[1:])),
    )
    query = {"kind": "ExperimentSimulationQuery", "experiment_id": 1, "metric": REVENUE, "history_days": 14}
    project = lab.accounts.project(1)
    assert project is not None
    inputs = planned_inputs(lab.service.database, project, query)
    with cancellable(cancellation), pytest.raises(ComputationError, match="cancelled"):
        simulation_answer(inputs, query, NOW, lab.service.computer)
    assert len(drawn) < 100  # of twenty thousand


def test_a_small_history_is_drawn_from_more_than_once(lab: Lab) -> None:
    late = {"kind": "EventsNode", "event": "purchase", "properties": [{"key": "amount", "value": 1000}]}
    answer = ask(lab, "ExperimentSimulationQuery", REVENUE, exposure=late, experiments=1)
    assert (answer["history"]["people"], answer["people"]) == (40, 100)


RETENTION = {
    "kind": "ExperimentMetric",
    "metric_type": "retention",
    "start_event": VISIT,
    "completion_event": {"kind": "EventsNode", "event": "purchase"},
    "retention_window_start": 0,
    "retention_window_end": 1,
    "retention_window_unit": "day",
    "start_handling": "first_seen",
}
RATIO = {
    "kind": "ExperimentMetric",
    "metric_type": "ratio",
    "numerator": REVENUE["source"],
    "denominator": {"kind": "EventsNode", "event": "visit"},
}


QUANTILE = REVENUE | {"metric_type": "quantile", "quantile_level": 0.5, "quantile_unit": "entity"}
EVENT_QUANTILE = QUANTILE | {"quantile_unit": "event", "quantile_level": 0.6}


@pytest.mark.parametrize(
    "metric",
    [RETENTION, RATIO, REVENUE | {"threshold": 20}, QUANTILE | {"ignore_zeros": True}, EVENT_QUANTILE],
    ids=["retention", "ratio", "threshold", "quantile", "quantile of events"],
)
def test_other_kinds_of_metrics_grow_by_the_effect_too(lab: Lab, metric: dict[str, Any]) -> None:
    answer = ask(
        lab,
        "ExperimentSimulationQuery",
        metric,
        exposure=VISIT,
        effect=0.4,
        experiments=150,
        people=4000,
        looks=1,
    )
    fixed = next(row for row in answer["methods"] if row["method"] == "frequentist")
    assert (
        fixed["coverage"] > 0.85
    )  # of an effect of 0.4: were it another one, nearly no interval would hold it
    assert fixed["power"] > 0.9


def test_people_are_drawn_with_all_of_their_values() -> None:
    """What is drawn fast is what the same people, drawn slowly, give."""
    dice = np.random.default_rng(3)
    clusters = [dice.integers(1, 9, size).astype(float).tolist() for size in dice.integers(0, 4, 60)]
    sizes = np.array([len(values) for values in clusters])
    everything = np.array([value for values in clusters for value in values])
    for per_event in (True, False):
        people = ValuedPeople(everything, sizes, 0.7, per_event, effect=0.5)
        looks = list(people.group(50, 4, np.random.default_rng(11), changed=True))
        drawn = [clusters[place] for place in np.random.default_rng(11).integers(0, 60, 50)]
        grown = [[1.5 * value for value in values] for values in drawn]
        for look, come in zip(looks, (13, 26, 38, 50), strict=True):
            if per_event:
                expected = QuantileSample.of_clusters(grown[:come], 0.7)
            else:
                expected = QuantileSample.of(chain.from_iterable(grown[:come]), 0.7)
            assert asdict(look) == pytest.approx(asdict(expected))


def test_how_many_values_a_simulation_holds(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_simulation, "MAX_VALUES", 10)
    query = {"kind": "ExperimentSimulationQuery", "experiment_id": 1, "metric": EVENT_QUANTILE}
    refused = lab.ok("POST", "/query/", {"query": query}, status=400)
    assert refused["detail"] == "There are more than 10 values: take fewer days of history."


@pytest.mark.parametrize(
    ("kind", "fields", "part"),
    [
        ("ExperimentPlanQuery", {"history_days": 0}, "history_days"),
        ("ExperimentPlanQuery", {"effects": []}, "effects"),
        ("ExperimentPlanQuery", {"effects": [0]}, "effects"),
        ("ExperimentPlanQuery", {"power": 1}, "power"),
        ("ExperimentPlanQuery", {"metric": None}, "metric"),
        ("ExperimentPlanQuery", {"exposure": {"kind": "EventsNode", "event": "never"}}, "Nobody did never"),
        ("ExperimentPlanQuery", {"exposure": 3}, "exposure"),
        ("ExperimentSimulationQuery", {"experiments": 2001}, "experiments"),
        ("ExperimentSimulationQuery", {"looks": "3"}, "looks"),
        ("ExperimentSimulationQuery", {"people": 20_001}, "people"),
        ("ExperimentSimulationQuery", {"metric": PURCHASES, "effect": 9}, "not possible"),
        (
            "ExperimentSimulationQuery",
            {"metric": QUANTILE | {"source": {"kind": "EventsNode", "event": "never"}}},
            "ignore_zeros",
        ),
        (
            "ExperimentSimulationQuery",
            {"metric": {**REVENUE, "source": {"kind": "EventsNode", "event": "never"}}},
            "zero",
        ),
    ],
)
def test_what_cannot_be_foreseen_is_refused_clearly(
    lab: Lab, kind: str, fields: dict[str, Any], part: str
) -> None:
    query = {"kind": kind, "experiment_id": 1, "metric": REVENUE} | fields
    refused = lab.call("POST", "/query/", {"query": query})
    assert refused.status_code == 400, refused.text
    assert part in refused.json()["detail"]
