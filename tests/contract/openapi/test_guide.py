"""The guides: every command runs as it stands, and every answer is part of what the server says."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import StartServer

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = re.compile(r"```sh\n(?P<command>.*?)```\n\n```json\n(?P<answer>.*?)```", re.DOTALL)
EVENTUAL = ("/query/", "/health/", "/metrics/")
"""Answers that events must first arrive for."""
PATIENCE_S = 30.0


@pytest.fixture
def receiver() -> Iterator[str]:
    """The address of a destination that takes whatever is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/in"
        server.shutdown()


@pytest.mark.parametrize("guide", ["api/experiments.md", "functions.md"])
def test_guide(start_server: StartServer, receiver: str, guide: str) -> None:
    text = (DOCS / guide).read_text()
    examples = list(EXAMPLE.finditer(text))
    assert len(examples) == text.count("```sh\n") == text.count("```json\n")
    assert len(examples) > 10
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8")
    environment = {
        "HOGLAB": server.url,
        "KEY": server.api_key,
        "TOKEN": server.project_token,
        "RECEIVER": receiver,
    }
    for example in examples:
        command, wanted = example["command"], json.loads(example["answer"])
        deadline = time.monotonic() + (PATIENCE_S if any(path in command for path in EVENTUAL) else 0)
        while differences := list(missing(wanted, answer := run(command, environment))):
            assert time.monotonic() < deadline, (command, differences)
        if isinstance(answer, dict) and isinstance(made := answer.get("id"), str):
            environment["ID"] = made  # as the guide asks its reader to


def test_the_readme_shows_a_command_of_the_guide() -> None:
    first = EXAMPLE.search((DOCS / "functions.md").read_text())
    assert first is not None
    assert f"```sh\n{first['command']}```" in (DOCS.parent / "README.md").read_text()


def run(command: str, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, (command, done.stderr)
    return json.loads(done.stdout)


def missing(wanted: Any, found: Any, place: str = "answer") -> list[str]:
    """Where an answer does not hold what the guide shows of it."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for name, each in wanted.items()
            for line in (
                missing(each, found[name], f"{place}.{name}") if name in found else [f"no {place}.{name}"]
            )
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            line
            for at, (one, other) in enumerate(zip(wanted, found, strict=True))
            for line in missing(one, other, f"{place}[{at}]")
        ]
    return [] if wanted == found else [f"{place} is {found!r}, not {wanted!r}"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [({"a": 1}, {"a": 2}), ({"a": 1}, {}), ([1], [1, 2]), ({"a": [{"b": 1}]}, {"a": [{}]})],
)
def test_differences_are_seen(wanted: Any, found: Any) -> None:
    assert missing(wanted, found)
