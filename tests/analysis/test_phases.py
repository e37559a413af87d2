"""The shares of people that an experiment's flag asked for are kept, and each phase is tested against its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis import oracle
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, Lab, bought, exposed
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import Bench, a_log, a_setting, bench, mean, moments, seeds, sizes

from hoglab.experiments.definitions.phases import MAX_PHASES

__all__ = ["bench"]  # a fixture

START = NOW - timedelta(days=9)
CRITERIA: dict[str, dict[str, Any]] = {
    "left out": {"filterTestAccounts": False},
    "first seen": {"filterTestAccounts": False, "multiple_variant_handling": "first_seen"},
    "activated": {
        "filterTestAccounts": False,
        "activation_config": {"kind": "ExperimentEventExposureConfig", "event": "opened", "properties": []},
    },
}


def launched(lab: Lab, **fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "start_date": START.isoformat(),
        "stats_config": {"method": "frequentist"},
        "metrics": [PURCHASES],
        "running_time_calculation": {"recommended_running_time": 7},
    }
    return lab.experiment(**{**given, **fields})


def crowd(
    people: Mapping[str, int], at: datetime, name: str, *, rates: Mapping[str, float]
) -> Iterator[Event]:
    """People who see a variant, open something, and some of whom buy."""
    for variant, count in people.items():
        for number in range(count):
            person = f"{name}-{variant}-{number}"
            yield exposed(person, variant, at)
            yield Event(person, at + timedelta(seconds=1), "opened")
            if number < count * rates[variant]:
                yield bought(person, at + timedelta(minutes=1), 5)


def results(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = lab.ok(
        "GET", f"/experiments/{experiment['id']}/results/", params={"refresh": "1"}
    )
    return answer


def withheld_in_lists(lab: Lab, experiment: dict[str, Any]) -> bool:
    (summary,) = lab.ok("GET", "/experiments/results_summary/", params={"ids": str(experiment["id"])})
    return bool(summary["withholds_decisions"])


def divide(lab: Lab, experiment: dict[str, Any], **shares: float) -> None:
    variants = [{"key": key, "rollout_percentage": share} for key, share in shares.items()]
    filters = {"multivariate": {"variants": variants}}
    body = {"feature_flag": {"filters": filters}, "update_feature_flag_params": True}
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", body)


@pytest.mark.parametrize("ends_first", [False, True])
def test_shipping_a_broken_experiment_does_not_mend_it(lab: Lab, ends_first: bool) -> None:
    experiment = launched(lab)
    lab.send(crowd({"control": 1200, "test": 1800}, START, "p", rates={"control": 0.15, "test": 0.3}))
    before = results(lab, experiment)
    assert (before["verdict"]["state"], before["verdict"]["withholds_decisions"]) == ("invalid", True)
    assert withheld_in_lists(lab, experiment)
    path = f"/experiments/{experiment['id']}"
    if ends_first:
        lab.ok("POST", f"{path}/end/", {})
    lab.ok("POST", f"{path}/ship_variant/", {"variant_key": "test"})
    lab.now += timedelta(hours=2)
    after = results(lab, experiment)
    (was, is_now) = (shown["exposures"]["sample_ratio_mismatch"] for shown in (before, after))
    assert is_now == was
    assert after["verdict"]["headline"] == before["verdict"]["headline"]
    assert after["verdict"]["next_action"]["code"] == "fix_assignment"
    assert withheld_in_lists(lab, experiment)


def test_shipping_a_healthy_experiment_keeps_its_judgement(lab: Lab) -> None:
    experiment = launched(lab)
    lab.send(crowd({"control": 1500, "test": 1500}, START, "p", rates={"control": 0.15, "test": 0.3}))
    before = results(lab, experiment)
    lab.ok("POST", f"/experiments/{experiment['id']}/ship_variant/", {"variant_key": "test"})
    after = results(lab, experiment)
    assert (before["verdict"]["state"], after["verdict"]["state"]) == ("better", "better")
    assert after["exposures"]["sample_ratio_mismatch"]["p_value"] == pytest.approx(1)


@pytest.mark.parametrize("criteria", CRITERIA.values(), ids=CRITERIA)
def test_a_change_of_shares_is_no_mismatch_and_hides_none(lab: Lab, criteria: dict[str, Any]) -> None:
    rates = {"control": 0.2, "test": 0.2}
    experiment = launched(lab, exposure_criteria=criteria)
    lab.send(crowd({"control": 1000, "test": 1000}, START, "first", rates=rates))
    lab.now = START + timedelta(days=4)
    divide(lab, experiment, control=90, test=10)
    change, lab.now = lab.now, NOW
    # Ten people of the first phase come back, and four of them see the other variant now.
    lab.send(exposed(f"first-test-{number}", "control", change + timedelta(days=1)) for number in range(4))
    lab.send(exposed(f"first-control-{number}", "control", change + timedelta(days=1)) for number in range(6))
    lab.send(crowd({"control": 1800, "test": 200}, change + timedelta(hours=1), "second", rates=rates))
    # Clients that have not heard of the change yet.
    lab.send(crowd({"control": 100, "test": 100}, change + timedelta(minutes=1), "late", rates=rates))
    answer = results(lab, experiment)
    shown = answer["exposures"]
    assert shown["sample_ratio_mismatch"]["p_value"] == pytest.approx(1)
    assert shown["sample_ratio_mismatch"]["expected"] == {"control": 2800, "test": 1200}
    assert [phase["shares"] for phase in shown["phases"]] == [
        {"control": 50, "test": 50},
        {"control": 90, "test": 10},
    ]
    assert [phase["exposures"] for phase in shown["phases"]] == [
        {"control": 1000, "test": 1000},
        {"control": 1800, "test": 200},
    ]
    assert answer["verdict"]["state"] == "inconclusive"
    divide(lab, experiment, control=50, test=50)
    back, lab.now = lab.now, NOW + timedelta(days=1)
    lab.send(crowd({"control": 600, "test": 400}, back + timedelta(hours=1), "third", rates=rates))
    worse = results(lab, experiment)
    assert worse["exposures"]["sample_ratio_mismatch"]["is_mismatch"]
    assert worse["verdict"]["state"] == "invalid"
    divide(lab, experiment, control=90, test=10)
    last, lab.now = lab.now, NOW + timedelta(days=2)
    lab.send(crowd({"control": 9000, "test": 1000}, last + timedelta(hours=1), "fourth", rates=rates))
    kept = results(lab, experiment)
    assert kept["exposures"]["sample_ratio_mismatch"]["is_mismatch"]
    assert kept["verdict"]["state"] == "invalid"


def test_an_experiment_of_an_older_version_keeps_the_shares_before_the_first_change(lab: Lab) -> None:
    experiment = launched(lab)
    with lab.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE experiment SET phases = NULL")
        tx.changed("experiments", 1)
    lab.send(crowd({"control": 1200, "test": 1800}, START, "p", rates={"control": 0.15, "test": 0.3}))
    lab.ok("POST", f"/experiments/{experiment['id']}/ship_variant/", {"variant_key": "test"})
    assert results(lab, experiment)["verdict"]["state"] == "invalid"


def test_phases_begin_at_the_launch_and_end_with_a_reset(lab: Lab) -> None:
    experiment = launched(lab, start_date=None)
    divide(lab, experiment, control=60, test=40)
    lab.ok("POST", f"/experiments/{experiment['id']}/launch/", {})
    lab.now += timedelta(hours=1)
    divide(lab, experiment, control=70, test=30)
    lab.now += timedelta(hours=1)
    shown = results(lab, experiment)["exposures"]["phases"]
    assert [phase["shares"]["control"] for phase in shown] == [60, 70]
    lab.ok("POST", f"/experiments/{experiment['id']}/reset/", {})
    lab.ok("POST", f"/experiments/{experiment['id']}/launch/", {})
    lab.now += timedelta(hours=1)
    shown = results(lab, experiment)["exposures"]["phases"]
    assert [phase["shares"]["control"] for phase in shown] == [70]


def test_people_after_too_many_changes_are_not_tested(lab: Lab) -> None:
    experiment = launched(lab)
    lab.send(crowd({"control": 600, "test": 400}, START, "p", rates={"control": 0.2, "test": 0.2}))
    for number in range(MAX_PHASES + 1):
        lab.now += timedelta(minutes=1)
        divide(lab, experiment, control=60 + number % 2, test=40 - number % 2)
    lab.now += timedelta(hours=2)
    at = lab.now - timedelta(hours=1)
    lab.send(crowd({"control": 400, "test": 600}, at, "q", rates={"control": 0.2, "test": 0.2}))
    shown = results(lab, experiment)["exposures"]
    assert len(shown["phases"]) == MAX_PHASES
    assert shown["phases"][-1] == {**shown["phases"][-1], "shares": {}, "mismatch": None}
    assert shown["sample_ratio_mismatch"]["is_mismatch"], "the first phase keeps its judgement"


def test_people_count_for_the_phase_in_which_they_came(bench: Bench) -> None:
    @settings(max_examples=bench.engine.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=seeds, size=sizes, setting=a_setting(), minutes=st.sampled_from([0, 5, 600]))
    def example(seed: int, size: int, setting: Setting, minutes: int) -> None:
        events, random = a_log(seed, size), Random(seed)
        begins = sorted(set(random.sample(moments(random), k=random.randint(1, 3))))
        settling = timedelta(minutes=minutes)
        question = bench.ask(setting, events, mean())
        counted = bench.computer.exposures_by_phase(question, begins, settling)
        assert counted == people_by_phase(setting, events, begins, settling)

    example()


def people_by_phase(
    setting: Setting, events: Sequence[Event], begins: Sequence[datetime], settling: timedelta
) -> list[dict[str, int]]:
    counts: list[dict[str, int]] = [{} for _ in range(len(begins) + 1)]
    everybody = oracle.units(setting, events)
    first = oracle.units(replace(setting, activation=None), events)
    for number, end in enumerate([*begins, setting.end + timedelta(days=999)]):
        last = min(setting.end, end - timedelta(microseconds=1))
        seen = oracle.units(replace(setting, activation=None, end=last), events)
        begin = begins[number - 1] + settling if number else datetime.min.replace(tzinfo=end.tzinfo)
        for entity, unit in seen.items():
            came = first[entity].first
            if entity in everybody and begin <= came and (number == 0 or came >= begins[number - 1]):
                counts[number][unit.variant] = counts[number].get(unit.variant, 0) + 1
    return counts
