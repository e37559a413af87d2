"""Cohorts of people who did something, in everything that counts events: by their members, or refused when saved."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api

from hoglab.storage.database.tables import cohort as table

PEOPLE = ("ann", "bob", "cem", "dot")
MEMBERS = {"ann", "cem"}
"""People who paid."""
STARTED = "2026-01-01T00:00:00Z"
PLAN = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
PAID = {
    "type": "behavioral",
    "value": "performed_event",
    "key": "paid",
    "event_type": "events",
    "negation": False,
}
SINCE = {"key": "created_at", "type": "person_metadata", "operator": "is_date_after", "value": "2020-01-01"}


def event(name: str, person: str, **properties: Any) -> dict[str, Any]:
    return {"event": name, "distinct_id": person, "properties": properties}


def cohort(api: Api, name: str, *rules: dict[str, Any]) -> int:
    """Return the id of a cohort with these rules, whose members are known."""
    filters = {"properties": {"type": "AND", "values": list(rules)}}
    made = int(api.ok("POST", "/cohorts/", {"name": name, "filters": filters}, status=201)["id"])
    api.until(lambda: not api.ok("GET", f"/cohorts/{made}/")["is_calculating"])
    return made


def leaf(cohort_id: int, operator: str | None, *, negation: bool = False) -> dict[str, Any]:
    condition = {
        "key": "id",
        "type": "cohort",
        "value": cohort_id,
        "operator": operator,
        "negation": negation,
    }
    return {name: value for name, value in condition.items() if value is not None}


@pytest.fixture(scope="module")
def world(laboratory: Any) -> tuple[Api, dict[str, int]]:
    """A project in which everybody was exposed and looked, and some paid; cohorts of those who paid."""
    api = laboratory.api()
    called = {"$feature_flag": "button"}
    api.capture(
        *(event("$identify", person, **{"$set": {"plan": "pro"}}) for person in PEOPLE),
        *(event("$feature_flag_called", person, **called, **{"$feature_flag_response": variant})
          for person, variant in zip(PEOPLE, ("control", "control", "test", "test"), strict=True)),
        *(event("looked", person) for person in PEOPLE),
        *(event("paid", person) for person in sorted(MEMBERS)),
    )  # fmt: skip
    paid = cohort(api, "Paid", PAID)
    return api, {
        "behaviour": paid,
        "behaviour and properties": cohort(api, "Paid pro", PAID, PLAN),
        "metadata and behaviour": cohort(api, "Paid of late", PAID, SINCE),
        "cohort of the cohort": cohort(api, "Also paid", PLAN, leaf(paid, "in")),
    }


KINDS = ("behaviour", "behaviour and properties", "metadata and behaviour", "cohort of the cohort")
ASKED = [
    ("in", False, MEMBERS),
    ("exact", False, MEMBERS),
    (None, False, MEMBERS),
    ("not_in", False, {*PEOPLE} - MEMBERS),
    ("in", True, {*PEOPLE} - MEMBERS),
    ("not_in", True, MEMBERS),
]
"""Operator, negation, and whose events count."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("operator", "negation", "expected"), ASKED)
def test_they_are_answered(
    world: tuple[Api, dict[str, int]], kind: str, operator: str | None, negation: bool, expected: set[str]
) -> None:
    api, cohorts = world
    condition = leaf(cohorts[kind], operator, negation=negation)
    experiment = _experiment(api)
    source = {"kind": "EventsNode", "event": "looked", "properties": [condition]}
    metric = {"kind": "ExperimentMetric", "metric_type": "mean", "source": source}
    result = ask(api, kind="ExperimentQuery", experiment_id=experiment, metric=metric)
    rows = [result["baseline"], *result["variant_results"]]
    assert {row["key"]: row["sum"] for row in rows} == {
        "control": len(expected & {"ann", "bob"}), "test": len(expected & {"cem", "dot"})
    }  # fmt: skip
    exposed = ask(
        api,
        kind="ExperimentExposureQuery",
        experiment_id=experiment,
        exposure_criteria={
            "filterTestAccounts": False,
            "exposure_config": {
                "kind": "ExperimentEventExposureConfig",
                "event": "$feature_flag_called",
                "properties": [condition],
            },
        },
    )
    assert sum(exposed["total_exposures"].values()) == len(expected)
    series = ask(
        api, kind="TrendsQuery", properties=[condition], series=[{"kind": "EventsNode", "event": "looked"}]
    )
    assert sum(series["results"][0]["data"]) == len(expected)
    series = ask(api, kind="TrendsQuery", series=[source])
    assert sum(series["results"][0]["data"]) == len(expected)
    key = f"flag-{kind.replace(' ', '-')}-{operator}-{negation}"
    flag = {"key": key, "active": True, "filters": {"groups": [{"properties": [condition]}]}}
    api.ok("POST", "/feature_flags/", flag, status=201)
    assert {person for person in PEOPLE if api.variant(key, person)} == expected


def ask(api: Api, **query: Any) -> Any:
    return api.ok("POST", "/query/", {"query": query})


def _experiment(api: Api) -> int:
    existing = api.ok("GET", "/experiments/")["results"]
    if existing:
        return int(existing[0]["id"])
    criteria = {"filterTestAccounts": False}
    return int(api.experiment(start_date=STARTED, exposure_criteria=criteria)["id"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operator", ["in", "not_in"])
def test_functions_refuse_them(world: tuple[Api, dict[str, int]], kind: str, operator: str) -> None:
    api, cohorts = world
    filters = {"properties": [leaf(cohorts[kind], operator)]}
    function = {"name": "f", "hog": "return 1", "filters": filters}
    error = api.refused("POST", "/hog_functions/", {**function, "enabled": True})
    assert "looks at more than person properties" in error["detail"]


@pytest.mark.parametrize("operator", ["gt", "regex", "nonsense"])
def test_other_operators_are_refused(world: tuple[Api, dict[str, int]], operator: str) -> None:
    """A condition that nothing understands must not be read as `in`."""
    api, cohorts = world
    condition = leaf(cohorts["behaviour"], operator)
    node = {"kind": "EventsNode", "event": "looked", "properties": [condition]}
    metric = {"name": "m", "query": {"kind": "ExperimentMetric", "metric_type": "mean", "source": node}}
    assert "in or not_in" in api.refused("POST", "/experiment_saved_metrics/", metric)["detail"]
    function = {"name": "f", "hog": "return 1", "enabled": True, "filters": {"properties": [condition]}}
    assert "in or not_in" in api.refused("POST", "/hog_functions/", function)["detail"]


def test_members_must_be_known(api: Api) -> None:
    """A cohort whose events wait to be stored has no members yet: results say so instead of counting nobody."""
    with api.database() as database:
        made = api.ok(
            "POST", "/cohorts/",
            {"name": "Paid", "filters": {"properties": {"type": "AND", "values": [PAID]}}}, status=201,
        )["id"]  # fmt: skip
        api.until(lambda: not api.ok("GET", f"/cohorts/{made}/")["is_calculating"])
        with database.write() as tx:
            tx.execute(sa.update(table).where(table.c.id == made).values(version=None))
    condition = leaf(made, "not_in")
    error = api.refused(
        "POST", "/query/",
        {"query": {"kind": "TrendsQuery", "properties": [condition],
                   "series": [{"kind": "EventsNode", "event": "looked"}]}},
    )  # fmt: skip
    assert "has not been calculated yet" in error["detail"]
