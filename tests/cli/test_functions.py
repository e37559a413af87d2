"""``hoglab functions`` against a running server."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests import forked
from tests.conftest import StartServer
from tests.delivery.conftest import Receiver
from tests.waiting import PATIENCE_S, wait_for

from hoglab.demo.server import ChildServer

TELL = "fetch(inputs.url, {'body': {'n': event.properties.n}}); print('told', event.properties.n)"
BROKEN = {"properties": [{"type": "hogql", "key": "match(properties.a, properties.b)"}]}


@dataclass
class Place:
    """A project on a running server, and the command line that talks to it."""

    server: ChildServer
    project: int
    token: str
    sent: list[str] = field(default_factory=list)
    columns: int = 80

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "hoglab", "functions"]

    @property
    def where(self) -> list[str]:
        return ["--host", self.server.url, "--project", str(self.project)]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOGLAB_API_KEY": self.server.api_key, "COLUMNS": str(self.columns)}

    def run(self, *arguments: str, status: int = 0) -> str:
        done = forked.run("functions", *arguments, *self.where, environment=self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = httpx.request(
            method,
            f"{self.server.url}/api/projects/{self.project}{path}",
            json=body,
            params=query,
            headers={"Authorization": f"Bearer {self.server.api_key}"},
        )
        assert answer.is_success, answer.text
        return answer.json()

    def create(self, url: str, **options: Any) -> dict[str, Any]:
        body = {
            "type": "destination",
            "name": "Teller",
            "enabled": True,
            "hog": TELL,
            "inputs_schema": [{"key": "url", "type": "string"}],
            "inputs": {"url": {"value": url}},
            **options,
        }
        made: dict[str, Any] = self.call("POST", "/hog_functions/", body)
        return made

    def capture(self, count: int, **properties: Any) -> None:
        """Send events and wait until they are stored."""
        batch = [
            {"event": "e", "distinct_id": f"u{n}", "uuid": str(uuid4()), "properties": {"n": n, **properties}}
            for n in range(count)
        ]
        answer = httpx.post(f"{self.server.url}/batch/", json={"api_key": self.token, "batch": batch})
        assert answer.status_code == 200
        wait_for(lambda: len(self.call("GET", "/events/", limit=count)["results"]) == count)


@pytest.fixture
def place(shared_server: ChildServer) -> Place:
    made = httpx.post(
        f"{shared_server.url}/api/organizations/@current/projects/",
        json={"name": "Functions"},
        headers={"Authorization": f"Bearer {shared_server.api_key}"},
    ).json()
    return Place(shared_server, made["id"], made["api_token"])


def test_the_commands_of_the_document(place: Place) -> None:
    """Each as it stands, but for following the log, which has no end."""
    text = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text()
    commands = re.findall(r"^hoglab functions (.*)$", text, re.MULTILINE)
    assert len(commands) > 5
    place.create("http://127.0.0.1:1/", name="Orders")
    job = place.run("backfill", "Orders", "--from", "2020-01-01", "--detach").split()[0]
    for command in commands:
        place.run(*shlex.split(command.replace("BACKFILL", job).removesuffix(" --follow")))


def test_functions_are_listed(place: Place) -> None:
    function = place.create("http://127.0.0.1:1/", name="Quiet", enabled=False)
    # The environment of tests has the usual 80 columns: what commands take as an argument is not cut off.
    shown = place.run("list")
    assert "Quiet" in shown
    assert function["id"] in shown
    assert [one["name"] for one in json.loads(place.run("list", "--json"))] == ["Quiet"]


def test_who_fails_is_not_called_healthy(place: Place) -> None:
    """The list says how often, with what and when; the runs say when the next attempt is."""
    failing = place.create("http://10.0.0.1/", name="Failing")
    away = place.create("http://no-such-host.invalid/", name="Away")
    fine = place.create("", name="Fine", hog="print('fine')")
    place.capture(2)
    listing: dict[str, Any] = {}

    def is_told() -> bool:
        listing.update((one["id"], one["health"]) for one in json.loads(place.run("list", "--json")))
        told = [listing[each["id"]] for each in (failing, away, fine)]
        return (
            all(told) and told[0]["failed"] == 2 and bool(told[1]["last_error"]) and told[2]["succeeded"] == 2
        )

    wait_for(is_told)
    assert "10.0.0.1 is not a public address" in listing[failing["id"]]["last_error"]["message"]
    assert "HOGLAB_FETCH_ALLOW_CIDRS" in listing[failing["id"]]["last_error"]["message"]
    assert listing[away["id"]]["unfinished"] == 2
    assert listing[fine["id"]] == {**listing[fine["id"]], "failed": 0, "unfinished": 0, "last_error": None}
    narrow = place.run("list")  # of the usual width: what went wrong can be read all the same
    for one, text in (
        (failing, "10.0.0.1 is not a public address"),
        (away, "there is no address for no-such-host.invalid"),
    ):
        [told] = [line for line in narrow.splitlines() if line.startswith(f"{one['name']}, last error at 20")]
        assert text in told
    assert "Fine, last error" not in narrow
    place.columns = 250
    shown = place.run("list").splitlines()
    lines = {name: next(line for line in shown if name in line) for name in ("Failing", "Away", "Fine")}
    assert "failing" in lines["Failing"]
    assert "retrying" in lines["Away"] or "destination away" in lines["Away"]
    assert "healthy" in lines["Fine"]
    runs = place.call("GET", f"/hog_functions/{away['id']}/runs/", status="running")["results"]
    assert {run["status"] for run in runs} == {"running"}
    assert any(run["next_attempt_at"] for run in runs)
    assert "there is no address for no-such-host.invalid" in runs[0]["error"]
    [*failed] = place.call("GET", f"/hog_functions/{failing['id']}/runs/")["results"]
    assert [(run["status"], run["next_attempt_at"]) for run in failed] == [("failed", None)] * 2
    answer = httpx.get(
        f"{place.server.url}/api/projects/{place.project}/hog_functions/{away['id']}/runs/?status=sleeping",
        headers={"Authorization": f"Bearer {place.server.api_key}"},
    )
    assert (answer.status_code, answer.json()["attr"]) == (400, "status")


def test_history_can_be_run_and_is_run_once(place: Place) -> None:
    place.capture(3)
    place.create("http://127.0.0.1:1/")
    tried = place.run("backfill", "Teller", "--from", "2020-01-01", "--dry-run")
    assert "completed: 3 of 3 events, 3 runs would be queued" in tried
    assert "completed: 3 of 3 events, 3 runs queued\n" in place.run(
        "backfill", "Teller", "--from", "2020-01-01"
    )
    again = place.run("backfill", "Teller", "--from", "2020-01-01")
    assert "0 runs queued, 3 left out, for they were run before" in again
    assert len(place.run("backfills", "Teller").splitlines()) == 3
    job = place.run("backfill", "Teller", "--from", "2020-01-01", "--detach").split()[0]
    assert place.run("cancel", "Teller", job).startswith(job)


def test_what_failed_is_run_again(place: Place) -> None:
    function = place.create("http://127.0.0.1:1/", hog="throw Error('no')")
    place.capture(2)
    wait_for(
        lambda: (
            place.call("GET", f"/hog_functions/{function['id']}/metrics/totals/")["totals"].get("failure")
            == 2
        )
    )
    assert place.run("replay", "Teller", "--dry-run") == "2 would run again, 0 skipped\n"
    assert "completed: 2 of 2 runs, 2 run again, 0 skipped\n" in place.run("replay", function["id"])
    assert ": 0 of 0 runs, 0 run again" in place.run("replay", "Teller", "--error-kind", "timeout")
    newest, first = place.run("replays", "Teller").splitlines()
    assert "0 of 0" in newest
    assert place.run("cancel", "Teller", first.split()[0]) == f"{first}\n"  # it was over


def test_dead_letters_are_listed_retried_and_forgotten(place: Place) -> None:
    function = place.create("http://127.0.0.1:1/", filters=BROKEN)
    place.capture(2, a="x", b="(")
    listing = lambda: json.loads(place.run("dead-letters", "list", "--json"))  # noqa: E731
    wait_for(lambda: len(listing()) == 2)
    assert function["id"] in place.run("dead-letters", "list", "--function", "Teller")
    assert place.run("dead-letters", "retry") == "2 tried, 0 runs queued, 2 failed again\n"
    place.call("PATCH", f"/hog_functions/{function['id']}/", {"filters": {}})
    tried = place.run("dead-letters", "retry", "--dry-run")
    assert tried == "2 tried, 2 runs would be queued, 0 failed again\n"
    assert place.run("dead-letters", "discard", "--yes") == "2 forgotten\n"
    assert listing() == []


def test_the_log_is_printed_and_followed(place: Place) -> None:
    place.create("http://127.0.0.1:1/", hog="print('seen', event.properties.n)")
    place.capture(1)
    wait_for(lambda: "seen, 0" in place.run("logs", "Teller"))
    following = subprocess.Popen(
        [*place.command, *("logs", "Teller", "--follow", "--search", "seen"), *place.where],
        stdout=subprocess.PIPE,
        text=True,
        env=place.environment,
    )
    lines: list[str] = []

    def read() -> None:
        assert following.stdout is not None
        lines.extend(following.stdout)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: len(lines) == 1)  # it follows from before it prints what there is
        place.capture(2)
        wait_for(lambda: len(lines) == 3)
        assert lines[-1].split(maxsplit=3)[1] == "INFO"
    finally:
        following.terminate()
        reader.join(10)
        following.wait(10)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["logs", "Nobody"], "no function is named 'Nobody'"),
        (["backfill", str(uuid4()), "--from", "2020-01-01"], "answered 404"),
        (["backfill", "Teller", "--from", "soon"], "from: Datetime has wrong format"),
        (["replay", "Teller", "--limit", "0"], "--limit must be at least 1"),
        (["list", "--key", "phx_wrong"], "answered 401"),
    ],
)
def test_mistakes_are_one_clear_line(place: Place, arguments: list[str], text: str) -> None:
    place.create("http://127.0.0.1:1/")
    error = place.run(*arguments, status=1)
    assert error.startswith("hoglab: ")
    assert text in error
    assert len(error.splitlines()) == 1


def test_a_server_that_is_away_is_one_clear_line(place: Place) -> None:
    done = subprocess.run(
        [*place.command, "list", "--host", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        env=place.environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot be reached" in done.stderr


def test_a_backfill_outlives_its_server(start_server: StartServer) -> None:
    """Killed in the middle, the next server goes on, and the destination gets each event once."""
    receiver = Receiver()
    try:
        server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
        place = Place(server, 1, server.project_token)
        place.capture(900)
        function = place.create(receiver.url)
        job = place.call("POST", f"/hog_functions/{function['id']}/backfill/", {"from": "2020-01-01"})
        wait_for(lambda: len(receiver.hits) >= 20)
        server.kill(signal.SIGKILL)
        server.start()
        path = f"/hog_functions/{function['id']}/backfills/{job['id']}/"
        wait_for(lambda: place.call("GET", path)["status"] == "completed")
        wait_for(lambda: len({hit.json["n"] for hit in receiver.hits}) == 900)
        assert place.call("GET", path)["seen"] == 900
        keys: dict[int, set[str]] = {}
        for hit in receiver.hits:
            keys.setdefault(hit.json["n"], set()).add(hit.headers["idempotency-key"])
        assert {len(each) for each in keys.values()} == {1}  # what was sent twice can be told
    finally:
        receiver.close()
