"""What README.md tells people to type, word for word."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.faults.destination import Destination

from hoglab.demo.server import ChildServer
from hoglab.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(name: str) -> str:
    """The commands of one of the blocks that are marked with a name."""
    (found,) = re.findall(
        rf"<!-- {name}: begin -->\n```sh\n(.*?)```\n<!-- {name}: end -->", README, flags=re.DOTALL
    )
    return str(found)


def tour() -> str:
    """The tour's commands."""
    return block("tour")


def tour_taken(
    url: str, environment: dict[str, str], *, pause_s: int = 5
) -> subprocess.CompletedProcess[str]:
    """The tour on a server; ``pause_s``: how long it waits for what it sent to be ingested."""
    commands = tour()
    for there, here in (("http://127.0.0.1:8000", url), ("sleep 5", f"sleep {pause_s}")):
        assert there in commands
        commands = commands.replace(there, here)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def run_block(name: str, server: ChildServer, words: str = "", instead: str = "") -> dict[str, Any]:
    """The answer to a block's one command; ``words`` are the reader's own, such as an address."""
    command = block(name).replace("http://127.0.0.1:8000", server.url)
    assert words in command
    command = command.replace(words, instead) if words else command
    assert command.count("curl") == 1
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={**os.environ, "KEY": server.api_key},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.files
def test_the_tour(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    done = tour_taken(server.url, {**os.environ, "HOGLAB_DATA": str(server.data)})
    experiment, function, events, results, logs = (line for line in done.stdout.splitlines() if line.strip())
    assert '"feature_flag_key":"button-colour"' in experiment
    assert '"status":"running"' in experiment
    assert '"bytecode":["_H",1,' in function
    assert '"event":"signed up"' in events
    assert '"plan":"pro"' in events
    assert '"number_of_samples"' in results
    assert '"credible_interval":[' in results
    assert '"message":"user-' in logs
    assert "error" not in done.stderr.lower()


def test_a_webhook_with_one_request(start_server: StartServer) -> None:
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    with Destination() as destination:
        made = run_block("webhook", server, "https://hooks.example.com/in", destination.url)
        assert (made["enabled"], made["template_id"]) == (True, "template-webhook")
        event = {"event": "signed up", "distinct_id": "ada", "properties": {"$set": {"name": "Ada"}}}
        sent = httpx.post(f"{server.url}/i/v0/e/", json={"api_key": server.project_token, **event})
        assert sent.status_code == 200
        deadline = time.monotonic() + 30
        while not destination.bodies:
            assert time.monotonic() < deadline, "nothing was delivered"
            time.sleep(0.05)


def test_slack_with_one_request(start_server: StartServer) -> None:
    """Created as it stands; what it sends is looked at, not sent."""
    server = start_server()
    made = run_block("slack", server)
    assert (made["enabled"], made["inputs"]["bot_token"]) == (True, {"secret": True})
    event = {"event": "signed up", "distinct_id": "ada", "properties": {}}
    body = {
        "configuration": {},
        "globals": {"event": event, "person": {"id": "1", "name": "Ada", "properties": {}}},
    }
    tried = httpx.post(
        f"{server.url}/api/projects/1/hog_functions/{made['id']}/invocations/",
        json=body,
        headers={"Authorization": f"Bearer {server.api_key}"},
    ).json()
    assert (tried["status"], tried["errors"]) == ("success", [])
    request = tried["logs"][1]["message"]
    assert request.startswith("fetch('https://slack.com/api/chat.postMessage'")
    assert "Ada signed up" in request


def test_every_setting_is_in_the_table() -> None:
    documented = set(re.findall(r"HOGLAB_[A-Z_]+", README))
    assert documented == {f"HOGLAB_{name.upper()}" for name in Settings.model_fields}


def test_links_lead_somewhere() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set()
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named |= set(re.findall(r"`?\bmake ([a-z-]+)\b`?", document.read_text()))
    assert {"run", "test"} <= named <= targets
