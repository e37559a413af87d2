"""The guides of docs/: every command runs as it stands, and every answer is part of what the server says.

``HOOK`` is the address of a destination that takes what functions send; ``ID`` is the function made last.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import StartServer
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = (DOCS / "api" / "experiments.md", DOCS / "functions.md", DOCS / "delivery.md")
EXAMPLE = re.compile(r"```sh\n(?P<command>.*?)```\n\n```json\n(?P<answer>.*?)```", re.DOTALL)
EVENTUAL = ("/query/", "/health/", "/events/", "/logs/", "/metrics/", "/dead_letters/?", "/backfills/")
"""Answers that events must first arrive for."""


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guide(start_server: StartServer, guide: Path, tmp_path: Path) -> None:
    text = guide.read_text()
    examples = list(EXAMPLE.finditer(text))
    assert len(examples) == text.count("```sh\n") == text.count("```json\n")
    assert len(examples) > 10
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    server = start_server(HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.0/8", HOGLAB_WAREHOUSE=str(warehouse))
    with Destination() as destination:
        environment = {
            "HOGLAB": server.url,
            "KEY": server.api_key,
            "TOKEN": server.project_token,
            "HOOK": destination.url,
            "WAREHOUSE": str(warehouse),
        }
        for example in examples:
            command, wanted = example["command"], json.loads(example["answer"])
            deadline = time.monotonic() + (PATIENCE_S if any(path in command for path in EVENTUAL) else 0)
            while differences := list(missing(wanted, found := run(command, environment))):
                assert time.monotonic() < deadline, (command, differences)
            if isinstance(found, dict) and "hog" in found:
                environment["ID"] = found["id"]
        assert all(len(keys) == 1 for keys in destination.bodies.values())
        assert len(destination.bodies) == (1 if "HOOK" in text else 0)


def run(command: str, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
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
