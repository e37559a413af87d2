"""Kill -9 between any two steps of ingestion: what comes of the log is what comes of it in one go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.databases import ENGINES
from tests.faults import ingesting

from hoglab.storage.engines import upgrade_databases

ROOT = Path(__file__).parents[2]
KILLS = [
    ("persons", 1),
    ("persons", 1),
    ("events", 1),
    ("events", 2),
    ("invocations", 1),
    ("invocations", 2),
    ("position", 1),
    ("position", 2),
    ("trimmed", 1),
    ("trimmed", 2),
]
"""After which step, of which batch since the start: the one that the process before was at, or the next."""


def outcome(folder: Path, address: str, kills: list[tuple[str, int]]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", ingesting.__name__, str(folder), address, json.dumps(kills)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes of the log in a directory where nothing happens."""
    return outcome(tmp_path_factory.mktemp("in_one_go"), "", [])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_kill_between_any_two_steps_changes_nothing(
    engine: str, in_one_go: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = ""
    if engine == "postgresql":
        address = request.getfixturevalue("postgres_url")
        upgrade_databases(address)
    found = outcome(tmp_path, address, KILLS)
    assert found["waiting"] == 0
    for name in ("persons", "invocations", "masked"):
        assert found[name] == in_one_go[name], name
    assert [event[:-1] for event in found["events"]] == [event[:-1] for event in in_one_go["events"]]
    # Persons are written before events: those of a batch that is done again have the properties of after it.
    states = {(person, state) for _, _, _, person, _, state in in_one_go["events"]}
    assert {(person, state) for _, _, _, person, _, state in found["events"]} <= states
    assert len(found["events"]) == 5 * ingesting.USERS
    assert len({uuid for _, uuid, _, _ in found["persons"]}) == ingesting.USERS
