"""A server that accepts events into Kafka: what it does while its database, or the brokers, are away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster import TOKEN, Cluster, cluster
from tests.e2e.test_clickhouse import an_event, check_results, exposure, launched
from tests.e2e.test_roles import make_function, serve, wait_for
from tests.faults.destination import Destination
from tests.kafka import new_topic, own_broker
from tests.postgres import PostgresServer
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROCESSES = {"core": "core", "edge": "edge", "ingest-1": "ingest", "ingest-2": "ingest", "deliver": "deliver"}
LATE = {
    "type": "behavioral",
    "key": "late",
    "event_type": "events",
    "value": "performed_event",
    "time_value": 30,
    "time_interval": "day",
}
POSTGRES = {"HOGLAB_DATABASE_URL": "postgresql://localhost/hoglab"}


def test_an_address_that_does_not_go_with_the_rest_is_refused_in_one_line(tmp_path: Path) -> None:
    for environment, told in (
        ({"HOGLAB_EVENT_LOG_URL": "kafka://b:9092/t"}, "HOGLAB_DATABASE_URL"),
        ({"HOGLAB_EVENT_LOG_URL": "nats://b/t"}, "must begin with kafka://"),
        ({"HOGLAB_EVENT_LOG_URL": "kafka://b:9092/t", **POSTGRES}, "HOGLAB_EVENT_STORE_URL"),
    ):
        refused = serve("--data", str(tmp_path / "data"), **environment)
        assert refused.returncode == 1
        assert refused.stderr.startswith("hoglab: HOGLAB_EVENT_LOG_URL")
        assert told in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_ingestion_by_processes_of_its_own_is_refused_where_the_log_has_no_partitions(tmp_path: Path) -> None:
    refused = serve("--role", "ingest", "--data", str(tmp_path / "data"), **POSTGRES)
    assert refused.returncode == 1
    assert refused.stderr.startswith("hoglab: HOGLAB_ROLE")
    assert "HOGLAB_EVENT_LOG_URL" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_events_are_accepted_while_the_database_is_away_and_ingested_when_it_is_back(
    postgres: PostgresServer, postgres_url: str, events_url: str, tmp_path: Path
) -> None:
    with own_broker(tmp_path) as broker:
        broker.start()
        address = f"kafka://{broker.address}/events?partitions=4"
        destination = Destination()
        urls = {"HOGLAB_EVENT_LOG_URL": address, "HOGLAB_EVENT_STORE_URL": events_url}
        with destination, cluster(tmp_path, postgres_url, **urls) as server:
            for role in ("core", "edge", "ingest", "deliver"):
                server.add(role, role)
            server.start("core", "edge", "ingest", "deliver")
            api = server.api()
            make_function(api, destination.url)
            sent = [_send(server, f"before-{number}") for number in range(10)]
            wait_for(lambda: len(destination.bodies) == 10, "the deliveries")

            postgres.close(postgres_url)
            sent += [_send(server, f"meanwhile-{number}") for number in range(20)]
            ready = httpx.get(f"{server.processes['edge'].url}/_readyz", timeout=PATIENCE_S)
            assert ready.status_code == 200
            assert not any(each.startswith("event log") for each in ready.json()["degraded"])
            postgres.reopen(postgres_url)
            wait_for(lambda: len(destination.bodies) == 30, "the deliveries after the database was away")

            broker.kill()
            assert _post(server, "while no broker is there").status_code == 503
            core = f"{server.processes['core'].url}/_readyz"
            wait_for(lambda: httpx.get(core, timeout=PATIENCE_S).status_code == 503, "that the core says so")
            assert any(
                each.startswith("event log") for each in httpx.get(core, timeout=PATIENCE_S).json()["reasons"]
            )
            broker.start()
            wait_for(lambda: _post(server, "after").status_code == 200, "capture")
            wait_for(lambda: len(destination.bodies) >= 31, "the delivery after the brokers were away")
            found = Counter(each["distinct_id"] for each in _events(api))
            assert {who: found[who] for who in sent} == dict.fromkeys(sent, 1)
            assert found["after"] == 1
            api.close()


def test_two_processes_ingest_what_is_asked_for_evaluated_delivered_and_erased(
    kafka: str, postgres_url: str, events_url: str, tmp_path: Path
) -> None:
    """From flags and capture to persons, results, deliveries and erasing, through four partitions."""
    urls = {
        "HOGLAB_EVENT_LOG_URL": f"kafka://{kafka}/{new_topic()}?partitions=4",
        "HOGLAB_EVENT_STORE_URL": events_url,
    }
    destination = Destination()
    with destination, cluster(tmp_path, postgres_url, **urls) as server:
        for name, role in PROCESSES.items():
            server.add(name, role)
        server.start(*PROCESSES)
        api, edge = server.api(), server.processes["edge"].url
        make_function(api, destination.url)
        experiment = launched(api)
        answer = httpx.post(
            f"{edge}/flags/?v=2", json={"token": TOKEN, "distinct_id": "user-1"}, timeout=PATIENCE_S
        )
        assert answer.json()["flags"]["price"]["variant"] in ("control", "test")
        batch = [an_event("hello", f"user-{number}", number=number) for number in range(40)]
        batch += [exposure(f"user-{number}", "test" if number % 2 else "control") for number in range(40)]
        batch += [an_event("purchase", f"user-{number}", value=number) for number in range(0, 40, 4)]
        merge = {"$anon_distinct_id": "user-1", "$set": {"plan": "pro"}}
        batch.append(an_event("$identify", "user-0", **merge))
        for _ in range(2):  # an SDK that heard no answer sends all of it again
            sent = {"api_key": TOKEN, "batch": batch}
            assert httpx.post(f"{edge}/batch/", json=sent, timeout=PATIENCE_S).status_code == 200
        wait_for(lambda: len(destination.bodies) == 40, "the deliveries")
        wait_for(lambda: len(_events(api)) == len(batch), "the events")
        wait_for(lambda: len(_person(api, "user-0")["distinct_ids"]) == 2, "the merge")
        assert _person(api, "user-0")["properties"]["plan"] == "pro"
        check_results(api, experiment)
        # A job that asks for what was accepted, of which nobody knows yet in which partition it is.
        assert httpx.post(
            f"{edge}/capture/", json={"api_key": TOKEN, **an_event("late", "user-7")}
        ).is_success
        cohort = {"name": "Late", "filters": {"properties": {"type": "OR", "values": [LATE]}}}
        made = api.post("/cohorts/", json=cohort).json()
        wait_for(lambda: _members(api, made["id"]) == ["user-7"], "the cohort")
        # Whoever is to be forgotten is, with what came in just before.
        assert httpx.post(
            f"{edge}/capture/", json={"api_key": TOKEN, **an_event("last", "user-1")}
        ).is_success
        gone = api.delete(f"/persons/{_person(api, 'user-0')['id']}/", params={"delete_events": "true"})
        assert gone.is_success, gone.text
        mine = ("user-0", "user-1")
        wait_for(lambda: not any(each["distinct_id"] in mine for each in _events(api)), "the erasure")
        assert len(_events(api)) == len(batch) + 1 - sum(each["distinct_id"] in mine for each in batch)
        for name, process in server.processes.items():
            assert httpx.get(f"{process.url}/_readyz", timeout=PATIENCE_S).status_code == 200, name
            assert "Traceback" not in process.output(), f"{name}: {process.output()[-3000:]}"
        api.close()


def _person(api: httpx.Client, who: str) -> Any:
    found = api.get("/persons/", params={"distinct_id": who}).json()["results"]
    return found[0]


def _members(api: httpx.Client, cohort: int) -> list[str]:
    found = api.get(f"/cohorts/{cohort}/persons/").json()
    return [name for each in found.get("results", []) for name in each["distinct_ids"]]


def _post(server: Cluster, who: str) -> httpx.Response:
    event = {"api_key": TOKEN, "event": "hello", "distinct_id": who}
    return httpx.post(f"{server.processes['edge'].url}/capture/", json=event, timeout=PATIENCE_S)


def _send(server: Cluster, who: str) -> str:
    answer = _post(server, who)
    assert answer.status_code == 200, answer.text
    return who


def _events(api: httpx.Client) -> Any:
    return api.get("/events/", params={"limit": 1000}).json()["results"]
