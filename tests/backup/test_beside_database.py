"""Backups of a server on PostgreSQL: its events by hoglab, its database by PostgreSQL, put together again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests import forked
from tests.backup.test_backup import FORWARD, LOCAL, stored, wait_for
from tests.conftest import StartServer, free_port
from tests.faults.destination import Destination
from tests.postgres import PostgresServer, _programs
from tests.waiting import PATIENCE_S

from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer
from hoglab.storage.engines import upgrade_databases


def hoglab(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments, environment={**os.environ, "HOGLAB_DATABASE_URL": url})


def dump(url: str, to: Path) -> None:
    programs = _programs()
    assert programs is not None
    subprocess.run([programs / "pg_dump", "--format=custom", f"--file={to}", url], check=True)


def restored_database(postgres: PostgresServer, dumped: Path) -> str:
    programs = _programs()
    assert programs is not None
    url = postgres.database()
    subprocess.run([programs / "pg_restore", f"--dbname={url}", dumped], check=True)
    return url


def send(server: ChildServer, *names: str) -> set[str]:
    events = [{"uuid": str(uuid4()), "event": name, "distinct_id": "ann"} for name in names]
    body = {"api_key": server.project_token, "batch": events}
    assert httpx.post(f"{server.url}/batch/", json=body, timeout=PATIENCE_S).status_code == 200
    return {event["uuid"] for event in events}


@pytest.mark.timeout(900)
def test_events_and_database_go_together_again(
    start_server: StartServer, postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    upgrade_databases(postgres_url)
    environment = {"HOGLAB_DATABASE_URL": postgres_url, **LOCAL}
    server = start_server(data=tmp_path / "data", **environment)
    data, backups = str(server.data), str(tmp_path / "backups")
    nobody = f"http://127.0.0.1:{free_port()}/"  # so that the run waits
    function = {**FORWARD, "inputs": {"url": {"value": nobody}}}
    Api(server.url, server.api_key).create_hog_function(function)
    early = send(server, "bought", "viewed")
    wait_for(lambda: stored(server) == early)
    dump(postgres_url, tmp_path / "early.dump")

    late = send(server, "viewed", "viewed")
    wait_for(lambda: stored(server) == early | late)
    backup = hoglab(postgres_url, "backup", "--to", backups, "--data", data)
    assert backup.returncode == 0, backup.stderr
    assert "now copy the database" in backup.stdout
    after = send(server, "viewed")
    wait_for(lambda: after <= stored(server))
    dump(postgres_url, tmp_path / "late.dump")
    looked = hoglab(postgres_url, "check", "--full", "--data", data)
    assert looked.returncode == 0, looked.stdout
    assert "events.duckdb: 5 events" in looked.stdout
    server.stop()

    new = str(tmp_path / "new")
    before = hoglab(restored_database(postgres, tmp_path / "early.dump"), "restore", backups, "--data", new)
    assert before.returncode == 1
    assert "was made before the backup" in before.stderr
    url = restored_database(postgres, tmp_path / "late.dump")
    foreign = hoglab("", "restore", backups, "--data", new)
    assert "name the restored PostgreSQL database" in foreign.stderr
    done = hoglab(url, "restore", backups, "--data", new)
    assert done.returncode == 0, done.stderr
    assert "generation 2" in done.stdout
    assert "held: 1 runs" in done.stdout
    twice = hoglab(url, "restore", backups, "--data", str(tmp_path / "twice"))
    assert "is of generation 2, the backup" in twice.stderr
    with Destination(int(nobody.rpartition(":")[2].strip("/"))) as destination:
        again = start_server(data=Path(new), **{**environment, "HOGLAB_DATABASE_URL": url})
        again.api_key, again.project_token = server.api_key, server.project_token
        wait_for(lambda: stored(again) == early | late | after)
        health = httpx.get(f"{again.url}/_health", timeout=PATIENCE_S).json()
        assert any("1 runs from before the restore are held" in each for each in health["problems"])
        assert destination.bodies == {}
    again.stop()
    sound = hoglab(url, "check", "--data", new)
    assert sound.returncode == 0, sound.stdout


def test_a_backup_of_files_is_not_restored_beside_a_database(
    start_server: StartServer, postgres_url: str, tmp_path: Path
) -> None:
    upgrade_databases(postgres_url)
    server = start_server()
    server.stop()
    backups = str(tmp_path / "backups")
    assert hoglab("", "backup", "--to", backups, "--data", str(server.data)).returncode == 0
    refused = hoglab(postgres_url, "restore", backups, "--data", str(tmp_path / "new"))
    assert refused.returncode == 1
    assert "has hoglab.db and queue.db" in refused.stderr
