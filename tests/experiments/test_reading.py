"""Experiments that are answered from memory."""

from __future__ import annotations

import re
from contextlib import nullcontext

import orjson
import pytest
from tests.experiments.conftest import KEY, Lab
from tests.experiments.test_large_lists import statements

from hoglab.experiments.actor import Actor
from hoglab.experiments.api.reading import ExperimentReads, subjects
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


@pytest.mark.files
def test_the_second_read_asks_the_database_nothing(lab: Lab) -> None:
    made = lab.create()
    first = lab.ok("GET", f"/experiments/{made['id']}/")
    with statements() as seen:
        assert lab.ok("GET", f"/experiments/{made['id']}/") == first == made
    assert seen == []


def looked_up(seen: list[str]) -> list[set[int]]:
    """The ids of the experiments that each statement asked for."""
    asked = (re.search(r"FROM experiment \nWHERE .*?'(\[.*?\])'", each, re.DOTALL) for each in seen)
    return [set(orjson.loads(match[1])) for match in asked if match]


@pytest.mark.files
def test_a_list_reads_only_what_is_not_remembered(lab: Lab) -> None:
    first, second, third = [lab.create(f"flag-{number}")["id"] for number in range(3)]
    lab.ok("GET", f"/experiments/{first}/")
    with statements() as seen:
        lab.ok("GET", "/experiments/")
    assert looked_up(seen) == [{third, second}] * 2  # their digests, and they themselves
    with statements() as seen:
        shown = lab.ok("GET", "/experiments/")["results"]
    assert [each["id"] for each in shown] == [third, second, first]
    assert len(seen) == 3, seen  # how many, which, and in what versions


@pytest.mark.files
def test_after_a_change_only_what_changed_is_read_anew(lab: Lab) -> None:
    first, second, third = [lab.create(f"flag-{number}") for number in range(3)]
    lab.ok("GET", "/experiments/")
    flag = second["feature_flag"]["id"]
    changes = {
        first["id"]: ("/experiments/{id}/", {"name": "New"}),
        second["id"]: (f"/feature_flags/{flag}/", {"name": "New"}),
    }
    everything = {first["id"], second["id"], third["id"]}
    for changed, (path, body) in changes.items():
        lab.ok("PATCH", path.format(id=changed), body)
        with statements() as seen:
            shown = lab.ok("GET", "/experiments/")["results"]
        assert looked_up(seen) == [everything, {changed}]
        for each in shown:
            assert each == lab.ok("GET", f"/experiments/{each['id']}/")
    assert [each["name"] for each in shown] == ["Button colour", "Button colour", "New"]
    assert shown[1]["feature_flag"]["name"] == "New"


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
