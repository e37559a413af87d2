"""A cluster: every role in processes of its own, on PostgreSQL, Kafka and ClickHouse, behind nginx as documented."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.cluster import KEY, TOKEN, Cluster, cluster
from tests.deploy.proxy import nginx
from tests.e2e.test_clickhouse import an_event, exposure, launched
from tests.e2e.test_readme import tour_taken
from tests.e2e.test_roles import make_function, serve, wait_for
from tests.faults.destination import Destination
from tests.forked import run
from tests.kafka import new_topic
from tests.links import Link
from tests.waiting import PATIENCE_S

from hoglab.storage.job_leases import LEASE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

ROLES = {
    "api-1": "api",
    "analysis-1": "analysis",
    "edge-1": "edge",
    "edge-2": "edge",
    "ingest-1": "ingest",
    "ingest-2": "ingest",
    "deliver-1": "deliver",
    "deliver-2": "deliver",
}
DEMO_USERS = 3_000


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster behind a proxy."""

    server: Cluster
    proxy: str
    database: str
    link: Link
    """Between the first process for analysis and ClickHouse."""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Processes of all roles; a second one with the API and a second one for analysis are added, not started."""
    postgres, clickhouse = request.getfixturevalue("postgres"), request.getfixturevalue("clickhouse")
    topic = f"kafka://{request.getfixturevalue('kafka')}/{new_topic()}?partitions=4"
    database, events, folder = postgres.database(), clickhouse.database(), tmp_path_factory.mktemp("cluster")
    settings = {"HOGLAB_EVENT_LOG_URL": topic, "HOGLAB_RESULTS_REFRESH_S": "1"}
    link = Link.to(events)
    with cluster(folder, database, HOGLAB_EVENT_STORE_URL=events, **settings) as server:
        for name, role in {**ROLES, "api-2": "api", "analysis-2": "analysis"}.items():
            through = {"HOGLAB_EVENT_STORE_URL": link.url_of(events)} if name == "analysis-1" else {}
            server.add(name, role, **through)
        ports = {"8000": "api-1", "8001": "edge-1", "8002": "edge-2"}
        placed = {port: server.processes[name].url.rpartition(":")[2] for port, name in ports.items()}
        with nginx(folder / "nginx", placed) as proxy:
            server.start(*ROLES)
            yield Site(server, proxy, database, link)
    link.close()
    postgres.drop(database)
    clickhouse.drop(events)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HOGLAB_ROLE": "api", "HOGLAB_DATABASE_URL": "postgresql://localhost/x"}, "the role core"),
        ({"HOGLAB_ROLE": "analysis"}, "the role all"),
        (
            {
                "HOGLAB_ROLE": "core",
                "HOGLAB_DATABASE_URL": "postgresql://localhost/x",
                "HOGLAB_EVENT_STORE_URL": "clickhouse://localhost:8123/x",
                "HOGLAB_EVENT_LOG_URL": "kafka://localhost:9092/x",
            },
            "HOGLAB_SECRET_KEYS",
        ),
    ],
)
def test_a_role_that_a_shape_does_not_have_is_refused_in_one_line(
    environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    refused = serve("--data", str(tmp_path / "data"), **environment)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (1, 1)
    assert refused.stderr.startswith("hoglab: HOGLAB_ROLE")
    assert told in refused.stderr
    assert not (tmp_path / "data").exists()


def test_the_tour_and_the_demo_through_the_proxy(site: Site) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOGLAB_")}
    done = tour_taken(site.proxy, {**environment, **site.server.environment}, pause_s=20)
    _, _, events, results, logs = (line for line in done.stdout.splitlines() if line.strip())
    assert '"event":"signed up"' in events
    assert '"credible_interval":[' in results
    assert '"message":"user-' in logs

    demo = run(
        *("demo", "--users", str(DEMO_USERS), "--url", site.proxy),
        environment={**environment, "HOGLAB_API_KEY": KEY, "COLUMNS": "140"},
        timeout_s=600,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count("✓") == 4
    _check_alive(site.server, *ROLES)


def test_two_with_the_api_and_two_for_analysis(site: Site) -> None:
    """Whatever one was told the other answers at once; and each job is done once, by whoever is there."""
    server = site.server
    with Destination() as told, Destination() as past, server.api("api-1") as one:
        _take_over(site, one)
        server.start("analysis-1", "api-2")
        with server.api("api-2") as two:
            _read_what_the_other_wrote(one, two)
            _compute_once(site, one, two)
            _tell_once(one, two, told)
            _replay_once(one, two, past)
    _check_alive(server, *ROLES, "api-2", "analysis-2")


def _take_over(site: Site, api: httpx.Client) -> None:
    """A process for analysis is killed amid a job that reads events: the other one does it after the lease."""
    kept = {
        "type": "behavioral",
        "key": "kept",
        "event_type": "events",
        "value": "performed_event",
        "time_value": 30,
        "time_interval": "day",
    }
    first, second = site.server.processes["analysis-1"], "analysis-2"
    _send(site, [an_event("kept", f"keeper-{number}") for number in range(5)])
    wait_for(lambda: len(_events(api, "kept")) == 5, "the events")
    with site.link.silent("back"):
        made = api.post(
            "/cohorts/", json={"name": "Kept", "filters": {"properties": {"type": "OR", "values": [kept]}}}
        )
        assert made.status_code == 201, made.text
        wait_for(lambda: _at_work(site, "cohort"), "somebody at the cohort")
        lost = _at_work(site, "cohort")
        site.server.start(second)
        first.kill(signal.SIGKILL)
        killed = time.monotonic()
    wait_for(lambda: _at_work(site, "cohort") != lost, "who takes over")
    took_s = time.monotonic() - killed
    print(f"taken over within {took_s:.1f} s")
    assert took_s > LEASE_S / 2  # a process that starts takes nothing from others
    wait_for(lambda: api.get(f"/cohorts/{made.json()['id']}/").json()["count"] == 5, "the members")


def _at_work(site: Site, kind: str) -> str | None:
    """The token of the lease of a job."""
    with psycopg.connect(site.database) as connection:
        asked = "SELECT token FROM hoglab.job WHERE kind = %s AND token IS NOT NULL"
        found = connection.execute(asked, (kind,)).fetchone()
    return None if found is None else str(found[0])


def _read_what_the_other_wrote(one: httpx.Client, two: httpx.Client) -> None:
    flag = {"key": "told", "filters": {"groups": [{"properties": [], "rollout_percentage": 100}]}}
    made = one.post("/feature_flags/", json=flag)
    assert made.status_code == 201, made.text
    experiment = launched(two, "read")
    for number in range(20):
        writer, reader = (one, two) if number % 2 else (two, one)
        for path, values in (
            (f"/feature_flags/{made.json()['id']}/", {"name": f"name {number}"}),
            (f"/experiments/{experiment}/", {"description": f"text {number}"}),
            ("/", {"name": f"project {number}"}),
        ):
            assert writer.patch(path, json=values).status_code == 200
            assert reader.get(path).json().items() >= values.items()


def _compute_once(site: Site, one: httpx.Client, two: httpx.Client) -> None:
    """Points of a day, a recalculation, and queries of both at the same time."""
    experiment = launched(one, "price")
    exposed = [exposure(f"shopper-{number}", "test" if number % 2 else "control") for number in range(40)]
    _send(
        site, [*exposed, *(an_event("purchase", f"shopper-{number}", value=1) for number in range(0, 40, 4))]
    )
    wait_for(lambda: len(_events(two, "purchase", "shopper-")) == 10, "the events")
    paths = [f"/experiments/{experiment}/metrics_recalculation/"] * 2
    with ThreadPoolExecutor() as pool:
        asked = list(pool.map(lambda api, path: api.post(path, json={}), (one, two), paths))
    assert {each.json()["id"] for each in asked} == {asked[0].json()["id"]}
    path = f"{paths[0]}{asked[0].json()['id']}/"
    wait_for(lambda: two.get(path).json()["status"] == "completed", "the recalculation")
    [result] = one.get(path).json()["results"]
    counted = [result["result"]["baseline"], *result["result"]["variant_results"]]
    assert sum(each["number_of_samples"] for each in counted) == 40

    def days() -> list[int]:
        with psycopg.connect(site.database) as connection:
            asked = "SELECT count(*) FROM hoglab.metric_result WHERE experiment_id = %s GROUP BY query_to"
            return [count for (count,) in connection.execute(asked, (experiment,)).fetchall()]

    wait_for(days, "the points")
    assert set(days()) == {1}


def _tell_once(one: httpx.Client, two: httpx.Client, told: Destination) -> None:
    """What the server itself has to tell, by one of the two for analysis."""
    filters = {"events": [{"id": "$activity_log_entry_created", "type": "events"}]}
    make_function(one, told.url, type="internal_destination", filters=filters)
    for number in range(10):
        sent = (one, two)[number % 2].post("/actions/", json={"name": f"action {number}"})
        assert sent.status_code == 201, sent.text
    wait_for(lambda: len(told.bodies) >= 10, "what is told of actions")
    assert {len(keys) for keys in told.bodies.values()} == {1}


def _replay_once(one: httpx.Client, two: httpx.Client, told: Destination) -> None:
    """Past events likewise, whoever was asked."""
    function = make_function(one, told.url, filters={"events": [{"id": "kept", "type": "events"}]})
    since = {"from": "2020-01-01T00:00:00Z", "to": datetime.now(UTC).isoformat()}
    begun = two.post(f"/hog_functions/{function}/backfill/", json=since)
    assert begun.status_code == 201, begun.text
    wait_for(lambda: len(told.bodies) == 5, "the past events")
    assert {len(keys) for keys in told.bodies.values()} == {1}

    def ended() -> list[str]:
        lines = one.get(f"/hog_functions/{function}/logs/").json()["results"]
        return [line["message"] for line in lines if line["message"].startswith("Backfill completed")]

    wait_for(ended, "its end")
    [text] = ended()
    assert text.endswith(", 5 runs.")


def _send(site: Site, events: list[dict[str, Any]]) -> None:
    sent = httpx.post(f"{site.proxy}/batch/", json={"api_key": TOKEN, "batch": events}, timeout=PATIENCE_S)
    assert sent.status_code == 200, sent.text


def _events(api: httpx.Client, name: str, who: str = "") -> list[Any]:
    """The newest events of a name, of distinct ids that begin so."""
    found = api.get("/events/", params={"event": name, "limit": 1000}).json()["results"]
    return [each for each in found if each["distinct_id"].startswith(who)]


def _check_alive(server: Cluster, *names: str) -> None:
    for name in names:
        process = server.processes[name]
        ready = httpx.get(f"{process.url}/_readyz", timeout=PATIENCE_S)
        assert ready.status_code == 200, f"{name}: {ready.text}"
        assert "Traceback" not in process.output(), f"{name}: {process.output()[-3000:]}"
