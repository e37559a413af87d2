"""Patterns that would take the server down: refused when they are saved, and harmless where they are stored."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api

from hoglab.storage.database.tables import cohort, feature_flag

COSTLY = "(?=x)((a)|(b)){1000000}"


def condition(pattern: str, operator: str = "regex") -> dict[str, Any]:
    return {"key": "name", "type": "person", "operator": operator, "value": pattern}


def flag(key: str, *properties: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "active": True, "filters": {"groups": [{"properties": list(properties)}]}}


@pytest.mark.parametrize("operator", ["regex", "not_regex"])
def test_they_are_refused_in_flags_and_cohorts(api: Api, operator: str) -> None:
    leaf = condition(COSTLY, operator)
    error = api.refused("POST", "/feature_flags/", flag("a", leaf))
    assert error["code"] == "cross_field.operand_never_matches"
    assert "groups[0].properties[0].value" in error["detail"]
    assert "2,000 steps" in error["detail"]
    made = api.ok("POST", "/feature_flags/", flag("a"), status=201)
    api.refused("PATCH", f"/feature_flags/{made['id']}/", {"filters": flag("a", leaf)["filters"]})
    rules = {"properties": {"type": "AND", "values": [leaf]}}
    assert "2,000 steps" in api.refused("POST", "/cohorts/", {"name": "C", "filters": rules})["detail"]


def test_a_stored_one_fails_its_flag_only(api: Api) -> None:
    """As after a restart: nothing of it was in memory before."""
    sound = api.ok("POST", "/feature_flags/", flag("sound"), status=201)
    bad = api.ok("POST", "/feature_flags/", flag("bad", condition("(?=x)a")), status=201)
    rules = {"properties": {"type": "AND", "values": [condition("(?=x)a")]}}
    members = api.ok("POST", "/cohorts/", {"name": "C", "filters": rules}, status=201)
    by_cohort = {"key": "id", "type": "cohort", "operator": "in", "value": members["id"]}
    api.ok("POST", "/feature_flags/", flag("by-cohort", by_cohort), status=201)
    with api.database() as database, database.write() as tx:
        stored = flag("bad", condition(COSTLY))["filters"]
        tx.execute(sa.update(feature_flag).where(feature_flag.c.id == bad["id"]).values(filters=stored))
        changed = {"properties": {"type": "AND", "values": [condition(COSTLY)]}}
        tx.execute(sa.update(cohort).where(cohort.c.id == members["id"]).values(filters=changed))
    api.ok("PATCH", f"/feature_flags/{sound['id']}/", {"name": "Read all flags of the project again"})

    body = {"token": api.token(), "distinct_id": "ann", "person_properties": {"name": "xxaaa"}}
    answer = api.ok("POST", "/flags/?v=2", body)
    assert answer["errorsWhileComputingFlags"] is True
    assert answer["flags"]["sound"]["enabled"] is True
    for key in ("bad", "by-cohort"):
        assert answer["flags"][key]["reason"]["code"] == "evaluation_error"
        assert answer["flags"][key]["enabled"] is False
    told = [
        text
        for text in api.runner.run(api.client.get("/_health")).json()["problems"]
        if text.startswith("flags:")
    ]
    assert len(told) == 1
    assert "2 active flags cannot be evaluated" in told[0]
