"""Experiments that are answered from memory."""

from __future__ import annotations

from contextlib import nullcontext

import orjson
import pytest
from tests.experiments.conftest import KEY, Lab
from tests.experiments.test_large_lists import statements

from hoglab.experiments.reading import ExperimentReads, subjects
from hoglab.experiments.service import Actor
from hoglab.http.identity import Level, Principal
from hoglab.storage.database import state_in

METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "source": {"kind": "EventsNode", "event": "purchase"},
}


def caller(lab: Lab) -> Actor:
    principal = lab.accounts.authenticate(KEY)
    project = lab.accounts.project(1)
    assert principal is not None
    assert project is not None
    return Actor(project, principal.at(project.organization_id), lab.now)


def no_query(_name: str) -> None:
    return None


def test_the_second_read_asks_the_database_nothing(lab: Lab) -> None:
    made = lab.create()
    first = lab.ok("GET", f"/experiments/{made['id']}/")
    with statements() as seen:
        assert lab.ok("GET", f"/experiments/{made['id']}/") == first == made
    assert seen == []


def test_a_list_reads_only_what_is_not_remembered(lab: Lab) -> None:
    ids = [lab.create(f"flag-{number}")["id"] for number in range(3)]
    lab.ok("GET", f"/experiments/{ids[0]}/")
    with statements() as seen:
        lab.ok("GET", "/experiments/")
    assert sum("FROM experiment \nWHERE experiment.id IN" in each for each in seen) == 1
    with statements() as seen:
        assert [each["id"] for each in lab.ok("GET", "/experiments/")["results"]] == ids[::-1]
    assert len(seen) == 3, seen  # how many, which, and in what versions


def test_memory_stays_within_its_limit(lab: Lab) -> None:
    ids = [lab.create(f"flag-{number}")["id"] for number in range(12)]
    actor = caller(lab)
    size = len(ExperimentReads(lab.database).read(actor, ids[0]).body)
    reads = ExperimentReads(lab.database, max_remembered_bytes=4 * size)
    for _ in range(2):
        for number in ids:
            assert orjson.loads(reads.read(actor, number).body)["id"] == number
            kept = sum(reads.recall(actor, each) is not None for each in ids)
            assert kept <= 4
    page, count = reads.page(actor, no_query, limit=12, offset=0)
    assert (len(page), count) == (12, 12)
    assert all(reads.recall(actor, each) is None for each in ids)


def test_a_caller_with_an_old_project_does_not_leave_old_numbers_behind(lab: Lab) -> None:
    made = lab.create(metrics=[METRIC])
    before = caller(lab)
    internal = {"key": "email", "value": "@x.test", "operator": "icontains", "type": "person"}
    lab.accounts.update_project(1, {"test_account_filters": [internal]})
    reads = ExperimentReads(lab.database)
    shown = orjson.loads(reads.read(before, made["id"]).body)
    assert shown["metrics"][0]["fingerprint"] != made["metrics"][0]["fingerprint"]
    again = reads.recall(caller(lab), made["id"])
    assert again is not None
    assert orjson.loads(again.body) == shown


def test_a_late_reader_does_not_bring_back_what_was(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lab.create()
    actor = caller(lab)
    reads = ExperimentReads(lab.database)
    with lab.database.read() as late:
        state_in(late, subjects(1))  # the snapshot of a reader that is slow from here on
        lab.ok("PATCH", f"/experiments/{made['id']}/", {"name": "New"})
        present = reads.read(actor, made["id"])
        monkeypatch.setattr(lab.database, "read", lambda: nullcontext(late))
        old = reads.read(actor, made["id"])
    assert (_name(old.body), _name(present.body)) == ("Button colour", "New")
    assert reads.recall(actor, made["id"]) == present


def test_each_caller_sees_their_own_level(lab: Lab) -> None:
    made = lab.create()
    actor = caller(lab)
    reads = ExperimentReads(lab.database)
    organization = actor.project.organization_id
    user = lab.accounts.create_user("other@example.test")
    other = Principal(user, "k", frozenset({"*"}), {organization: Level.MEMBER}, organization_id=organization)
    own = reads.read(actor, made["id"])
    theirs = reads.recall(Actor(actor.project, other, lab.now), made["id"])
    assert theirs is not None
    assert orjson.loads(own.body)["user_access_level"] == "manager"
    assert orjson.loads(theirs.body) == {**orjson.loads(own.body), "user_access_level": "editor"}
    assert own.tag == theirs.tag


def _name(body: bytes) -> str:
    name: str = orjson.loads(body)["name"]
    return name
