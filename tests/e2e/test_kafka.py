"""A server that accepts events into Kafka: what it does while its database, or the brokers, are away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster import TOKEN, Cluster, cluster
from tests.e2e.test_roles import make_function, serve, wait_for
from tests.faults.destination import Destination
from tests.kafka import own_broker
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_an_address_that_does_not_go_with_the_rest_is_refused_in_one_line(tmp_path: Path) -> None:
    for environment, told in (
        ({"HOGLAB_EVENT_LOG_URL": "kafka://b:9092/t"}, "HOGLAB_DATABASE_URL"),
        ({"HOGLAB_EVENT_LOG_URL": "nats://b/t"}, "must begin with kafka://"),
    ):
        refused = serve("--data", str(tmp_path / "data"), **environment)
        assert refused.returncode == 1
        assert refused.stderr.startswith("hoglab: HOGLAB_EVENT_LOG_URL")
        assert told in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_events_are_accepted_while_the_database_is_away_and_ingested_when_it_is_back(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with own_broker(tmp_path) as broker:
        broker.start()
        address = f"kafka://{broker.address}/events?partitions=4"
        destination = Destination()
        with destination, cluster(tmp_path, postgres_url, HOGLAB_EVENT_LOG_URL=address) as server:
            for name, role in (("core", "core"), ("edge", "edge"), ("deliver", "deliver")):
                server.add(name, role)
            server.start("core", "edge", "deliver")
            api = server.api()
            make_function(api, destination.url)
            sent = [_send(server, f"before-{number}") for number in range(10)]
            wait_for(lambda: len(destination.bodies) == 10, "the deliveries")

            postgres.close(postgres_url)
            sent += [_send(server, f"meanwhile-{number}") for number in range(20)]
            ready = httpx.get(f"{server.processes['edge'].url}/_readyz", timeout=30)
            assert ready.status_code == 200
            assert not any(each.startswith("event log") for each in ready.json()["degraded"])
            postgres.reopen(postgres_url)
            wait_for(lambda: len(destination.bodies) == 30, "the deliveries after the database was away")

            broker.kill()
            assert _post(server, "while no broker is there").status_code == 503
            core = f"{server.processes['core'].url}/_readyz"
            wait_for(lambda: httpx.get(core, timeout=30).status_code == 503, "that the core says so")
            assert any(each.startswith("event log") for each in httpx.get(core, timeout=30).json()["reasons"])
            broker.start()
            wait_for(lambda: _post(server, "after").status_code == 200, "capture")
            wait_for(lambda: len(destination.bodies) >= 31, "the delivery after the brokers were away")
            found = Counter(each["distinct_id"] for each in _events(api))
            assert {who: found[who] for who in sent} == dict.fromkeys(sent, 1)
            assert found["after"] == 1
            api.close()


def _post(server: Cluster, who: str) -> httpx.Response:
    event = {"api_key": TOKEN, "event": "hello", "distinct_id": who}
    return httpx.post(f"{server.processes['edge'].url}/capture/", json=event, timeout=60)


def _send(server: Cluster, who: str) -> str:
    answer = _post(server, who)
    assert answer.status_code == 200, answer.text
    return who


def _events(api: httpx.Client) -> Any:
    return api.get("/events/", params={"limit": 1000}).json()["results"]
