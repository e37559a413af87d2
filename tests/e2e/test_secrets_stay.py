"""Secrets of functions, and keys, are told nowhere: in no answer, file, export, list of processes or crash output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import waiting
from tests.conftest import StartServer
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

from hoglab.demo.server import ChildServer

pytestmark = pytest.mark.slow

SECRET = "zq7Xwhsec93Quartz0042"
PROGRAM = """
print('calls with', inputs.token)
let answer := fetch(inputs.url, {'method': 'POST', 'headers': {'X-Token': inputs.token}, 'body': {'uuid': event.uuid}})
if (event.event == 'fails') { throw Error(f'refused {inputs.token}') }
"""
SCHEMA = [
    {"key": "url", "type": "string"},
    {"key": "token", "type": "string", "secret": True},
]
MAX_WAIT_S = 60.0


@pytest.fixture
def destination() -> Iterator[Destination]:
    with Destination() as destination:
        yield destination


@pytest.fixture
def server(start_server: StartServer) -> ChildServer:
    return start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.1/32")


def children(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return sorted({each for child in found for each in (child, *children(child))})


wait_for = partial(waiting.wait_for, timeout_s=MAX_WAIT_S, every_s=0.05)


@pytest.mark.files
def test_secrets_stay_where_they_belong(
    server: ChildServer, destination: Destination, tmp_path: Path
) -> None:
    client = httpx.Client(
        base_url=f"{server.url}/api/projects/1/",
        headers={"Authorization": f"Bearer {server.api_key}"},
        timeout=PATIENCE_S,
    )
    told: list[str] = []

    def api(method: str, path: str, body: Any = None) -> Any:
        answer = client.request(method, path, json=body)
        told.append(answer.text)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    function = api(
        "POST",
        "hog_functions/",
        {
            "type": "destination",
            "name": "tells",
            "enabled": True,
            "hog": PROGRAM,
            "inputs_schema": SCHEMA,
            "inputs": {"url": {"value": destination.url}, "token": {"value": SECRET}},
            "filters": {"events": [{"id": each, "type": "events"} for each in ("works", "fails", "hangs")]},
        },
    )
    one = f"hog_functions/{function['id']}/"
    batch = [{"event": each, "distinct_id": "u", "properties": {}} for each in ("works", "fails")]
    httpx.post(
        f"{server.url}/batch/", json={"api_key": server.project_token, "batch": batch}
    ).raise_for_status()
    wait_for(lambda: len(destination.bodies) >= 2)
    api("PATCH", one, {"name": "tells more"})
    sample = api("POST", f"{one}sample_globals/", {})["globals"]
    test = {"configuration": function, "globals": sample, "mock_async_functions": False}
    api("POST", f"{one}invocations/", test)
    api("POST", f"{one}backfill/", {"from": "2026-01-01T00:00:00Z"})
    wait_for(lambda: api("GET", f"{one}backfills/")["results"][0]["status"] == "completed")
    wait_for(lambda: "refused" in json.dumps(api("GET", f"{one}logs/")))
    api("POST", f"{one}rerun/", {"filter": {}})
    for path in ("", "logs/", "metrics/", "runs/", "revisions/", "backfills/", "reruns/"):
        api("GET", one + path)
    for path in ("hog_functions/", "hog_functions/dead_letters/", "activity_log/", "events/"):
        api("GET", path)

    # A list of processes, and what processes that run programs of others are told by their environment.
    assert server._process is not None
    pid = server._process.pid
    keys = (SECRET, server.api_key)
    family = children(pid)
    assert family
    told += [Path(f"/proc/{each}/cmdline").read_text() for each in (pid, *family)]
    for each in family:
        environment = Path(f"/proc/{each}/environ").read_text()
        assert not any(key in environment for key in keys), f"process {each} is told a key"

    # Exports and a backup: the secret is in neither but encrypted.
    hoglab = [sys.executable, "-m", "hoglab"]
    reading = ["--host", server.url, "--key", server.api_key]
    data = ["--data", str(server.data)]
    for arguments in (
        ["functions", "list", *reading, "--json"],
        ["functions", "logs", function["id"], *reading],
        ["export", "events", "--to", str(tmp_path / "events.jsonl"), *data],
        ["backup", "--to", str(tmp_path / "backup.tar"), *data],
        ["check", "--full", *data],
    ):
        done = subprocess.run([*hoglab, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout + done.stderr)

    # Crashes: of the processes that run programs, and of the server itself.
    for child in children(pid):
        with contextlib.suppress(ProcessLookupError):  # one whose program hung is replaced
            os.kill(child, signal.SIGABRT)
    httpx.post(
        f"{server.url}/batch/", json={"api_key": server.project_token, "batch": batch}
    ).raise_for_status()
    wait_for(lambda: len(destination.bodies) >= 4)
    server.kill(signal.SIGABRT)
    told.append(server.output().replace(server.api_key, "", 2))  # the first start shows it, and how to use it

    lines = [line for text in told for line in text.splitlines()]
    assert not [line for line in lines if any(key in line for key in keys)]
    files = [path for path in (*server.data.rglob("*"), *tmp_path.rglob("*")) if path.is_file()]
    assert not [path.name for path in files if SECRET.encode() in path.read_bytes()]
    assert destination.tokens == {SECRET}  # where it did belong
