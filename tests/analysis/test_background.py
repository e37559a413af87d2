"""Points that appear without anybody asking: schedule, launch, recalculation, the end of an experiment."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.analysis.timeseries.scheduler import ResultsRunner, last_scheduled
from hoglab.storage.database.tables import metric_result

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)


def stored(lab: Lab, experiment: dict[str, Any]) -> list[Any]:
    with lab.database.read() as connection:
        statement = sa.select(metric_result).where(metric_result.c.experiment_id == experiment["id"])
        return list(connection.execute(statement.order_by(metric_result.c.query_to)))


def sums(point: dict[str, Any]) -> dict[str, float]:
    return {row["key"]: row["sum"] for row in (point["baseline"], *point["variant_results"])}


def test_points_are_computed_on_schedule(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[PURCHASES, REVENUE], start_date=START.isoformat())
    draft = lab.experiment(key="other", metrics=[PURCHASES])
    assert lab.runner.run_once() == 2
    assert len(stored(lab, experiment)) == 6
    assert stored(lab, draft) == []
    assert lab.runner.run_once() == 0
    lab.now = datetime(2026, 3, 11, 1, 59, 59, tzinfo=UTC)
    assert lab.runner.run_once() == 0
    lab.now = datetime(2026, 3, 11, 2, 0, 1, tzinfo=UTC)
    assert lab.runner.run_once() == 2
    assert len(stored(lab, experiment)) == 8


@pytest.mark.parametrize(
    ("defaults", "now", "expected"),
    [
        ({}, "2026-03-10T02:00:00+00:00", "2026-03-10T02:00:00+00:00"),
        ({}, "2026-03-10T01:59:59+00:00", "2026-03-09T02:00:00+00:00"),
        (
            {"experiment_recalculation_times": ["04:00:00", "16:00:00"]},
            "2026-03-10T12:00:00+00:00",
            "2026-03-10T04:00:00+00:00",
        ),
        (
            {"experiment_recalculation_times": ["04:00:00", "16:00:00"]},
            "2026-03-10T03:00:00+00:00",
            "2026-03-09T16:00:00+00:00",
        ),
        (
            {"experiment_recalculation_time": "07:00:00"},
            "2026-03-10T07:00:00+00:00",
            "2026-03-10T07:00:00+00:00",
        ),
        (
            {"experiment_recalculation_times": ["noon", 5]},
            "2026-03-10T03:00:00+00:00",
            "2026-03-10T02:00:00+00:00",
        ),
    ],
)
def test_the_schedule_is_that_of_the_project(defaults: dict[str, Any], now: str, expected: str) -> None:
    assert last_scheduled(defaults, datetime.fromisoformat(now)) == datetime.fromisoformat(expected)


def test_a_launch_is_noticed_by_the_running_thread(lab: Lab) -> None:
    runner = ResultsRunner(lab.service, check_interval_s=3600)
    runner.start()
    try:
        experiment = lab.experiment(metrics=[PURCHASES])
        lab.ok("POST", f"/experiments/{experiment['id']}/launch/")
        appeared = threading.Event()
        deadline = threading.Timer(20, appeared.set)
        deadline.start()
        while not stored(lab, experiment) and not appeared.is_set():
            appeared.wait(0.02)
        deadline.cancel()
        assert len(stored(lab, experiment)) == 1
    finally:
        runner.stop(timeout_s=10)


def test_recalculation_replaces_a_series(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    lab.send([exposed("ann", "test", START), bought("ann", START + timedelta(hours=1), 5)])
    lab.series(experiment)
    lab.send([bought("ann", START + timedelta(hours=2), 7)])
    metric = experiment["metrics"][0]
    body = {"metric": metric, "fingerprint": metric["fingerprint"]}
    path = f"/experiments/{experiment['id']}/recalculate_timeseries/"
    job = lab.ok("POST", path, body, status=201)
    assert job["status"] == "pending"
    assert job["experiment_id"] == experiment["id"]
    assert job["metric_uuid"] == metric["uuid"]
    assert stored(lab, experiment) == []
    assert lab.ok("POST", path, body)["id"] == job["id"], "an active job is returned"
    assert lab.series(experiment)["recalculation_status"] == "pending"
    lab.runner.run_once()
    answer = lab.series(experiment)
    assert answer["recalculation_status"] is None
    assert answer["status"] == "completed"
    assert sums(answer["timeseries"]["2026-03-08"]) == {"control": 0, "test": 12}
    assert lab.ok("POST", path, body, status=201)["id"] != job["id"]


def test_a_job_that_was_interrupted_is_done_after_a_restart(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    metric = experiment["metrics"][0]
    body = {"metric": metric, "fingerprint": metric["fingerprint"]}
    lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
    with lab.database.write() as tx:
        tx.execute(sa.text("UPDATE metric_recalculation SET status = 'in_progress'"))
    lab.runner.run_once()
    assert lab.series(experiment)["recalculation_status"] is None
    assert lab.series(experiment)["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "started", "detail"),
    [
        ({}, True, "metric is required"),
        ({"metric": {"uuid": "a"}}, True, "fingerprint is required"),
        (
            {"metric": {"uuid": "a"}, "fingerprint": "b"},
            False,
            "Cannot recalculate timeseries for experiment that hasn't started",
        ),
    ],
)
def test_recalculation_says_what_is_missing(lab: Lab, body: Any, started: bool, detail: str) -> None:
    dates = {"start_date": START.isoformat()} if started else {}
    experiment = lab.experiment(metrics=[REVENUE], **dates)
    answer = lab.call("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


def test_recalculation_of_nonsense_fails_with_a_reason(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    body = {"metric": {"uuid": "u", "metric_type": "mystery"}, "fingerprint": "f"}
    lab.ok("POST", f"/experiments/{experiment['id']}/recalculate_timeseries/", body, status=201)
    lab.runner.run_once()
    answer = lab.ok(
        "GET",
        f"/experiments/{experiment['id']}/timeseries_results/",
        params={"metric_uuid": "u", "fingerprint": "f"},
    )
    assert answer["status"] == "failed"
    assert answer["errors"] == {
        "2026-03-10": "Metrics of type 'mystery' are not supported. "
        "There are mean, funnel, ratio, retention and quantile."
    }


def test_an_ended_experiment_keeps_its_last_result(lab: Lab) -> None:
    """Purchases count as long as the window of somebody exposed before the end is open, and no longer."""
    metric = {**REVENUE, "conversion_window": 1, "conversion_window_unit": "day"}
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    lab.ok("POST", f"/experiments/{experiment['id']}/end/", {})
    exposure = NOW - timedelta(hours=1)
    lab.send([exposed("ann", "test", exposure), bought("ann", NOW + timedelta(hours=3), 5)])
    lab.now = NOW + timedelta(hours=4)
    answer = lab.series(experiment)
    assert list(answer["timeseries"])[-1] == "2026-03-10"
    assert sums(answer["timeseries"]["2026-03-10"]) == {"control": 0, "test": 5}
    assert answer["status"] == "completed"
    lab.now = NOW + timedelta(days=2)
    lab.series(experiment)
    settled = stored(lab, experiment)
    lab.now = NOW + timedelta(days=3)
    lab.series(experiment)
    assert lab.runner.run_once() == 0
    assert stored(lab, experiment) == settled


@pytest.mark.parametrize(
    "metric", [REVENUE, {**REVENUE, "upper_bound_percentile": 1}], ids=["sum", "clamped"]
)
def test_an_end_that_moves_takes_its_result_along(lab: Lab, metric: dict[str, Any]) -> None:
    """Also into the past, where the day of the end had a point of the whole day."""
    experiment = lab.experiment(metrics=[metric], start_date=START.isoformat())
    path = f"/experiments/{experiment['id']}/"
    end = START + timedelta(hours=3)
    lab.send([exposed("ann", "test", START), bought("ann", end - timedelta(hours=1), 5)])
    lab.send([bought("ann", end + timedelta(hours=1), 7), bought("ann", NOW - timedelta(hours=1), 9)])
    found = lab.series(experiment)["timeseries"]
    assert [sums(point)["test"] for point in found.values()] == [12, 12, 21]
    lab.ok("PATCH", path, {"end_date": end.isoformat()})
    found = lab.series(experiment)["timeseries"]
    assert {day: sums(point)["test"] for day, point in found.items()} == {"2026-03-08": 5}
    assert [point.query_to for point in stored(lab, experiment)] == [end + timedelta(microseconds=1)]
    lab.ok("PATCH", path, {"end_date": None})
    found = lab.series(experiment)["timeseries"]
    assert [sums(point)["test"] for point in found.values()] == [12, 12, 21]


def test_the_background_follows_an_end_that_moves(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    end = START + timedelta(hours=3)
    lab.send([exposed("ann", "test", START), bought("ann", end + timedelta(hours=1), 7)])
    assert lab.runner.run_once() == 1
    lab.ok("PATCH", f"/experiments/{experiment['id']}/", {"end_date": end.isoformat()})
    lab.now = NOW + timedelta(days=1)
    assert lab.runner.run_once() == 1
    assert [sums(point.result)["test"] for point in stored(lab, experiment)] == [0]
    lab.now = NOW + timedelta(days=2)
    assert lab.runner.run_once() == 0, "it has settled"


@pytest.mark.parametrize("by", ["request", "schedule"])
def test_history_that_is_sent_after_results_have_settled_counts(lab: Lab, by: str) -> None:
    def look() -> list[float]:
        if by == "request":
            return [sums(point)["test"] for point in lab.series(experiment)["timeseries"].values()]
        lab.runner.run_once()
        return [sums(point.result)["test"] for point in stored(lab, experiment)]

    end = START + timedelta(days=1)
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat(), end_date=end.isoformat())
    assert look() == [0, 0]
    lab.now = NOW + timedelta(days=2)
    assert look() == [0, 0]
    history = [
        exposed("ann", "test", START),
        bought("ann", START, 5),
        bought("ann", end - timedelta(hours=1), 7),
    ]
    lab.send(history, captured_at=lab.now)
    lab.now += timedelta(days=1)
    assert look() == [5, 12]
    points = stored(lab, experiment)
    others = [bought("ann", end + timedelta(hours=1), 9), Event("ann", START, "page viewed")]
    lab.send(others, captured_at=lab.now)
    lab.now += timedelta(days=1)
    assert look() == [5, 12]
    assert stored(lab, experiment) == points, (
        "events of another time, or of no metric, are no reason to compute"
    )


def test_a_day_that_is_over_has_a_point_of_the_whole_day(lab: Lab) -> None:
    """Also where a point costs a statement of its own: the last one of the day was of less."""
    experiment = lab.experiment(
        metrics=[{**REVENUE, "upper_bound_percentile": 1}], start_date=START.isoformat()
    )
    lab.send([exposed("ann", "test", START), bought("ann", NOW - timedelta(hours=1), 5)])
    lab.series(experiment)
    lab.send([bought("ann", NOW + timedelta(hours=1), 7)])
    lab.now = NOW + timedelta(days=1)
    found = lab.series(experiment)["timeseries"]
    assert {day: sums(point)["test"] for day, point in found.items()} == {
        "2026-03-08": 0,
        "2026-03-09": 0,
        "2026-03-10": 12,
        "2026-03-11": 12,
    }


def test_unchanged_days_are_left_alone(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    lab.series(experiment)
    before = {point.query_to: point.updated_at for point in stored(lab, experiment)}
    lab.now = NOW + timedelta(minutes=5)
    lab.series(experiment)
    after = {point.query_to: point.updated_at for point in stored(lab, experiment)}
    assert len(before) == len(after) == 3
    kept = before.keys() & after.keys()
    assert len(kept) == 2
    assert all(before[moment] == after[moment] for moment in kept)


def test_many_requests_at_once_compute_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = lab.experiment(metrics=[REVENUE], start_date=START.isoformat())
    metric = experiment["metrics"][0]
    calls: list[object] = []
    points = lab.service.computer.points

    def counted(*args: Any) -> Any:
        calls.append(args)
        return points(*args)

    monkeypatch.setattr(lab.service.computer, "points", counted)
    path = (
        f"/api/projects/1/experiments/{experiment['id']}/timeseries_results/"
        f"?metric_uuid={metric['uuid']}&fingerprint={metric['fingerprint']}"
    )
    answers = lab.together([("GET", f"http://test{path}")] * 12)
    assert [answer.status_code for answer in answers] == [200] * 12
    assert {answer.json()["status"] for answer in answers} == {"completed"}
    assert len(calls) == 1
