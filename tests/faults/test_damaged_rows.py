"""An unreadable row in the metadata: events wait until it is mended, and readiness says so."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import waiting
from tests.conftest import StartServer

from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer

FUNCTION = {
    "name": "Hold",
    "type": "destination",
    "enabled": True,
    "hog": "print(event.uuid)",
    "filters": {"events": [{"id": "bought", "type": "events"}]},
}


def change(data: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(data / "hoglab.db")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def readiness(server: ChildServer) -> Any:
    answer = httpx.get(f"{server.url}/_readiness")
    assert answer.status_code == 200  # events are still accepted
    return answer.json().get("degraded", [])


wait_for = partial(waiting.wait_for, every_s=0.1)


def hoglab(*arguments: str, data: Path) -> str:
    command = [sys.executable, "-m", "hoglab", *arguments, "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.faults
@pytest.mark.parametrize("damaged", ['{"events": [{"id', b'{"events": "\xff\xfe"}'], ids=["json", "text"])
def test_events_wait_until_the_row_is_mended(
    start_server: StartServer, tmp_path: Path, damaged: str | bytes
) -> None:
    data = tmp_path / "data"
    server = start_server(data=data)
    made = Api(server.url, server.api_key).create_hog_function(FUNCTION)
    server.stop()
    (sound,) = sqlite3.connect(data / "hoglab.db").execute("SELECT filters FROM hog_function").fetchone()
    change(data, "UPDATE hog_function SET filters = CAST(? AS TEXT)", damaged)
    server.start()
    batch = [{"event": "bought", "distinct_id": "ann"} for _ in range(3)]
    with httpx.Client(base_url=server.url) as client:
        for _ in range(5):
            body = {"api_key": server.project_token, "batch": batch}
            assert client.post("/batch/", json=body).status_code == 200
    wait_for(lambda: any("ingestion: stands still" in each for each in readiness(server)))
    (told,) = [each for each in readiness(server) if each.startswith("ingestion:")]
    assert "hoglab check" in told
    assert json.loads(hoglab("ingestion", "quarantine", "list", "--json", data=data)) == []

    change(data, "UPDATE hog_function SET filters = ?", sound)
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with httpx.Client(base_url=f"{server.url}/api/projects/1", headers=headers) as client:
        wait_for(lambda: len(client.get("/events/").json()["results"]) == 15)
        runs = f"/hog_functions/{made['id']}/logs/"
        wait_for(lambda: client.get(runs, params={"limit": 500}).json()["results"])
    wait_for(lambda: readiness(server) == [])
