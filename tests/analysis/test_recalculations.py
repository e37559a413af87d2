"""Jobs that compute all metrics at one moment: who does them, when, and what is kept (spec experiments-api 8.7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.recalculations import Recalculations

START = NOW - timedelta(days=2)


@pytest.fixture
def experiment(lab: Lab) -> dict[str, Any]:
    return lab.experiment(metrics=[PURCHASES, REVENUE], start_date=START.isoformat())


def path(experiment: dict[str, Any], tail: str = "") -> str:
    return f"/experiments/{experiment['id']}/metrics_recalculation/{tail}"


def ask(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = lab.ok("POST", path(experiment), {}, status=201)
    return job


def job_of(lab: Lab, experiment: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.ok("GET", path(experiment, f"{job['id']}/"))
    return found


def test_one_job_at_a_time(lab: Lab, experiment: dict[str, Any]) -> None:
    first = ask(lab, experiment)
    again = lab.ok("POST", path(experiment), {"trigger": "cold_run"}, status=200)
    assert again == first | {"is_existing": True}
    lab.runner.run_once()
    assert ask(lab, experiment)["id"] != first["id"]


def test_results_are_those_of_a_query_at_that_moment(lab: Lab, experiment: dict[str, Any]) -> None:
    for number in range(8):
        person = f"p{number}"
        lab.send([exposed(person, ("control", "test")[number % 2], START), bought(person, START, number)])
    job = ask(lab, experiment)
    lab.runner.run_once()
    done = job_of(lab, experiment, job)
    assert done["query_to"].startswith("2026-03-10T12:00:00")
    for metric, outcome in zip(experiment["metrics"], done["results"], strict=True):
        asked = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric}
        answer = lab.query(asked)
        assert outcome["result"] == {key: answer[key] for key in outcome["result"]}
        assert outcome["result"]["baseline"]["number_of_samples"] == 4


def test_a_job_that_was_interrupted_begins_anew(lab: Lab, experiment: dict[str, Any]) -> None:
    job = ask(lab, experiment)
    recalculations = Recalculations(lab.service)
    stops = iter([False, True])
    assert recalculations.run(recalculations.waiting()[0][1], lambda: next(stops)) == 1
    interrupted = job_of(lab, experiment, job)
    assert (interrupted["status"], interrupted["completed_metrics"]) == ("in_progress", 1)
    assert lab.call("GET", path(experiment, "latest/")).status_code == 404
    assert recalculations.run(recalculations.waiting()[0][1], lambda: False) == 2
    finished = job_of(lab, experiment, job)
    assert (finished["status"], finished["completed_metrics"]) == ("completed", 2)
    assert recalculations.waiting() == []


def test_an_experiment_that_went_away_fails_its_job(lab: Lab, experiment: dict[str, Any]) -> None:
    job = ask(lab, experiment)
    lab.ok("POST", f"/experiments/{experiment['id']}/reset/")
    lab.runner.run_once()
    failed = job_of(lab, experiment, job)
    assert (failed["status"], failed["results"]) == ("failed", [])
    assert lab.call("GET", path(experiment, "latest/")).status_code == 404


def test_a_start_to_come_has_empty_results(lab: Lab) -> None:
    later = (NOW + timedelta(days=1)).isoformat()
    experiment = lab.experiment(metrics=[PURCHASES], start_date=later)
    job = ask(lab, experiment)
    lab.runner.run_once()
    (outcome,) = job_of(lab, experiment, job)["results"]
    assert outcome["result"]["baseline"]["number_of_samples"] == 0


def test_old_jobs_go(lab: Lab, experiment: dict[str, Any]) -> None:
    recalculations = Recalculations(lab.service)
    first = ask(lab, experiment)
    for _ in range(store.KEPT_RECALCULATIONS):
        recalculations.run(recalculations.waiting()[0][1], lambda: False)
        lab.now += timedelta(seconds=1)
        last = ask(lab, experiment)
    with lab.database.read() as connection:
        kept = [each.id for each in store.recalculations(connection, experiment["id"])]
    assert len(kept) == store.KEPT_RECALCULATIONS
    assert (last["id"] in kept, first["id"] in kept) == (True, False)
