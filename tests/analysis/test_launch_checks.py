"""What an experiment lacks before its launch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed

from hoglab.storage.database.tables import feature_flag

CODES = ["split", "flag_unshared", "has_metric", "metric_events", "flag_called"]


def checks(lab: Lab, experiment: dict[str, Any]) -> tuple[bool, dict[str, dict[str, Any]]]:
    found = lab.ok("GET", f"/experiments/{experiment['id']}/launch_checks/")
    assert found["experiment_id"] == experiment["id"]
    return found["is_ready"], {check["code"]: check for check in found["checks"]}


def failed(lab: Lab, experiment: dict[str, Any]) -> tuple[bool, list[str]]:
    ready, found = checks(lab, experiment)
    for check in found.values():
        assert check["passed"] is (check["advice"] is None)
    return ready, [code for code, check in found.items() if not check["passed"]]


def called(lab: Lab, key: str = "checkout") -> None:
    with lab.database.write() as tx:
        change = sa.update(feature_flag).where(feature_flag.c.key == key).values(last_called_at=NOW)
        assert tx.connection.execute(change).rowcount == 1
        tx.changed("flags", 1)


def test_an_experiment_that_is_ready(lab: Lab) -> None:
    made = lab.experiment(metrics=[REVENUE])
    called(lab)
    lab.send([bought("ann", NOW - timedelta(days=29), 5)])
    ready, found = checks(lab, made)
    assert (ready, list(found)) == (True, CODES)
    assert all(check["passed"] for check in found.values())


def test_what_is_only_missing_does_not_block(lab: Lab) -> None:
    made = lab.experiment(metrics=[REVENUE])
    lab.send([bought("ann", NOW - timedelta(days=31), 5)])
    assert failed(lab, made) == (True, ["metric_events", "flag_called"])
    assert "“purchase”" in checks(lab, made)[1]["metric_events"]["message"]


def test_no_primary_metric_blocks(lab: Lab) -> None:
    made = lab.experiment(metrics_secondary=[REVENUE])
    called(lab)
    lab.send([bought("ann", NOW, 5)])
    assert failed(lab, made) == (False, ["has_metric"])


@pytest.mark.parametrize("is_running", [True, False])
def test_a_flag_of_another_running_experiment_blocks(lab: Lab, is_running: bool) -> None:
    first = lab.experiment(metrics=[REVENUE])
    second = lab.ok("POST", f"/experiments/{first['id']}/duplicate/", {"name": "Again"})
    called(lab)
    lab.send([exposed("ann", "test", NOW), bought("ann", NOW, 5)])
    lab.ok("POST", f"/experiments/{first['id']}/launch/", {})
    if not is_running:
        lab.ok("POST", f"/experiments/{first['id']}/end/", {})
    assert failed(lab, second) == ((False, ["flag_unshared"]) if is_running else (True, []))


@pytest.mark.parametrize("shares", [(50, 40), (0, 0), (60, 60)])
def test_shares_that_do_not_sum_to_100_block(lab: Lab, shares: tuple[int, int]) -> None:
    """As a flag may have them that was changed elsewhere."""
    made = lab.experiment(metrics=[REVENUE])
    called(lab)
    lab.send([bought("ann", NOW, 5)])
    with lab.database.write() as tx:
        (filters,) = tx.connection.execute(sa.select(feature_flag.c.filters)).one()
        for variant, share in zip(filters["multivariate"]["variants"], shares, strict=True):
            variant["rollout_percentage"] = share
        tx.connection.execute(sa.update(feature_flag).values(filters=filters))
        tx.changed("flags", 1)
    ready, found = checks(lab, made)
    assert not ready
    assert f"sum to {sum(shares)}%" in found["split"]["message"]


def test_a_metric_that_cannot_be_computed_blocks(lab: Lab) -> None:
    broken = {
        **REVENUE,
        "source": {**REVENUE["source"], "properties": [{"type": "cohort", "key": "id", "value": 77}]},
    }
    made = lab.store_metrics(lab.experiment(metrics=[REVENUE]), [broken])
    ready, codes = failed(lab, made)
    assert (ready, "metric_not_computable" in codes) == (False, True)
