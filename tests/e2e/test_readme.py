"""What README.md tells people to type, word for word."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S
from typer.testing import CliRunner

from hoglab.cli import app
from hoglab.demo.server import ChildServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(path for path in (ROOT / "docs").rglob("*.md")),
)
MADE = {"tests/node/node_modules", "tests/jars"}
"""Folders that make targets fill."""


def block(name: str, language: str = "sh") -> str:
    """The commands of one of the blocks that are marked with a name."""
    (commands,) = re.findall(
        rf"<!-- {name}: begin -->\n```{language}\n(.*?)```\n<!-- {name}: end -->", README, flags=re.DOTALL
    )
    return str(commands)


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
        timeout=PATIENCE_S,
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
        deadline = time.monotonic() + PATIENCE_S
        while not destination.bodies:
            assert time.monotonic() < deadline, "nothing was delivered"
            time.sleep(0.05)


def test_the_lines_for_an_sdk(start_server: StartServer) -> None:
    server = start_server()
    program = block("sdk", "python")
    for there, here in (("phc_…", server.project_token), ("http://127.0.0.1:8000", server.url)):
        assert there in program
        program = program.replace(there, here)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
    stored = f"{server.url}/api/projects/1/events/?event=signed+up"
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := httpx.get(stored, headers={"Authorization": f"Bearer {server.api_key}"}).json())[
        "results"
    ]:
        assert time.monotonic() < deadline, "the event is not stored"
        time.sleep(0.05)
    assert answer["results"][0]["distinct_id"] == "ada"


def test_every_block_is_run_here_or_calls_what_exists() -> None:
    """Blocks with a name are run above; a line of any other calls a target of make, or a command with its options."""
    named = re.findall(r"<!-- ([a-z]+): begin -->\n```", README)
    assert sorted(named) == ["sdk", "tour", "webhook"]
    rest = re.sub(r"<!-- ([a-z]+): begin -->.*?<!-- \1: end -->", "", README, flags=re.DOTALL)
    lines = [
        line for text in re.findall(r"```\w*\n(.*?)```", rest, flags=re.DOTALL) for line in text.splitlines()
    ]
    targets = make_targets()
    for line in lines:
        program, *words = line.split("#")[0].split()
        assert program in ("make", ".venv/bin/hoglab"), line
        if program == "make":
            assert set(words[:1]) == set(words) & targets, line
        else:
            assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, line
    assert len(lines) == README.count("\nmake ") + README.count("\n.venv/bin/hoglab ")


def test_paths_of_the_server_that_are_named_are_answered(start_server: StartServer) -> None:
    server = start_server()
    paths = set(re.findall(r"`(/[\w/]*)`", README))
    assert {"/api/docs/", "/api/docs/try/", "/ui/login", "/metrics"} <= paths
    for path in paths:
        assert httpx.get(server.url + path).status_code == 200, path


def test_links_lead_to_files_and_headings_that_exist() -> None:
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not target.startswith(("http", "{")):
                name, _, heading = target.partition("#")
                page = document.parent / name if name else document
                assert page.exists(), f"{document.name}: {target}"
                assert not heading or heading in headings(page), f"{document.name}: {target}"


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_files_that_are_named_exist() -> None:
    """In README and CONTRIBUTING, a name between backquotes with a slash is a path of the repository."""
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for name in re.findall(r"`((?:src|docs|tests|benchmarks|ui)/[\w./-]+)`", document.read_text()):
            assert (ROOT / name).exists() or name in MADE, f"{document.name}: {name}"


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_make_targets_exist() -> None:
    named = set()
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named |= set(re.findall(r"`?\bmake ([a-z-]+)\b`?", document.read_text()))
    assert {"run", "test"} <= named <= make_targets()
