"""Filters that look beyond one event: test accounts, cohorts and actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.analysis.events import Event, person_id
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed

from hoglab.storage.database.tables import action, cohort, cohort_person, person, project

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)


def samples(lab: Lab, metric: dict[str, Any], **fields: Any) -> dict[str, tuple[int, float]]:
    experiment = lab.experiment(start_date=START.isoformat(), **fields)
    answer = lab.query({"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": metric})
    rows = [answer["baseline"], *answer["variant_results"]]
    return {row["key"]: (row["number_of_samples"], row["sum"]) for row in rows}


def set_test_accounts(lab: Lab, filters: list[dict[str, Any]]) -> None:
    with lab.database.write() as tx:
        tx.execute(sa.update(project).values(test_account_filters=filters))
        tx.changed("project", 1)


def insert(lab: Lab, table: sa.Table, **values: Any) -> int:
    with lab.database.write() as tx:
        found = tx.execute(sa.insert(table).values(**values).returning(table.c.id)).scalar_one()
        tx.changed("cohorts", 1)
    return int(found)


def make_cohort(lab: Lab, **values: Any) -> int:
    return insert(lab, cohort, project_id=1, name="Staff", groups=[], created_at=NOW, **values)


def people(lab: Lab) -> None:
    """Ann is staff by her e-mail address; bob is not."""
    lab.send(
        [
            Event(
                "ann",
                START,
                "$feature_flag_called",
                {"$feature_flag": "checkout", "$feature_flag_response": "test"},
                person_properties={"email": "ann@hog.example"},
            ),
            bought("ann", START + timedelta(hours=1), 5),
            exposed("bob", "test", START),
            bought("bob", START + timedelta(hours=1), 7),
        ]
    )


STAFF = {"key": "email", "type": "person", "operator": "icontains", "value": "@hog.example"}
CRITERIA = {"exposure_criteria": {"filterTestAccounts": True}}


def test_test_accounts_are_left_out_of_exposures_only(lab: Lab) -> None:
    people(lab)
    set_test_accounts(lab, [{**STAFF, "operator": "not_icontains"}])
    assert samples(lab, REVENUE, **CRITERIA) == {"control": (0, 0), "test": (1, 7)}
    assert samples(lab, REVENUE, key="checkout-2") == {"control": (0, 0), "test": (0, 0)}


def test_dynamic_cohorts_are_their_conditions(lab: Lab) -> None:
    people(lab)
    staff = make_cohort(lab, filters={"properties": {"type": "OR", "values": [STAFF]}})
    wider = make_cohort(
        lab,
        filters={"properties": {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": staff}]}},
    )
    for identifier in (staff, wider):
        set_test_accounts(lab, [{"key": "id", "type": "cohort", "operator": "not_in", "value": identifier}])
        assert samples(lab, REVENUE, key="checkout", **CRITERIA)["test"] == (1, 7)


def test_static_cohorts_are_their_members(lab: Lab) -> None:
    people(lab)
    bob = insert(
        lab,
        person,
        uuid=str(person_id("bob")),
        project_id=1,
        properties={},
        is_identified=True,
        created_at=NOW,
    )
    members = make_cohort(lab, is_static=True)
    with lab.database.write() as tx:
        tx.execute(sa.insert(cohort_person).values(cohort_id=members, person_id=bob))
    only_members = {"key": "id", "type": "cohort", "value": members}
    metric = {**REVENUE, "source": {**REVENUE["source"], "properties": [only_members]}}
    assert samples(lab, metric)["test"] == (2, 7)
    negated = {**REVENUE, "source": {**REVENUE["source"], "properties": [{**only_members, "negation": True}]}}
    assert samples(lab, negated)["test"] == (2, 5)


@pytest.mark.parametrize("behavioural", [True, False])
def test_cohorts_that_cannot_be_answered_are_named(lab: Lab, behavioural: bool) -> None:
    leaf = {"key": "purchase", "type": "behavioral", "value": "performed_event"}
    identifier = (
        make_cohort(lab, filters={"properties": {"type": "OR", "values": [leaf]}}) if behavioural else 12345
    )
    set_test_accounts(lab, [{"key": "id", "type": "cohort", "value": identifier}])
    experiment = lab.experiment(start_date=START.isoformat(), **CRITERIA)
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}
    reason = "has not been calculated yet" if behavioural else "does not exist"
    assert f"cohort {identifier} {reason}" in lab.query(query, status=400)["detail"]


def click(chain: str, url: str) -> Event:
    return Event("ann", START, "$autocapture", {"$current_url": url}, elements_chain=chain)


def test_actions_are_sources(lab: Lab) -> None:
    steps = [
        {
            "event": "$autocapture",
            "tag_name": "button",
            "text": "Buy now",
            "text_matching": "exact",
            "url": "/shop",
            "url_matching": "contains",
        },
        {"event": "ordered", "properties": [{"key": "size", "value": "big"}]},
    ]
    identifier = insert(
        lab, action, project_id=1, name="Bought", steps=steps, tags=[], created_at=NOW, updated_at=NOW
    )
    lab.send(
        [
            exposed("ann", "test", START),
            Event("ann", START, "ordered", {"size": "big"}),
            Event("ann", START, "ordered", {"size": "small"}),
            click('button.big:nth-child="1"text="Buy now"', "https://example.com/shop/1"),
            click('button.big:nth-child="1"text="Buy later"', "https://example.com/shop/1"),
            click('a.big:nth-child="1"text="Buy now"', "https://example.com/shop/1"),
            click('button.big:nth-child="1"text="Buy now"', "https://example.com/blog/1"),
        ]
    )
    source = {"kind": "ActionsNode", "id": identifier}
    assert samples(lab, {**REVENUE, "source": source})["test"] == (1, 2)
    unknown = {"kind": "ActionsNode", "id": 98765}
    with pytest.raises(AssertionError, match="Action with id 98765 does not exist"):
        samples(lab, {**REVENUE, "source": unknown})


def test_cuped_covariates_are_shown(lab: Lab) -> None:
    lab.send(
        [
            bought("ann", START + timedelta(hours=1) - timedelta(days=2), 3),
            exposed("ann", "test", START + timedelta(hours=1)),
            bought("ann", START + timedelta(hours=2), 5),
        ]
    )
    experiment = lab.experiment(
        start_date=START.isoformat(),
        metrics=[REVENUE],
        stats_config={"method": "bayesian", "cuped": {"enabled": True, "lookback_days": 7}},
    )
    row = lab.series(experiment)["timeseries"]["2026-03-10"]["variant_results"][0]
    assert (row["sum"], row["covariate_sum"], row["covariate_sum_squares"]) == (5, 3, 9)
    assert row["covariate_sum_product"] == 15


def test_fixed_properties_are_further_filters(lab: Lab) -> None:
    lab.send([exposed("ann", "test", START), exposed("bob", "control", START)])
    lab.send([Event("ann", START, "purchase", {"amount": 5, "a": a, "b": b}) for a in (1, 2) for b in (1, 2)])

    def only(key: str) -> list[dict[str, Any]]:
        return [{"key": key, "value": 1, "operator": "exact", "type": "event"}]

    source = {**REVENUE["source"], "properties": only("a")}
    assert samples(lab, {**REVENUE, "source": source})["test"] == (1, 10)
    assert samples(lab, {**REVENUE, "source": {**source, "fixedProperties": only("b")}})["test"] == (1, 5)
    fixed = {**REVENUE["source"], "fixedProperties": only("b")}
    assert samples(lab, {**REVENUE, "source": fixed})["test"] == (1, 10)


@pytest.mark.parametrize("custom", [True, False])
def test_an_activation_counts_beside_the_default_exposure_only(lab: Lab, custom: bool) -> None:
    seen = {"$feature/checkout": "test", "$feature_flag": "checkout", "$feature_flag_response": "test"}
    name = "saw" if custom else "$feature_flag_called"
    lab.send([Event(person, START, name, seen) for person in ("ann", "bob")])
    lab.send([Event("ann", START, "opened"), bought("ann", START, 5), bought("bob", START, 7)])
    criteria = {
        "filterTestAccounts": False,
        "exposure_config": {"kind": "ExperimentEventExposureConfig", "event": name, "properties": []},
        "activation_config": {"kind": "ExperimentEventExposureConfig", "event": "opened", "properties": []},
    }
    assert samples(lab, REVENUE, exposure_criteria=criteria)["test"] == ((2, 12) if custom else (1, 5))


def test_a_threshold_that_percentile_bounds_put_aside_leaves_the_covariate(lab: Lab) -> None:
    lab.send([bought("ann", START - timedelta(days=2), 3), exposed("ann", "test", START)])
    lab.send([bought("ann", START, 5), exposed("bob", "control", START)])
    cuped = {"method": "bayesian", "cuped": {"enabled": True, "lookback_days": 7}}
    experiment = lab.experiment(start_date=START.isoformat(), stats_config=cuped)

    def row(**fields: Any) -> tuple[float, float | None]:
        query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE | fields}
        found = lab.query(query)["variant_results"][0]
        return found["sum"], found["covariate_sum"]

    assert row(threshold=2) == (1, None)
    assert row(threshold=2, upper_bound_percentile=1) == (5, 3)
