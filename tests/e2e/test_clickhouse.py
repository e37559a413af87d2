"""A server with PostgreSQL and ClickHouse in one process: from what SDKs send to results and deliveries."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.e2e.test_roles import make_function, serve, wait_for
from tests.faults.destination import Destination
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

from hoglab.storage.engines import upgrade_databases

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"


@pytest.fixture(params=["in PostgreSQL", "in Kafka"])
def event_log(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a log that requests are accepted into."""
    if request.param == "in PostgreSQL":
        return {}
    broker = request.getfixturevalue("kafka")
    return {"HOGLAB_EVENT_LOG_URL": f"kafka://{broker}/{new_topic()}?partitions=4"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_capture_to_results_and_deliveries(
    start_server: StartServer, postgres_url: str, events_url: str, event_log: dict[str, str], tmp_path: Path
) -> None:
    upgrade_databases(postgres_url)
    destination = Destination()
    environment = {
        "HOGLAB_DATABASE_URL": postgres_url,
        "HOGLAB_EVENT_STORE_URL": events_url,
        **event_log,
        "HOGLAB_BOOTSTRAP_API_KEY": KEY,
        "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN,
        "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.0/8",
    }
    with destination:
        server = start_server(data=tmp_path / "data", **environment)
        api = httpx.Client(
            base_url=f"{server.url}/api/projects/1",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=PATIENCE_S,
        )
        make_function(api, destination.url)
        experiment = launched(api)
        batch = [an_event("hello", f"user-{number}", number=number) for number in range(40)]
        batch += [exposure(f"user-{number}", "test" if number % 2 else "control") for number in range(40)]
        batch += [an_event("purchase", f"user-{number}", value=number) for number in range(0, 40, 4)]
        batch.append(
            an_event("$identify", "user-0", **{"$anon_distinct_id": "user-1", "$set": {"plan": "pro"}})
        )
        for _ in range(2):  # an SDK that heard no answer sends all of it again
            sent = {"api_key": TOKEN, "batch": batch}
            assert httpx.post(f"{server.url}/batch/", json=sent, timeout=PATIENCE_S).status_code == 200
        wait_for(lambda: len(destination.bodies) == 40, "the deliveries")
        events = api.get("/events/", params={"limit": 1000}).json()["results"]
        assert len(events) == len(batch)
        [one] = api.get("/events/", params={"distinct_id": "user-7", "event": "hello"}).json()["results"]
        assert api.get(f"/events/{one['id']}/").json()["properties"]["number"] == 7
        persons = api.get("/persons/", params={"search": "user-0"}).json()["results"]
        [person] = [each for each in persons if "user-0" in each["distinct_ids"]]
        assert sorted(person["distinct_ids"]) == ["user-0", "user-1"]
        assert person["properties"]["plan"] == "pro"
        of_both = api.get("/events/", params={"person_id": person["id"], "event": "hello"}).json()["results"]
        assert {each["distinct_id"] for each in of_both} == {"user-0", "user-1"}
        pro = '[{"key": "number", "value": "39", "operator": "exact", "type": "event"}]'
        assert len(api.get("/events/", params={"properties": pro}).json()["results"]) == 1
        check_results(api, experiment)

        server.stop()
        server.start()
        assert httpx.post(
            f"{server.url}/batch/", json={"api_key": TOKEN, "batch": batch[:5]}, timeout=PATIENCE_S
        ).is_success
        last = an_event("hello", "user-99")
        assert httpx.post(
            f"{server.url}/batch/", json={"api_key": TOKEN, "batch": [last]}, timeout=PATIENCE_S
        ).is_success
        wait_for(lambda: len(destination.bodies) == 41, "the delivery after the restart")
        assert len(api.get("/events/", params={"limit": 1000}).json()["results"]) == len(batch) + 1
        assert not (tmp_path / "data" / "events.duckdb").exists()
        exported = _exported(tmp_path, environment)
        assert exported == len(batch) + 1
        api.close()


def an_event(name: str, who: str, **properties: Any) -> dict[str, Any]:
    moment = datetime.now(UTC) - timedelta(seconds=30 if name == "$feature_flag_called" else 10)
    return {
        "event": name,
        "distinct_id": who,
        "uuid": f"0199{abs(hash((name, who))) % 16**4:04x}-0000-7000-8000-{abs(hash((who, name))) % 16**12:012x}",
        "timestamp": moment.isoformat(),
        "properties": properties,
    }


def exposure(who: str, variant: str) -> dict[str, Any]:
    return an_event(
        "$feature_flag_called", who, **{"$feature_flag": "price", "$feature_flag_response": variant}
    )


def launched(api: httpx.Client, flag: str = "price") -> int:
    metric = {
        "kind": "ExperimentMetric",
        "uuid": "11111111-1111-4111-8111-111111111111",
        "metric_type": "mean",
        "source": {"kind": "EventsNode", "event": "purchase", "math": "total"},
    }
    start = datetime.now(UTC) - timedelta(hours=1)
    made = api.post(
        "/experiments/",
        json={
            "name": flag,
            "feature_flag_key": flag,
            "start_date": start.isoformat(),
            "metrics": [metric],
            "stats_config": {"method": "frequentist"},
        },
    )
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


def check_results(api: httpx.Client, experiment: int) -> None:
    found = api.get(f"/experiments/{experiment}/").json()
    query = {"kind": "ExperimentQuery", "experiment_id": experiment, "metric": found["metrics"][0]}
    answer = api.post("/query/", json={"query": query, "refresh": "force_blocking"})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    groups = [result["baseline"], *result["variant_results"]]
    told = {group["key"]: (group["number_of_samples"], group["sum"]) for group in groups}
    # user-0 and user-1 are one person, who saw both variants and counts for neither.
    assert told == {"control": (19, 9), "test": (19, 0)}


def _exported(folder: Path, environment: dict[str, str]) -> int:
    target = folder / "events.jsonl"
    command = [sys.executable, "-m", "hoglab", "export", "events", "--project", "1", "--to", str(target)]
    done = subprocess.run(
        [*command, "--data", str(folder / "data")],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return len(target.read_text().splitlines())


@pytest.mark.parametrize("command", [["backup", "--to", "copy"], ["restore", "copy"], ["check"], ["repair"]])
def test_commands_on_files_refuse(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "data").mkdir()
    environment = {
        **os.environ,
        "HOGLAB_DATABASE_URL": "postgresql://localhost/hoglab",
        "HOGLAB_EVENT_STORE_URL": "clickhouse://localhost/hoglab",
        "HOGLAB_DATA": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "hoglab", *command],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert "events are in ClickHouse" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_shape_that_there_is_not_is_refused(tmp_path: Path) -> None:
    refused = serve("--data", str(tmp_path / "data"), HOGLAB_EVENT_STORE_URL="clickhouse://localhost/hoglab")
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "HOGLAB_EVENT_STORE_URL" in refused.stderr
    assert "HOGLAB_DATABASE_URL" in refused.stderr
    assert not (tmp_path / "data").exists()
