"""What an experiment promised and what was decided is kept: plan, amendments and decisions, beside the verdict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab
from tests.analysis.test_harm import CRASHES, START, crowd, results

FREQUENTIST = {"method": "frequentist"}
GUARDRAIL = {**CRASHES, "margin": 0.1}


@pytest.fixture
def made(lab: Lab) -> dict[str, Any]:
    """A running experiment whose planned end is reached, with a clear winner."""
    made = lab.experiment(
        start_date=START.isoformat(),
        stats_config=FREQUENTIST,
        metrics=[PURCHASES],
        metrics_secondary=[GUARDRAIL],
        running_time_calculation={"recommended_running_time": 2},
    )
    lab.send(crowd({"control": 140, "test": 250}, {"control": 200, "test": 100}))
    return made


def path(made: dict[str, Any]) -> str:
    return f"/experiments/{made['id']}"


def records(lab: Lab, made: dict[str, Any]) -> list[dict[str, Any]]:
    """The records, oldest first."""
    answer = lab.ok("GET", f"{path(made)}/records/")
    assert answer["count"] == len(answer["results"])
    return list(reversed(answer["results"]))


def reasons(lab: Lab, made: dict[str, Any], code: str) -> list[str]:
    verdict = results(lab, made)["verdict"]
    return [reason["text"] for reason in verdict["reasons"] if reason["code"] == code]


def changed(lab: Lab, made: dict[str, Any], **fields: Any) -> list[str]:
    """The changes of the plan that a PATCH makes, as they are recorded."""
    before = len(records(lab, made))
    lab.ok("PATCH", f"{path(made)}/", fields)
    return [text for record in records(lab, made)[before:] for text in record["detail"]["changes"]]


def test_the_plan_is_frozen_at_the_launch(lab: Lab) -> None:
    made = lab.experiment(metrics=[PURCHASES], stats_config=FREQUENTIST)
    lab.ok("PATCH", f"{path(made)}/", {"stats_config": {"method": "bayesian"}})
    assert records(lab, made) == []  # a draft has no plan yet
    lab.ok("POST", f"{path(made)}/launch/", {})
    [launched] = records(lab, made)
    assert (launched["kind"], launched["created_by"]["email"] != "") == ("launched", True)
    plan = launched["detail"]["plan"]
    assert [metric["role"] for metric in plan["metrics"].values()] == ["primary"]
    assert plan["statistics"]["inference_config"]["ci_level"] == 0.95


def alpha(_metrics: Any) -> tuple[dict[str, Any], list[str]]:
    config = {"method": "frequentist", "frequentist": {"alpha": 0.2}}
    return {"stats_config": config}, ["alpha changed from 0.05 to 0.2"]


def longer(_metrics: Any) -> tuple[dict[str, Any], list[str]]:
    fields = {"running_time_calculation": {"recommended_running_time": 14}}
    return fields, ["planned days changed from 2 to 14"]


def further_metric(metrics: Any) -> tuple[dict[str, Any], list[str]]:
    return {"metrics": [*metrics[0], REVENUE]}, ["primary metric “Revenue” added"]


def no_guardrail(_metrics: Any) -> tuple[dict[str, Any], list[str]]:
    return {"metrics_secondary": []}, ["guardrail metric “Crash rate” removed"]


def wider_margin(metrics: Any) -> tuple[dict[str, Any], list[str]]:
    metric = {**metrics[1][0], "margin": 0.5}
    return {"metrics_secondary": [metric]}, ["margin of “Crash rate” changed from 0.1 to 0.5"]


def other_event(metrics: Any) -> tuple[dict[str, Any], list[str]]:
    metric = {**metrics[0][0], "series": [{"kind": "EventsNode", "event": "crash"}]}
    return {"metrics": [metric]}, ["definition of “Purchase rate” changed"]


def other_goal(metrics: Any) -> tuple[dict[str, Any], list[str]]:
    return {"metrics": [{**metrics[0][0], "goal": "decrease"}]}, [
        "goal of “Purchase rate” changed from increase to decrease"
    ]


def earlier_start(_metrics: Any) -> tuple[dict[str, Any], list[str]]:
    return {"start_date": (START - timedelta(hours=1)).isoformat()}, ["start moved from"]


AMENDMENTS = [
    alpha,
    longer,
    further_metric,
    no_guardrail,
    wider_margin,
    other_event,
    other_goal,
    earlier_start,
]


@pytest.mark.parametrize(
    ("amendment", "has_ended"), [*((amendment, False) for amendment in AMENDMENTS), (alpha, True)]
)
def test_every_amendment_is_recorded_and_told_beside_the_verdict(
    lab: Lab, made: dict[str, Any], amendment: Any, has_ended: bool
) -> None:
    assert "no amendment" not in reasons(lab, made, "error_rates")[0]
    if has_ended:
        lab.ok("POST", f"{path(made)}/end/", {})
    fields, expected = amendment((made["metrics"], made["metrics_secondary"]))
    texts = changed(lab, made, **fields)
    assert len(texts) == len(expected)
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True))
    [told] = reasons(lab, made, "amended")
    assert told.startswith(f"The plan was amended on {NOW:%Y-%m-%d} by ")
    assert expected[0] in told
    assert "no amendment of the plan was made because of the results" in reasons(lab, made, "error_rates")[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Other"},
        {"description": "x"},
        {"conclusion": "won"},
        {"scheduling_config": {"timeseries": True}},
    ],
)
def test_what_decides_nothing_is_no_amendment(lab: Lab, made: dict[str, Any], fields: dict[str, Any]) -> None:
    assert changed(lab, made, **fields) == []
    assert reasons(lab, made, "amended") == []


def test_a_renamed_metric_is_the_same(lab: Lab, made: dict[str, Any]) -> None:
    assert changed(lab, made, metrics=[{**made["metrics"][0], "name": "Other"}]) == []


def test_an_edit_of_a_shared_metric_amends_the_plans_of_its_experiments(lab: Lab) -> None:
    shared = lab.ok("POST", "/experiment_saved_metrics/", {"name": "Buyers", "query": PURCHASES}, status=201)
    made = lab.experiment(
        start_date=START.isoformat(),
        saved_metrics_ids=[{"id": shared["id"], "metadata": {"type": "primary"}}],
    )
    query = {**shared["query"], "goal": "decrease"}
    lab.ok("PATCH", f"/experiment_saved_metrics/{shared['id']}/", {"query": query})
    assert [record["kind"] for record in records(lab, made)] == ["launched", "amended"]


@pytest.mark.parametrize("way", ["end", "patch", "ship_variant"])
def test_a_decision_is_kept_with_the_verdict_and_the_sums_of_its_moment(
    lab: Lab, made: dict[str, Any], way: str
) -> None:
    seen = results(lab, made)
    assert seen["verdict"]["next_action"]["code"] == "ship_variant"
    lab.now += timedelta(minutes=1)
    if way == "patch":
        fields = {"end_date": lab.now.isoformat(), "conclusion": "won"}
        lab.ok("PATCH", f"{path(made)}/", fields)
    else:
        body = {"conclusion": "won"} | ({"variant_key": "test"} if way == "ship_variant" else {})
        lab.ok("POST", f"{path(made)}/{way}/", body)
    kept = records(lab, made)
    kind = "shipped" if way == "ship_variant" else "ended"
    assert [record["kind"] for record in kept] == ["launched", kind]
    detail = kept[1]["detail"]
    assert detail["results"]["verdict"]["headline"] == seen["verdict"]["headline"]
    assert detail["results"]["verdict"]["state"] == "better"
    row = detail["results"]["metrics"][0]["result"]["variant_results"][0]
    assert (row["number_of_samples"], row["sum"]) == (700, 250)
    assert detail["conclusion"] == "won"
    assert kept[1]["created_by"] is not None
    [told] = reasons(lab, made, "decided")
    assert told.endswith(f"The verdict then was: {seen['verdict']['headline']}")
    assert (" shipped on " in told) == (way == "ship_variant")


def test_late_data_and_amendments_never_rewrite_a_decision(lab: Lab, made: dict[str, Any]) -> None:
    lab.ok("POST", f"{path(made)}/end/", {})
    kept = records(lab, made)
    lab.send(crowd({"control": 600, "test": 250}))
    lab.now += timedelta(hours=2)
    changed(lab, made, stats_config={"method": "bayesian"})
    [told] = reasons(lab, made, "decided")
    assert kept[-1]["detail"]["results"]["verdict"]["headline"] in told
    assert records(lab, made)[: len(kept)] == kept


def test_results_that_cannot_be_had_soon_keep_nobody_from_deciding(
    lab: Lab, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab.experiments, "judge", lambda _project, _experiment_id: None)
    lab.ok("POST", f"{path(made)}/end/", {})
    assert records(lab, made)[-1]["detail"]["results"] is None
    [told] = reasons(lab, made, "decided")
    assert told.endswith("No verdict was known then.")


def test_records_of_a_former_launch_are_kept_but_not_told(lab: Lab, made: dict[str, Any]) -> None:
    changed(lab, made, stats_config={"method": "bayesian"})
    lab.ok("POST", f"{path(made)}/reset/", {})
    lab.ok("PATCH", f"{path(made)}/", {"start_date": START.isoformat()})
    assert [record["kind"] for record in records(lab, made)] == ["launched", "amended", "launched"]
    assert reasons(lab, made, "amended") == []


def test_records_of_others_are_not_to_be_had(lab: Lab) -> None:
    assert lab.call("GET", "/experiments/999/records/").status_code == 404
