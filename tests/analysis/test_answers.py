"""The order of rows and the extent of answers (spec experiment-results 2.6, 3.10, 5.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.analysis.lab import NOW, PURCHASES, REVENUE, Lab, bought, exposed

from hoglab.analysis.results.exposures import MAX_EXPOSURE_ROWS
from hoglab.experiments import store as experiments_store

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def with_variants(lab: Lab, *shares: tuple[str, int], **fields: Any) -> dict[str, Any]:
    variants = [{"key": key, "rollout_percentage": share} for key, share in shares]
    return lab.experiment(
        start_date=START.isoformat(), parameters={"feature_flag_variants": variants}, **fields
    )


def exposures(lab: Lab, experiment: dict[str, Any], **fields: Any) -> dict[str, Any]:
    flag = {"key": "checkout", "filters": experiment["feature_flag"]["filters"]}
    query = {"kind": "ExperimentExposureQuery", "experiment_id": experiment["id"], "feature_flag": flag}
    return lab.query({**query, "exposure_criteria": {"filterTestAccounts": False}, **fields})


def test_variants_that_nobody_saw_come_last_and_all_in_flag_order(lab: Lab) -> None:
    experiment = with_variants(lab, *((key, 20) for key in ("d", "c", "control", "b", "a")))
    lab.send([exposed("ann", "a", START), exposed("bob", "b", START), exposed("cy", "c", START)])
    lab.send([bought("ann", START, 5)])
    breakdown = {"breakdownFilter": {"breakdowns": [{"property": "$feature_flag"}]}}
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE | breakdown}
    answer = lab.query(query)
    assert (answer["baseline"]["key"], answer["baseline"]["number_of_samples"]) == ("control", 0)
    (cell,) = answer["breakdown_results"]
    for rows in (answer["variant_results"], cell["variants"]):
        found = [(row["key"], row["number_of_samples"], row["sum"]) for row in rows]
        assert found == [("c", 1, 0), ("b", 1, 0), ("a", 1, 5), ("d", 0, 0)]


def test_a_baseline_that_is_no_variant_any_more_is_an_error(lab: Lab) -> None:
    """The API lets nobody take it away; a flag that is edited elsewhere may."""
    settings = {"method": "bayesian", "baseline_variant_key": "test"}
    experiment = with_variants(lab, ("control", 34), ("test", 33), ("b", 33), stats_config=settings)
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    assert lab.query(query)["baseline"]["key"] == "test"
    with lab.database.write() as tx:
        kept = {"stats_config": {**settings, "baseline_variant_key": "gone"}}
        experiments_store.update(tx.connection, experiment["id"], kept)
        tx.changed("experiments", 1)
    assert lab.query(query, status=400)["detail"] == "No control variant found"


def test_a_user_matures_at_the_moment_that_the_window_is_over(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat(), only_count_matured_users=True)
    moments = {"just": NOW - DAY, "almost": NOW - DAY + timedelta(microseconds=1)}
    lab.send([exposed(person, "control", moment) for person, moment in moments.items()])
    lab.send([exposed("ann", "test", START)])
    for metric in (REVENUE, PURCHASES):
        asked = metric | {"conversion_window": 1, "conversion_window_unit": "day"}
        query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": asked}
        assert lab.query(query)["baseline"]["number_of_samples"] == 1


@pytest.mark.parametrize("shares", [(50, 50), (40, 30, 30)])
def test_exposures_of_many_days_have_at_most_five_thousand_rows(lab: Lab, shares: tuple[int, ...]) -> None:
    """Those of the last days; who came before is in the first of them."""
    keys = ["control", *(f"t{number}" for number in range(1, len(shares)))]
    experiment = with_variants(lab, *zip(keys, shares, strict=True))
    long_ago = NOW - 1900 * DAY
    lab.send([exposed("ann", "control", long_ago), exposed("bob", "t1", NOW)])
    lab.send([exposed("both", key, NOW - DAY) for key in ("control", "t1")])
    answer = exposures(lab, experiment, start_date=long_ago.isoformat(), end_date=None)
    rows = answer["timeseries"]
    assert [row["variant"] for row in rows] == [*keys, "$multiple"]
    days = MAX_EXPOSURE_ROWS // len(rows)
    for row in rows:
        assert (len(row["days"]), len(row["exposure_counts"])) == (days, days)
        assert row["days"][-1] == NOW.date().isoformat()
        assert row["days"][0] == (NOW - (days - 1) * DAY).date().isoformat()
    assert (rows[0]["exposure_counts"][0], rows[0]["exposure_counts"][-1]) == (1, 1)
    assert rows[1]["exposure_counts"][-2:] == [0, 1]
    assert rows[-1]["exposure_counts"][-3:] == [0, 1, 1]
    assert answer["total_exposures"] == {**dict.fromkeys(keys, 0), "control": 1, "t1": 1, "$multiple": 1}


def test_before_its_start_an_experiment_has_no_exposures(lab: Lab) -> None:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "test", NOW)])
    answer = exposures(lab, experiment, start_date=(NOW + DAY).isoformat(), end_date=None)
    assert (answer["timeseries"], answer["total_exposures"]) == ([], {})


def test_until_an_end_to_come_days_are_shown_to_today_and_bias_is_told(lab: Lab) -> None:
    experiment = with_variants(lab, ("control", 80), ("test", 20))
    lab.send([exposed("ann", "test", START), exposed("ann", "control", START), exposed("bob", "test", START)])
    lab.send([exposed("early", "test", NOW + timedelta(hours=1))])
    answer = exposures(lab, experiment, start_date=START.isoformat(), end_date=(NOW + 5 * DAY).isoformat())
    assert {tuple(row["days"]) for row in answer["timeseries"]} == {
        ("2026-03-08", "2026-03-09", "2026-03-10")
    }
    assert answer["total_exposures"] == {"control": 0, "test": 1, "$multiple": 1}, (
        "nothing is from later than now"
    )
    assert answer["bias_risk"] == {"multiple_variant_percentage": 50.0}
