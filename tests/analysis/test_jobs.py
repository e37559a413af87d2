"""Jobs of results on each engine of the database: several processes share them, and go on with those of the dead."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from tests.analysis.lab import REVENUE, Lab, bought, exposed
from tests.analysis.test_live import START, hogql
from tests.databases import ENGINES, Template, template
from tests.embedded import EmbeddedReader
from tests.waiting import PATIENCE_S

from hoglab.analysis.timeseries import query_cache
from hoglab.analysis.timeseries.attempts import FIRST_WAIT, STOPPED
from hoglab.people.cohorts import CohortCalculator
from hoglab.people.cohorts.calculation import MAX_TRIES, RETRY_FIRST_S
from hoglab.people.cohorts.calculation import STOPPED as COHORT_STOPPED
from hoglab.storage.database import tables

TODAY = "2026-03-10"
OTHER = hogql("sum(properties.amount)")


@pytest.fixture(scope="module", params=ENGINES)
def prepared(request: pytest.FixtureRequest) -> Template:
    return template(request, "results_jobs", engine=request.param)


@pytest.fixture
def address(prepared: Template, tmp_path: Path) -> Iterator[str]:
    with prepared.copied(tmp_path) as address:
        yield str(address)


Start = Callable[[], Lab]


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a server; those that run at the same time are beside the first."""
    with ExitStack() as opened:
        running: list[Lab] = []

        def start() -> Lab:
            lab = Lab(tmp_path, address=address, beside=running[0] if running else None)
            running.append(lab)
            opened.callback(lab.close)
            opened.callback(lab.service.query_runner.stop)
            return lab

        yield start


@pytest.fixture
def query(address: str, tmp_path: Path) -> dict[str, Any]:
    """A question about an experiment that a server before had."""
    lab = Lab(tmp_path, address=address)
    lab.send([exposed("ann", "control", START), bought("ann", START, 5), exposed("bob", "test", START)])
    experiment = lab.experiment(metrics=[REVENUE, OTHER], start_date=START.isoformat())
    lab.close()
    return {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}


class Gate:
    """Holds back statements about purchases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.statements = 0
        execute = EmbeddedReader.execute

        def held(reader: EmbeddedReader, sql: str, *rest: Any, **options: Any) -> Any:
            if "purchase" in str(rest):
                self.statements += 1
                self.reached.set()
                assert self.open.wait(PATIENCE_S)
            return execute(reader, sql, *rest, **options)

        monkeypatch.setattr(EmbeddedReader, "execute", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def ask(lab: Lab, query: dict[str, Any]) -> None:
    body = {"query": query, "refresh": "async", "client_query_id": "mine"}
    assert lab.ok("POST", "/query/", body, status=202)["query_status"]["id"] == "mine"


def ended(lab: Lab, *, status: int = 200) -> dict[str, Any]:
    """How the query ended."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := lab.call("GET", "/query/mine/")).status_code == 202:
        assert time.monotonic() < deadline
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()["query_status"]
    return found


# -- several at the same time ----------------------------------------------------------------------------


def test_any_server_tells_how_far_a_query_is(start: Start, query: dict[str, Any], gate: Gate) -> None:
    one, two = start(), start()
    ask(one, query)
    assert gate.reached.wait(PATIENCE_S)
    assert two.call("GET", "/query/mine/").status_code == 202
    ask(two, query)
    gate.open.set()
    assert ended(two)["results"]["baseline"]["sum"] == 5
    assert ended(one) == ended(two)
    assert gate.statements == 1, "neither computed it twice"


def test_any_server_cancels_a_query(start: Start, query: dict[str, Any], gate: Gate) -> None:
    one, two = start(), start()
    ask(one, query)
    assert gate.reached.wait(PATIENCE_S)
    assert two.call("DELETE", "/query/mine/").status_code == 204
    for lab in (one, two):
        assert ended(lab, status=400)["error_message"] == "Query was cancelled"
    [computation] = one.service.query_runner._running.values()
    one.service.jobs.round()
    assert computation.cancellation.requested, "who computes it notices with the next renewal"
    gate.open.set()
    assert computation.ended.wait(PATIENCE_S)
    assert ended(one, status=400)["results"] is None


def test_a_query_of_a_server_that_ends_in_order_is_answered_by_another(
    start: Start, query: dict[str, Any], gate: Gate
) -> None:
    one, two = start(), start()
    ask(one, query)
    assert gate.reached.wait(PATIENCE_S)
    [computation] = one.service.query_runner._running.values()
    computation.cancellation.request()
    closing = threading.Thread(target=one.service.query_runner.stop)
    closing.start()
    gate.open.set()
    closing.join(PATIENCE_S)
    assert ended(two)["results"]["baseline"]["sum"] == 5


def test_servers_share_the_points_of_a_day(start: Start, query: dict[str, Any], gate: Gate) -> None:
    one, two = start(), start()
    first = threading.Thread(target=one.runner.run_once)
    first.start()
    assert gate.reached.wait(PATIENCE_S)
    two.runner.run_once()  # passes over the one that is at work, and does the other
    assert two.runner.run_once() == 1, "that is left"
    gate.open.set()
    first.join(PATIENCE_S)
    assert gate.statements == 1
    experiment = one.ok("GET", f"/experiments/{query['experiment_id']}/")
    assert [one.series(experiment, index)["status"] for index in (0, 1)] == ["completed"] * 2


def test_a_request_waits_for_points_that_another_server_computes(
    start: Start, query: dict[str, Any], gate: Gate
) -> None:
    one, two = start(), start()
    first = threading.Thread(target=one.runner.run_once)
    first.start()
    assert gate.reached.wait(PATIENCE_S)
    experiment = two.ok("GET", f"/experiments/{query['experiment_id']}/")
    threading.Timer(0.2, gate.open.set).start()
    assert two.series(experiment)["status"] == "completed"
    first.join(PATIENCE_S)
    assert gate.statements == 1


# -- kill -9 ---------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.analysis.lab import Lab
from tests.embedded import EmbeddedReader
from hoglab.people.cohorts import CohortCalculator, store

lab = Lab(Path(sys.argv[1]), address=sys.argv[2])
execute = EmbeddedReader.execute
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def execute_or_die(reader, sql, *rest, **options):
    if "purchase" in str(rest):
        die()
    return execute(reader, sql, *rest, **options)
EmbeddedReader.execute = execute_or_die
"""
RUNNER = "lab.runner.run_once()"
POLL = 'lab.call("GET", "/query/mine/"); time.sleep(60)'
ASK = """
import json
lab.call("POST", "/query/", {"query": json.loads(sys.argv[3]), "refresh": "async", "client_query_id": "mine"})
time.sleep(60)
"""
BLOCKING = ASK.replace('"async"', '"blocking"')
COHORT = "store.candidates = die; CohortCalculator(lab.database, jobs=lab.service.jobs).run()"


def killed(work: str, path: Path, *told: str) -> None:
    """A server that dies amid its work."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED + work, str(path), *told],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


@pytest.mark.faults
def test_a_query_is_begun_anew_by_the_server_that_is_asked_after_it(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    killed(ASK, tmp_path, address, json.dumps(query))
    assert ended(start())["results"]["baseline"]["sum"] == 5


@pytest.mark.faults
def test_a_query_that_takes_two_servers_down_says_to_ask_again(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    killed(ASK, tmp_path, address, json.dumps(query))
    killed(POLL, tmp_path, address)
    lab = start()
    assert ended(lab, status=400)["error_message"] == query_cache.STOPPED
    assert lab.ok("POST", "/query/", {"query": query})["baseline"]["sum"] == 5


@pytest.mark.faults
def test_a_query_whose_request_died_with_its_server_says_so(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    killed(BLOCKING, tmp_path, address, json.dumps(query))
    assert ended(start(), status=400)["error_message"] == query_cache.STOPPED


@pytest.mark.faults
def test_a_job_of_all_metrics_goes_on_without_the_one_that_its_server_was_at(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, address=address)
    path = f"/experiments/{query['experiment_id']}/metrics_recalculation/"
    job = lab.ok("POST", path, {}, status=201)
    lab.close()
    killed(RUNNER, tmp_path, address)
    lab = start()
    asked: list[int] = []
    sharing = lab.service.computer.sharing

    def noted(questions: Sequence[Any]) -> Any:
        asked.append(len(questions))
        return sharing(questions)

    monkeypatch.setattr(lab.service.computer, "sharing", noted)
    lab.runner.run_once()
    found = lab.ok("GET", f"{path}{job['id']}/")
    assert found["status"] == "completed"
    assert [(each["status"], each["error_message"]) for each in found["results"]] == [
        ("failed", STOPPED),
        ("completed", None),
    ]
    assert asked == [1], "what may end this server, too, is in no statement"


@pytest.mark.faults
def test_points_of_a_day_are_computed_when_they_have_waited(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    killed(RUNNER, tmp_path, address)
    lab = start()
    experiment = lab.ok("GET", f"/experiments/{query['experiment_id']}/")
    assert lab.runner.run_once() == 2
    assert lab.series(experiment)["errors"] == {TODAY: STOPPED}
    assert lab.series(experiment, 1)["status"] == "completed"
    lab.now += FIRST_WAIT
    assert lab.runner.run_once() == 1
    assert lab.series(experiment)["status"] == "completed"


@pytest.mark.faults
def test_a_series_that_is_computed_anew_says_that_its_server_died(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    lab = Lab(tmp_path, address=address)
    experiment = lab.ok("GET", f"/experiments/{query['experiment_id']}/")
    metric = experiment["metrics"][0]
    body = {"metric": metric, "fingerprint": metric["fingerprint"]}
    path = f"/experiments/{experiment['id']}/recalculate_timeseries/"
    lab.ok("POST", path, body, status=201)
    lab.close()
    killed(RUNNER, tmp_path, address)
    lab = start()
    lab.runner.run_once()
    found = lab.series(experiment)
    assert (found["recalculation_status"], found["errors"]) == (None, {TODAY: STOPPED})
    lab.ok("POST", path, body, status=201)
    lab.now += FIRST_WAIT
    lab.runner.run_once()
    assert lab.series(experiment)["status"] == "completed"


@pytest.mark.faults
def test_a_cohort_is_calculated_by_another_server(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    lab = Lab(tmp_path, address=address)
    with lab.database.write() as tx:
        values = {"project_id": 1, "properties": {}, "created_at": lab.now}
        tx.execute(sa.insert(tables.person).values(uuid=str(uuid4()), **values))
    everybody = {"name": "All", "filters": {"properties": {"type": "AND", "values": []}}}
    cohort = lab.ok("POST", "/cohorts/", everybody, status=201)
    lab.close()
    path = f"/cohorts/{cohort['id']}/calculation/"

    killed(COHORT, tmp_path, address)
    lab = start()
    with lab.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE job SET leased_until = leased_until + 3600000000")
    calculator = CohortCalculator(lab.database, jobs=lab.service.jobs, now=lambda: lab.now)
    assert calculator.run() == 0, "somebody is at it"
    assert lab.ok("GET", path)["is_calculating"]
    lab.service.jobs.take_over()
    assert calculator.run() == 1
    assert lab.ok("GET", path)["count"] == 1


@pytest.mark.faults
def test_a_cohort_that_takes_servers_down_waits(
    start: Start, query: dict[str, Any], address: str, tmp_path: Path
) -> None:
    lab = Lab(tmp_path, address=address)
    everybody = {"name": "All", "filters": {"properties": {"type": "AND", "values": []}}}
    cohort = lab.ok("POST", "/cohorts/", everybody, status=201)
    lab.close()
    for _ in range(MAX_TRIES):
        killed(COHORT, tmp_path, address)
    lab = start()
    calculator = CohortCalculator(lab.database, jobs=lab.service.jobs, now=lambda: lab.now)
    calculator.round()
    told = lab.ok("GET", f"/cohorts/{cohort['id']}/calculation/")
    assert (told["errors_calculating"], told["last_error_message"]) == (1, COHORT_STOPPED)
    calculator.round()
    assert lab.ok("GET", f"/cohorts/{cohort['id']}/calculation/") == told, "not yet"
    lab.now += timedelta(seconds=RETRY_FIRST_S)
    calculator.round()
    assert lab.ok("GET", f"/cohorts/{cohort['id']}/calculation/")["count"] == 0
