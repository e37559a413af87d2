"""A server of several processes on one PostgreSQL database: what each does, refuses, and says of itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr
from tests.cluster import KEY, TOKEN, Cluster, cluster
from tests.faults.destination import Destination
from tests.http.asgi import Answer, ask
from tests.postgres import PostgresServer
from tests.storage.own_postgres import own_server
from tests.waiting import PATIENCE_S

from hoglab.app.server import JoiningProcess
from hoglab.settings import Settings


def wait_for(look: Any, what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what} did not come")


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("HOGLAB_")}
    command = [sys.executable, "-m", "hoglab", "serve", "--port", "0", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**known, **environment}, check=False, timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["--role", "edge"], {}, "HOGLAB_DATABASE_URL"),
        ([], {"HOGLAB_ROLE": "core"}, "the role all"),
        (["--role", "deliver"], {"HOGLAB_DATABASE_URL": "postgresql://localhost/x"}, "HOGLAB_SECRET_KEYS"),
        (["--role", "web"], {}, "'all', 'core', 'api', 'analysis', 'edge', 'ingest' or 'deliver'"),
    ],
)
def test_what_is_no_shape_is_refused_in_one_line(
    arguments: list[str], environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    refused = serve("--data", str(tmp_path / "data"), *arguments, **environment)
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert refused.stderr.startswith("hoglab: HOGLAB_ROLE")
    assert told in refused.stderr
    assert not (tmp_path / "data").exists()


def make_function(api: httpx.Client, url: str, **more: Any) -> str:
    source = (
        "fetch(inputs.url, {'method': 'POST', 'body': {'uuid': event.uuid, 'who': event.distinct_id, "
        "'number': event.properties.number}}); print(f'told of {event.distinct_id}')"
    )
    made = api.post(
        "/hog_functions/",
        json={
            "type": "destination",
            "name": "sink",
            "enabled": True,
            "hog": source,
            "inputs_schema": [{"key": "url", "type": "string"}],
            "inputs": {"url": {"value": url}},
            "filters": {"events": [{"id": "hello", "type": "events"}]},
            **more,
        },
    )
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_each_process_does_its_part(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    destination = Destination()
    with destination, cluster(tmp_path, postgres_url) as server:
        core, edge = server.add("core", "core"), server.add("edge", "edge")
        deliver = server.add("deliver", "deliver")
        server.start("core", "edge", "deliver")
        api = server.api()
        function = make_function(api, destination.url)
        logs = f"{core.url}/api/projects/1/hog_functions/{function}/logs/"
        headers = {"Authorization": f"Bearer {KEY}"}
        group = {"properties": [], "rollout_percentage": 100}
        made = api.post("/feature_flags/", json={"key": "on", "filters": {"groups": [group]}})
        assert made.status_code == 201, made.text

        def flags() -> Any:
            asked = {"token": TOKEN, "distinct_id": "ada"}
            return httpx.post(f"{edge.url}/flags/?v=2", json=asked, timeout=PATIENCE_S).json()

        def capture(client: str = edge.url) -> httpx.Response:
            event = {"api_key": TOKEN, "event": "hello", "distinct_id": "ada"}
            return httpx.post(f"{client}/capture/", json=event, timeout=PATIENCE_S)

        wait_for(lambda: flags()["flags"].get("on"), "the flag")
        with httpx.stream("GET", f"{logs}tail/", headers=headers, timeout=PATIENCE_S) as stream:
            lines = stream.iter_lines()
            assert next(lines) == ":"
            assert capture().status_code == 200
            wait_for(lambda: "told of ada" in next(lines), "the line of the log")
        wait_for(lambda: len(destination.bodies) == 1, "the delivery")
        wait_for(lambda: len(api.get("/events/").json()["results"]) == 1, "the event")
        definitions = f"{edge.url}/api/feature_flag/local_evaluation/?token={TOKEN}"
        assert httpx.get(definitions, headers=headers).status_code == 200
        assert httpx.get(f"{edge.url}/array/{TOKEN}/config").status_code == 200
        assert httpx.get(f"{edge.url}/api/projects/1/events/", headers=headers).status_code == 404
        assert capture(deliver.url).status_code == 404
        assert capture(core.url).status_code == 200
        wait_for(lambda: len(destination.bodies) == 2, "the second delivery")
        _gone_and_back(postgres, postgres_url, server, flags, capture)
        wait_for(lambda: len(destination.bodies) == 3, "the delivery after the outage")
        api.close()


def _gone_and_back(
    postgres: PostgresServer, postgres_url: str, server: Cluster, flags: Any, capture: Any
) -> None:
    """An edge answers flags while its database is away, and says of itself that it can."""
    edge, deliver = server.processes["edge"], server.processes["deliver"]
    postgres.close(postgres_url)
    refused = capture()
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert flags()["flags"]["on"]["enabled"] is True
    ready = httpx.get(f"{edge.url}/_readyz", timeout=PATIENCE_S)
    assert ready.status_code == 200
    assert any(each.startswith("event log") for each in ready.json()["degraded"])
    assert httpx.get(f"{deliver.url}/_readyz", timeout=PATIENCE_S).status_code == 503
    for process in (edge, deliver):
        assert httpx.get(f"{process.url}/_livez", timeout=PATIENCE_S).status_code == 200
    postgres.reopen(postgres_url)
    wait_for(lambda: capture().status_code == 200, "capture")
    wait_for(lambda: httpx.get(f"{deliver.url}/_readyz", timeout=PATIENCE_S).status_code == 200, "readiness")


def test_a_core_alone_tells_what_waits_and_refuses_other_keys(postgres_url: str, tmp_path: Path) -> None:
    with cluster(tmp_path, postgres_url) as server:
        core = server.add("core", "core")
        server.start("core")
        _nobody_delivers(core.url, server)
        _edge_without_flags(postgres_url, server)
        other = {"HOGLAB_DATABASE_URL": postgres_url, "HOGLAB_SECRET_KEYS": Fernet.generate_key().decode()}
        for role in ("edge", "deliver"):
            refused = serve("--role", role, **other)
            assert refused.returncode == 1
            assert "HOGLAB_SECRET_KEYS are not the keys" in refused.stderr
            assert len(refused.stderr.strip().splitlines()) == 1
        second = serve(
            "--role", "core", "--data", str(tmp_path / "other"), **other, HOGLAB_SERVER_WAIT_S="0.2"
        )
        assert (second.returncode, "another server works on" in second.stderr) == (1, True)


def _nobody_delivers(core: str, server: Cluster) -> None:
    """The core says what is in the queue although it takes nothing from it."""
    with server.api() as api:
        make_function(api, "http://127.0.0.1:9/")
        event = {"event": "hello", "distinct_id": "ada"}
        batch = {"api_key": TOKEN, "batch": [event, event]}
        assert httpx.post(f"{core}/batch/", json=batch, timeout=PATIENCE_S).status_code == 200

        def status() -> Any:
            return api.get(f"{core}/api/system_status/").json()["delivery"]

        wait_for(lambda: status()["waiting"] == 2, "what the queue holds")
        assert status()["running"] == 0
        wait_for(lambda: (status()["oldest_due_s"] or 0) > 0, "its age")

    def measured(name: str) -> float:
        lines = httpx.get(f"{core}/metrics", timeout=PATIENCE_S).text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    for name in ("hoglab_delivery_waiting", "hoglab_delivery_backlog"):
        wait_for(lambda: measured(name) == 2, name)  # noqa: B023
    assert measured("hoglab_delivery_oldest_due_seconds") > 0


def _edge_without_flags(postgres_url: str, server: Cluster) -> None:
    """An edge is not ready before the flags of all projects are in memory: it could not answer without a database."""
    settings = Settings(
        database_url=SecretStr(postgres_url),
        secret_keys=(server.secret_key,),
        role="edge",
        access_log=False,
    )
    edge = JoiningProcess.open(settings)
    try:

        def readiness() -> Answer:
            return asyncio.run(ask(edge.http, "GET", "/_readyz"))

        before = readiness()
        assert before.status == 503
        assert json.loads(before.body)["reasons"] == ["flags: are not loaded yet"]
        edge.start()
        wait_for(lambda: readiness().status == 200, "readiness")
    finally:
        edge.stop()


def test_an_edge_whose_database_hangs_still_answers(tmp_path: Path) -> None:
    """It neither answers nor refuses: nothing that is answered from memory waits for it."""
    with own_server() as postgres, cluster(tmp_path, postgres.url) as server:
        edge = server.add("edge", "edge")
        server.add("core", "core")
        server.start("core", "edge")
        group = {"properties": [], "rollout_percentage": 100}
        plan = {"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}
        stored = {"properties": [plan], "rollout_percentage": 100}
        with server.api() as api:
            for key, condition in (("on", group), ("stored", stored)):
                made = api.post("/feature_flags/", json={"key": key, "filters": {"groups": [condition]}})
                assert made.status_code == 201, made.text

        def flags() -> Any:
            asked = {"token": TOKEN, "distinct_id": "ada"}
            return httpx.post(f"{edge.url}/flags/?v=2", json=asked, timeout=PATIENCE_S).json()

        def capture() -> httpx.Response:
            event = {"api_key": TOKEN, "event": "hello", "distinct_id": "ada"}
            return httpx.post(f"{edge.url}/capture/", json=event, timeout=PATIENCE_S)

        wait_for(lambda: {"on", "stored"} <= flags()["flags"].keys(), "the flags")
        assert capture().status_code == 200
        with postgres.hanging(), ThreadPoolExecutor() as pool:
            waiting = [pool.submit(capture) for _ in range(3)]
            for _ in range(5):
                assert httpx.get(f"{edge.url}/_livez", timeout=PATIENCE_S).status_code == 200
                assert httpx.get(f"{edge.url}/_readyz", timeout=PATIENCE_S).status_code == 200
                answer = flags()
                assert answer["flags"]["on"]["enabled"] is True
                assert answer["errorsWhileComputingFlags"] is True
                assert answer["flags"]["stored"]["failed"] is True
            assert {each.result().status_code for each in waiting} == {503}
        wait_for(lambda: capture().status_code == 200, "capture")
        assert flags()["errorsWhileComputingFlags"] is False
