"""P-values corrected for several metrics and variants, wherever results are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.analysis.api import live
from hoglab.analysis.execution.computer import Computer
from hoglab.statistics import Correction

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
LAST = "2026-03-10"


def traffic() -> list[Event]:
    events = []
    for place, variant in enumerate(("control", "a", "b")):
        for number in range(100):
            person = f"{variant}-{number}"
            events.append(exposed(person, variant, START))
            if number < 20 + 8 * place:
                events.append(bought(person, START + timedelta(hours=1), 5 + number % 7))
    return events


def experiment(lab: Lab, correction: str | None) -> dict[str, Any]:
    variants = [
        {"key": key, "rollout_percentage": share} for key, share in (("control", 34), ("a", 33), ("b", 33))
    ]
    settings: dict[str, Any] = {"method": "frequentist"}
    if correction is not None:
        settings["multiple_testing_correction"] = correction
    made = lab.experiment(
        metrics=[PURCHASES, REVENUE],
        metrics_secondary=[{**PURCHASES, "name": "Again"}],
        parameters={"feature_flag_variants": variants},
        stats_config=settings,
        start_date=START.isoformat(),
    )
    lab.send(traffic())
    return made


def p_values(result: dict[str, Any], name: str = "p_value") -> list[float | None]:
    return [row[name] for row in result["variant_results"]]


@pytest.mark.parametrize("correction", ["bonferroni", "holm", "benjamini-hochberg"])
def test_daily_points_are_corrected_over_metrics_and_variants(lab: Lab, correction: str) -> None:
    made = experiment(lab, correction)
    first = lab.series(made, 0)["timeseries"][LAST]
    assert p_values(first, "adjusted_p_value") == Correction(correction).adjust(p_values(first)), (
        "alone at first"
    )
    second = lab.series(made, 1)["timeseries"][LAST]
    expected = Correction(correction).adjust([*p_values(second), *p_values(first)])
    assert p_values(second, "adjusted_p_value") == expected[:2]
    first = lab.series(made, 0)["timeseries"][LAST]
    assert p_values(first, "adjusted_p_value") == expected[2:]


def test_the_query_is_corrected_with_all_primary_metrics(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daily point is needed, and what is known already is not computed again."""
    made = experiment(lab, "bonferroni")
    computed: list[Any] = []
    result = Computer._result  # of a question that is resolved, by whatever way it came
    monkeypatch.setattr(
        Computer, "_result", lambda self, question: computed.append(question) or result(self, question)
    )
    query = {"kind": "ExperimentQuery", "experiment_id": made["id"], "metric": made["metrics"][0]}
    for _ in range(2):
        answer = lab.query(query)
        assert p_values(answer, "adjusted_p_value") == [
            min(1.0, 4 * p) for p in p_values(answer) if p is not None
        ]
    assert len(computed) == 2
    lab.send([bought("a-1", START + timedelta(hours=3), 5)])
    lab.query(query)
    assert len(computed) == 4
    secondary = {**query, "metric": made["metrics_secondary"][0]}
    lab.query(secondary)
    assert len(computed) == 5


def test_how_many_metrics_a_query_computes_beside_its_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment(lab, "bonferroni")
    monkeypatch.setattr(live, "MAX_FAMILY", 0)
    query = {"kind": "ExperimentQuery", "experiment_id": made["id"], "metric": made["metrics"][0]}
    answer = lab.query(query)
    assert p_values(answer, "adjusted_p_value") == [
        min(1.0, 2 * p) for p in p_values(answer) if p is not None
    ]
    lab.series(made, 1)
    stored = lab.query(query)  # of others the newest stored points count
    assert p_values(stored, "adjusted_p_value") == [
        min(1.0, 4 * p) for p in p_values(answer) if p is not None
    ]


def test_a_metric_of_the_family_that_cannot_be_computed_holds_up_none(lab: Lab) -> None:
    odd = {
        **REVENUE,
        "source": {**REVENUE["source"], "math": "hogql", "math_hogql": "sum(nothing)"},
    }
    made = experiment(lab, "bonferroni")
    made = lab.store_metrics(made, [made["metrics"][0], odd])
    query = {"kind": "ExperimentQuery", "experiment_id": made["id"], "metric": made["metrics"][0]}
    answer = lab.query(query)
    assert p_values(answer, "adjusted_p_value") == [
        min(1.0, 2 * p) for p in p_values(answer) if p is not None
    ]


def test_secondary_metrics_are_outside(lab: Lab) -> None:
    made = experiment(lab, "holm")
    secondary = made["metrics_secondary"][0]
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": made["id"], "metric": secondary})
    assert p_values(answer, "adjusted_p_value") == [None, None]


def test_recalculations_are_corrected(lab: Lab) -> None:
    made = experiment(lab, "bonferroni")
    lab.ok("POST", f"/experiments/{made['id']}/metrics_recalculation/", {}, status=201)
    lab.runner.run_once()
    job = lab.ok("GET", f"/experiments/{made['id']}/metrics_recalculation/latest/")
    by_uuid = {each["metric_uuid"]: each["result"] for each in job["results"]}
    for metric in made["metrics"]:
        result = by_uuid[metric["uuid"]]
        expected = [min(1.0, 4 * p) for p in p_values(result) if p is not None]
        assert p_values(result, "adjusted_p_value") == expected
    assert p_values(by_uuid[made["metrics_secondary"][0]["uuid"]], "adjusted_p_value") == [None, None]


def test_without_a_correction_there_is_no_such_field(lab: Lab) -> None:
    made = experiment(lab, None)
    assert "adjusted_p_value" not in lab.series(made)["timeseries"][LAST]["variant_results"][0]
