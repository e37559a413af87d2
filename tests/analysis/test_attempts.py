"""Metrics that did not end: they are shown as failed, and tried again later and later, also after a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.lab import PURCHASES, REVENUE, Lab, exposed
from tests.analysis.test_live import START, hogql
from tests.analysis.worst_statements import grouped, leaf, nested
from tests.embedded import EmbeddedReader
from tests.waiting import PATIENCE_S

from hoglab.analysis.definitions.experiment_inputs import SeriesKey
from hoglab.analysis.query.expressions import MAX_DEPTH
from hoglab.analysis.timeseries import store
from hoglab.analysis.timeseries.attempts import FIRST_WAIT, MAX_WAIT, STOPPED, wait_after
from hoglab.analysis.timeseries.recalculations import Recalculations
from hoglab.storage.event_store import QueryMemoryError, QueryTimeoutError

TODAY = "2026-03-10"
SLOW = "Query exceeded the time limit of 30 s"


class Failing:
    """Statements that fail, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.tries = 0
        execute = EmbeddedReader.execute

        def fail(reader: EmbeddedReader, sql: str, *rest: Any, **options: Any) -> Any:
            if "purchase" not in str(rest):
                return execute(reader, sql, *rest, **options)
            self.tries += 1
            raise error

        monkeypatch.setattr(EmbeddedReader, "execute", fail)


def running(lab: Lab, *metrics: dict[str, Any]) -> dict[str, Any]:
    lab.send([exposed("ann", "test", START)])
    return lab.experiment(metrics=list(metrics), start_date=START.isoformat())


def findings(lab: Lab, experiment: dict[str, Any]) -> list[str]:
    found = lab.ok("GET", f"/experiments/{experiment['id']}/health/")["findings"]
    return [each["details"]["reason"] for each in found if each["code"] == "metric_failed"]


def test_waits_double_up_to_the_longest() -> None:
    waits = [wait_after(failures) for failures in range(1, 12)]
    assert waits[:4] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT, 8 * FIRST_WAIT]
    assert waits[-1] == wait_after(10_000) == MAX_WAIT
    assert waits == sorted(waits)


@pytest.mark.parametrize("error", [QueryTimeoutError("slow"), QueryMemoryError("large")])
def test_what_did_not_end_is_tried_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lab = Lab(tmp_path)
    experiment = running(lab, REVENUE)
    failing = Failing(monkeypatch, error)
    for failures in range(1, 8):
        answer = lab.series(experiment)
        assert failing.tries == failures
        assert answer["status"] == "failed"
        lab.now += wait_after(failures) - timedelta(seconds=1)
        now = lab.now
        lab.close()
        lab = Lab(tmp_path)  # a restart changes nothing
        lab.now = now
        assert lab.series(experiment)["status"] == "failed"
        lab.runner.run_once()
        assert failing.tries == failures
        lab.now += timedelta(seconds=1)
    lab.close()


def test_an_edited_metric_is_tried_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, REVENUE)
    with monkeypatch.context() as patch:
        Failing(patch, QueryTimeoutError("slow"))
        assert lab.series(experiment)["errors"] == {TODAY: SLOW}
    assert findings(lab, experiment) == [SLOW]
    edited = {**experiment["metrics"][0], "threshold": 5}
    changed = lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"metrics": [edited]})
    assert lab.series(changed)["status"] == "completed"


def test_a_result_forgets_what_was_before(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, REVENUE)
    with monkeypatch.context() as patch:
        Failing(patch, QueryTimeoutError("slow"))
        for failures in (1, 2, 3):
            lab.series(experiment)
            lab.now += wait_after(failures)
    assert lab.series(experiment)["status"] == "completed"
    lab.now += timedelta(minutes=2)
    with monkeypatch.context() as patch:
        failing = Failing(patch, QueryTimeoutError("slow"))
        lab.series(experiment)
        lab.now += FIRST_WAIT
        lab.series(experiment)
        assert failing.tries == 2


def test_a_request_to_compute_it_anew_is_followed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, REVENUE)
    with monkeypatch.context() as patch:
        Failing(patch, QueryTimeoutError("slow"))
        lab.series(experiment)
    metric = experiment["metrics"][0]
    body = {"metric": metric, "fingerprint": metric["fingerprint"]}
    lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
    lab.runner.run_once()
    assert lab.series(experiment)["status"] == "completed"


KILLED = """
import os, sys
from pathlib import Path
from tests.analysis.lab import Lab
from tests.embedded import EmbeddedReader

lab = Lab(Path(sys.argv[1]))
execute = EmbeddedReader.execute
def die(reader, sql, *rest, **options):
    if "purchase" in str(rest):
        os._exit(137)
    return execute(reader, sql, *rest, **options)
EmbeddedReader.execute = die
lab.runner.run_once()
print("survived")
"""


def killed(path: Path) -> None:
    """A server that the metric takes down."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (137, ""), done.stderr[-2000:]


def ask_for_nothing(_lab: Lab, _experiment: dict[str, Any]) -> None:
    """The schedule computes it."""


def ask_for_the_series(lab: Lab, experiment: dict[str, Any]) -> None:
    metric = experiment["metrics"][0]
    body = {"metric": metric, "fingerprint": metric["fingerprint"]}
    lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)


def ask_for_all(lab: Lab, experiment: dict[str, Any]) -> None:
    lab.ok("POST", f"/experiments/{experiment['id']}/metrics_recalculation/", {}, status=201)


@pytest.mark.parametrize("ask", [ask_for_nothing, ask_for_the_series, ask_for_all])
def test_a_metric_that_takes_the_server_down_does_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Lab, dict[str, Any]], None]
) -> None:
    lab = Lab(tmp_path)
    experiment = running(lab, REVENUE)
    ask(lab, experiment)
    lab.close()
    killed(tmp_path)

    lab = Lab(tmp_path)
    with monkeypatch.context() as patch:
        failing = Failing(patch, QueryTimeoutError("slow"))
        for _ in range(3):
            lab.runner.run_once()
        if ask is not ask_for_all:  # whose job has failed; the metric itself is computed on schedule
            assert lab.series(experiment)["errors"] == {TODAY: STOPPED}
            assert failing.tries == 0
    if ask is ask_for_all:
        with lab.database.read() as connection:
            [job] = store.recalculations(connection, experiment["id"])
        assert job.status == "failed"
        assert [each["error_message"] for each in job.results] == [STOPPED]
    else:
        assert findings(lab, experiment) == [STOPPED]
    lab.now += 2 * FIRST_WAIT
    lab.runner.run_once()
    assert lab.series(experiment)["status"] == "completed"
    assert findings(lab, experiment) == []
    lab.close()


def test_a_server_that_ends_in_order_blames_nobody(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    experiment = running(lab, REVENUE)
    metric = experiment["metrics"][0]
    key = SeriesKey(experiment["id"], metric["uuid"], metric["fingerprint"])
    with lab.service.series.attempts.claimed(key):
        lab.runner.stop(1)
        lab.service.jobs.stop(1)
    lab.close()
    lab = Lab(tmp_path)
    assert lab.runner.run_once() == 1
    assert lab.series(experiment)["status"] == "completed"
    lab.close()


def test_a_job_of_all_metrics_leaves_out_what_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, REVENUE, hogql("sum(properties.amount)"))
    with monkeypatch.context() as patch:
        failing = Failing(patch, QueryTimeoutError("slow"))
        lab.series(experiment)
        ask_for_all(lab, experiment)
        jobs = Recalculations(lab.service)
        [(_, job)] = jobs.waiting()
        assert jobs.run(job, lambda: False) == 2
        assert failing.tries == 1
    job_id = job.id
    found = lab.ok("GET", f"/experiments/{experiment['id']}/metrics_recalculation/{job_id}/")
    assert found["metric_errors"] == {experiment["metrics"][0]["uuid"]: SLOW}
    assert found["completed_metrics"] == 1


@pytest.mark.logs_exceptions
def test_an_unexpected_error_of_one_metric_stops_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running(lab, REVENUE, hogql("sum(properties.amount)"))
    with monkeypatch.context() as patch:
        Failing(patch, MemoryError())
        assert lab.runner.run_once() == 2
    assert lab.series(experiment)["errors"] == {TODAY: "Internal error: MemoryError"}
    assert lab.series(experiment, 1)["status"] == "completed"


def test_stored_metrics_above_the_limits_fail_and_nothing_else(lab: Lab) -> None:
    """As they were saved before there were such limits."""
    experiment = running(lab)
    filters = grouped([leaf(number, "gt", number) for number in range(1000)])
    experiment = lab.store_metrics(
        experiment, [hogql(f"sum({nested('least', MAX_DEPTH)})"), {**REVENUE, **filters}, PURCHASES]
    )
    lab.runner.run_once()
    reasons = [lab.series(experiment, index)["errors"][TODAY] for index in (0, 1)]
    assert "nested at most 50 levels deep" in reasons[0]
    assert "they make more than 200,000 characters of SQL" in reasons[1]
    assert lab.series(experiment, 2)["status"] == "completed"
    told = [each["code"] for each in lab.ok("GET", f"/experiments/{experiment['id']}/health/")["findings"]]
    assert told.count("metric_not_computable") == 2
    renamed = lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"name": "Other"})
    assert len(renamed["metrics"]) == 3
