"""The daily results of a metric over the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.events import Event
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.statistics import FrequentistConfig, Proportion, StatisticsConfig, compare

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)


@pytest.fixture(params=[False, True], ids=["from events", "from what is kept"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, keeps=request.param)
    yield lab
    lab.close()


def traffic(users: int = 400) -> list[Event]:
    """A tenth of control buys for 40, a fifth of test buys for 30; half of the users come on the second day."""
    events = []
    for number in range(users):
        variant = ("control", "test")[number % 2]
        at = START + timedelta(minutes=number, days=number // (users // 2))
        events.append(exposed(f"user-{number}", variant, at))
        if number % (20 if variant == "control" else 10) < 2:
            amount = 40 if variant == "control" else "30"
            events.append(bought(f"user-{number}", at + timedelta(minutes=5), amount))
    return events


def counts(point: dict[str, Any] | None) -> dict[str, tuple[int, float]] | None:
    if point is None:
        return None
    rows = [point["baseline"], *point["variant_results"]]
    return {row["key"]: (row["number_of_samples"], row["sum"]) for row in rows}


def test_results_are_there_right_after_the_events(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[PURCHASES, REVENUE], start_date=START.isoformat())
    lab.send(traffic())
    rate = lab.series(experiment)
    assert rate["status"] == "completed"
    assert list(rate["timeseries"]) == ["2026-03-08", "2026-03-09", "2026-03-10"]
    assert counts(rate["timeseries"]["2026-03-08"]) == {"control": (100, 10), "test": (100, 20)}
    assert counts(rate["timeseries"]["2026-03-10"]) == {"control": (200, 20), "test": (200, 40)}
    row = rate["timeseries"]["2026-03-10"]["variant_results"][0]
    assert row["method"] == "bayesian"
    expected = compare(StatisticsConfig(), Proportion(200, 20), Proportion(200, 40))
    assert row["chance_to_win"] == expected.chance_to_win
    assert tuple(row["credible_interval"]) == expected.credible_interval
    assert row["significant"] is True
    assert row["step_counts"] == [40]
    assert all("step_sessions" not in str(point) for point in rate["timeseries"].values())
    revenue = lab.series(experiment, 1)
    assert counts(revenue["timeseries"]["2026-03-10"]) == {"control": (200, 800), "test": (200, 1200)}
    assert rate["computed_at"] == "2026-03-10T12:00:00+00:00"
    assert rate["errors"] is None
    assert rate["recalculation_status"] is None


def test_frequentist_results(lab: Lab) -> None:
    experiment = lab.experiment(
        metrics=[PURCHASES], start_date=START.isoformat(), stats_config={"method": "frequentist"}
    )
    lab.send(traffic())
    row = lab.series(experiment)["timeseries"]["2026-03-10"]["variant_results"][0]
    assert row["method"] == "frequentist"
    expected = compare(StatisticsConfig(FrequentistConfig()), Proportion(200, 20), Proportion(200, 40))
    assert row["p_value"] == expected.p_value
    assert tuple(row["confidence_interval"]) == expected.confidence_interval
    assert "chance_to_win" not in row


def test_a_stale_point_is_computed_anew_and_a_fresh_one_is_not(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[PURCHASES], start_date=START.isoformat())
    assert counts(lab.series(experiment)["timeseries"]["2026-03-10"]) == {
        "control": (0, 0),
        "test": (0, 0),
    }
    lab.send(traffic())
    lab.now = NOW + timedelta(seconds=59)
    assert counts(lab.series(experiment)["timeseries"]["2026-03-10"]) == {"control": (0, 0), "test": (0, 0)}
    lab.now = NOW + timedelta(seconds=60)
    found = lab.series(experiment)["timeseries"]
    assert counts(found["2026-03-10"]) == {"control": (200, 20), "test": (200, 40)}
    assert counts(found["2026-03-08"]) == {"control": (100, 10), "test": (100, 20)}, "late events count"


def test_a_new_day_gets_a_point_at_once(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[PURCHASES], start_date=START.isoformat())
    lab.now = datetime(2026, 3, 10, 23, 59, 50, tzinfo=UTC)
    lab.series(experiment)
    lab.now = datetime(2026, 3, 11, 0, 0, 5, tzinfo=UTC)
    found = lab.series(experiment)
    assert found["status"] == "completed"
    assert list(found["timeseries"])[-1] == "2026-03-11"


def test_what_nobody_knows_is_pending(lab: Lab) -> None:
    experiment = lab.experiment(metrics=[PURCHASES], start_date=START.isoformat())
    answer = lab.ok(
        "GET",
        f"/experiments/{experiment['id']}/timeseries_results/",
        params={"metric_uuid": "nobody", "fingerprint": "nothing"},
    )
    assert answer["status"] == "pending"
    assert answer["timeseries"] == {"2026-03-08": None, "2026-03-09": None, "2026-03-10": None}
    assert answer["computed_at"] is None


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({}, "metric_uuid query parameter is required"),
        ({"metric_uuid": ""}, "metric_uuid query parameter is required"),
        ({"metric_uuid": "a"}, "fingerprint query parameter is required"),
        ({"metric_uuid": "a", "fingerprint": "b"}, "Experiment has not been started yet"),
    ],
)
def test_what_is_missing_is_said(lab: Lab, params: dict[str, str], detail: str) -> None:
    experiment = lab.experiment(metrics=[PURCHASES])
    answer = lab.call("GET", f"/experiments/{experiment['id']}/timeseries_results/", params=params)
    assert answer.status_code == 400
    assert answer.json()["detail"] == detail
    assert answer.json()["attr"] is None
