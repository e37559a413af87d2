"""The runbooks of docs/cluster.md on real engines: looking at partitions, and PostgreSQL set back to a moment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from tests.cluster import TOKEN, Cluster, cluster
from tests.deploy.machine import block
from tests.e2e.test_clickhouse import an_event
from tests.e2e.test_roles import wait_for
from tests.kafka import new_topic
from tests.postgres import PostgresServer, _programs, name_in
from tests.waiting import PATIENCE_S

from hoglab.storage.engines import upgrade_databases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PEOPLE = 8
LAST_NUMBER = "SELECT last_offset FROM hoglab_queue.event_log_head"


def run(commands: str, **environment: str) -> str:
    """What commands of the document print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{_programs()}:{os.environ['PATH']}", **environment},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def send(server: Cluster, name: str) -> None:
    """An event of everybody, by which a property of theirs is changed; again until it is acknowledged, as SDKs do."""
    batch = [an_event(name, f"user-{number}", **{"$set": {"last": name}}) for number in range(PEOPLE)]
    address, body = f"{server.processes['edge'].url}/batch/", {"api_key": TOKEN, "batch": batch}
    wait_for(
        lambda: httpx.post(address, json=body, timeout=PATIENCE_S).status_code == 200, "the acknowledgement"
    )


def names(api: httpx.Client) -> Counter[str]:
    found: list[dict[str, Any]] = api.get("/events/", params={"limit": 1000}).json()["results"]
    return Counter(each["event"] for each in found)


def last_of_all(api: httpx.Client) -> Counter[Any]:
    return Counter(each["properties"].get("last") for each in api.get("/persons/").json()["results"])


def test_postgresql_is_set_back_to_a_moment_and_the_topic_is_lost(
    kafka: str, postgres: PostgresServer, postgres_url: str, events_url: str, tmp_path: Path
) -> None:
    urls = {
        "HOGLAB_EVENT_LOG_URL": f"kafka://{kafka}/{new_topic()}?partitions=4",
        "HOGLAB_EVENT_STORE_URL": events_url,
    }
    parts = urlsplit(events_url)
    events = f"http://{parts.hostname}:{parts.port}/?user=default&database={parts.path[1:]}"
    with cluster(tmp_path / "before", postgres_url, **urls) as server:
        for role in ("core", "edge", "ingest"):
            server.add(role, role)
        server.start("core", "edge", "ingest")
        with server.api() as api:
            send(server, "before")
            wait_for(lambda: names(api) == Counter(before=PEOPLE), "the events")
            told = run(block("partitions"), HOGLAB_DATABASE_URL=postgres_url, EVENTS=events)
            assert "(4 rows)" in told
            run(block("poison"), HOGLAB_DATABASE_URL=postgres_url, **urls)
            dump = tmp_path / "hoglab.dump"
            programs = f"{_programs()}/pg_dump"
            subprocess.run([programs, "--format=custom", f"--file={dump}", postgres_url], check=True)
            send(server, "since")
            wait_for(lambda: names(api) == Counter(before=PEOPLE, since=PEOPLE), "the events since")
            wait_for(lambda: last_of_all(api) == Counter(since=PEOPLE), "what they changed")
        secret_key = server.secret_key
    restored = postgres.url(f"{name_in(postgres_url)}_restored")
    commands = block("cluster-restore").replace("/mnt/backups/hoglab.dump", str(dump))
    folder = urlsplit(postgres_url).query.partition("host=")[2]
    run(commands.replace("hoglab_restored", name_in(restored)), PGHOST=folder, PGUSER="postgres")
    upgrade_databases(restored)
    with cluster(tmp_path / "after", restored, HOGLAB_SECRET_KEYS=secret_key, **urls) as server:
        core = server.add("core", "core")
        server.add("edge", "edge")
        server.add("ingest", "ingest")
        with pytest.raises(Exception, match="older than"):
            core.start()
        core._arguments.append("--accept-loss")
        core.start()
        with server.api() as api:
            assert last_of_all(api) == Counter(before=PEOPLE)
            server.start("edge", "ingest")
            wait_for(lambda: last_of_all(api) == Counter(since=PEOPLE), "what came since, once more")
            send(server, "after")
            wait_for(lambda: last_of_all(api) == Counter(after=PEOPLE), "what comes afterwards")
            wait_for(lambda: names(api)["after"] == PEOPLE, "the events afterwards")
            assert names(api) == Counter(before=PEOPLE, since=PEOPLE, after=PEOPLE)
    run(block("new-topic"), HOGLAB_DATABASE_URL=restored)
    urls["HOGLAB_EVENT_LOG_URL"] = f"kafka://{kafka}/{new_topic()}?partitions=4"
    with cluster(tmp_path / "anew", restored, HOGLAB_SECRET_KEYS=secret_key, **urls) as server:
        for role in ("core", "edge", "ingest"):
            server.add(role, role)
        with psycopg.connect(restored, autocommit=True) as connection:
            connection.execute("UPDATE hoglab_queue.event_log_head SET last_offset = 0")
            server.start("ingest")
            [(last,)] = connection.execute(LAST_NUMBER).fetchall()
            assert last >= 3 * PEOPLE, "what is ingested next gets places behind all that ClickHouse has"
        server.start("core", "edge")
        with server.api() as api:
            send(server, "anew")
            wait_for(lambda: last_of_all(api) == Counter(anew=PEOPLE), "what comes through the new topic")
            expected = Counter(before=PEOPLE, since=PEOPLE, after=PEOPLE, anew=PEOPLE)
            wait_for(lambda: names(api) == expected, "the events through the new topic")
    postgres.drop(restored)
