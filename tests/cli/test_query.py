"""``hoglab query`` against a running server."""

from __future__ import annotations

import csv
import io
import json
import subprocess

import httpx
import pytest
from tests import forked
from tests.cli.test_functions import Place, place  # noqa: F401 - a fixture
from tests.cli.test_hostile_texts import HOSTILE, assert_harmless
from tests.waiting import wait_for

SELECT = "select event, count() as c, properties.n from events group by event, properties.n order by event"


@pytest.fixture
def asked(place: Place) -> Place:  # noqa: F811
    """A project with an event whose name would be a formula, and one with control characters."""
    batch = [
        {"event": name, "distinct_id": "ann", "properties": {"n": number}}
        for name, number in (("=1+1", -2), (HOSTILE.replace("\x00", ""), 3))
    ]
    sent = httpx.post(f"{place.server.url}/batch/", json={"api_key": place.token, "batch": batch})
    assert sent.status_code == 200
    wait_for(lambda: len(place.call("GET", "/events/")["results"]) == len(batch))
    return place


def run(place: Place, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:  # noqa: F811
    done = forked.run("query", *arguments, *place.where, environment=place.environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_forms_of_an_answer(asked: Place) -> None:
    table = run(asked, SELECT).stdout
    assert_harmless(table)
    assert "=1+1" in table
    shown = json.loads(run(asked, SELECT, "--json").stdout)
    assert (shown["columns"], shown["results"][0]) == (["event", "c", "n"], ["=1+1", 1, "-2"])
    rows = list(csv.reader(io.StringIO(run(asked, SELECT, "--csv").stdout)))
    assert rows[:2] == [["event", "c", "n"], ["'=1+1", "1", "'-2"]]
    more = run(asked, "select event from events limit 1")
    assert "raise LIMIT" in more.stderr


def test_refusals(asked: Place) -> None:
    assert "persons cannot be read" in run(asked, "select 1 from persons", status=1).stderr
    assert "exclude each other" in run(asked, SELECT, "--json", "--csv", status=1).stderr
    without = {name: value for name, value in asked.environment.items() if name != "HOGLAB_API_KEY"}
    done = forked.run("query", SELECT, *asked.where, environment=without)
    assert "HOGLAB_API_KEY" in done.stderr
