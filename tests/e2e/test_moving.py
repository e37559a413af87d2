"""A server's data go to PostgreSQL and come back: whoever uses it notices nothing but the pause."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from tests.conftest import StartServer
from tests.waiting import PATIENCE_S, wait_for

KEY = "phx_" + "k" * 43
TOKEN = "phc_testtokentesttoken"
ACCOUNT = {"HOGLAB_BOOTSTRAP_API_KEY": KEY, "HOGLAB_BOOTSTRAP_PROJECT_TOKEN": TOKEN}


def migrate_to(target: str, data: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hoglab", "migrate-to", target, "--data", str(data), *more]
    environment = {**os.environ, "HOGLAB_DATABASE_URL": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_there_and_back(start_server: StartServer, postgres_url: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    known: list[str] = []

    def serve(**environment: str) -> None:
        """Start a server, see that everything of before is there, and add to it."""
        server = start_server(data=data, **ACCOUNT, **environment)
        api = httpx.Client(
            base_url=f"{server.url}/api/projects/1",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=PATIENCE_S,
        )

        def listed(path: str, name: str) -> list[Any]:
            return sorted(each[name] for each in api.get(path).raise_for_status().json()["results"])

        def events() -> list[Any]:
            return listed("/events/", "event")

        wait_for(lambda: events() == known)
        assert listed("/feature_flags/", "key") == known
        flag = {"key": f"new-{len(known)}", "filters": {"groups": [{"rollout_percentage": 100}]}}
        assert api.post("/feature_flags/", json=flag).status_code == 201
        known.append(flag["key"])
        event = {
            "api_key": TOKEN,
            "event": flag["key"],
            "distinct_id": "ada",
            "properties": {"$set": {"n": len(known)}},
        }
        assert httpx.post(f"{server.url}/capture/", json=event, timeout=PATIENCE_S).status_code == 200
        wait_for(lambda: events() == known)
        [person] = api.get("/persons/").json()["results"]
        assert person["properties"]["n"] == len(known)
        if environment:
            estimated = migrate_to("directory", data, "--database-url", postgres_url, "--dry-run")
            lines = {line.split()[0]: line.split()[1] for line in estimated.stdout.splitlines()}
            assert lines["table"] == "rows"
            assert (lines["feature_flag"], lines["person"]) == ("2", "1")
        in_use = migrate_to(postgres_url, data)
        assert in_use.returncode == 1
        assert "is in use" in in_use.stderr
        server.stop()

    serve()
    there = migrate_to(postgres_url, data)
    assert there.returncode == 0, there.stderr
    assert "equal on both sides" in there.stdout
    old = subprocess.run(
        [sys.executable, "-m", "hoglab", "serve", "--data", str(data), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert old.returncode == 1
    assert "was moved to the PostgreSQL database" in old.stderr
    serve(HOGLAB_DATABASE_URL=postgres_url)
    back = migrate_to("directory", data, "--database-url", postgres_url)
    assert back.returncode == 0, back.stderr
    assert [each.name for each in data.rglob("*") if each.stat().st_mode & 0o077] == []
    assert back.stderr.count("compared: ") == 1  # what nobody looks at live is told once
    serve()
    again = migrate_to(postgres_url, data)
    assert again.returncode == 1
    assert "already: name an empty database" in again.stderr
